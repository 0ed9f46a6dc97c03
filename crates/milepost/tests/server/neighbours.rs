//! `milepost dev` on a machine with other users.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{Place, Server, shell};

/// A user of this machine who is not the server's.
const NOBODY: &str = "65534";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Calls a server as another user does; only root can be one.
fn as_nobody(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups", program]);
    command
}

/// Status and body of an answer to `curl`.
fn answered(output: &Output) -> (u16, Value) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", &text));
    let status = status.parse().unwrap_or_else(|_| panic!("{output:?}"));
    (status, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())))
}

fn curl(mut command: Command, url: &str, more: &[&str]) -> (u16, Value) {
    answered(&command.args(["-s", "--noproxy", "*", "-w", "\n%{http_code}", url]).args(more).output().unwrap())
}

fn token_of(place: &Place) -> Option<String> {
    let file = std::fs::read(place.path().join(".milepost/server.json")).unwrap();
    serde_json::from_slice::<Value>(&file).unwrap()["token"].as_str().map(ToOwned::to_owned)
}

#[test]
fn another_user_gets_403_from_every_path_and_the_own_user_needs_nothing() {
    let place = Place::new();
    let server = place.dev(&[]);
    server.says("your own user alone");
    assert_eq!(token_of(&place), None);
    for path in ["/", "/healthz", "/readyz", "/docs", "/metrics", "/api/v1/runs", "/nowhere"] {
        let url = format!("{}{path}", server.url);
        assert_ne!(curl(Command::new("curl"), &url, &[]).0, 403, "{path}");
        if is_root() {
            let (status, body) = curl(as_nobody("curl"), &url, &[]);
            assert_eq!((status, &body["code"]), (403, &json!("foreign_user")), "{path}: {body}");
            assert!(body["detail"].as_str().unwrap().contains("not user 65534; start one of your own"), "{body}");
        }
    }
}

#[test]
fn another_user_starts_nothing() {
    let place = Place::new();
    let server = place.dev(&[]);
    let mark = place.path().join("mark");
    let body = json!({ "document": shell(&format!("touch {}", mark.display())) }).to_string();
    let post = ["-H", "content-type: application/json", "-d", &body];
    let url = format!("{}/api/v1/runs", server.url);
    if is_root() {
        assert_eq!(curl(as_nobody("curl"), &url, &post).0, 403);
        // Who goes away at once is not taken for root, whose a closed socket seems to be.
        let hasty = "exec 3<>\"/dev/tcp/127.0.0.1/$1\"; printf %s \"$2\" >&3; exec 3>&-";
        let request = format!(
            "POST /api/v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        for _ in 0..50 {
            let args = ["-c", hasty, "bash", &server.port().to_string(), &request];
            assert!(as_nobody("bash").args(args).status().unwrap().success());
        }
    }
    assert_eq!(server.get("/api/v1/runs").body["items"], json!([]));
    assert_eq!(curl(Command::new("curl"), &url, &post).0, 201);
}

#[test]
fn both_families_of_addresses_are_looked_up() {
    let place = Place::new();
    for address in ["[::1]:0", "[::ffff:127.0.0.1]:0"] {
        let server = place.start(&["dev", "--listen", address]);
        assert_eq!(curl(Command::new("curl"), &format!("{}/healthz", server.url), &["-g"]).0, 200, "{address}");
        if is_root() {
            assert_eq!(curl(as_nobody("curl"), &format!("{}/healthz", server.url), &["-g"]).0, 403, "{address}");
        }
    }
}

