//! From a URL to connections that are set up for this work.

mod explain;
mod tls;
mod url;
mod verify;

use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::{Connect, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

use super::error::describe;
use crate::{Result, StoreError};
use tls::{Mode, Tls};

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

/// Where to connect to, and how.
#[derive(Clone)]
pub(super) struct Target {
    config: Config,
    tls: Tls,
}

impl Target {
    /// The same with one more setting, as in `name=value`.
    pub(super) fn with_setting(&self, setting: &str) -> Target {
        let mut other = self.clone();
        let options = format!("{} -c {setting}", self.config.get_options().unwrap_or_default());
        other.config.options(options);
        other
    }
}

pub(super) fn parse(url: &str) -> Result<Target> {
    let split = url::split(url)?;
    let mut config: Config =
        split.rest.parse().map_err(|error: tokio_postgres::Error| url::unreadable(&describe(&error)))?;
    check_hosts(&config)?;
    let tls = Tls::new(&split, is_here(&config))?;
    set_defaults(&mut config);
    set_tls(&mut config, &tls);
    Ok(Target { config, tls })
}

/// The driver takes all up to the first `@` for user and password; what is behind it would be shown as the host.
fn check_hosts(config: &Config) -> Result<()> {
    let odd = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
    match config.get_hosts().iter().any(odd) {
        true => Err(url::unreadable("there is more than one `@` in it; one in a password is written %40")),
        false => Ok(()),
    }
}

fn set_defaults(config: &mut Config) {
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
}

/// Whether the server is on this machine. A bare address goes before a name.
fn is_here(config: &Config) -> bool {
    let addresses = config.get_hostaddrs();
    let is_loopback = |name: &str| match name.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    };
    match addresses.is_empty() {
        true => config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => is_loopback(name),
            Host::Unix(_) => true,
        }),
        false => addresses.iter().all(|address| address.to_canonical().is_loopback()),
    }
}

fn set_tls(config: &mut Config, tls: &Tls) {
    // As in libpq, the mode has no meaning where there is no network.
    let local = |host: &Host| !matches!(host, Host::Tcp(_));
    let all_local = !config.get_hosts().is_empty() && config.get_hosts().iter().all(local);
    config.ssl_mode(if all_local { SslMode::Disable } else { tls.mode.driver() });
    // The driver has no TLS without a name, and a bare address is one.
    if config.get_hosts().is_empty() {
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
}

pub(super) fn pool(target: &Target, size: usize) -> Result<Pool> {
    let dialer = Dialer(target.tls.clone());
    let settings = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_connect(target.config.clone(), dialer, settings);
    Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(Duration::from_secs(30)))
        .create_timeout(Some(Duration::from_secs(10)))
        .build()
        .map_err(|error| StoreError::Unusable(format!("no pool of connections to Postgres: {error}")))
}

/// One connection outside the pool, whose failure is told in words that help.
pub(super) async fn single(target: &Target) -> Result<Client> {
    match dial(&target.tls, &target.config).await {
        // The task ends by itself when the client is dropped.
        Ok((client, _)) => Ok(client),
        Err(error) => Err(explain::explain(target, &error)),
    }
}

type Dialled = std::result::Result<(Client, JoinHandle<()>), tokio_postgres::Error>;

/// Makes the pool's connections.
struct Dialer(Tls);

impl Connect for Dialer {
    fn connect(&self, config: &Config) -> Pin<Box<dyn Future<Output = Dialled> + Send + '_>> {
        let config = config.clone();
        Box::pin(async move { dial(&self.0, &config).await })
    }
}

/// As libpq does with `prefer`: where there is no way in with TLS, one without is tried.
async fn dial(tls: &Tls, config: &Config) -> Dialled {
    let error = match attempt(tls, config).await {
        Err(error) if tls.mode == Mode::Prefer && plain_may_help(&error) => error,
        other => return other,
    };
    let mut plain = config.clone();
    plain.ssl_mode(SslMode::Disable);
    let Ok(dialled) = attempt(tls, &plain).await else { return Err(error) };
    tracing::warn!(
        "connected to Postgres at {} without TLS, as with it there was no way in: {}; set sslmode=disable if that is as \
         it should be, sslmode=require if not",
        explain::server(config),
        describe(&error)
    );
    Ok(dialled)
}

/// TLS failed, or the server's rules (`hostnossl`) have no place for those who come with it.
fn plain_may_help(error: &tokio_postgres::Error) -> bool {
    explain::is_tls(error) || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

async fn attempt(tls: &Tls, config: &Config) -> Dialled {
    let (client, connection) = config.connect(tls.connector.clone()).await?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!("a connection to Postgres ended: {}", describe(&error));
        }
    });
    Ok((client, task))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_machines_tls_is_wanted_unless_the_address_says_otherwise() {
        let mode = |address: &str| parse(address).map(|target| target.tls.mode).expect("an address");
        for here in [
            "postgres://127.0.0.1/d",
            "postgres://localhost:5432/d",
            "postgres://[::1]/d",
            "postgres:///d?host=/run/postgresql",
            "postgres://a.example/d?hostaddr=127.0.0.1",
            "host=LOCALHOST",
        ] {
            assert_eq!(mode(here), Mode::Prefer, "{here}");
        }
        for elsewhere in [
            "postgres://db/d",
            "postgres://10.0.0.1/d",
            "postgres://localhost.example/d",
            "postgres://localhost,db/d",
            "postgres://localhost/d?hostaddr=10.0.0.1",
            "host=db",
        ] {
            assert_eq!(mode(elsewhere), Mode::Require, "{elsewhere}");
        }
        assert_eq!(mode("postgres://db/d?sslmode=prefer"), Mode::Prefer);
        assert_eq!(mode("postgres://db/d?sslmode=disable"), Mode::Disable);
    }
}
