//! One socket, looked for in `/proc/net/tcp` and `/proc/net/tcp6`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr};

use super::Row;

/// A row may be passed over while others come and go, so it is looked for again before it counts as missing.
const LOOKS: usize = 3;

pub(super) fn find(local: SocketAddr, remote: SocketAddr) -> Option<Row> {
    (0..LOOKS).find_map(|_| {
        look("/proc/net/tcp6", local, remote, true).or_else(|| look("/proc/net/tcp", local, remote, false))
    })
}

fn look(path: &str, local: SocketAddr, remote: SocketAddr, six: bool) -> Option<Row> {
    let ends = [shown(local, six)?, shown(remote, six)?];
    let mut table = BufReader::with_capacity(64 * 1024, File::open(path).ok()?);
    let mut line = String::new();
    while table.read_line(&mut line).ok()? > 0 {
        if let Some(row) = read(&line, &ends) {
            return Some(row);
        }
        line.clear();
    }
    None
}

/// An end as the table shows it: words of 32 bits, each in this machine's order.
fn shown(end: SocketAddr, six: bool) -> Option<String> {
    let octets = match (end.ip(), six) {
        (IpAddr::V4(ip), false) => ip.octets().to_vec(),
        (IpAddr::V4(ip), true) => ip.to_ipv6_mapped().octets().to_vec(),
        (IpAddr::V6(ip), true) => ip.octets().to_vec(),
        (IpAddr::V6(_), false) => return None,
    };
    let mut text = String::new();
    for word in octets.as_chunks().0 {
        let _ = write!(text, "{:08X}", u32::from_ne_bytes(*word));
    }
    let _ = write!(text, ":{:04X}", end.port());
    Some(text)
}

/// `sl local remote st tx:rx tr:when retrnsmt uid timeout inode …`
fn read(line: &str, [local, remote]: &[String; 2]) -> Option<Row> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != local || fields.next()? != remote {
        return None;
    }
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let mut fields = fields.skip(3);
    let (owner, inode) = (fields.next()?.parse().ok()?, fields.nth(1)?.parse().ok()?);
    Some(Row { state, owner, inode })
}
