//! The listening loop: HTTP/1.1 on every connection.
//!
//! Connections are looked after here and not by `axum::serve`, which first reads a few bytes to tell HTTP/2 from HTTP/1:
//! that costs every connection 8 KiB for as long as it lives, and workers that wait are many.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::routes::router;
use crate::state::AppState;

/// A peer that acknowledges nothing for this long is gone.
const UNACKNOWLEDGED_MS: u32 = 60_000;
/// When there are no more file descriptors, some may be free again by then.
const EXHAUSTED: Duration = Duration::from_secs(1);

/// Answers requests until the state is drained; then finishes what is under way.
pub async fn serve(listener: TcpListener, state: AppState) {
    let service = router(state.clone());
    // Every connection has one of these; when they are gone, so are the connections.
    let (open, _) = watch::channel(());
    loop {
        let stream = tokio::select! {
            stream = accept(&listener) => stream,
            () = state.drained() => break,
        };
        tokio::spawn(connection(stream, service.clone(), state.clone(), open.subscribe()));
    }
    drop(listener);
    let ended = async {
        open.closed().await;
        state.sockets_closed().await;
    };
    // What takes longer than it may is left.
    let _ = tokio::time::timeout(Duration::from_millis(state.settings.drain_ms), ended).await;
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) => {
                tracing::error!(%error, "connections cannot be accepted");
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
}

/// Whoever wanted to connect has thought better of it.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionAborted | ConnectionReset)
}

/// One connection, to its end. Once the state is drained it ends with the answer that is under way.
async fn connection(stream: TcpStream, service: Router, state: AppState, _open: watch::Receiver<()>) {
    // Small answers leave at once; a peer that vanished is noticed.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS);
    let service = TowerToHyperService::new(service);
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades();
    tokio::pin!(connection);
    // A connection that breaks is the peer's to tell.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = state.drained() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
