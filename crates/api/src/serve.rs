//! The listening loop: HTTP/1.1 on every connection, under TLS if the server has a certificate.
//!
//! Connections are looked after here and not by `axum::serve`, which first reads a few bytes to tell HTTP/2 from HTTP/1:
//! that costs every connection 8 KiB for as long as it lives, and workers that wait are many.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::connection::{Watched, Working};
use crate::connections::{Connections, Place};
use crate::error::Problem;
use crate::guard::is_question_of_health;
use crate::headers;
use crate::peers;
use crate::routes::router;
use crate::security::Peer;
use crate::sending::Holding;
use crate::state::AppState;

/// A peer that acknowledges nothing for this long is gone.
const UNACKNOWLEDGED_MS: u32 = 60_000;
/// When there are no more file descriptors, some may be free again by then.
const EXHAUSTED: Duration = Duration::from_millis(100);
/// Bytes that a connection buffers of what it reads, and of what it writes: more than any head of a request needs.
const BUFFER_BYTES: usize = 64 * 1024;

/// Answers requests until the state is drained; then finishes what is under way.
pub async fn serve(listener: TcpListener, state: AppState) {
    let service = router(state.clone());
    let connections = Connections::new(&state.settings);
    let mut beside = tokio::task::JoinSet::new();
    beside.spawn(connections.clone().keep_sweeping());
    if let Some(tls) = state.settings.tls.clone() {
        beside.spawn(tls.keep_current());
    }
    // Every connection has one of these; when they are gone, so are the connections.
    let (open, _) = watch::channel(());
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&listener, &connections) => accepted,
            () = state.drained() => break,
        };
        // Without a place it is closed at once: all others are at work.
        let Some(guest) = connections.enter(peer.ip()) else { continue };
        // Small answers leave at once; a peer that vanished is noticed.
        let _ = stream.set_nodelay(true);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS);
        let place = guest.0.clone();
        let (service, state, open) = (service.clone(), state.clone(), open.subscribe());
        tokio::spawn(async move {
            let _open = open;
            let service = match state.settings.peers.check(&stream).await {
                Ok(()) => service,
                Err(problem) => peers::refusal(problem, state.clone()),
            };
            let stream = Watched::new(stream, guest);
            match &state.settings.tls {
                None => connection(stream, place, peer, service, &state).await,
                // A handshake that fails is the peer's to tell.
                Some(tls) => {
                    let handshake = tls.acceptor().accept(stream);
                    let shaken = tokio::select! {
                        shaken = handshake => shaken,
                        () = state.drained() => return,
                    };
                    if let Ok(stream) = shaken {
                        connection(stream, place, peer, service, &state).await;
                    }
                }
            }
        });
    }
    drop(listener);
    let ended = async {
        open.closed().await;
        state.sockets_closed().await;
    };
    // What takes longer than it may is left.
    let _ = tokio::time::timeout(Duration::from_millis(state.settings.drain_ms), ended).await;
}

async fn accept(listener: &TcpListener, connections: &Connections) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) => {
                tracing::error!(%error, "connections cannot be accepted");
                connections.make_room();
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
async fn connection<S>(stream: S, place: Arc<Place>, peer: SocketAddr, router: Router, state: &AppState)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let peer = Peer(Some(SocketAddr::new(peer.ip().to_canonical(), peer.port())));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        answer(&router, &place, request)
    });
    let connection = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
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

/// Answers a request, unless too many are under way.
fn answer(
    router: &TowerToHyperService<Router>,
    place: &Arc<Place>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Holding<Option<Working>>>, Infallible>> + use<> {
    let working = place.begin(is_question_of_health(request.uri().path()));
    let answer = working.map(|working| (working, router.call(request)));
    async move {
        let Some((mut working, answer)) = answer else { return Ok(overloaded().map(|body| Holding::new(body, None))) };
        let response = answer.await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            working.upgraded();
        }
        Ok(response.map(|body| Holding::new(body, Some(working))))
    }
}

fn overloaded() -> axum::response::Response {
    let detail = "this server answers as many requests at once as it can; try again in a moment";
    let mut response = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail).into_response();
    response.headers_mut().insert(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"));
    headers::complete(&mut response);
    response
}
