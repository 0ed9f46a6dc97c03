//! What a server bears from those who reach it: many connections, large bodies, TLS and what is like it.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::{Place, Server, ended, eventually};

/// This process has the other end of every connection.
fn allow_many_files(count: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < count) {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    }
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    assert!(allowed >= count, "this test needs {count} open files; raise `ulimit -n`");
}

/// A server that may have so many descriptors and no more.
fn serve_with_files(place: &Place, files: u32, more: &[&str]) -> Server {
    let serve = place.command(&[&["serve", "--listen", "127.0.0.1:0"], more].concat());
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]).arg(serve.get_program());
    limited.args(serve.get_args()).current_dir(place.path());
    limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    Server::start(limited)
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(("127.0.0.1", server.port())).unwrap()
}

#[test]
fn half_open_connections_beyond_all_descriptors_stop_nothing() {
    allow_many_files(2_000);
    let place = Place::new();
    let server = serve_with_files(&place, 1024, &["--concurrency", "16"]);
    let mut half_open = Vec::new();
    for round in 0..11 {
        for _ in 0..100 {
            let mut stream = connect(&server);
            // One that was let go meanwhile cannot be written to.
            let _ = stream.write_all(b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le");
            half_open.push(stream);
        }
        let begun = Instant::now();
        assert_eq!(server.get("/healthz").status, 200);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?} in round {round}", begun.elapsed());
    }
    let run = server.start_run(&json!({"name": "one", "steps": {"a": {"skill": "echo", "input": {"n": 1}}}}));
    assert_eq!(server.ended_run(&run)["status"], "completed");
    let metrics = server.get("/metrics").body.as_str().unwrap().to_owned();
    let full = metrics.lines().find(|line| line.starts_with("milepost_connections_let_go_total{reason=\"full\"}"));
    assert!(!full.unwrap().ends_with(" 0"), "{full:?}");
    assert!(!server.said().contains("cannot be accepted"), "{}", server.said());
    drop(half_open);
    server.stop();
}

