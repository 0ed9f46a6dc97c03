//! Requests are signed, so that a receiver can tell that they come from here, unchanged and just now.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The header that carries signatures.
pub(super) const HEADER: &str = "milepost-signature";

/// `t=<unix seconds>,v1=<hex>`, with a `v1` for each key: HMAC-SHA256 over `<t>.<body>`. Nothing without a key.
pub(super) fn signature(keys: &[String], unix_seconds: i64, body: &[u8]) -> Option<String> {
    if keys.is_empty() {
        return None;
    }
    let mut text = format!("t={unix_seconds}");
    for key in keys {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("a key of HMAC may have any length");
        mac.update(format!("{unix_seconds}.").as_bytes());
        mac.update(body);
        text.push_str(",v1=");
        mac.finalize().into_bytes().iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are those of Python's `hmac`.
    #[test]
    fn a_body_is_signed_with_each_key() {
        let keys = ["a secret of some length".to_owned(), "the one before".to_owned()];
        let signed = signature(&keys[..1], 1_700_000_000, b"{\"a\": 1}").unwrap();
        assert_eq!(signed, "t=1700000000,v1=299435c99d07487eeda4468cb6989381c8e65bb974bd6de67907591b9e64a13e");
        let both = signature(&keys, 1_700_000_000, b"{\"a\": 1}").unwrap();
        assert_eq!(
            both,
            "t=1700000000,v1=299435c99d07487eeda4468cb6989381c8e65bb974bd6de67907591b9e64a13e,v1=5dbca30a3eb0902baa5b4b8ccb40ba478be514d7e7550bfab87c4187e11f3335"
        );
        assert_eq!(signature(&[], 1, b""), None);
    }
}
