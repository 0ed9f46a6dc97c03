//! Secrets, sealed.

use std::collections::BTreeMap;

use async_trait::async_trait;
use milepost_core::id::OrgId;

use super::MemoryStore;
use crate::rows::{SealedRow, SecretPosition, SecretRow, SecretWrite};
use crate::{Result, SecretStore};

#[async_trait]
impl SecretStore for MemoryStore {
    async fn put(&self, org: OrgId, write: &SecretWrite) -> Result<bool> {
        Ok(self.tables().secrets.put(org, write))
    }

    async fn get(
        &self,
        org: OrgId,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<(SecretRow, Option<SealedRow>)>> {
        Ok(self.tables().secrets.secret(org, name, version))
    }

    async fn list(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<SecretRow>> {
        Ok(self.tables().secrets.list(org, after, limit))
    }

    async fn remove(&self, org: OrgId, name: &str, version: Option<u32>) -> Result<bool> {
        Ok(self.tables().secrets.remove(org, name, version))
    }

    async fn sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<&SecretPosition>,
        limit: u32,
    ) -> Result<Vec<(SecretPosition, SealedRow)>> {
        Ok(self.tables().secrets.under_other_keys(key_id, after, limit))
    }

    async fn reseal(&self, of: &SecretPosition, old_nonce: &[u8], sealed: &SealedRow) -> Result<bool> {
        Ok(self.tables().secrets.reseal(of, old_nonce, sealed))
    }
}

#[derive(Debug, Default)]
pub(super) struct Secrets {
    heads: BTreeMap<(OrgId, String), SecretRow>,
    versions: BTreeMap<SecretPosition, SealedRow>,
}

impl Secrets {
    fn put(&mut self, org: OrgId, write: &SecretWrite) -> bool {
        let SecretWrite { name, expected_version, queues, workflows, sealed } = write.clone();
        let key = (org, name.clone());
        if self.heads.get(&key).map_or(0, |head| head.last_version) != expected_version {
            return false;
        }
        let last_version = sealed.as_ref().map_or(expected_version, |sealed| sealed.version);
        let head = SecretRow { name: name.clone(), last_version, queues, workflows, versions: Vec::new() };
        self.heads.insert(key, head);
        if let Some(sealed) = sealed {
            self.versions.insert(SecretPosition { org, name, version: sealed.version }, sealed);
        }
        true
    }

    fn of(&self, org: OrgId, name: &str) -> impl DoubleEndedIterator<Item = &SealedRow> {
        let at = |version| SecretPosition { org, name: name.to_owned(), version };
        self.versions.range(at(0)..=at(u32::MAX)).map(|(_, sealed)| sealed)
    }

    fn with_versions(&self, org: OrgId, head: &SecretRow) -> SecretRow {
        let versions = self.of(org, &head.name).map(|sealed| (sealed.version, sealed.created_at)).collect();
        SecretRow { versions, ..head.clone() }
    }

    fn secret(&self, org: OrgId, name: &str, version: Option<u32>) -> Option<(SecretRow, Option<SealedRow>)> {
        let head = self.heads.get(&(org, name.to_owned()))?;
        let wanted = |sealed: &&SealedRow| version.is_none_or(|version| sealed.version == version);
        Some((self.with_versions(org, head), self.of(org, name).rev().find(wanted).cloned()))
    }

    fn list(&self, org: OrgId, after: Option<&str>, limit: u32) -> Vec<SecretRow> {
        let of_org = self.heads.iter().filter(|((of, name), _)| *of == org && Some(name.as_str()) > after);
        let rows = of_org.map(|(_, head)| self.with_versions(org, head));
        rows.filter(|row| !row.versions.is_empty()).take(limit as usize).collect()
    }

    fn remove(&mut self, org: OrgId, name: &str, version: Option<u32>) -> bool {
        let before = self.versions.len();
        let goes = |of: &SecretPosition| {
            of.org == org && of.name == name && version.is_none_or(|version| of.version == version)
        };
        self.versions.retain(|of, _| !goes(of));
        let is_last = self.of(org, name).next().is_none();
        if let Some(head) = self.heads.get_mut(&(org, name.to_owned())).filter(|_| is_last) {
            (head.queues, head.workflows) = Default::default();
        }
        self.versions.len() < before
    }

    fn under_other_keys(
        &self,
        key_id: &str,
        after: Option<&SecretPosition>,
        limit: u32,
    ) -> Vec<(SecretPosition, SealedRow)> {
        let others = self.versions.iter().filter(|(of, sealed)| Some(*of) > after && sealed.key_id != key_id);
        others.take(limit as usize).map(|(of, sealed)| (of.clone(), sealed.clone())).collect()
    }

    fn reseal(&mut self, of: &SecretPosition, old_nonce: &[u8], sealed: &SealedRow) -> bool {
        let Some(row) = self.versions.get_mut(of).filter(|row| row.nonce == old_nonce) else { return false };
        let SealedRow { key_id, nonce, ciphertext, .. } = sealed.clone();
        (row.key_id, row.nonce, row.ciphertext) = (key_id, nonce, ciphertext);
        true
    }
}
