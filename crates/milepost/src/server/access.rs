//! Who may come in, beyond what the settings say.

use std::sync::Arc;

use milepost_api::{Actors, Doorway, KnownToken, Peers, Settings, TokenHash};

use super::room;
use crate::config::ServerConfig;
use crate::person;

/// Who a server is for.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Whom the settings let in.
    Configured,
    /// The user who started it, known by the sockets of this machine.
    OwnUser,
    /// Whoever has the token that was made for this start.
    Token(Arc<Doorway>),
}

impl Access {
    pub(super) fn settings(&self, config: &ServerConfig) -> Settings {
        let configured = Settings {
            tokens: config.tokens.value.clone(),
            loopback_only: config.listen.value.is_loopback() && config.is_open(),
            drain_ms: config.drain_seconds.value * 1000,
            connections: room::for_connections(&config.connections, config.inline_concurrency.value),
            header_ms: config.head_seconds.value * 1000,
            idle_ms: config.idle_seconds.value * 1000,
            body_ms: config.body_seconds.value * 1000,
            write_ms: config.write_seconds.value * 1000,
            streams: config.streams.value,
            body_bytes: config.body_mib.value.saturating_mul(1 << 20),
            ..Settings::default()
        };
        match self {
            Access::Configured => configured,
            // All who come in are one person, by whatever name they call themselves.
            Access::OwnUser => Settings {
                peers: Peers::OwnUser,
                actors: Actors::Said { otherwise: Some(person::user()) },
                ..configured
            },
            Access::Token(doorway) => Settings {
                tokens: vec![KnownToken { name: Some(person::user()), hash: TokenHash::of(doorway.token()) }],
                doorway: Some(doorway.clone()),
                ..configured
            },
        }
    }

    /// What a program needs that finds the server by its file.
    pub(super) fn token(&self) -> Option<&str> {
        match self {
            Access::Token(doorway) => Some(doorway.token()),
            Access::Configured | Access::OwnUser => None,
        }
    }
}