/// Whoever has no token can ask how a server is, and can do so slowly: that takes no place from those who have one.
#[test]
fn slow_bodies_without_a_token_stop_nobody() {
    let place = Place::new();
    let (token, hash) = token(&place);
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0", "--token-hash", &hash]);
    command.env("MILEPOST_CONNECTIONS", "100");
    let server = Server::start(command);
    for path in ["/healthz", "/readyz", "/docs", "/api/v1/runs", "/nowhere"] {
        let slow: Vec<TcpStream> = (0..100)
            .map(|_| {
                let mut stream = connect(&server);
                let head = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000\r\n\r\n{{");
                let _ = stream.write_all(head.as_bytes());
                stream
            })
            .collect();
        let begun = Instant::now();
        assert_eq!(server.get("/healthz").status, 200, "{path}");
        let runs = server.request("GET", "/api/v1/runs").header("authorization", &format!("Bearer {token}")).send();
        assert_eq!(runs.status, 200, "{path}: {}", runs.body);
        assert!(begun.elapsed() < Duration::from_secs(2), "{path}: {:?}", begun.elapsed());
        drop(slow);
    }
    let refused = server.request("GET", "/healthz").json(&json!({"a": 1})).send();
    assert_eq!((refused.status, &refused.body["code"]), (413, &json!("body_not_taken")));
    server.stop();
}

/// A new token and its hash.
fn token(place: &Place) -> (String, String) {
    let made = place.run(&["token", "-o", "json"]);
    let made: serde_json::Value = serde_json::from_str(&made.out).unwrap();
    (made["token"].as_str().unwrap().to_owned(), made["hash"].as_str().unwrap().to_owned())
}

/// Memory of a process that is in use.
fn resident_mib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn many_large_reports_at_once_take_little_memory() {
    let place = Place::new();
    let server = place.serve(&[]);
    let size = 24 * 1024 * 1024;
    let report = |mut stream: TcpStream| {
        let head = "POST /api/v1/worker/exchange HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";
        let _ = write!(stream, "{head}Content-Length: {size}\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(&vec![b'x'; size]);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let answers: Vec<String> = std::thread::scope(|scope| {
        let reports: Vec<_> = (0..40).map(|_| scope.spawn(|| report(connect(&server)))).collect();
        reports.into_iter().map(|report| report.join().unwrap()).collect()
    });
    let is_answer = |answer: &&String| answer.contains("not_json") || answer.contains("overloaded");
    assert_eq!(answers.iter().filter(is_answer).count(), 40, "{answers:?}");
    assert!(answers.iter().any(|answer| answer.contains("not_json")), "{answers:?}");
    // All of them are 960 MiB.
    assert!(resident_mib(&server) < 512, "{} MiB", resident_mib(&server));
    server.stop();
}

/// Makes a certificate for this machine, signed by a root of its own.
fn certify(folder: &Path, root: &str) {
    let config = "[req]\ndistinguished_name=dn\nprompt=no\n[dn]\nCN=localhost\n[root]\nbasicConstraints=critical,CA:TRUE\n\
                  keyUsage=critical,keyCertSign\n[leaf]\nbasicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n";
    std::fs::write(folder.join("openssl.cnf"), config).unwrap();
    let new = "req -x509 -config openssl.cnf -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for more in [
        format!("-extensions root -keyout {root}.key -out {root}.pem"),
        format!("-extensions leaf -keyout new.key -out new.pem -CA {root}.pem -CAkey {root}.key"),
    ] {
        let made =
            Command::new("openssl").args(format!("{new} {more}").split(' ')).current_dir(folder).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    std::fs::set_permissions(folder.join("new.key"), Permissions::from_mode(0o600)).unwrap();
    // One after the other, as a renewal does; a pair that does not fit is not used.
    std::fs::rename(folder.join("new.key"), folder.join("key.pem")).unwrap();
    std::fs::rename(folder.join("new.pem"), folder.join("cert.pem")).unwrap();
}

const TLS: [&str; 4] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

/// Whether the command line reaches a server when it trusts this root.
fn trusts(place: &Place, server: &Server, root: Option<&str>) -> bool {
    let mut command = place.command(&["runs", "list", "--server", &format!("https://localhost:{}", server.port())]);
    if let Some(root) = root {
        command.env("SSL_CERT_FILE", root);
    }
    ended(command).code == 0
}

#[test]
fn a_server_speaks_tls_and_takes_a_new_certificate_without_a_pause() {
    let place = Place::new();
    certify(place.path(), "one");
    let server = place.serve(&TLS);
    assert!(server.url.starts_with("https://127.0.0.1:"), "{}", server.url);
    assert!(trusts(&place, &server, Some("one.pem")));
    assert!(!trusts(&place, &server, None), "a root of one's own is trusted when it is named");
    // In clear text there is no answer.
    let mut plain = connect(&server);
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));

    let run = "name: hello\nsteps: {a: {skill: sleep, input: {ms: 100}}}\n";
    place.file("flow.yaml", run);
    let mut command = place.command(&["run", "flow.yaml", "--server", &format!("https://localhost:{}", server.port())]);
    let ran = ended({
        command.env("SSL_CERT_FILE", "one.pem");
        command
    });
    assert_eq!(ran.code, 0, "a run is followed to its end: {}{}", ran.out, ran.err);

    certify(place.path(), "two");
    eventually("the new certificate to be in use", || trusts(&place, &server, Some("two.pem")).then_some(()));
    server.says("a new TLS certificate is in use");
    std::fs::write(place.path().join("cert.pem"), "nonsense").unwrap();
    server.says("the old one stays in use");
    assert!(trusts(&place, &server, Some("two.pem")));
    server.stop();
}

#[test]
fn a_certificate_that_cannot_be_used_is_told_at_the_start() {
    let place = Place::new();
    certify(place.path(), "one");
    let refused = |said: &str| {
        let ran = place.run(&[&["serve", "--listen", "127.0.0.1:0"], &TLS[..]].concat());
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains(said), "{said} is not in {}", ran.err);
    };
    let key = place.path().join("key.pem");
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    refused("key.pem can be read or changed by others on this machine");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&key, place.path().join("old.pem")).unwrap();
    refused("key.pem cannot be read");
    let kept = std::fs::read(place.path().join("cert.pem")).unwrap();
    certify(place.path(), "two");
    std::fs::write(place.path().join("cert.pem"), kept).unwrap();
    refused("cert.pem cannot be used with the key key.pem");
    place.file("cert.pem", "nonsense");
    refused("cert.pem has no certificate in PEM");
    let half = place.run(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", "cert.pem"]);
    assert!(half.code == 2 && half.err.contains("TLS needs both"), "{}", half.err);
}

#[test]
fn clear_text_on_other_addresses_is_warned_of() {
    let place = Place::new();
    certify(place.path(), "one");
    let hash = format!("sha256:{}", "0a".repeat(32));
    let said = |more: &[&str]| {
        let args = [&["serve", "--listen", "0.0.0.0:0", "--token-hash", &hash], more].concat();
        let server = place.start(&args);
        server.says("ready");
        server.stop()
    };
    assert!(said(&[]).contains("CLEAR TEXT"));
    assert!(!said(&["--behind-proxy"]).contains("CLEAR TEXT"));
    assert!(!said(&TLS).contains("CLEAR TEXT"));
    let server = place.serve(&[]);
    server.says("ready");
    assert!(!server.stop().contains("CLEAR TEXT"));
}
