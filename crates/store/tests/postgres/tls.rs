//! TLS to a real server: what each `sslmode` does, and what is said where it cannot be done.

use std::process::Command;

use milepost_store::StoreError;
use milepost_store::postgres::{PostgresStore, replay};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::{client, fresh, server, unusable};

/// The certificate of the authority that signed the server's.
fn authority() -> String {
    std::env::var("MILEPOST_TEST_POSTGRES_CA").expect(
        "MILEPOST_TEST_POSTGRES_CA is not set; these tests need a Postgres server with TLS: run them with \
         `scripts/with-postgres cargo test -p milepost-store`",
    )
}

/// Another one, which signed nothing.
fn another_authority(folder: &TempDir) -> String {
    let config =
        "[req]\ndistinguished_name = dn\nx509_extensions = ca\n[dn]\n[ca]\nbasicConstraints = critical, CA:true\n";
    std::fs::write(folder.path().join("cnf"), config).unwrap();
    let made = Command::new("openssl")
        .current_dir(folder.path())
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(' '))
        .args("-config cnf -subj /CN=Another -keyout key -out ca.pem".split(' '))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    folder.path().join("ca.pem").to_str().unwrap().to_owned()
}

/// The same server under a name that its certificate does not have.
fn renamed(url: &str) -> String {
    let renamed = url.replacen("@127.0.0.1:", "@elsewhere.example:", 1);
    assert_ne!(renamed, url);
    format!("{renamed}&hostaddr=127.0.0.1")
}

async fn encrypted(url: &str) -> Result<bool, StoreError> {
    let store = PostgresStore::connect(url).await?;
    // Makes the pool's first connection, so that both ways to connect are looked at.
    store.schema_version().await?;
    let name = url.split("application_name=").nth(1).unwrap().split('&').next().unwrap();
    let sql = "SELECT count(*), count(*) FILTER (WHERE ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
               WHERE application_name = $1";
    let row = client(&server()).await.query_one(sql, &[&name]).await.unwrap();
    let (all, with_tls): (i64, i64) = (row.get(0), row.get(1));
    assert!(all > 0 && (with_tls == 0 || with_tls == all), "{with_tls} of {all}");
    Ok(with_tls > 0)
}

async fn refusal(url: &str) -> String {
    let text = unusable(PostgresStore::connect(url).await);
    assert!(!text.contains("postgres://"), "{text}");
    text
}

#[tokio::test]
async fn connections_are_encrypted_unless_disabled() {
    let url = fresh().await;
    assert!(encrypted(&url).await.unwrap());
    assert!(encrypted(&format!("{url}&sslmode=prefer")).await.unwrap());
    assert!(encrypted(&format!("{url}&sslmode=require")).await.unwrap());
    assert!(!encrypted(&format!("{url}&sslmode=disable")).await.unwrap());
    assert!(encrypted(&renamed(&format!("{url}&sslmode=require"))).await.unwrap());
}

#[tokio::test]
async fn verify_full_wants_the_chain_and_the_host_name() {
    let url = format!("{}&sslmode=verify-full&sslrootcert={}", fresh().await, authority());
    assert!(encrypted(&url).await.unwrap());
    let text = refusal(&renamed(&url)).await;
    assert!(text.contains("other host names than `elsewhere.example` (localhost, 127.0.0.1)"), "{text}");
    assert!(text.contains("sslmode=verify-ca"), "{text}");
    assert!(encrypted(&url.replace("127.0.0.1", "localhost")).await.unwrap());
}

#[tokio::test]
async fn verify_ca_wants_the_chain_alone() {
    let url = format!("{}&sslmode=verify-ca&sslrootcert={}", fresh().await, authority());
    assert!(encrypted(&url).await.unwrap());
    assert!(encrypted(&renamed(&url)).await.unwrap());
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let folder = TempDir::new().unwrap();
    let other = another_authority(&folder);
    let url = fresh().await;
    // With a root, `require` looks at the chain too.
    for mode in ["require", "verify-ca", "verify-full"] {
        let text = refusal(&format!("{url}&sslmode={mode}&sslrootcert={other}")).await;
        assert!(text.contains("not trusted") && text.contains(&other) && text.contains("sslrootcert"), "{text}");
    }
    // As in libpq: who only prefers TLS goes without where it fails.
    assert!(!encrypted(&format!("{url}&sslrootcert={other}")).await.unwrap());
    assert!(encrypted(&format!("{url}&sslrootcert={}", authority())).await.unwrap());
}

