//! Steps that are pushed: the outbox takes them from their lines as a worker would, as many as their hosts have room for.

use std::sync::Arc;

use milepost_core::plan::Push;

use super::Committer;

impl Committer {
    /// Makes an offer for each step in line whose host has room. One that comes to nothing is let go, and with it its place.
    pub(super) fn offer_pushes(&mut self) {
        let now = self.parts.clock.now();
        for queue in self.lines.queues() {
            let Some(host) = queue.strip_prefix(Push::QUEUE) else { continue };
            let host: Arc<str> = host.into();
            for _ in 0..self.lines.count(&queue) {
                let Some(slot) = self.parts.outbox.hosts().enter_or_wait(&host, now) else { break };
                let offer = self.parts.outbox.offer(queue.clone(), slot);
                self.impatient.push(offer.id);
                self.offers.add(offer);
            }
        }
    }
}
