//! How steps are pushed.

use std::fmt;

use crate::egress::Egress;

/// Settings of whoever runs the engine.
#[derive(Clone)]
pub struct PushConfig {
    /// What the keys are derived of that requests to each host are signed with: while a key is changed, there are two. Without
    /// any, requests are not signed, and receivers cannot tell who sent them.
    pub signing_secrets: Vec<String>,
    /// What may be called.
    pub egress: Egress,
    /// Requests under way to one host, from this process.
    pub per_host: usize,
}

impl Default for PushConfig {
    fn default() -> PushConfig {
        PushConfig { signing_secrets: Vec::new(), egress: Egress::default(), per_host: 32 }
    }
}

impl fmt::Debug for PushConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushConfig")
            .field("signing_secrets", &self.signing_secrets.len())
            .field("egress", &self.egress)
            .field("per_host", &self.per_host)
            .finish()
    }
}
