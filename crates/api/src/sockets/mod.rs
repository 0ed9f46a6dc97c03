//! Whose the TCP sockets of this machine are. Linux tells; elsewhere nobody does.
//!
//! The kernel is asked for one socket (`diag.rs`), which costs the same however many there are. Where it does not answer
//! such questions, its list of all sockets is read (`table.rs`).
//!
//! **Invariant:** the owner of a socket that its process has closed is nobody's: the kernel shows such a socket as root's.

#[cfg(target_os = "linux")]
mod diag;
#[cfg(target_os = "linux")]
mod table;

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;

/// States of a socket, by the kernel's numbers.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;
const LISTEN: u8 = 10;

/// A socket as the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    state: u8,
    owner: u32,
    /// 0 once its process has closed it.
    inode: u64,
}

/// A connection that this process has accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    ours: SocketAddr,
    theirs: SocketAddr,
    inode: u64,
}

impl Accepted {
    pub(crate) fn new(socket: BorrowedFd<'_>, ours: SocketAddr, theirs: SocketAddr) -> io::Result<Accepted> {
        let inode = File::from(socket.try_clone_to_owned()?).metadata()?.ino();
        Ok(Accepted { ours: canonical(ours), theirs: canonical(theirs), inode })
    }

    /// The user whose process holds the other end. `None` where that end is not a socket of this machine, has been closed,
    /// or cannot be looked up.
    pub(crate) fn peer_owner(self) -> Option<u32> {
        let peer = find(self.theirs, self.ours).filter(|row| row.inode != 0 && row.state != LISTEN)?;
        // Asked afterwards: while this connection lives, no other socket can have had the peer's addresses.
        let own = find(self.ours, self.theirs)?;
        let lives = own.inode == self.inode && matches!(own.state, ESTABLISHED | CLOSE_WAIT);
        lives.then_some(peer.owner)
    }
}

/// The user whose process listens on this address of this machine.
#[must_use]
pub fn listener_owner(address: SocketAddr) -> Option<u32> {
    let nobody =
        SocketAddr::new(if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::from([0; 16]) }, 0);
    find(canonical(address), nobody).filter(|row| row.state == LISTEN && row.inode != 0).map(|row| row.owner)
}

/// Whether this machine tells whose its sockets are: it is tried.
#[must_use]
pub fn tell_their_owners() -> bool {
    let owner = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let _peer = std::net::TcpStream::connect(listener.local_addr().ok()?).ok()?;
        let (stream, theirs) = listener.accept().ok()?;
        Accepted::new(stream.as_fd(), stream.local_addr().ok()?, theirs).ok()?.peer_owner()
    };
    owner() == Some(rustix::process::geteuid().as_raw())
}

/// An IPv4 address in the clothes of IPv6 is an IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The socket with these two ends.
#[cfg(target_os = "linux")]
fn find(local: SocketAddr, remote: SocketAddr) -> Option<Row> {
    // That there is none is told with the same word as that such questions are not answered here.
    diag::find(local, remote).or_else(|| table::find(local, remote))
}

#[cfg(not(target_os = "linux"))]
fn find(_local: SocketAddr, _remote: SocketAddr) -> Option<Row> {
    None
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn connected(address: &str) -> (TcpListener, TcpStream, TcpStream, Accepted) {
        let listener = TcpListener::bind(address).unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, theirs) = listener.accept().unwrap();
        let accepted = Accepted::new(stream.as_fd(), stream.local_addr().unwrap(), theirs).unwrap();
        (listener, peer, stream, accepted)
    }

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn the_owner_of_the_other_end_is_told() {
        assert!(tell_their_owners());
        for address in ["127.0.0.1:0", "127.1.2.3:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let (_listener, _peer, _stream, accepted) = connected(address);
            assert_eq!(accepted.peer_owner(), Some(me()), "{address}");
            let (theirs, ours) = (accepted.theirs, accepted.ours);
            for (local, remote) in [(theirs, ours), (ours, theirs)] {
                let by_question = diag::find(local, remote).unwrap();
                assert_eq!(Some(by_question), table::find(local, remote), "{address}");
                assert_eq!((by_question.state, by_question.owner), (ESTABLISHED, me()), "{address}");
            }
        }
    }

    #[test]
    fn who_has_gone_is_nobody() {
        let (_listener, peer, _stream, accepted) = connected("127.0.0.1:0");
        drop(peer);
        assert_eq!(accepted.peer_owner(), None, "its process has closed it");
        for found in [diag::find(accepted.theirs, accepted.ours), table::find(accepted.theirs, accepted.ours)] {
            assert!(found.is_none_or(|row| row.inode == 0), "{found:?}");
        }
    }

    #[test]
    fn who_only_listens_to_more_is_there() {
        let (_listener, peer, _stream, accepted) = connected("127.0.0.1:0");
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(accepted.peer_owner(), Some(me()), "a request may end before its answer begins");
    }

    #[test]
    fn addresses_that_another_connection_has_now_prove_nothing() {
        let (_listener, _peer, stream, accepted) = connected("127.0.0.1:0");
        assert_eq!(Accepted { inode: accepted.inode + 1, ..accepted }.peer_owner(), None);
        drop(stream);
        assert_eq!(accepted.peer_owner(), None);
    }

    #[test]
    fn who_listens_is_told() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let listening = listener.local_addr().unwrap();
            assert_eq!(listener_owner(listening), Some(me()));
            drop(listener);
            assert_eq!(listener_owner(listening), None);
        }
        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = everywhere.local_addr().unwrap().port();
        assert_eq!(listener_owner(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)), Some(me()));
        let (_listener, _peer, _stream, accepted) = connected("127.0.0.1:0");
        assert_eq!(listener_owner(accepted.theirs), None, "a connection is no listener");
    }
}
