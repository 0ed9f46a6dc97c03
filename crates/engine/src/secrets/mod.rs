//! Secrets: kept apart from documents and runs, and given to an attempt when it is about to be carried out.
//!
//! ```text
//!   secret://audio/api-key ─► cache ─► database (sealed, restricted) ─► folder ─► environment
//!                                            │
//!   the step's variables ◄── Resolved ◄──────┘        Resolved ─► Redactor ─► log lines, errors, outputs
//! ```
//!
//! **Invariant:** a value is in the hands of the attempt that was given it, and in the cache for a few seconds; in no event,
//! error, log or projection.

mod config;
mod keys;
mod places;
mod redact;
mod value;
mod variables;
mod vault;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::limits::Limits;
use milepost_core::plan::PlanStep;
use milepost_core::run::{Rejection, RejectionKind};
use milepost_core::secret::{RESERVED_PREFIX, SecretRef};
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::rows::SecretRow;
use zeroize::Zeroizing;

use crate::clock::Clock;
use crate::error::EngineError;
use crate::skills::SkillError;
pub use config::SecretsConfig;
use keys::Unopened;
pub use keys::{Keyring, NotAKey};
pub use places::cut_line_break;
pub use redact::Redactor;
pub use value::{Resolved, ResolvedSecret, SecretValue};
pub use variables::AllowedVariables;
pub use vault::{Rotated, SecretAccess, SecretSet};

/// What restrictions call the steps that a server carries out itself.
pub const INLINE_QUEUE: &str = "inline";

const UNAVAILABLE: &str = "secret_unavailable";
/// Versions before the newest that an attempt may still have been given.
const OLDER: usize = 20;
/// How long what was found is believed to be so.
const CACHED_US: i64 = 5_000_000;
/// References that are kept at hand.
const CACHED: usize = 1000;
/// How long an attempt waits for its secrets.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a commit waits to be told a version.
const VERSION_PATIENCE: Duration = Duration::from_secs(1);

/// Finds secrets, and keeps those in the database.
pub struct Secrets {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    config: SecretsConfig,
    limits: Limits,
    fingerprint_key: Zeroizing<[u8; 32]>,
    cache: Mutex<HashMap<(OrgId, Arc<str>), Known>>,
}

/// What a reference led to.
#[derive(Clone)]
struct Known {
    value: SecretValue,
    version: Arc<str>,
    /// Who may have it; any if there is none.
    queues: Vec<String>,
    workflows: Vec<String>,
    at: Timestamp,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Secrets {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, config: SecretsConfig, limits: Limits) -> Secrets {
        let fingerprint_key = config.keys.fingerprint_key();
        Secrets { store, clock, config, limits, fingerprint_key, cache: Mutex::default() }
    }

    /// The secrets that a step refers to, for an attempt that is about to be carried out. Costs nothing where there are none.
    ///
    /// # Errors
    /// `unknown_secret`, `secret_denied`, or `secret_unavailable`, which is worth another attempt.
    pub async fn resolve(
        &self,
        org: OrgId,
        workflow: &str,
        queue: &str,
        references: &[(Arc<str>, Arc<str>)],
    ) -> Result<Resolved, SkillError> {
        if references.is_empty() {
            return Ok(Resolved::default());
        }
        let all = async {
            let mut secrets = Vec::with_capacity(references.len());
            for (name, reference) in references {
                let known = self.find(org, reference).await?;
                known.check(reference, workflow, queue)?;
                secrets.push(ResolvedSecret { name: name.clone(), value: known.value, version: known.version });
            }
            Ok(Resolved::new(secrets))
        };
        let late = |_| unavailable("the secrets of the step could not be read in time; is the database there?");
        tokio::time::timeout(PATIENCE, all).await.map_err(late)?
    }

    /// The variables of this process that a step declares, those that are set.
    ///
    /// # Errors
    /// `env_not_allowed`: it declares one that it may not have, set or not.
    pub fn env_of(&self, step: &PlanStep) -> Result<Vec<(String, String)>, SkillError> {
        if let Some(name) = step.env.iter().find(|name| !self.may_have(name)) {
            let message = format!(
                "this server gives steps no variable `{name}` of its environment; whoever keeps the server may allow it by \
                 env.allowed or MILEPOST_ENV_ALLOWED"
            );
            return Err(SkillError::fatal("env_not_allowed", message));
        }
        let set = |name: &Arc<str>| Some((name.to_string(), std::env::var(&**name).ok()?));
        Ok(step.env.iter().filter_map(set).collect())
    }

    /// Whether a variable may reach a step. What is Milepost's own never does.
    fn may_have(&self, name: &str) -> bool {
        let is_ours = name.starts_with(RESERVED_PREFIX)
            || self.config.env_prefix.as_deref().is_some_and(|prefix| name.starts_with(prefix));
        !is_ours && self.config.env_allowed.has(name)
    }