#[test]
fn where_sockets_tell_nothing_a_token_does() {
    let place = Place::new();
    let server = place.dev(&["--auth", "token"]);
    let token = token_of(&place).unwrap();
    let file = std::fs::metadata(place.path().join(".milepost/server.json")).unwrap();
    assert_eq!(file.mode() & 0o777, 0o600);
    assert!(!server.said().contains(&token), "a terminal may be looked at");
    let runs = format!("{}/api/v1/runs", server.url);
    let (status, body) = curl(Command::new("curl"), &runs, &[]);
    assert_eq!((status, &body["code"]), (401, &json!("unauthorized")));
    assert!(body["detail"].as_str().unwrap().contains("server.json"), "{body}");
    assert_eq!(curl(Command::new("curl"), &runs, &["-H", &format!("authorization: Bearer {token}")]).0, 200);
    // Commands find it, and the token, by themselves; a token for other servers does not go there.
    let mut command = place.command(&["runs", "list", "-o", "json"]);
    let listed = command.env("MILEPOST_TOKEN", "mp_another").output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
}

#[test]
fn a_browser_gets_in_by_an_address_that_works_once() {
    let place = Place::new();
    let server = place.dev(&["--auth", "token"]);
    let shown = |server: &Server, before: &str| {
        server.says(before);
        let said = server.said();
        let line = said.lines().find(|line| line.contains(before)).unwrap();
        format!("http://{}", line.split_once("http://").unwrap().1)
    };
    let jar = place.path().join("cookies");
    let browser = |url: &str| curl(Command::new("curl"), url, &["-L", "-c", path(&jar), "-b", path(&jar)]);
    let (page, runs) = (format!("{}/", server.url), format!("{}/api/v1/runs", server.url));
    assert_eq!(browser(&page).0, 401);
    let address = shown(&server, "  page  ");
    let (status, body) = browser(&address);
    assert!(status == 200 && body.as_str().unwrap().contains("No runs yet"), "{body}");
    assert_eq!(browser(&runs).0, 200);
    let cookies = std::fs::read_to_string(&jar).unwrap();
    assert!(cookies.contains("#HttpOnly_127.0.0.1"), "{cookies}");
    let (status, body) = curl(Command::new("curl"), &address, &[]);
    assert_eq!((status, &body["code"]), (401, &json!("used_address")), "it works once");
    assert_eq!(curl(Command::new("curl"), &shown(&server, "a browser has come in"), &[]).0, 303);
    // A page of another site cannot use the cookie, nor one that another port of this host shows.
    let foreign = ["-b", path(&jar), "-H", "origin: http://127.0.0.1:1"];
    assert_eq!(curl(Command::new("curl"), &runs, &foreign).0, 403);
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_note_of_somebody_else_is_passed_over_aloud() {
    let place = Place::new();
    place.file(".milepost/server.json", r#"{"url": "http://evil.example:7400", "pid": 1}"#);
    let ran = place.run(&["run", "nothing"]);
    assert!(ran.err.contains("server.json is passed over: it names http://evil.example:7400"), "{}", ran.err);
    if is_root() {
        place.file(".milepost/server.json", r#"{"url": "http://127.0.0.1:1", "pid": 1}"#);
        std::os::unix::fs::chown(place.path().join(".milepost/server.json"), Some(65_534), None).unwrap();
        let ran = place.run(&["run", "nothing"]);
        assert!(ran.err.contains("it belongs to user 65534 and not to you"), "{}", ran.err);
    }
}

/// A network of its own, in which another user listens at the default address; then a command of this user's.
#[test]
fn a_stranger_at_the_default_address_is_told_nothing() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let listen = "import fcntl, socket, struct, sys
lo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(lo, 0x8914, struct.pack('16sh14x', b'lo', 1))
import os
os.setresuid(65534, 65534, 65534)
s = socket.socket()
s.bind(('127.0.0.1', 7400))
s.listen()
s.settimeout(20)
print('listening', flush=True)
try:
    c, _ = s.accept()
    print(c.recv(65536).decode(), flush=True)
except TimeoutError:
    pass
";
    place.file("stranger.py", listen);
    let script = "python3 stranger.py >said & until grep -q listening said; do sleep 0.05; done; \
                  echo hunter2 | \"$MILEPOST\" secrets set db/password --value-file -; echo \"exit $?\"; kill %1 || true";
    let mut command = Command::new("unshare");
    command.args(["--net", "bash", "-c", script]).current_dir(place.path());
    command.env("MILEPOST", env!("CARGO_BIN_EXE_milepost")).env("MILEPOST_TOKEN", "mp_production_token");
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        out.contains("exit 2") && err.contains("user 65534 of this machine listens at 127.0.0.1:7400"),
        "{out}{err}"
    );
    let said = std::fs::read_to_string(place.path().join("said")).unwrap();
    assert_eq!(said.trim(), "listening", "nothing was sent there");
}

/// All files and folders of a server, with what everybody else may do with them.
fn modes(folder: &Path) -> Vec<(String, u32)> {
    let mut modes = vec![(path(folder).to_owned(), std::fs::metadata(folder).unwrap().mode() & 0o777)];
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => modes.extend(self::modes(&entry.path())),
            false => modes.push((path(&entry.path()).to_owned(), entry.metadata().unwrap().mode() & 0o777)),
        }
    }
    modes
}

