//! Requests as an attacker writes them: bytes over TCP, nothing is checked on the way out.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No answer may take longer than this; documents have ten seconds to be checked.
pub(crate) const DEADLINE: Duration = Duration::from_secs(15);

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) took: Duration,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(600)]).into_owned()
    }
}

/// A request that is put together by hand.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query, escaped as they are to be sent.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn new(method: &str, target: impl Into<String>) -> Request {
        Request { method: method.to_owned(), target: target.into(), headers: Vec::new(), body: None }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Request {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn body(mut self, media_type: &str, body: impl Into<Vec<u8>>) -> Request {
        self.body = Some(body.into());
        self.header("content-type", media_type)
    }

    pub(crate) fn json(self, body: impl Into<Vec<u8>>) -> Request {
        self.body("application/json", body)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            bytes.extend(b"host: 127.0.0.1\r\n");
        }
        for (name, value) in &self.headers {
            bytes.extend(name.as_bytes());
            bytes.extend(b": ");
            bytes.extend(value);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"connection: close\r\n");
        if let Some(body) = &self.body {
            bytes.extend(format!("content-length: {}\r\n", body.len()).bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(self.body.as_deref().unwrap_or_default());
        bytes
    }

    /// What it is, in few words.
    pub(crate) fn shown(&self) -> String {
        let cut = |text: &str| text.chars().take(300).collect::<String>();
        let body = self.body.as_deref().map(|body| String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned());
        let headers: Vec<String> = self
            .headers
            .iter()
            .map(|(name, value)| cut(&format!("{name}: {}", String::from_utf8_lossy(value))))
            .collect();
        format!("{} {} {headers:?} {}", self.method, cut(&self.target), body.unwrap_or_default())
    }
}

/// Sends bytes while reading what comes back, to the end of the answer. A stream that goes on is left after its head.
pub(crate) fn exchange(port: u16, bytes: &[u8], deadline: Duration) -> Result<Answer, String> {
    let begun = Instant::now();
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| format!("no connection: {error}"))?;
    stream.set_read_timeout(Some(deadline)).unwrap();
    stream.set_write_timeout(Some(deadline)).unwrap();
    let mut received = Vec::new();
    let ended = std::thread::scope(|scope| {
        if bytes.len() < 64 * 1024 {
            let _ = (&stream).write_all(bytes);
        } else {
            // A server may answer before it has all, and take no more.
            scope.spawn(|| (&stream).write_all(bytes));
        }
        let ended = read(&stream, &mut received, begun, deadline);
        let _ = stream.shutdown(Shutdown::Both);
        ended
    });
    parse(received, begun.elapsed()).map_err(|error| match ended {
        Ok(()) => error,
        Err(cause) => format!("{error}; {cause}"),
    })
}

fn read(mut stream: &TcpStream, received: &mut Vec<u8>, begun: Instant, deadline: Duration) -> Result<(), String> {
    let (mut piece, mut wanted) = (vec![0; 64 * 1024], None);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => received.extend(&piece[..count]),
            Err(error) => return Err(format!("after {:?}: {error}", begun.elapsed())),
        }
        if begun.elapsed() > deadline {
            return Err(format!("no end after {:?}", begun.elapsed()));
        }
        if wanted.is_none()
            && let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
            let is_stream = head.starts_with("http/1.1 101") || head.contains("content-type: text/event-stream");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            wanted = Some(if is_stream { 0 } else { length.map_or(usize::MAX, |length| end + 4 + length) });
        }
        if wanted.is_some_and(|wanted| received.len() >= wanted) {
            return Ok(());
        }
    }
}

fn parse(received: Vec<u8>, took: Duration) -> Result<Answer, String> {
    let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Err(format!("no answer: {:?}", String::from_utf8_lossy(&received[..received.len().min(200)])));
    };
    let head = String::from_utf8_lossy(&received[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| format!("no status: {head:?}"))?;
    let mut answer = Answer { status, head, body: received[end + 4..].to_vec(), took };
    if answer.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        answer.body = unchunked(&answer.body);
    }
    Ok(answer)
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(size @ 1..) = size.filter(|size| end + 2 + size <= rest.len()) else { break };
        body.extend(&rest[end + 2..end + 2 + size]);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
    }
    body
}

/// Every byte that is not a letter or a digit, escaped.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let one = |byte: &u8| match byte.is_ascii_alphanumeric() || b"-_.".contains(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    bytes.iter().map(one).collect()
}
