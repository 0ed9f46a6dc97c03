//! Tokens as a server knows them: by their hash, and by the name of who holds one.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The SHA-256 of an API token: the token itself is nowhere kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    #[must_use]
    pub fn of(token: &str) -> TokenHash {
        TokenHash(Sha256::digest(token.as_bytes()).into())
    }

    /// Compares without telling by its time how much is the same.
    #[must_use]
    pub fn is_same(&self, other: &TokenHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for TokenHash {
    type Err = String;

    fn from_str(text: &str) -> Result<TokenHash, String> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        let digest: milepost_core::hash::Digest = hex
            .parse()
            .map_err(|_| "a token hash is `sha256:` and 64 hexadecimal digits; `milepost token` makes one")?;
        Ok(TokenHash(digest.0))
    }
}

/// A token that is let in: `sha256:…`, or `NAME=sha256:…`. Whoever comes with a token that has a name is known by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownToken {
    pub name: Option<String>,
    pub hash: TokenHash,
}

impl From<TokenHash> for KnownToken {
    fn from(hash: TokenHash) -> KnownToken {
        KnownToken { name: None, hash }
    }
}

impl KnownToken {
    /// A name that can stand in a list of tokens and in a tag's history.
    ///
    /// # Errors
    /// What a name is like.
    pub fn check_name(name: &str) -> Result<&str, String> {
        let name = name.trim();
        match (1..=255).contains(&name.chars().count()) && !name.contains(|c: char| c.is_control() || c == ',') {
            true => Ok(name),
            false => Err("the name of a token has 1 to 255 characters, no comma among them; choose another".to_owned()),
        }
    }
}

impl fmt::Display for KnownToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        self.hash.fmt(f)
    }
}

impl FromStr for KnownToken {
    type Err = String;

    fn from_str(text: &str) -> Result<KnownToken, String> {
        let Some((name, hash)) = text.rsplit_once('=') else { return Ok(text.parse::<TokenHash>()?.into()) };
        let hash = hash.trim().parse()?;
        Ok(KnownToken { name: Some(KnownToken::check_name(name)?.to_owned()), hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash() {
        let hash = TokenHash::of("secret");
        assert_eq!(hash.to_string().parse::<TokenHash>().unwrap(), hash);
        assert!("sha256:zz".parse::<TokenHash>().is_err());
    }

    #[test]
    fn a_token_may_have_a_name() {
        let hash = TokenHash::of("secret");
        let read = |text: String| text.parse::<KnownToken>().map(|token| (token.name, token.hash == hash));
        assert_eq!(read(hash.to_string()), Ok((None, true)));
        for (written, name) in [("ci", "ci"), (" release bot ", "release bot"), ("a=b", "a=b")] {
            let token: KnownToken = format!("{written}={hash}").parse().unwrap();
            assert_eq!((token.name.as_deref(), token.to_string()), (Some(name), format!("{name}={hash}")));
        }
        for wrong in [format!("={hash}"), format!("a,b={hash}"), "ci=sha256:1".to_owned(), "ci=".to_owned()] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