fn is_closed(modes: &[(String, u32)]) -> bool {
    modes.iter().all(|(_, mode)| mode & 0o077 == 0)
}

#[test]
fn what_a_server_keeps_is_its_users_alone() {
    let place = Place::new();
    let data = place.path().join(".milepost");
    let server = place.dev(&[]);
    let run = server.start_run(&shell(r#"printf '{"s": "%0400000d"}' 1; echo secret > $MILEPOST_ARTIFACTS/file"#));
    assert_eq!(server.ended_run(&run)["status"], "completed");
    let kept = modes(&data);
    assert!(kept.iter().any(|(path, _)| path.contains("/blobs/")), "{kept:?}");
    assert!(kept.iter().any(|(path, _)| path.ends_with("-wal")) && kept.len() > 8, "{kept:?}");
    assert!(is_closed(&kept), "{kept:?}");
    server.stop();
    // As versions before this one left it.
    for (path, mode) in modes(&data) {
        let wide = if mode & 0o100 == 0 { 0o644 } else { 0o755 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(wide)).unwrap();
    }
    std::fs::set_permissions(data.join("secrets.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = place.dev(&[]);
    let kept = modes(&data);
    let named = |name: &str| kept.iter().filter(|(path, _)| path.ends_with(name)).cloned().collect::<Vec<_>>();
    for name in [".milepost", "milepost.db", "milepost.db-wal", "milepost.db-shm", "milepost.db.nodes", "server.json"] {
        assert!(!named(name).is_empty() && is_closed(&named(name)), "{name}: {kept:?}");
    }
    if is_root() {
        let read = as_nobody("cat").arg(data.join("milepost.db")).output().unwrap();
        assert!(!read.status.success());
    }
    assert_eq!(server.get(&format!("/api/v1/runs/{run}")).status, 200);
}

#[test]
fn secrets_that_everybody_can_read_are_refused() {
    let place = Place::new();
    let mode = |name: &str, mode: u32| {
        std::fs::set_permissions(place.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    place.file("milepost.toml", "listen = '127.0.0.1:0'\n[push]\nsigning_secret = '0123456789abcdef'\n");
    mode("milepost.toml", 0o644);
    let refused = place.run(&["serve"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("the configuration milepost.toml has secrets in it"), "{}", refused.err);
    assert!(refused.err.contains("help: chmod 600 milepost.toml"), "{}", refused.err);
    assert!(!place.path().join(".milepost").exists(), "nothing was made");
    mode("milepost.toml", 0o600);
    place.serve(&[]).stop();
    assert_eq!(place.run(&["secrets", "keygen", "--out", "own.key"]).code, 0);
    mode("own.key", 0o644);
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    let refused = super::ended({
        command.env("MILEPOST_SECRETS_KEY_FILE", "own.key");
        command
    });
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("the key file own.key has secrets in it"), "{}", refused.err);
}