    /// What a step's variables are, without telling it: the fingerprint of each that is set.
    pub(crate) fn env_hashes(&self, step: &PlanStep) -> BTreeMap<Arc<str>, Option<Digest>> {
        let value = |name: &str| std::env::var(name).ok().filter(|_| self.may_have(name));
        let hash = |name: &str| value(name).map(|value| self.env_fingerprint(name, &value));
        step.env.iter().map(|name| (name.clone(), hash(name))).collect()
    }

    /// A short value would be found by its plain hash, and keys of results are shown. Without a key of its own, a server has
    /// nothing that the next process, or the next node, would have, too.
    fn env_fingerprint(&self, name: &str, value: &str) -> Digest {
        match self.config.keys.is_empty() {
            true => Digest::of(value.as_bytes()),
            false => {
                Digest::of_parts([b"variable".as_slice(), &*self.fingerprint_key, name.as_bytes(), value.as_bytes()])
            }
        }
    }

    /// Which versions of secrets a step would be given. One that cannot be told at once is like no other.
    pub(crate) async fn versions(
        &self,
        org: OrgId,
        references: &[(Arc<str>, Arc<str>)],
    ) -> BTreeMap<Arc<str>, Arc<str>> {
        let mut versions = BTreeMap::new();
        for (name, reference) in references {
            let found = tokio::time::timeout(VERSION_PATIENCE, self.find(org, reference)).await;
            let version = match found {
                Ok(Ok(known)) => known.version,
                _ => format!("unknown:{}", self.clock.now().0).into(),
            };
            versions.insert(name.clone(), version);
        }
        versions
    }

    /// All that an attempt may have been given under these references, whenever that was: the versions that the database
    /// still has, and what the other places have now. What was removed cannot be searched for.
    ///
    /// # Errors
    /// They cannot be read now, or not on this node.
    pub(crate) async fn handed_out(
        &self,
        org: OrgId,
        references: &[(Arc<str>, Arc<str>)],
    ) -> Result<Resolved, EngineError> {
        let mut values = Vec::new();
        for (name, reference) in references {
            let Ok(wanted) = SecretRef::parse(reference, usize::MAX) else { continue };
            let mut found = self.versions_of(org, wanted).await?;
            if wanted.version.is_none() {
                found.extend(self.elsewhere(wanted.name).await.map_err(unread)?.map(|(_, value)| value));
            }
            if found.is_empty() {
                return Err(unread(format!(
                    "the secret `{}` was removed while an attempt has it, so what the attempt says cannot be searched for it; \
                     try the step again",
                    wanted.name
                )));
            }
            values.extend(found.into_iter().map(|value| (name.clone(), value)));
        }
        let secret = |(name, value)| ResolvedSecret { name, value: SecretValue::new(value), version: "".into() };
        Ok(Resolved::new(values.into_iter().map(secret).collect()))
    }

    /// The versions that the database has, the newest first.
    async fn versions_of(&self, org: OrgId, wanted: SecretRef<'_>) -> Result<Vec<Zeroizing<String>>, EngineError> {
        let SecretRef { name, version } = wanted;
        let Some((row, newest)) = self.store.secrets().get(org, name, version).await? else { return Ok(Vec::new()) };
        let mut sealed = Vec::from_iter(newest);
        if version.is_none() {
            for (older, _) in row.versions.iter().rev().skip(1).take(OLDER) {
                sealed.extend(self.store.secrets().get(org, name, Some(*older)).await?.and_then(|(_, sealed)| sealed));
            }
        }
        let mut values = Vec::with_capacity(sealed.len());
        for row in &sealed {
            match self.open(org, name, row) {
                Ok(value) => values.push(value),
                // Nobody was given it.
                Err(Unopened::Damaged) => {}
                Err(Unopened::NoKey) => return Err(unread(no_key_for(name, &row.key_id))),
            }
        }
        Ok(values)
    }

    async fn find(&self, org: OrgId, reference: &Arc<str>) -> Result<Known, SkillError> {
        let now = self.clock.now();
        let key = (org, reference.clone());
        if let Some(known) = self.cached(&key).filter(|known| now.0.saturating_sub(known.at.0).abs() < CACHED_US) {
            return Ok(known);
        }
        let bad = |error| SkillError::fatal("unknown_secret", format!("{error}"));
        let wanted = SecretRef::parse(reference, usize::MAX).map_err(bad)?;
        let known = self.look(org, wanted, now).await?;
        let mut cache = self.cache.lock().expect("no holder of this lock panics");
        if cache.len() >= CACHED {
            cache.clear();
        }
        cache.insert(key, known.clone());
        Ok(known)
    }

