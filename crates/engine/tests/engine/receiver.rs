//! A receiver that steps are pushed to: a real server that keeps what it was sent, checks who sent it, and answers as it is
//! told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::sync::Semaphore;

use crate::support::{Gate, within};

pub(crate) const KEY: &str = "a key that only these two know";

/// What to answer.
#[derive(Clone)]
pub(crate) enum Reply {
    Of(u16, &'static [(&'static str, &'static str)], String),
    /// Not before it is let through.
    Held(Gate, Box<Reply>),
}

impl Reply {
    pub(crate) fn json(status: u16, body: &Value) -> Reply {
        Reply::Of(status, &[("content-type", "application/json")], body.to_string())
    }

    pub(crate) fn status(status: u16) -> Reply {
        Reply::Of(status, &[], String::new())
    }

    pub(crate) fn output(output: &Value) -> Reply {
        Reply::json(200, &json!({ "outcome": "completed", "output": output }))
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
    }
}

#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    received: Mutex<Vec<Received>>,
    arrived: Semaphore,
    /// One after the other; then always the last.
    replies: Mutex<VecDeque<Reply>>,
}

impl Receiver {
    /// Answers so, one request after the other, and with the last for ever.
    pub(crate) async fn answering(replies: impl IntoIterator<Item = Reply>) -> Receiver {
        Receiver::on("127.0.0.1:0", replies).await
    }

    pub(crate) async fn on(address: &str, replies: impl IntoIterator<Item = Reply>) -> Receiver {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let replies = Mutex::new(replies.into_iter().collect());
        let shared = Arc::new(Shared { received: Mutex::default(), arrived: Semaphore::new(0), replies });
        let routes = Router::new().fallback(receive).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Receiver { url, shared }
    }

    /// What requests to this host are signed with.
    pub(crate) fn key(&self) -> String {
        let host = self.url.trim_start_matches("http://").trim_end_matches("/hook");
        hmac(KEY.as_bytes(), &[host.as_bytes()])
    }

    /// A document of one step that is pushed here, with further keys.
    pub(crate) fn document(&self, more: &str) -> String {
        format!("{{name: pushed, steps: {{a: {{skill: s, runtime: push, push: {{url: '{}'}}{more}}}}}}}", self.url)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// Waits for one more request.
    pub(crate) async fn arrival(&self) -> Received {
        within(self.shared.arrived.acquire()).await.unwrap().forget();
        self.received().last().unwrap().clone()
    }

    pub(crate) fn answer_from_now_on(&self, reply: Reply) {
        *self.shared.replies.lock().unwrap() = [reply].into();
    }
}

async fn receive(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if !is_signed(&headers, uri.path(), &body) {
        return (StatusCode::UNAUTHORIZED, "the signature is wrong").into_response();
    }
    let body = serde_json::from_slice(&body).unwrap();
    shared.received.lock().unwrap().push(Received { headers, body });
    shared.arrived.add_permits(1);
    let reply = {
        let mut replies = shared.replies.lock().unwrap();
        if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() }
    };
    let mut reply = &reply;
    while let Reply::Held(gate, then) = reply {
        gate.clone().pass().await;
        reply = then;
    }
    let Reply::Of(status, headers, body) = reply else { unreachable!("the gate was passed") };
    let mut response = (StatusCode::from_u16(*status).unwrap(), body.clone()).into_response();
    for (name, value) in *headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

/// As docs/push.md says it: the key of this host, over time, delivery, address and body.
fn is_signed(headers: &HeaderMap, path: &str, body: &[u8]) -> bool {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let host = header("host");
    let mut parts = header("milepost-signature").split(',').filter_map(|part| part.split_once('='));
    let Some(("t", time)) = parts.next() else { return false };
    let signed = format!("{time}\n{}\nhttp://{host}{path}\n", header("milepost-delivery"));
    let expected = hmac(hmac(KEY.as_bytes(), &[host.as_bytes()]).as_bytes(), &[signed.as_bytes(), body]);
    parts.any(|(name, value)| name == "v2" && value == expected)
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
