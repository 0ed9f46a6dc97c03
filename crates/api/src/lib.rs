//! Milepost over HTTP: routes, wire types, the one map from errors to answers, and the OpenAPI document made of them.
//!
//! ```text
//!   connection ─► guard (host, origin, token, body) ─► route ─► engine
//!                                                        │
//!   answer  ◄── headers ◄── wire types ◄─────────────────┘        errors ─► error.rs ─► problem details
//! ```
//!
//! **Invariant:** nothing is decided about runs here. A route reads a request, asks the engine and writes the answer.

mod bodies;
mod connection;
mod connections;
mod doorway;
mod error;
mod extract;
mod fields;
mod guard;
mod headers;
pub mod metrics;
mod openapi;
mod peers;
mod readiness;
mod routes;
mod security;
mod sending;
mod serve;
pub mod sockets;
mod state;
mod streams;
mod tls;
mod token;
mod wire;

pub use doorway::Doorway;
pub use error::Problem;
pub use openapi::document as openapi_document;
pub use peers::Peers;
pub use routes::router;
pub use serve::serve;
pub use state::{Actors, AppState, Settings};
pub use tls::{BadTls, Tls};
pub use token::{KnownToken, TokenHash};
pub use wire::cache as cache_answers;
pub use wire::definition as answers;
