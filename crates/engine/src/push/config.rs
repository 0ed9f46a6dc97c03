//! How steps are pushed.

use std::fmt;

/// Settings of whoever runs the engine.
#[derive(Clone)]
pub struct PushConfig {
    /// What requests are signed with, each of them: while a key is changed, there are two. Without any, requests are not
    /// signed, and receivers cannot tell who sent them.
    pub signing_secrets: Vec<String>,
    /// Loopback and private addresses may be called.
    pub private_addresses: bool,
    /// Requests under way to one host, from this process.
    pub per_host: usize,
}

impl Default for PushConfig {
    fn default() -> PushConfig {
        PushConfig { signing_secrets: Vec::new(), private_addresses: false, per_host: 32 }
    }
}

impl fmt::Debug for PushConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushConfig")
            .field("signing_secrets", &self.signing_secrets.len())
            .field("private_addresses", &self.private_addresses)
            .field("per_host", &self.per_host)
            .finish()
    }
}
