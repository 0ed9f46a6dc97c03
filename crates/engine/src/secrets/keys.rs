//! The keys that secrets in the database are sealed with: XChaCha20-Poly1305, with a random nonce for each version.
//!
//! **Invariant:** what is sealed is bound to its org, name and version: moved to another row it does not open.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// So many hexadecimal digits of a key's digest name it.
const ID_DIGITS: usize = 16;

#[derive(Clone)]
struct Key {
    id: String,
    bytes: Zeroizing<[u8; KEY_BYTES]>,
}

/// Some keys: the first seals, all of them open.
#[derive(Clone, Default)]
pub struct Keyring(Vec<Key>);

/// What cannot be a key. The text is not quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is 32 bytes in base64 or as 64 hexadecimal digits; `milepost secrets keygen` makes one")]
pub struct NotAKey;

/// A sealed value.
pub(super) struct Sealed {
    pub(super) key_id: String,
    pub(super) nonce: Vec<u8>,
    pub(super) ciphertext: Vec<u8>,
}

/// Why a sealed value does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unopened {
    /// It is sealed with a key that is not here.
    NoKey,
    /// It was changed, or is not where it belongs.
    Damaged,
}

impl Keyring {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These keys, then those.
    #[must_use]
    pub fn and(mut self, others: Keyring) -> Keyring {
        for key in others.0 {
            if !self.0.iter().any(|known| known.id == key.id) {
                self.0.push(key);
            }
        }
        self
    }

    /// What names the key that seals.
    #[must_use]
    pub fn first_id(&self) -> Option<&str> {
        self.0.first().map(|key| key.id.as_str())
    }

    /// A new key, as it is written down.
    #[must_use]
    pub fn generate() -> Zeroizing<String> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        fill(&mut *bytes);
        Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(*bytes))
    }

    /// Bytes that nobody knows who does not have the first key; without a key, nobody else at all.
    pub(super) fn fingerprint_key(&self) -> Zeroizing<[u8; KEY_BYTES]> {
        match self.0.first() {
            Some(key) => Zeroizing::new(Digest::of_parts([b"milepost fingerprint".as_slice(), &*key.bytes]).0),
            None => {
                let mut bytes = Zeroizing::new([0; KEY_BYTES]);
                fill(&mut *bytes);
                bytes
            }
        }
    }

    /// `None` without a key.
    pub(super) fn seal(&self, org: OrgId, name: &str, version: u32, value: &str) -> Option<Sealed> {
        let key = self.0.first()?;
        let mut nonce = [0; NONCE_BYTES];
        fill(&mut nonce);
        let bound = bound_to(org, name, version);
        let payload = Payload { msg: value.as_bytes(), aad: &bound };
        let sealed = cipher(key).encrypt(&XNonce::from(nonce), payload);
        let ciphertext = sealed.expect("a value of bounded size can be sealed");
        Some(Sealed { key_id: key.id.clone(), nonce: nonce.to_vec(), ciphertext })
    }

    pub(super) fn open(
        &self,
        org: OrgId,
        name: &str,
        version: u32,
        sealed: &Sealed,
    ) -> Result<Zeroizing<String>, Unopened> {
        let key = self.0.iter().find(|key| key.id == sealed.key_id).ok_or(Unopened::NoKey)?;
        let nonce: [u8; NONCE_BYTES] = sealed.nonce.as_slice().try_into().map_err(|_| Unopened::Damaged)?;
        let bound = bound_to(org, name, version);
        let payload = Payload { msg: &sealed.ciphertext, aad: &bound };
        let value = cipher(key).decrypt(&XNonce::from(nonce), payload).map_err(|_| Unopened::Damaged)?;
        String::from_utf8(value).map(Zeroizing::new).map_err(|_| Unopened::Damaged)
    }
}

fn cipher(key: &Key) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&(*key.bytes).into())
}

fn bound_to(org: OrgId, name: &str, version: u32) -> [u8; 32] {
    let (org, version) = (org.0.to_be_bytes(), version.to_be_bytes());
    Digest::of_parts([b"milepost secret 1".as_slice(), &org, name.as_bytes(), &version]).0
}

fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random numbers");
}

impl FromStr for Keyring {
    type Err = NotAKey;

    /// Keys are separated by commas, blanks or lines; after `#` stands a remark.
    fn from_str(text: &str) -> Result<Keyring, NotAKey> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let words = lines.flat_map(|line| line.split([',', ' ', '\t'])).filter(|word| !word.is_empty());
        let keys = words.map(read).collect::<Result<Vec<Key>, NotAKey>>()?;
        Ok(Keyring::default().and(Keyring(keys)))
    }
}

fn read(text: &str) -> Result<Key, NotAKey> {
    let bytes = match text.parse::<Digest>() {
        Ok(hexadecimal) => Zeroizing::new(hexadecimal.0),
        Err(_) => {
            let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
            let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
            let bytes = Zeroizing::new(GeneralPurpose::new(alphabet, config).decode(text).map_err(|_| NotAKey)?);
            Zeroizing::new(bytes.as_slice().try_into().map_err(|_| NotAKey)?)
        }
    };
    let mut id = Digest::of_parts([b"milepost key".as_slice(), &*bytes]).to_string();
    id.truncate(ID_DIGITS);
    Ok(Key { id, bytes })
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORG: OrgId = OrgId::DEFAULT;

    fn ring() -> Keyring {
        Keyring::generate().parse().unwrap()
    }

    #[test]
    fn what_is_sealed_opens_where_it_belongs_and_nowhere_else() {
        let keys = ring();
        let sealed = keys.seal(ORG, "a/b", 3, "hunter2").unwrap();
        assert!(!sealed.ciphertext.windows(7).any(|part| part == b"hunter2"));
        assert_eq!(*keys.open(ORG, "a/b", 3, &sealed).unwrap(), "hunter2");
        let moved = [(OrgId(2), "a/b", 3), (ORG, "a", 3), (ORG, "a/b", 4)];
        for (org, name, version) in moved {
            assert_eq!(keys.open(org, name, version, &sealed), Err(Unopened::Damaged));
        }
        let mut changed = keys.seal(ORG, "a/b", 3, "hunter2").unwrap();
        assert_ne!(changed.nonce, sealed.nonce, "a nonce is used once");
        changed.ciphertext[0] ^= 1;
        assert_eq!(keys.open(ORG, "a/b", 3, &changed), Err(Unopened::Damaged));
        assert_eq!(ring().open(ORG, "a/b", 3, &sealed), Err(Unopened::NoKey));
        assert!(Keyring::default().seal(ORG, "a", 1, "x").is_none());
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let (old, new) = (ring(), ring());
        let both = new.clone().and(old.clone());
        let sealed = old.seal(ORG, "a", 1, "x").unwrap();
        assert_eq!(*both.open(ORG, "a", 1, &sealed).unwrap(), "x");
        assert_eq!(both.seal(ORG, "a", 1, "x").unwrap().key_id, new.first_id().unwrap());
    }

    #[test]
    fn keys_are_written_in_base64_or_hexadecimal() {
        let standard = base64::engine::general_purpose::STANDARD.encode([250; 32]);
        let url = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode([250; 32]);
        let id = |text: &str| text.parse::<Keyring>().unwrap().first_id().map(ToOwned::to_owned);
        assert_eq!(id(&standard), id(&url));
        assert_eq!(id(&standard), id(&"fa".repeat(32)));
        let several = format!("# the new one\n{}\n{standard} # the old one\n{url}\n", "0b".repeat(32));
        assert_eq!(several.parse::<Keyring>().unwrap().0.len(), 2);
        assert!("".parse::<Keyring>().unwrap().is_empty());
        for wrong in ["hunter2", "aGVsbG8=", &"f".repeat(63)] {
            let refused = wrong.parse::<Keyring>().unwrap_err().to_string();
            assert!(!refused.contains(wrong), "{refused}");
        }
        assert!(!format!("{:?}", standard.parse::<Keyring>().unwrap()).contains(&standard));
    }
}
