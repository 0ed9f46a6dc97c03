//! A Postgres store in a schema of its own.

use milepost_store::postgres::PostgresStore;

/// Each test has a schema to itself on the server that `MILEPOST_TEST_POSTGRES` names.
pub(crate) async fn postgres() -> PostgresStore {
    let server = std::env::var("MILEPOST_TEST_POSTGRES").expect(
        "MILEPOST_TEST_POSTGRES is not set; these tests need a Postgres server: run them with `scripts/with-postgres \
         cargo test -p milepost-store-tests`",
    );
    let schema = format!("t_{}", uuid::Uuid::now_v7().simple());
    let (client, connection) =
        tokio_postgres::connect(&server, tokio_postgres::NoTls).await.expect("the server answers");
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.expect("a schema of its own");
    let url = format!("{server}?options=-c%20search_path%3D{schema}&application_name={schema}");
    PostgresStore::connect(&url).await.expect("a fresh database of ours")
}
