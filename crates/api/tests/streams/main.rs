//! Streams over real sockets: a server, clients that read and clients that do not.

mod load;
mod restart;
mod slow;
mod sse;
mod support;
mod websocket;
