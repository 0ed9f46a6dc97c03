//! Secrets in the database: set, listed, removed, sealed anew. Values go in; only `open` gives one out.

use milepost_core::id::OrgId;
use milepost_core::run::{Rejection, RejectionKind};
use milepost_core::secret::name_fault;
use milepost_core::time::Timestamp;
use milepost_store::rows::{SealedRow, SecretRow, SecretWrite};
use zeroize::Zeroizing;

use super::Secrets;
use super::keys::{Sealed, Unopened};
use crate::error::EngineError;

/// Queues or workflows that one secret may be restricted to.
const MOST_NAMES: usize = 100;
/// How often a secret is set again when somebody else was first.
const TRIES: u32 = 10;
/// Versions that are read at once to be sealed anew.
const PAGE: u32 = 100;

/// Who may have a secret. What is not said stays as it is; an empty list is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretAccess {
    pub queues: Option<Vec<String>>,
    pub workflows: Option<Vec<String>>,
}

/// What became of a secret that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretSet {
    pub version: u32,
    /// There was none of that name.
    pub created: bool,
}

/// What sealing anew did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotated {
    /// Versions that are sealed with the first key now and were not before.
    pub resealed: u64,
    /// Versions that none of the keys opens.
    pub unreadable: u64,
}

impl Secrets {
    /// Keeps a value under a name. The same value again makes no version.
    ///
    /// # Errors
    /// There is no key to seal it with, the name or the value cannot be one, or the store cannot be written.
    pub async fn set(
        &self,
        org: OrgId,
        name: &str,
        value: &str,
        access: &SecretAccess,
    ) -> Result<SecretSet, EngineError> {
        self.check(name, value, access)?;
        for _ in 0..TRIES {
            let found = self.store.secrets().get(org, name, None).await?;
            let (row, newest) = found.unwrap_or_else(|| (unused(name), None));
            let write = self.write(org, row.clone(), newest.as_ref(), value, access)?;
            let version = write.sealed.as_ref().or(newest.as_ref()).map_or(0, |sealed| sealed.version);
            if self.store.secrets().put(org, &write).await? {
                self.forget(org);
                return Ok(SecretSet { version, created: row.versions.is_empty() });
            }
        }
        Err(refused(RejectionKind::Conflict, "secret_busy", format!("others set `{name}` all the time; try again")))
    }

    /// What has to be written for a value to be the newest.
    fn write(
        &self,
        org: OrgId,
        row: SecretRow,
        newest: Option<&SealedRow>,
        value: &str,
        access: &SecretAccess,
    ) -> Result<SecretWrite, EngineError> {
        let SecretRow { name, last_version, queues, workflows, .. } = row;
        let same = newest.is_some_and(|sealed| self.open(org, &name, sealed).is_ok_and(|known| *known == value));
        let version = last_version + 1;
        let sealed = match same {
            true => None,
            false => Some(self.config.keys.seal(org, &name, version, value).ok_or_else(no_key)?),
        };
        let created_at = self.clock.now();
        Ok(SecretWrite {
            queues: access.queues.clone().unwrap_or(queues),
            workflows: access.workflows.clone().unwrap_or(workflows),
            sealed: sealed.map(|sealed| row_of(version, sealed, created_at)),
            expected_version: last_version,
            name,
        })
    }

