//! Where this process may send requests: what `http` steps and pushed steps share.
//!
//! A name is resolved here, and the connection goes to the addresses that were looked at: a second answer of the name server
//! cannot slip by. An address that is written into a URL is never resolved, so [`private_literal`] looks at it.
//!
//! **Invariant:** no proxy is used unless a setting names one. A proxy resolves names itself, so none of this holds behind it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A host that cannot be reached by then is not there.
const CONNECT: Duration = Duration::from_secs(10);
/// Networks that are not for everybody: this machine, private and special ranges, and addresses at which clouds serve
/// credentials of their machines.
const SPECIAL_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([168, 63, 129, 16], 32),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];
/// Global unicast. Whatever else there is of IPv6 is for this machine, this network, or nobody.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Parts of it that are special: protocol assignments with Teredo in them, documentation, and 6to4.
const SPECIAL_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
/// NAT64: an IPv4 address stands in the last 32 bits.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// What requests may reach, and by which way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// Loopback, private and special addresses may be called.
    pub private_addresses: bool,
    /// A proxy that requests go through. It resolves names, so it has to keep requests from private addresses.
    pub proxy: Option<String>,
}

impl Egress {
    /// A client that follows no redirects and connects to no private address unless that is allowed.
    ///
    /// # Errors
    /// The proxy cannot be used.
    pub(crate) fn client(&self) -> Result<reqwest::Client, String> {
        let failed = |error| format!("no HTTP client: {}", explain(error));
        let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).connect_timeout(CONNECT);
        let builder = match &self.proxy {
            None => builder.no_proxy(),
            Some(url) => builder.proxy(reqwest::Proxy::all(url).map_err(failed)?),
        };
        // The proxy's own address may be private, and it resolves all other names.
        let guarded = !self.private_addresses && self.proxy.is_none();
        let builder = if guarded { builder.dns_resolver(Arc::new(PublicOnly)) } else { builder };
        builder.build().map_err(failed)
    }

    /// What is wrong with a host that is written as an address, if it may not be called.
    pub(crate) fn private_literal(&self, host: &str) -> Option<String> {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>().ok()?;
        (!self.private_addresses && !is_public(address)).then(|| format!("{address} {PRIVATE}"))
    }
}

/// What went wrong, and why. Says nothing of the address: there may be secrets in it, and the step's input has it.
pub(crate) fn explain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    message
}

/// It went wrong because the address is private.
pub(crate) fn names_private_address(message: &str) -> bool {
    message.contains(PRIVATE)
}

const PRIVATE: &str =
    "is an address of this machine, of a private network or of a special range; allow it with --allow-private-http";

/// Resolves names to public addresses only.
#[derive(Debug)]
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if let Some(private) = found.iter().find(|address| !is_public(address.ip())) {
                return Err(format!("{} ({}) {PRIVATE}", name.as_str(), private.ip()).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !SPECIAL_V4.iter().any(|(network, bits)| {
            let (network, address) = (u32::from_be_bytes(*network), u32::from(v4));
            (network ^ address) >> (32 - bits) == 0
        }),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let within = |(network, bits): (Ipv6Addr, u32)| (u128::from(network) ^ u128::from(v6)) >> (128 - bits) == 0;
    if v6.to_ipv4_mapped().is_some() || within(NAT64) {
        let [.., a, b, c, d] = v6.octets();
        return is_public(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
    }
    within(GLOBAL_V6) && !SPECIAL_V6.iter().copied().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and the last address of each range that is refused, and a neighbour on either side that is not.
    #[test]
    fn special_addresses_are_not_public_and_their_neighbours_are() {
        for text in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.0.0",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.0",
            "192.0.0.192",
            "192.0.0.255",
            "192.0.2.255",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::8.8.8.8",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:0:8.8.8.8",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:1ff:ffff::1",
            "2001:db8::1",
            "2002:0a00:0001::1",
            "2002:0808:0808::1",
            "3fff::1",
            "3fff:fff:ffff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.255",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "223.255.255.255",
            "::ffff:93.184.216.34",
            "64:ff9b::8.8.8.8",
            "2001:200::1",
            "2001:db7::1",
            "2003::1",
            "2606:4700::1111",
            "3ffe::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn an_address_in_a_url_is_looked_at_in_every_notation() {
        let closed = Egress::default();
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://[::ffff:7f00:1]/",
            "http://[::1]:80/",
        ] {
            let host = reqwest::Url::parse(url).unwrap().host_str().unwrap().to_owned();
            let refused = closed.private_literal(&host).unwrap_or_else(|| panic!("{url} is let through"));
            assert!(names_private_address(&refused));
            assert_eq!(Egress { private_addresses: true, proxy: None }.private_literal(&host), None, "{url}");
        }
        assert_eq!(closed.private_literal("example.com"), None);
        assert_eq!(closed.private_literal("93.184.216.34"), None);
    }
}
