//! Whose connections are answered, among the users of this machine.

use std::os::fd::AsFd as _;

use axum::Router;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::IntoResponse as _;
use tokio::net::TcpStream;

use crate::error::Problem;
use crate::headers;
use crate::security::{Asked, Peer};
use crate::sockets::Accepted;
use crate::state::AppState;

const ROOT: u32 = 0;

/// Whose connections a server answers. Looked at once per connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peers {
    /// Anybody's who reaches it.
    #[default]
    All,
    /// Those of the user it runs as, and of root, who may do everything anyway. For a loopback address, where the other
    /// end of each connection is a socket of this machine.
    OwnUser,
}

impl Peers {
    pub(crate) async fn check(self, stream: &TcpStream) -> Result<(), Problem> {
        match self {
            Peers::All => Ok(()),
            Peers::OwnUser => judge(peer_owner(stream).await, rustix::process::geteuid().as_raw()),
        }
    }
}

async fn peer_owner(stream: &TcpStream) -> Option<u32> {
    let accepted = Accepted::new(stream.as_fd(), stream.local_addr().ok()?, stream.peer_addr().ok()?).ok()?;
    // Where the kernel's list is read, that may take a moment.
    tokio::task::spawn_blocking(move || accepted.peer_owner()).await.ok()?
}

fn judge(peer: Option<u32>, own: u32) -> Result<(), Problem> {
    let detail = match peer {
        Some(ROOT) => return Ok(()),
        Some(owner) if owner == own => return Ok(()),
        Some(owner) => format!(
            "this server belongs to user {own} of this machine and answers that user alone, not user {owner}; start one of \
             your own with `milepost dev`, or share one with `milepost serve` and tokens"
        ),
        None => format!(
            "this server belongs to user {own} of this machine and answers that user alone, and it cannot tell whose this \
             connection is; connect from this machine itself, or start it with `milepost dev --auth token`"
        ),
    };
    Err(Problem::new(StatusCode::FORBIDDEN, "foreign_user", detail))
}

/// Answers a request with this, and no other one on the same connection.
pub(crate) fn refusal(problem: Problem, state: AppState) -> Router {
    Router::new().fallback(async move |method: Method, peer: Peer| {
        let mut response = problem.into_response();
        state.security.note(&Asked::from_peer(&method, peer), &response);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        headers::complete(&mut response);
        response
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_servers_own_user_come_in() {
        assert!(judge(Some(1000), 1000).is_ok() && judge(Some(0), 1000).is_ok() && judge(Some(0), 0).is_ok());
        for (peer, says) in [(Some(1001), "not user 1001; start one"), (None, "cannot tell whose")] {
            let refused = judge(peer, 1000).unwrap_err();
            assert_eq!(refused.code(), "foreign_user");
            assert!(refused.detail().contains(says), "{}", refused.detail());
        }
        assert!(judge(Some(1000), 0).is_err());
    }
}