    /// Secrets in the database, by name, after `after`. Never their values.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<SecretRow>, EngineError> {
        Ok(self.store.secrets().list(org, after, limit).await?)
    }

    /// Removes a version, or all of them.
    ///
    /// # Errors
    /// There is none, or the store cannot be written.
    pub async fn remove(&self, org: OrgId, name: &str, version: Option<u32>) -> Result<(), EngineError> {
        let is_name = name_fault(name, self.limits.name_chars).is_none();
        let removed = is_name && self.store.secrets().remove(org, name, version).await?;
        self.forget(org);
        let missing = match version {
            _ if removed => return Ok(()),
            Some(version) => format!("there is no version {version} of a secret of that name in the database"),
            None => "there is no secret of that name in the database".to_owned(),
        };
        let message = format!("{missing}; list those there are");
        Err(refused(RejectionKind::NotFound, "unknown_secret", message))
    }

    /// Seals all versions anew that are sealed with another key than the first. Can be stopped and begun again at any time.
    ///
    /// # Errors
    /// There is no key, or the store cannot be written.
    pub async fn rotate(&self) -> Result<Rotated, EngineError> {
        let first = self.config.keys.first_id().ok_or_else(no_key)?;
        let (mut rotated, mut after) = (Rotated::default(), None);
        loop {
            let page = self.store.secrets().sealed_otherwise(first, after.as_ref(), PAGE).await?;
            for (of, row) in &page {
                let Ok(value) = self.open(of.org, &of.name, row) else {
                    rotated.unreadable += 1;
                    continue;
                };
                let sealed = self.config.keys.seal(of.org, &of.name, of.version, &value).ok_or_else(no_key)?;
                let anew = row_of(of.version, sealed, row.created_at);
                rotated.resealed += u64::from(self.store.secrets().reseal(of, &row.nonce, &anew).await?);
            }
            match page.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => return Ok(rotated),
            }
        }
    }

    pub(super) fn open(&self, org: OrgId, name: &str, row: &SealedRow) -> Result<Zeroizing<String>, Unopened> {
        let SealedRow { version, key_id, nonce, ciphertext, .. } = row.clone();
        self.config.keys.open(org, name, version, &Sealed { key_id, nonce, ciphertext })
    }

    fn check(&self, name: &str, value: &str, access: &SecretAccess) -> Result<(), EngineError> {
        let bad = |code, message: String| Err(refused(RejectionKind::Invalid, code, message));
        if let Some(fault) = name_fault(name, self.limits.name_chars) {
            return bad("bad_secret_name", format!("the name of a secret {fault}, as in audio/api-key"));
        }
        if value.is_empty() || value.contains('\0') {
            let message = "a secret has at least one character and no NUL; encode what is not text, say in base64";
            return bad("bad_secret", message.to_owned());
        }
        if value.len() > self.limits.secret_bytes {
            let message = format!("a secret has at most {} bytes (secret_bytes)", self.limits.secret_bytes);
            return bad("secret_too_large", message);
        }
        for names in [&access.queues, &access.workflows].into_iter().flatten() {
            let odd = |name: &String| {
                let blank = |c: char| c.is_whitespace() || c.is_control();
                name.is_empty() || name.chars().count() > self.limits.name_chars || name.contains(blank)
            };
            if names.len() > MOST_NAMES || names.iter().any(odd) {
                let message =
                    format!("a secret is restricted to at most {MOST_NAMES} queues and workflows by their names");
                return bad("bad_restriction", message);
            }
        }
        match self.config.keys.is_empty() {
            true => Err(no_key()),
            false => Ok(()),
        }
    }
}

fn unused(name: &str) -> SecretRow {
    let (queues, workflows, versions) = Default::default();
    SecretRow { name: name.to_owned(), last_version: 0, queues, workflows, versions }
}

fn row_of(version: u32, sealed: Sealed, created_at: Timestamp) -> SealedRow {
    let Sealed { key_id, nonce, ciphertext } = sealed;
    SealedRow { version, key_id, nonce, ciphertext, created_at }
}

fn no_key() -> EngineError {
    let message = "there is no key to seal secrets with; make one with `milepost secrets keygen`, and name it with \
                   secrets.key_file or MILEPOST_SECRETS_KEY";
    refused(RejectionKind::Conflict, "no_secrets_key", message.to_owned())
}

fn refused(kind: RejectionKind, code: &'static str, message: String) -> EngineError {
    Rejection { kind, code, message }.into()
}
