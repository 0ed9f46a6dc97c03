//! A receiver that steps are pushed to: a real server that counts, checks signatures, and answers as it is told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::sync::watch;

pub(crate) const KEY: &str = "a key that only these two know";

/// Answers with a completed outcome, as long as it is open; holds requests otherwise.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    /// Ends with the test.
    _runtime: tokio::runtime::Runtime,
}

struct Shared {
    received: Mutex<Vec<(String, Value)>>,
    forged: Mutex<usize>,
    answer: Mutex<StatusCode>,
    open: watch::Sender<bool>,
}

impl Receiver {
    pub(crate) fn on(address: &str) -> Receiver {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let (open, answer) = (watch::Sender::new(true), Mutex::new(StatusCode::OK));
        let shared = Arc::new(Shared { received: Mutex::default(), forged: Mutex::default(), answer, open });
        let routes = Router::new().fallback(receive).with_state(shared.clone());
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Receiver { address, shared, _runtime: runtime }
    }

    /// Holds what comes from now on, or lets it all through.
    pub(crate) fn open(&self, open: bool) {
        self.shared.open.send_replace(open);
    }

    pub(crate) fn answer(&self, status: u16) {
        *self.shared.answer.lock().unwrap() = StatusCode::from_u16(status).unwrap();
    }

    /// Idempotency keys and bodies, in the order in which they came.
    pub(crate) fn received(&self) -> Vec<(String, Value)> {
        self.shared.received.lock().unwrap().clone()
    }

    /// Requests that were not signed with the key.
    pub(crate) fn forged(&self) -> usize {
        *self.shared.forged.lock().unwrap()
    }

    pub(crate) fn document(&self) -> Value {
        pushed_to(&self.address.to_string())
    }
}

/// Two steps, one after the other; the second is given what the first answered.
pub(crate) fn pushed_to(address: &str) -> Value {
    let push = json!({"url": format!("http://{address}/hook")});
    json!({"name": "pushed", "steps": {
        "a": {"skill": "s", "runtime": "push", "push": push, "input": {"n": "${{ payload.n | default(1) }}"}},
        "b": {"skill": "s", "runtime": "push", "push": push, "input": {"n": "${{ steps.a.output.n }}"}},
    }})
}

async fn receive(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    if !is_signed(&headers, uri.path(), &body) {
        *shared.forged.lock().unwrap() += 1;
        return (StatusCode::UNAUTHORIZED, String::new());
    }
    let body: Value = serde_json::from_slice(&body).unwrap();
    let n = body["input"]["n"].as_i64().unwrap();
    shared.received.lock().unwrap().push((header("idempotency-key"), body));
    let mut open = shared.open.subscribe();
    open.wait_for(|open| *open).await.unwrap();
    let answer = *shared.answer.lock().unwrap();
    (answer, json!({"outcome": "completed", "output": {"n": n + 1}}).to_string())
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

pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
