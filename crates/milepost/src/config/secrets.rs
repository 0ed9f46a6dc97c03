//! Where secrets are looked for, as the settings say it.

use milepost_engine::secrets::SecretsConfig;

use super::{Layer, Layers, ServerConfig, Source, environment};
use crate::database::Database;
use crate::keyfile;
use crate::output::error::Refusal;

impl ServerConfig {
    /// Reads the keys. A file that is named must be there; the one in the data folder need not.
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
        })
    }
}

/// The same for a command that opens a database itself: what the environment says, and the key beside an SQLite file.
pub(crate) fn of_command(database: &Database) -> Result<SecretsConfig, Refusal> {
    let data = match database {
        Database::Sqlite(path) => path.parent().map(ToOwned::to_owned),
        Database::Postgres(_) => None,
    };
    let layers = Layers {
        environment: environment::read_secrets(|name| std::env::var(name).ok())?,
        flags: Layer { data, ..Layer::default() },
        file: None,
    };
    ServerConfig::new(&layers)?.secrets()
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
    fn an_empty_beginning_of_variables_is_none() {
        assert_eq!(config(Layer::default()).secrets().unwrap().env_prefix.as_deref(), Some("MILEPOST_SECRET_"));
        let off = config(Layer { secrets_env_prefix: Some(String::new()), ..Layer::default() });
        assert_eq!(off.secrets().unwrap().env_prefix, None);
    }
}
