//! Work on a thread of its own, so that what it measures is the server and not those who share a thread with it.

use anyhow::Context as _;
use tokio::sync::oneshot;

pub(super) async fn apart<T: Send + 'static>(
    work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (reply, answer) = oneshot::channel();
    std::thread::Builder::new().name("bench-apart".to_owned()).spawn(move || {
        // Nobody listens any more: the load has failed elsewhere.
        let _ = reply.send(runtime.block_on(work));
    })?;
    answer.await.context("a thread of the load has ended")?
}
