//! A server on a free port, a reader of server-sent events and one of WebSockets, both with small buffers where asked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use milepost_api::{AppState, Settings, serve};
use milepost_core::id::RunId;
use milepost_engine::skills::SkillError;
use milepost_engine::view::EventView;
use milepost_engine::{Config, Engine, NewRun};
use milepost_store::blobs::Blobs;
use milepost_store::sqlite::SqliteStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// Something that hangs is a failed test, not a hanging one.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("this takes far too long: something is stuck")
}

pub(crate) async fn until(is_so: impl Fn() -> bool) {
    within(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Buffers of a size that a test can fill.
const SMALL: u32 = 8 * 1024;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Arc<Engine>,
    pub(crate) gate: Arc<Semaphore>,
    state: AppState,
    serving: JoinHandle<()>,
    _folder: Arc<TempDir>,
}

impl Server {
    pub(crate) async fn new() -> Server {
        Server::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Server {
        Server::on(Arc::new(tempfile::tempdir().unwrap()), settings).await
    }

    /// A server on a database that may be there already. Its skill `gate` waits to be let through.
    pub(crate) async fn on(folder: Arc<TempDir>, settings: Settings) -> Server {
        let store = Arc::new(SqliteStore::open(&folder.path().join("runs.db")).unwrap());
        let gate = Arc::new(Semaphore::new(0));
        let blobs = Some(Blobs::in_folder(&folder.path().join("blobs")));
        let config = Config { workers: true, blobs, ..Config::default() };
        let config = config.skill("gate", {
            let gate = gate.clone();
            move |_, input: Value| {
                let gate = gate.clone();
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok::<_, SkillError>(input)
                }
            }
        });
        let engine = Arc::new(Engine::open_with(store, config).await.unwrap());
        let state = AppState::new(engine.clone(), settings);
        let listening = TcpSocket::new_v4().unwrap();
        listening.set_send_buffer_size(SMALL).unwrap();
        listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = listening.listen(2048).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, state.clone()));
        Server { address, engine, gate, state, serving, _folder: folder }
    }

    pub(crate) async fn start(&self, document: &Value) -> RunId {
        within(self.engine.start_document(&document.to_string(), NewRun::default())).await.unwrap().run
    }

    pub(crate) async fn signal(&self, run: RunId, name: &str) {
        within(self.engine.signal(run, Engine::new_signal(name))).await.unwrap();
    }

    /// The log as it is shown outside.
    pub(crate) async fn log(&self, run: RunId) -> Vec<Value> {
        let rows = self.engine.store().events(self.engine.org(), run, 0, 1_000_000).await.unwrap();
        rows.iter().map(|row| serde_json::to_value(EventView::of(run, row)).unwrap()).collect()
    }

    /// Waits until all readers have been let go of.
    pub(crate) async fn unwatched(&self) {
        until(|| self.engine.watched_runs() == 0).await;
    }

    /// Waits until no WebSocket is open.
    pub(crate) async fn closed(&self) {
        until(|| self.open_sockets() == 0).await;
    }

    pub(crate) fn open_sockets(&self) -> usize {
        self.state.open_sockets()
    }

    pub(crate) fn drain(&self) {
        self.state.drain();
    }

    pub(crate) async fn stop(self) {
        self.drain();
        within(self.serving).await.unwrap();
        within(self.engine.shutdown()).await;
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        within(TcpStream::connect(self.address)).await.unwrap()
    }

    pub(crate) async fn connect_small(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(SMALL).unwrap();
        within(socket.connect(self.address)).await.unwrap()
    }

    pub(crate) async fn sse(&self, run: RunId, query: &str, headers: &[(&str, &str)]) -> Sse {
        Sse::open(self.connect().await, &format!("/api/v1/runs/{run}/stream{query}"), headers).await
    }

    /// Stops reading when its small buffer is full.
    pub(crate) async fn small_sse(&self, run: RunId) -> Sse {
        Sse::open(self.connect_small().await, &format!("/api/v1/runs/{run}/stream"), &[]).await
    }

    pub(crate) async fn ws(&self, query: &str) -> Ws {
        Ws::open(self.connect().await, self.address, query).await
    }

    pub(crate) async fn small_ws(&self, query: &str) -> Ws {
        Ws::open(self.connect_small().await, self.address, query).await
    }
}

/// A step that waits for the signal `go`, and one after it.
pub(crate) fn waiting() -> Value {
    json!({"name": "waiting", "steps": {
        "wait": {"skill": "wait", "input": {"signal": "go"}},
        "after": {"skill": "noop", "depends_on": ["wait"]},
    }})
}

/// Steps one after the other, each of which waits to be let through.
pub(crate) fn gated(steps: usize) -> Value {
    let step = |n: usize| {
        let after: Vec<String> = n.checked_sub(1).map(|before| format!("s{before}")).into_iter().collect();
        (format!("s{n}"), json!({"skill": "gate", "input": {"n": n}, "depends_on": after}))
    };
    json!({"name": "gated", "steps": (0..steps).map(step).collect::<serde_json::Map<_, _>>()})
}

