//! A real server of S3, moto, with a bucket called `bucket`. `scripts/python-env` installs it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of S3 that ends with the test.
pub(crate) struct Moto {
    child: Child,
    port: u16,
}

impl Moto {
    pub(crate) fn start() -> Moto {
        let made = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/python-env")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let programs = String::from_utf8(made.stdout).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(format!("{}/moto_server", programs.trim()));
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moto = Moto { child, port };
        let begun = Instant::now();
        while moto.request("PUT /bucket").is_none_or(|answer| !answer.starts_with("HTTP/1.1 200")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "moto does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        moto
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What it answers to `GET /bucket`, and the like.
    pub(crate) fn request(&self, what: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let request = format!("{what} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program has to be told to find it.
pub(crate) fn variables(port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
        ("NO_PROXY", "127.0.0.1".to_owned()),
    ]
}
