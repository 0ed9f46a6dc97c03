//! Variables of the server's environment that steps may be given.

use std::fmt;
use std::str::FromStr;

use milepost_core::secret::variable_fault;

/// Names of variables; one that ends in `*` stands for all that begin so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedVariables(Vec<String>);

/// Longer names are a mistake.
const LONGEST: usize = 255;

impl AllowedVariables {
    /// Variables that say nothing of anybody but how a program behaves. `shell` gives most of them to every program anyway.
    #[must_use]
    pub fn harmless() -> AllowedVariables {
        let names = ["HOME", "LANG", "LC_*", "PATH", "REGION", "TERM", "TMPDIR", "TZ", "USER"];
        AllowedVariables(names.map(str::to_owned).to_vec())
    }

    /// These and those.
    #[must_use]
    pub fn and(mut self, others: AllowedVariables) -> AllowedVariables {
        self.0.extend(others.0);
        self
    }

    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == allowed,
        })
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As they are written.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for AllowedVariables {
    type Err = String;

    /// Names with commas between them.
    fn from_str(text: &str) -> Result<AllowedVariables, String> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(|name| check(name).map(|()| name.to_owned())).collect::<Result<_, _>>().map(AllowedVariables)
    }
}

fn check(name: &str) -> Result<(), String> {
    let beginning = name.strip_suffix('*');
    match beginning.unwrap_or(name) {
        "" if beginning.is_some() => Ok(()),
        name => variable_fault(name, LONGEST).map_or(Ok(()), |fault| Err(format!("`{name}` {fault}"))),
    }
}

impl fmt::Display for AllowedVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_allows_itself_and_a_star_all_that_begin_so() {
        let allowed: AllowedVariables = "REGION, APP_*,".parse().unwrap();
        for name in ["REGION", "APP_", "APP_MODE"] {
            assert!(allowed.has(name), "{name}");
        }
        for name in ["REGIONS", "region", "APP", "AWS_SECRET_ACCESS_KEY", ""] {
            assert!(!allowed.has(name), "{name}");
        }
        assert_eq!(allowed.to_string(), "REGION,APP_*");
        assert!("*".parse::<AllowedVariables>().unwrap().has("ANY"));
        assert!("".parse::<AllowedVariables>().unwrap().is_empty());
        for wrong in ["A-B", "A*B", "MILEPOST_DB", "1A"] {
            assert!(wrong.parse::<AllowedVariables>().is_err(), "{wrong}");
        }
    }
}
