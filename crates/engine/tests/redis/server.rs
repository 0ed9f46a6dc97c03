//! A Redis server of a test's own: in a temporary folder, on a free port of 127.0.0.1, gone with the test. Servers that run
//! already are left alone.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub(crate) struct RedisServer {
    process: Option<Child>,
    port: u16,
    tls: bool,
    folder: TempDir,
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl RedisServer {
    pub(crate) fn start() -> RedisServer {
        RedisServer::new(false)
    }

    fn new(tls: bool) -> RedisServer {
        // Between choosing a free port and listening on it somebody else may take it; then another is tried.
        for _ in 0..8 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut server = RedisServer { process: None, port, tls, folder: tempfile::tempdir().unwrap() };
            if tls {
                certify(server.folder.path());
            }
            if server.begin() {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    /// On the port that it had.
    pub(crate) fn start_again(&mut self) {
        assert!(self.begin(), "redis-server does not start again");
    }

    fn begin(&mut self) -> bool {
        let port = self.port.to_string();
        let (plain, tls) = if self.tls { ("0", port.as_str()) } else { (port.as_str(), "0") };
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", plain, "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(self.folder.path()).args(["--tls-port", tls, "--maxmemory", "256mb"]);
        if self.tls {
            command.args(["--tls-cert-file", "server.pem", "--tls-key-file", "server.key"]);
            command.args(["--tls-ca-cert-file", "ca.pem", "--tls-auth-clients", "no"]);
        }
        let spawned = command.current_dir(self.folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.process = Some(spawned.expect(
            "redis-server cannot be started; these tests need one, install it: apt-get install redis-server (Debian, Ubuntu)",
        ));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            let ended = self.process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some());
            if ended || TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return !ended;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// As the kernel would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) fn url(&self) -> String {
        match self.tls {
            true => format!("rediss://localhost:{}/", self.port),
            false => format!("redis://127.0.0.1:{}/", self.port),
        }
    }
}

/// What only some of those who include this file need.
#[allow(dead_code, reason = "each test binary has its own needs")]
impl RedisServer {
    pub(crate) fn start_with_tls() -> RedisServer {
        RedisServer::new(true)
    }

    /// The authority that signed its certificate.
    pub(crate) fn authority(&self) -> std::path::PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }
}

/// An authority, and a certificate for localhost that it signed.
fn certify(folder: &Path) {
    let extensions = "basicConstraints = critical, CA:false\nsubjectAltName = DNS:localhost\n";
    std::fs::write(folder.join("server.ext"), extensions).unwrap();
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let script = format!(
        "openssl req -x509 {new} -days 30 -subj '/CN=Milepost tests' -keyout ca.key -out ca.pem &&
         openssl req {new} -subj /CN=localhost -keyout server.key -out server.csr &&
         openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile server.ext \
             -out server.pem"
    );
    let made = Command::new("sh").args(["-c", &script]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
