//! From a URL to connections that are set up for this work.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use super::error::describe;
use crate::{Result, StoreError};

/// The oldest Postgres that this is tested with.
const OLDEST_SERVER: i32 = 15;

/// Set on every connection.
///
/// Every statement here is a handful of index look-ups, planned once. Plans are made when tables may be empty and never
/// looked at again, so what is cheap on an empty table (reading all of it, hashing or sorting all that is found) must not
/// be on offer.
/// The two timeouts free what a node that hangs in mid-transaction holds.
const SETTINGS: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off \
     -c enable_hashjoin=off -c enable_mergejoin=off -c max_parallel_workers_per_gather=0 -c jit=off \
     -c client_min_messages=warning -c lock_timeout=30s -c idle_in_transaction_session_timeout=20s -c synchronous_commit=on";

pub(super) fn parse(url: &str) -> Result<Config> {
    let no_tls = || {
        StoreError::Unusable(
            "connections to Postgres with TLS are not supported yet: reach it over loopback, a private network or a \
             tunnel, and leave `sslmode` out of the URL or set it to `disable`"
                .to_owned(),
        )
    };
    if url.contains("sslmode=verify") {
        return Err(no_tls());
    }
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        StoreError::Unusable(format!(
            "this is no Postgres URL: {}; it looks like postgres://user:password@host:5432/database",
            describe(&error)
        ))
    })?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(no_tls());
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(30));
    }
    if config.get_application_name().is_none() {
        config.application_name("milepost");
    }
    // What the URL says comes last and wins.
    let options = match config.get_options() {
        Some(theirs) => format!("{SETTINGS} {theirs}"),
        None => SETTINGS.to_owned(),
    };
    config.options(options);
    Ok(config)
}

pub(super) fn pool(config: &Config, size: usize) -> Result<Pool> {
    let manager =
        Manager::from_config(config.clone(), NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(Duration::from_secs(30)))
        .create_timeout(Some(Duration::from_secs(10)))
        .build()
        .map_err(|error| StoreError::Unusable(format!("no pool of connections to Postgres: {error}")))
}

/// One connection outside the pool, whose failure is told in words that help.
pub(super) async fn single(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await.map_err(|error| explain(config, &error))?;
    // It ends by itself when the client is dropped.
    tokio::spawn(connection);
    Ok(client)
}

fn explain(config: &Config, error: &tokio_postgres::Error) -> StoreError {
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    let text = describe(error);
    let server = server(config);
    match error.code() {
        Some(state) if *state == SqlState::INVALID_CATALOG_NAME => StoreError::Unusable(format!(
            "the Postgres server at {server} has no database `{database}`; make it: createdb{} {database}",
            flags(config)
        )),
        Some(state) if state.code().starts_with("28") => StoreError::Unusable(format!(
            "the Postgres server at {server} does not let us in: {text}; check user and password in the URL"
        )),
        Some(state) if *state == SqlState::TOO_MANY_CONNECTIONS || state.code().starts_with("57P") => {
            StoreError::Unavailable(text)
        }
        Some(_) => StoreError::Unusable(format!("the Postgres server at {server} refused the connection: {text}")),
        None => StoreError::Unusable(format!(
            "no Postgres server can be reached at {server}: {text}; is it running, and are host and port right?"
        )),
    }
}

fn address(config: &Config) -> (String, u16) {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => config.get_hostaddrs().first().map_or_else(|| "localhost".to_owned(), ToString::to_string),
    };
    (host, config.get_ports().first().copied().unwrap_or(5432))
}

fn server(config: &Config) -> String {
    let (host, port) = address(config);
    format!("{host}:{port}")
}

fn flags(config: &Config) -> String {
    let (host, port) = address(config);
    let user = config.get_user().map(|user| format!(" -U {user}")).unwrap_or_default();
    format!(" -h {host} -p {port}{user}")
}

/// Refuses servers that are too old and warns of one that forgets what it acknowledged.
pub(super) async fn check_server(client: &Client) -> Result<()> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int4 / 10000, current_setting('server_version'),
                    current_setting('fsync') = 'on'",
            &[],
        )
        .await?;
    let (major, version, durable): (i32, String, bool) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if major < OLDEST_SERVER {
        return Err(StoreError::Unusable(format!(
            "this Postgres server is version {version}; Milepost needs {OLDEST_SERVER} or newer"
        )));
    }
    if !durable {
        tracing::warn!("fsync is off in this Postgres server: what was acknowledged may be lost");
    }
    Ok(())
}