/// The system's roots are read from the environment, so this test runs itself once more in another one.
#[tokio::test]
async fn without_a_file_the_systems_roots_decide() {
    let url = fresh().await;
    if std::env::var_os("MILEPOST_TEST_TRUSTED").is_some() {
        assert!(encrypted(&format!("{url}&sslmode=verify-full")).await.unwrap());
        assert!(encrypted(&format!("{url}&sslrootcert=system")).await.unwrap());
        assert!(encrypted(&renamed(&format!("{url}&sslmode=verify-ca"))).await.unwrap());
        let text = refusal(&renamed(&format!("{url}&sslmode=verify-full"))).await;
        assert!(text.contains("other host names"), "{text}");
        return;
    }
    for mode in ["verify-ca", "verify-full"] {
        let text = refusal(&format!("{url}&sslmode={mode}")).await;
        assert!(text.contains("sslrootcert=/path/to/ca.pem"), "{text}");
    }
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls::without_a_file_the_systems_roots_decide"])
        .env("MILEPOST_TEST_TRUSTED", "1")
        .env("SSL_CERT_FILE", authority())
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn keywords_say_it_as_well_as_a_url() {
    let port = server().rsplit_once(':').unwrap().1.split('/').next().unwrap().to_owned();
    let url = fresh().await;
    let schema = url.rsplit_once('=').unwrap().1.to_owned();
    let keywords = format!(
        "host=127.0.0.1 port={port} user=milepost dbname=milepost_test options='-c search_path={schema}' sslmode={{}} \
         sslrootcert='{}' application_name={schema}",
        authority()
    );
    assert!(encrypted(&keywords.replace("{}", "verify-full")).await.unwrap());
    assert!(!encrypted(&keywords.replace("{}", "disable")).await.unwrap());
}

#[tokio::test]
async fn there_is_no_tls_through_a_socket() {
    let ca = authority();
    let (folder, _) = ca.rsplit_once('/').unwrap();
    let url = fresh().await;
    let (address, settings) = url.split_once("/milepost_test?").unwrap();
    let port = address.rsplit_once(':').unwrap().1;
    let socket =
        format!("postgres:///milepost_test?host={folder}&port={port}&user=milepost&{settings}&sslmode=require");
    assert!(!encrypted(&socket).await.unwrap());
}

#[tokio::test]
async fn an_address_alone_is_a_host() {
    let url = format!("{}&sslmode=verify-full&sslrootcert={}", fresh().await, authority());
    let (host, settings) = url.split_once("/milepost_test?").unwrap();
    let port = host.rsplit_once(':').unwrap().1;
    let address = format!("postgres:///milepost_test?hostaddr=127.0.0.1&port={port}&user=milepost&{settings}");
    assert!(encrypted(&address).await.unwrap());
}

#[tokio::test]
async fn a_recording_is_replayed_with_tls() {
    let url = format!("{}?sslmode=verify-full&sslrootcert={}", server(), authority());
    assert!(replay(&url, &[]).await.is_ok());
}

/// A server that answers the question for TLS as told, once, and is the real one afterwards.
async fn stand_in(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let real = server().rsplit_once('@').unwrap().1.split('/').next().unwrap().to_owned();
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        first.read_exact(&mut [0; 8]).await.unwrap();
        first.write_all(answer).await.unwrap();
        drop(first);
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut to = TcpStream::connect(&real).await.unwrap();
            tokio::spawn(async move { drop(copy_bidirectional(&mut stream, &mut to).await) });
        }
    });
    port
}

fn through(url: &str, port: u16) -> String {
    let (_, address) = url.split_once('@').unwrap();
    format!("postgres://milepost:hunter2@127.0.0.1:{port}/{}", address.split_once('/').unwrap().1)
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let url = fresh().await;
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = through(&format!("{url}&sslmode={mode}&sslrootcert={}", authority()), stand_in(b"N").await);
        let text = refusal(&url).await;
        assert!(text.contains("does not offer TLS") && text.contains(&format!("sslmode={mode}")), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn where_tls_fails_prefer_goes_without_and_require_does_not() {
    let url = fresh().await;
    let preferred = through(&url, stand_in(b"S").await);
    PostgresStore::connect(&preferred).await.unwrap();
    let text = refusal(&through(&format!("{url}&sslmode=require"), stand_in(b"S").await)).await;
    assert!(text.contains("no way to speak TLS"), "{text}");
}

#[tokio::test]
async fn no_piece_of_a_password_is_shown() {
    for url in [
        "postgres://u:a@hunter2@127.0.0.1:1/d",
        "postgres://u:hunter2@127.0.0.1:1/d?sslmode=hunter2",
        "postgres://u:hunter2@127.0.0.1:1/d?sslmode=require",
        "postgre://u:hunter2@127.0.0.1:1/d?sslmode=require",
        "host=127.0.0.1 port=1 password=hunter2 sslmode=require",
    ] {
        let text = unusable(PostgresStore::connect(url).await);
        assert!(!text.contains("hunter2"), "{text}");
    }
}
