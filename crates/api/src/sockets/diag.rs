//! One socket, asked for by its two ends: `NETLINK_SOCK_DIAG`, as `ss` uses it.

use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use super::Row;

const HEADER: usize = 16;
const QUESTION: usize = HEADER + 56;
const ANSWER: usize = HEADER + 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;

/// `None` also where the kernel does not answer such questions.
pub(super) fn find(local: SocketAddr, remote: SocketAddr) -> Option<Row> {
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(SOCK_DIAG)).ok()?;
    sendto(&netlink, &question(local, remote), SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).ok()?;
    let mut answer = [0; 256];
    // The answer is there when the question has been sent.
    let (_, size) = recv(&netlink, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    read(answer.get(..size)?)
}

/// A `nlmsghdr` and an `inet_diag_req_v2`.
fn question(local: SocketAddr, remote: SocketAddr) -> [u8; QUESTION] {
    let mut bytes = Vec::with_capacity(QUESTION);
    bytes.extend(72_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port: of one question alone.
    bytes.extend([0; 8]);
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    bytes.extend([u8::try_from(family.as_raw()).unwrap_or_default(), IPPROTO_TCP, 0, 0]);
    // In any state.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    for end in [local, remote] {
        let mut address = [0; 16];
        match end.ip() {
            IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => address = ip.octets(),
        }
        bytes.extend(address);
    }
    // Through any device, with any cookie.
    bytes.extend([0; 4]);
    bytes.extend([u8::MAX; 8]);
    bytes.try_into().expect("the parts of a question have this length")
}

/// A `nlmsghdr` and an `inet_diag_msg`; anything else is an error's.
fn read(answer: &[u8]) -> Option<Row> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if answer.len() < ANSWER || kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    Some(Row { state: answer[HEADER + 1], owner: word(HEADER + 64)?, inode: u64::from(word(HEADER + 68)?) })
}
