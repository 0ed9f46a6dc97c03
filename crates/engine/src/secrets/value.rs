//! A secret on its way to a step.
//!
//! **Invariant:** nothing here can be printed by accident, and what is dropped is wiped.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::redact::Redactor;

/// What is secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Arc<Zeroizing<String>>);

impl SecretValue {
    pub(super) fn new(value: Zeroizing<String>) -> SecretValue {
        SecretValue(Arc::new(value))
    }

    /// The value itself: to be passed on to whoever needs it, and to nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// One secret of a step.
#[derive(Clone, Debug)]
pub struct ResolvedSecret {
    /// By which the step knows it.
    pub name: Arc<str>,
    pub value: SecretValue,
    /// Changes when the value does, and gives nothing of it away.
    pub version: Arc<str>,
}

/// The secrets of a step, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Resolved(Vec<ResolvedSecret>);

impl Resolved {
    pub(super) fn new(secrets: Vec<ResolvedSecret>) -> Resolved {
        Resolved(secrets)
    }

    /// Some values, for tests.
    #[cfg(test)]
    pub(crate) fn of(secrets: &[(&str, &str)]) -> Resolved {
        let secret = |(name, value): &(&str, &str)| ResolvedSecret {
            name: (*name).into(),
            value: SecretValue::new(Zeroizing::new((*value).to_owned())),
            version: "db:1".into(),
        };
        Resolved(secrets.iter().map(secret).collect())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &ResolvedSecret> {
        self.0.iter()
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|secret| &*secret.name == name).map(|secret| secret.value.expose())
    }

    /// What takes them out of texts; nothing where there are none.
    #[must_use]
    pub fn redactor(&self) -> Option<Redactor> {
        self.redactor_with(std::iter::empty())
    }

    /// The same for these and some that the step does not have.
    pub(crate) fn redactor_with<'s>(&'s self, others: impl Iterator<Item = (&'s str, &'s str)>) -> Option<Redactor> {
        Redactor::new(self.iter().map(|secret| (&*secret.name, secret.value.expose())).chain(others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let resolved = Resolved::of(&[("K", "hunter2")]);
        assert!(!format!("{resolved:?}").contains("hunter2"));
        assert_eq!(resolved.get("K"), Some("hunter2"));
    }
}
