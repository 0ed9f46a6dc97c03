//! The address a server listens on.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

use crate::config::values::Listen;
use crate::output::error::Refusal;

/// Ports that `dev` tries before it gives up.
const PORTS: u16 = 100;

/// Listens on exactly this address: who configured it counts on it.
pub(crate) async fn on(listen: Listen) -> Result<TcpListener, Refusal> {
    TcpListener::bind(listen.0).await.map_err(|error| refusal(listen, &error))
}

/// Listens on this address, or on the next port that is free.
pub(crate) async fn on_free_port(listen: Listen) -> Result<TcpListener, Refusal> {
    let first = listen.0.port();
    for port in first..=first.saturating_add(PORTS - 1) {
        match TcpListener::bind(SocketAddr::new(listen.0.ip(), port)).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && port != 0 => {}
            bound => return bound.map_err(|error| refusal(listen, &error)),
        }
    }
    let message = format!("the ports {first} to {} are all taken; choose another with --listen", first + (PORTS - 1));
    Err(Refusal::new("port_taken", message))
}

fn refusal(listen: Listen, error: &io::Error) -> Refusal {
    let (code, message) = match error.kind() {
        ErrorKind::AddrInUse => (
            "port_taken",
            format!("{listen} is taken by another program; stop that one, or choose another port with --listen"),
        ),
        ErrorKind::AddrNotAvailable => (
            "bad_address",
            format!("{listen} is not an address of this machine; listen on 127.0.0.1, or on 0.0.0.0 for all it has"),
        ),
        ErrorKind::PermissionDenied => {
            ("port_forbidden", format!("this user may not listen on {listen}; choose a port above 1023 with --listen"))
        }
        _ => ("bad_address", format!("{listen} cannot be listened on: {error}; choose another address with --listen")),
    };
    Refusal::new(code, message)
}

/// Where a program on this machine reaches a server that listens there.
pub(crate) fn url(address: SocketAddr, tls: bool) -> String {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        ip if ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::LOCALHOST.into(),
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_stands_for_all_is_called_by_one() {
        let shown = |address: &str| url(address.parse().unwrap(), false);
        assert_eq!(shown("0.0.0.0:80"), "http://127.0.0.1:80");
        assert_eq!(shown("[::]:80"), "http://[::1]:80");
        assert_eq!(shown("10.0.0.1:7400"), "http://10.0.0.1:7400");
        assert_eq!(url("0.0.0.0:443".parse().unwrap(), true), "https://127.0.0.1:443");
    }

    #[tokio::test]
    async fn a_taken_port_is_refused_or_passed_over() {
        let taken = on("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let listen = Listen(taken.local_addr().unwrap());
        let refused = on(listen).await.unwrap_err().to_string();
        assert!(refused.contains("is taken by another program; "), "{refused}");
        let next = on_free_port(listen).await.unwrap().local_addr().unwrap().port();
        assert!(next > listen.0.port());
        let refused = on("192.0.2.1:0".parse().unwrap()).await.unwrap_err().to_string();
        assert!(refused.contains("is not an address of this machine; "), "{refused}");
    }
}
