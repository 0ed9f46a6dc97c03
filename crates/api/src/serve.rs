//! The listening loop.

use std::io;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;

use crate::routes::router;
use crate::state::AppState;

/// A peer that acknowledges nothing for this long is gone.
const UNACKNOWLEDGED_MS: u32 = 60_000;

/// Answers requests until the state is drained; then finishes what is under way.
///
/// # Errors
/// The listener is lost.
pub async fn serve(listener: TcpListener, state: AppState) -> io::Result<()> {
    let listener = listener.tap_io(|stream| {
        // Small answers leave at once; a peer that vanished is noticed.
        let _ = stream.set_nodelay(true);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&*stream, UNACKNOWLEDGED_MS);
    });
    let drained = state.clone();
    let drain = Duration::from_millis(state.settings.drain_ms);
    let service = router(state.clone()).into_make_service();
    let server = axum::serve(listener, service).with_graceful_shutdown(async move { drained.drained().await });
    tokio::select! {
        ended = async {
            server.await?;
            state.sockets_closed().await;
            Ok(())
        } => ended,
        () = async { state.drained().await; tokio::time::sleep(drain).await } => Ok(()),
    }
}
