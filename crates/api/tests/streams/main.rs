//! Streams over real sockets: a server, clients that read and clients that do not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod connections;
mod load;
mod restart;
mod slow;
mod sse;
mod support;
mod websocket;
