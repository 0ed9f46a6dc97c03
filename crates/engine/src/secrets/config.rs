//! Where secrets are looked for, and which variables steps may be given besides.

use std::path::PathBuf;

use super::keys::Keyring;
use super::variables::AllowedVariables;

/// The places, each optional, asked in this order.
#[derive(Clone, Debug)]
pub struct SecretsConfig {
    /// Open those in the database; without any they are not looked for there.
    pub keys: Keyring,
    /// A folder with a file for each, such as `/run/secrets`.
    pub folder: Option<PathBuf>,
    /// Variables of this process that begin so.
    pub env_prefix: Option<String>,
    /// Other variables of this process that steps may be given.
    pub env_allowed: AllowedVariables,
}

impl SecretsConfig {
    /// What variables with secrets begin with unless it is said otherwise.
    pub const ENV_PREFIX: &str = "MILEPOST_SECRET_";
}

impl Default for SecretsConfig {
    fn default() -> SecretsConfig {
        let (keys, folder) = Default::default();
        let env_prefix = Some(SecretsConfig::ENV_PREFIX.to_owned());
        SecretsConfig { keys, folder, env_prefix, env_allowed: AllowedVariables::harmless() }
    }
}
