//! A small HTTP/1.1 client for loads: one connection, requests one after the other, nothing that is not needed. What it costs is
//! taken from the server's share of the machine, so it costs little.

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
    line: String,
    body: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(host: &str) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(host).await.with_context(|| format!("no server at {host}"))?;
        stream.set_nodelay(true)?;
        let stream = BufReader::with_capacity(64 * 1024, stream);
        Ok(Connection { stream, host: host.to_owned(), line: String::new(), body: Vec::new() })
    }

    /// Sends a request and reads the whole answer: its status and body.
    pub(super) async fn call(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<(u16, &[u8])> {
        let (host, length) = (&self.host, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let (status, length) = self.head().await?;
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).await?;
        Ok((status, &self.body))
    }

    /// Asks for something that goes on, such as a stream, with further header lines.
    pub(super) async fn begin(&mut self, path: &str, headers: &str) -> anyhow::Result<u16> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", self.host);
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        Ok(self.head().await?.0)
    }

    /// One more line of what goes on, without its end; `None` when it is over.
    pub(super) async fn next_line(&mut self) -> anyhow::Result<Option<&str>> {
        self.line.clear();
        let count = self.stream.read_line(&mut self.line).await?;
        Ok((count > 0).then(|| self.line.trim_end()))
    }

    /// Follows a run to its end, and reads so far that the connection can be used again. Answers how it ended.
    pub(super) async fn wait_for_end(&mut self, run: &str) -> anyhow::Result<String> {
        #[derive(serde::Deserialize)]
        struct End {
            status: String,
        }
        let status = self.begin(&format!("/api/v1/runs/{run}/stream"), "accept: text/event-stream\r\n").await?;
        ensure!(status == 200, "the stream of run {run} answered {status}");
        while self.next_line().await?.context("the stream ended before the run")? != "event: end" {}
        let data =
            self.next_line().await?.and_then(|line| line.strip_prefix("data: ")).context("an end without data")?;
        let end: End = serde_json::from_str(data)?;
        // The last piece is empty, and so is what follows it.
        while self.next_line().await?.context("the stream has no end")? != "0" {}
        self.next_line().await?;
        Ok(end.status)
    }

    /// The next text message of a WebSocket; `None` when the server closes it.
    pub(super) async fn next_message(&mut self) -> anyhow::Result<Option<&[u8]>> {
        loop {
            let head = [self.stream.read_u8().await?, self.stream.read_u8().await?];
            let length = match head[1] & 0x7f {
                126 => u64::from(self.stream.read_u16().await?),
                127 => self.stream.read_u64().await?,
                short => u64::from(short),
            };
            self.body.resize(usize::try_from(length)?, 0);
            self.stream.read_exact(&mut self.body).await?;
            match head[0] & 0x0f {
                1 => return Ok(Some(&self.body)),
                8 => return Ok(None),
                // Pings are not answered: a load is over before the server minds.
                _ => {}
            }
        }
    }

    async fn head(&mut self) -> anyhow::Result<(u16, usize)> {
        let (mut status, mut length) = (0, 0);
        loop {
            self.line.clear();
            if self.stream.read_line(&mut self.line).await? == 0 {
                bail!("the server closed the connection");
            }
            let line = self.line.trim_end();
            if line.is_empty() {
                return Ok((status, length));
            }
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).unwrap_or_default().parse()?;
            } else if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
    }
}