    fn cached(&self, key: &(OrgId, Arc<str>)) -> Option<Known> {
        self.cache.lock().expect("no holder of this lock panics").get(key).cloned()
    }

    /// What is kept of an org's secrets may not be so any more.
    fn forget(&self, org: OrgId) {
        self.cache.lock().expect("no holder of this lock panics").retain(|(of, _), _| *of != org);
    }

    /// Asks one place after the other.
    async fn look(&self, org: OrgId, wanted: SecretRef<'_>, at: Timestamp) -> Result<Known, SkillError> {
        if !self.config.keys.is_empty()
            && let Some(known) = self.in_database(org, wanted, at).await?
        {
            return Ok(known);
        }
        if wanted.version.is_none()
            && let Some((place, value)) = self.elsewhere(wanted.name).await.map_err(unavailable)?
        {
            return Ok(self.unrestricted(place, wanted.name, value, at));
        }
        Err(self.missing(org, wanted).await)
    }

    /// What is kept outside of the database under a name, and where.
    async fn elsewhere(&self, name: &str) -> Result<Option<(&'static str, Zeroizing<String>)>, String> {
        if let Some(folder) = &self.config.folder
            && let Some(value) = places::in_folder(folder, name, self.limits.secret_bytes).await?
        {
            return Ok(Some(("file", value)));
        }
        let Some(prefix) = &self.config.env_prefix else { return Ok(None) };
        Ok(places::in_environment(prefix, name)?.map(|value| ("env", value)))
    }

    async fn in_database(&self, org: OrgId, wanted: SecretRef<'_>, at: Timestamp) -> Result<Option<Known>, SkillError> {
        let SecretRef { name, version } = wanted;
        let found = self.store.secrets().get(org, name, version).await;
        let found = found.map_err(|error| unavailable(format!("the secret `{name}` cannot be read: {error}")))?;
        let Some((SecretRow { queues, workflows, .. }, Some(sealed))) = found else { return Ok(None) };
        let value = self.open(org, name, &sealed).map_err(|why| match why {
            Unopened::NoKey => unavailable(no_key_for(name, &sealed.key_id)),
            Unopened::Damaged => {
                unavailable(format!("the secret `{name}` does not open; it was changed: set it again"))
            }
        })?;
        let version = format!("db:{}", sealed.version).into();
        Ok(Some(Known { value: SecretValue::new(value), version, queues, workflows, at }))
    }

    fn unrestricted(&self, place: &str, name: &str, value: Zeroizing<String>, at: Timestamp) -> Known {
        let fingerprint = places::fingerprint(&*self.fingerprint_key, name, &value);
        let version = format!("{place}:{fingerprint}").into();
        let (queues, workflows) = Default::default();
        Known { value: SecretValue::new(value), version, queues, workflows, at }
    }

    async fn missing(&self, org: OrgId, SecretRef { name, version }: SecretRef<'_>) -> SkillError {
        let is_sealed = self.config.keys.is_empty()
            && matches!(self.store.secrets().get(org, name, version).await, Ok(Some((_, Some(_)))));
        if is_sealed {
            return unavailable(format!(
                "the secret `{name}` is in the database, and this server has no key to open it; name it with \
                 secrets.key_file or MILEPOST_SECRETS_KEY"
            ));
        }
        let which = version.map(|version| format!(", version {version}")).unwrap_or_default();
        let message = format!("there is no secret `{name}`{which}; set it with `milepost secrets set {name}`");
        SkillError::fatal("unknown_secret", message)
    }
}

impl Known {
    fn check(&self, reference: &str, workflow: &str, queue: &str) -> Result<(), SkillError> {
        let may = |names: &[String], name: &str| names.is_empty() || names.iter().any(|known| known == name);
        let denied = |what: &str, name: &str| {
            let message =
                format!("{reference} may not be given to the {what} `{name}`; ask who keeps it to allow that");
            SkillError::fatal("secret_denied", message)
        };
        match () {
            () if !may(&self.workflows, workflow) => Err(denied("workflow", workflow)),
            () if !may(&self.queues, queue) => Err(denied("queue", queue)),
            () => Ok(()),
        }
    }
}

fn no_key_for(name: &str, key: &str) -> String {
    format!("the secret `{name}` is sealed with the key {key}, which this server does not have; give it that key, too")
}

/// Without a secret, nobody can tell whether it is in what its step says.
fn unread(message: String) -> EngineError {
    Rejection { kind: RejectionKind::Conflict, code: UNAVAILABLE, message }.into()
}

fn unavailable(message: impl Into<String>) -> SkillError {
    SkillError::new(UNAVAILABLE, message)
}

#[cfg(test)]
mod tests;
