//! Requests are signed, so that a receiver can tell that they come from here, for its own address, unchanged and just now.
//!
//! **Invariant:** a signature says where its request goes, and once: one that was made for another address, or that came
//! before, is good for nothing. The server's own key signs nothing itself: each host has a key that is derived of it, so what
//! one receiver knows is of no use against another.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use uuid::Uuid;

/// The header that carries signatures.
pub(super) const HEADER: &str = "milepost-signature";
/// The header that names the request: no two have the same.
pub(super) const DELIVERY: &str = "milepost-delivery";

/// A request that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery<'a> {
    pub(super) id: Uuid,
    pub(super) unix_seconds: i64,
    /// As it is requested.
    pub(super) url: &'a str,
    pub(super) body: &'a [u8],
}

impl Delivery<'_> {
    /// `t=<unix seconds>,v2=<hex>`, with a `v2` for each key: HMAC-SHA256 over time, delivery, address and body with a line
    /// feed between them, none of which but the body can have one. Nothing without a key.
    pub(super) fn signature(&self, keys: &[String]) -> Option<String> {
        if keys.is_empty() {
            return None;
        }
        let mut text = format!("t={}", self.unix_seconds);
        for key in keys {
            let head = format!("{}\n{}\n{}\n", self.unix_seconds, self.id, self.url);
            text.push_str(",v2=");
            text.push_str(&hmac_hex(key, &[head.as_bytes(), self.body]));
        }
        Some(text)
    }
}

/// The key of one host: what a receiver is given of a key that all requests of the server are signed with.
pub(super) fn key_of_host(key: &str, host: &str) -> String {
    hmac_hex(key, &[host.as_bytes()])
}

fn hmac_hex(key: &str, parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("a key of HMAC may have any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery<'a>(url: &'a str, body: &'a [u8]) -> Delivery<'a> {
        Delivery { id: Uuid::from_u128(7), unix_seconds: 1_700_000_000, url, body }
    }

    /// The expected values are those of Python's `hmac`.
    #[test]
    fn a_request_is_signed_with_each_key() {
        let keys = ["a secret of some length".to_owned(), "the one before".to_owned()];
        let request = delivery("https://a.example/hook", b"{\"a\": 1}");
        let one = "t=1700000000,v2=47c22000a5e2bd53a24d2ed73cc4c5088466f42146f50efa1d836274947466fa";
        assert_eq!(request.signature(&keys[..1]).unwrap(), one);
        let both = format!("{one},v2=6f6f25b26255f6528f60e868cf62c9918243e3b1c287348cfd8559686c51894d");
        assert_eq!(request.signature(&keys).unwrap(), both);
        assert_eq!(request.signature(&[]), None);
        assert_eq!(
            key_of_host(&keys[0], "a.example"),
            "4d55a1affb863d531f4fa8292041606dad427374718fde6c2f63b1bbdd5403bf"
        );
    }

    #[test]
    fn a_signature_is_good_for_one_address_and_one_delivery() {
        let keys = ["a secret of some length".to_owned()];
        let request = delivery("https://a.example/hook", b"{}");
        let signature = request.signature(&keys);
        for other in [
            delivery("https://b.example/hook", b"{}"),
            delivery("https://a.example/hook", b"[]"),
            Delivery { id: Uuid::from_u128(8), ..request },
            Delivery { unix_seconds: 1_700_000_001, ..request },
        ] {
            assert_ne!(other.signature(&keys), signature, "{other:?}");
        }
    }
}
