//! Where secrets are looked for, blobs are kept and Redis is, as the settings say it.

use std::path::PathBuf;
use std::time::Duration;

use milepost_engine::Egress;
use milepost_engine::cache::RedisConfig;
use milepost_engine::secrets::SecretsConfig;
use milepost_store::blobs::Blobs;

use super::{Layer, Layers, ServerConfig, Source, environment};
use crate::database::Database;
use crate::keyfile;
use crate::output::error::Refusal;

impl ServerConfig {
    /// Reads the keys. A file that is named must be there; the one beside the database need not.
    ///
    /// # Errors
    /// A file cannot be read, or is none with keys.
    pub(crate) fn secrets(&self) -> Result<SecretsConfig, Refusal> {
        let file = &self.secrets_key_file;
        let in_file = match file.from {
            Source::Default => keyfile::read_if_there(&file.value)?,
            _ => keyfile::read(&file.value)?,
        };
        Ok(SecretsConfig {
            keys: self.secrets_key.value.clone().and(in_file),
            folder: self.secrets_folder.value.clone(),
            // Without any beginning, every variable would be a secret.
            env_prefix: Some(self.secrets_env_prefix.value.clone()).filter(|prefix| !prefix.is_empty()),
            env_allowed: self.env_allowed.value.clone(),
        })
    }

    /// What requests of steps may reach, and by which way.
    pub(crate) fn egress(&self) -> Egress {
        Egress { private_addresses: self.allow_private_http.value, proxy: self.http_proxy.value.0.clone() }
    }

    /// The Redis in front of the database, if there is to be one.
    ///
    /// # Errors
    /// Its address cannot be used.
    pub(crate) fn redis(&self) -> Result<Option<RedisConfig>, Refusal> {
        let Some(url) = &self.redis.value.0 else { return Ok(None) };
        let ttl = Duration::from_secs(self.cache_redis_ttl.value.0);
        let bad = |error| Refusal::new("bad_config", format!("{}: {error}", self.redis.from));
        RedisConfig::new(url, ttl).map(Some).map_err(bad)
    }

    /// Opens the blob store. A folder that is named is made; the one beside the database only when there is need of it.
    ///
    /// # Errors
    /// It cannot be used.
    pub(crate) fn blobs(&self) -> Result<Option<Blobs>, Refusal> {
        match (&self.blobs.value, &self.blobs.from) {
            (None, _) => Ok(None),
            (Some(folder), Source::Default) => Ok(Some(Blobs::in_folder(folder.as_ref()))),
            (Some(address), from) => {
                let bad = |error| Refusal::new("bad_config", format!("{from}: {error}"));
                Blobs::open(address).map(Some).map_err(bad)
            }
        }
    }
}

/// The settings of these two for a command that opens a database itself: what the environment says, else beside an SQLite
/// file.
pub(crate) fn of_command(database: &Database) -> Result<(SecretsConfig, Option<Blobs>), Refusal> {
    let config = config_of_command(database)?;
    Ok((config.secrets()?, config.blobs()?))
}

/// What the environment says of requests for such a command.
pub(crate) fn egress_of_command(database: &Database, private_addresses: bool) -> Result<Egress, Refusal> {
    Ok(Egress { private_addresses, ..config_of_command(database)?.egress() })
}

/// The Redis that the environment names for such a command.
pub(crate) fn redis_of_command(database: &Database) -> Result<Option<RedisConfig>, Refusal> {
    config_of_command(database)?.redis()
}

/// Files and folders with what such a command keeps, and that everybody on this machine may read or write.
pub(crate) fn open_to_all(database: &Database) -> Result<Vec<PathBuf>, Refusal> {
    Ok(config_of_command(database)?.open_to_all())
}

fn config_of_command(database: &Database) -> Result<ServerConfig, Refusal> {
    let db = match database {
        Database::Sqlite(path) => path.display().to_string(),
        Database::Postgres(url) => url.clone(),
    };
    let layers = Layers {
        environment: environment::read_places(|name| std::env::var(name).ok())?,
        flags: Layer { db: Some(db), ..Layer::default() },
        file: None,
    };
    Ok(ServerConfig::new(&layers)?.with_harmless_variables())
}

#[cfg(test)]
mod tests {
    use milepost_engine::secrets::Keyring;

    use super::*;

    fn config(layer: Layer) -> ServerConfig {
        ServerConfig::new(&Layers { flags: layer, ..Layers::default() }).unwrap()
    }

    #[test]
    fn keys_come_from_the_environment_and_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let data = Some(folder.path().to_owned());
        let nothing = config(Layer { data: data.clone(), ..Layer::default() });
        assert!(nothing.secrets().unwrap().keys.is_empty());
        keyfile::make(&folder.path().join(keyfile::NAME)).unwrap();
        let in_file = nothing.secrets().unwrap().keys;
        assert!(!in_file.is_empty(), "it is found where the data are");
        let named: Keyring = "0a".repeat(32).parse().unwrap();
        let both = config(Layer { data, secrets_key: Some(named.clone()), ..Layer::default() }).secrets().unwrap().keys;
        assert_eq!(both.first_id(), named.first_id(), "what is said goes first");
        assert_eq!(format!("{both:?}"), format!("{:?}", named.and(in_file)));
        let gone = config(Layer { secrets_key_file: Some(folder.path().join("gone")), ..Layer::default() });
        assert!(gone.secrets().unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn what_is_kept_beside_the_database_is_found_by_whoever_opens_it() {
        let named = |db: &str| {
            let config = config(Layer { db: Some(db.to_owned()), data: Some("elsewhere".into()), ..Layer::default() });
            (config.secrets_key_file.value.display().to_string(), config.blobs.value)
        };
        let beside = |folder: &str| (format!("{folder}secrets.key"), Some(format!("{folder}blobs")));
        assert_eq!(named("/var/lib/runs.db"), beside("/var/lib/"));
        assert_eq!(named("runs.db"), beside(""));
        let postgres = ("elsewhere/secrets.key".to_owned(), None);
        assert_eq!(named("postgres://h/d"), postgres, "servers on several machines share no folder");
        assert_eq!(config(Layer::default()).blobs.value.as_deref(), Some("./.milepost/blobs"));
    }

    #[test]
    fn blobs_are_where_they_are_told_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let opened = |address: &str| config(Layer { blobs: Some(address.to_owned()), ..Layer::default() }).blobs();
        assert!(opened("off").unwrap().is_none());
        let named = folder.path().join("named");
        assert!(opened(named.to_str().unwrap()).unwrap().is_some() && named.is_dir());
        let refused = opened("ftp://h/x").unwrap_err().to_string();
        assert!(refused.starts_with("--blobs: ") && refused.contains("write s3://bucket/prefix"), "{refused}");
    }

    #[test]
    fn an_empty_beginning_of_variables_is_none() {
        assert_eq!(config(Layer::default()).secrets().unwrap().env_prefix.as_deref(), Some("MILEPOST_SECRET_"));
        let off = config(Layer { secrets_env_prefix: Some(String::new()), ..Layer::default() });
        assert_eq!(off.secrets().unwrap().env_prefix, None);
    }
}