/// Many large events.
pub(crate) fn large(events: usize) -> Value {
    let text = "x".repeat(32 * 1024);
    json!({"name": "large", "steps": {
        "a": {"skill": "echo", "foreach": format!("${{{{ range({events}) }}}}"), "input": {"n": "${{ item }}", "text": text}}
    }})
}

/// An answer of server-sent events, taken piece by piece.
pub(crate) struct Sse {
    reader: BufReader<TcpStream>,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    text: String,
    over: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SseEvent {
    pub(crate) id: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) data: Value,
}

impl Sse {
    pub(crate) async fn open(mut stream: TcpStream, path: &str, headers: &[(&str, &str)]) -> Sse {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reader = BufReader::new(stream);
        let status = line(&mut reader).await.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        while let Some((name, value)) = line(&mut reader).await.split_once(": ") {
            headers.push((name.to_owned(), value.to_owned()));
        }
        Sse { reader, status, headers, text: String::new(), over: false }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The body of an answer that is no stream.
    pub(crate) async fn json(&mut self) -> Value {
        let length = self.header("content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        within(self.reader.read_exact(&mut body)).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Text up to an empty line; `None` at the end of the answer.
    pub(crate) async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                return Some(block);
            }
            if self.over {
                assert_eq!(self.text, "", "an answer does not end in the middle of an event");
                return None;
            }
            self.more().await;
        }
    }

    async fn more(&mut self) {
        let size = usize::from_str_radix(&line(&mut self.reader).await, 16).unwrap();
        let mut chunk = vec![0; size + 2];
        within(self.reader.read_exact(&mut chunk)).await.unwrap();
        assert_eq!(&chunk[size..], b"\r\n");
        self.text.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
        self.over = size == 0;
    }

    /// The next event that is more than a comment.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            let block = self.block().await?;
            let mut event = SseEvent::default();
            for line in block.lines() {
                match line.split_once(": ").unwrap_or((line, "")) {
                    ("id", id) => event.id = Some(id.parse().unwrap()),
                    ("event", name) => event.name = Some(name.to_owned()),
                    ("data", data) => event.data = serde_json::from_str(data).unwrap(),
                    ("" | "retry", _) => {}
                    other => panic!("{other:?} in {block}"),
                }
            }
            if event != SseEvent::default() {
                return Some(event);
            }
        }
    }

    /// Events of the run until one that has a name, and that one.
    pub(crate) async fn rest(&mut self) -> (Vec<Value>, Option<SseEvent>) {
        let mut seen = Vec::new();
        while let Some(event) = self.next().await {
            if event.name.is_some() {
                return (seen, Some(event));
            }
            assert_eq!(event.data["run_seq"].as_u64(), event.id);
            seen.push(event.data);
        }
        (seen, None)
    }
}

async fn line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    within(reader.read_line(&mut line)).await.unwrap();
    line.trim_end().to_owned()
}

pub(crate) struct Ws {
    pub(crate) socket: WebSocketStream<TcpStream>,
}

impl Ws {
    async fn open(stream: TcpStream, address: SocketAddr, query: &str) -> Ws {
        let url = format!("ws://{address}/api/v1/ws{query}");
        let (socket, _) = within(tokio_tungstenite::client_async(url, stream)).await.unwrap();
        Ws { socket }
    }

    pub(crate) async fn say(&mut self, message: &Value) {
        self.say_text(&message.to_string()).await;
    }

    pub(crate) async fn say_text(&mut self, text: &str) {
        within(self.socket.send(Message::text(text))).await.unwrap();
    }

    pub(crate) async fn subscribe(&mut self, run: RunId, after_seq: u64) {
        self.say(&json!({"type": "subscribe", "run_id": run, "after_seq": after_seq})).await;
        let told = self.hear().await;
        assert_eq!(told, json!({"type": "subscribed", "run_id": run, "after_seq": after_seq}));
    }

    /// The next message that is more than a sign of life.
    pub(crate) async fn hear(&mut self) -> Value {
        match self.hear_or_end().await {
            Ok(message) => message,
            Err(close) => panic!("closed with {close:?}"),
        }
    }

    pub(crate) async fn hear_or_end(&mut self) -> Result<Value, Option<CloseFrame>> {
        loop {
            match within(self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(frame))) => return Err(frame),
                Some(Ok(other)) => panic!("{other:?}"),
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// Events of the one run that it follows, and what comes then.
    pub(crate) async fn rest(&mut self) -> (Vec<Value>, Result<Value, Option<CloseFrame>>) {
        let mut seen = Vec::new();
        loop {
            match self.hear_or_end().await {
                Ok(mut message) if message["type"] == "event" => seen.push(message["event"].take()),
                other => return (seen, other),
            }
        }
    }
}
