//! Secrets through a server of the real program.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Place, Ran, Server};

fn document(reference: &str) -> Value {
    let command = r#"echo "$API_KEY" >&2; echo "{\"n\": ${#API_KEY}}""#;
    json!({"name": "flow", "steps": {"a": {
        "skill": "shell", "secrets": {"API_KEY": reference}, "input": {"command": command},
    }}})
}

fn set(place: &Place, server: &Server, value: &str, args: &[&str]) -> Ran {
    let mut command = place.command(&[&["secrets", "set", "--server", &server.url], args].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn dev_keeps_secrets_at_once_and_after_a_restart() {
    let place = Place::new();
    let server = place.dev(&[]);
    let key = std::fs::metadata(place.path().join(".milepost/secrets.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    let made = set(&place, &server, "hunter2-hunter2\n", &["audio/api-key", "--workflow", "flow", "--queue", "inline"]);
    assert_eq!((made.code, made.out.as_str()), (0, "audio/api-key has version 1\n"), "{}", made.err);
    let listed = place.run(&["secrets", "list"]);
    assert!(listed.out.contains("audio/api-key  1        inline  flow"), "{}{}", listed.out, listed.err);
    let run = server.ended_run(&server.start_run(&document("secret://audio/api-key")));
    assert_eq!(run["steps"][0]["output"], json!({"n": 15}), "{run}");
    server.stop();

    let server = place.dev(&[]);
    assert_eq!(set(&place, &server, "hunter3", &["audio/api-key"]).out, "audio/api-key has version 2\n");
    for (reference, n) in [("secret://audio/api-key", 7), ("secret://audio/api-key@1", 15)] {
        let id = server.start_run(&document(reference));
        assert_eq!(server.ended_run(&id)["steps"][0]["output"], json!({ "n": n }));
        let logs = server.get(&format!("/api/v1/runs/{id}/logs")).body.to_string();
        let events = server.get(&format!("/api/v1/runs/{id}/events")).body.to_string();
        assert!(logs.contains("[redacted: API_KEY]") && !logs.contains("hunter"), "{logs}");
        assert!(!events.contains("hunter"), "{events}");
    }
    let mut other = document("secret://audio/api-key");
    other["name"] = json!("other");
    let run = server.ended_run(&server.start_run(&other));
    assert_eq!(run["steps"][0]["error"]["code"], "secret_denied", "{run}");
    let removed = place.run(&["secrets", "remove", "audio/api-key"]);
    assert_eq!((removed.code, removed.out.as_str()), (0, "audio/api-key is removed\n"), "{}", removed.err);
    let again = place.run(&["secrets", "remove", "audio/api-key", "-o", "json"]);
    assert_eq!(again.code, 2);
    assert!(again.err.contains("\"code\":\"unknown_secret\""), "{}", again.err);
    let said = server.stop();
    assert!(!said.contains("hunter"), "{said}");
}

#[test]
fn serve_has_the_keys_that_it_is_told() {
    let place = Place::new();
    let without = place.serve(&["--allow-shell"]);
    let refused = set(&place, &without, "hunter2", &["a", "-o", "json"]);
    assert!(refused.code == 2 && refused.err.contains("\"code\":\"no_secrets_key\""), "{}", refused.err);
    without.stop();

    assert_eq!(place.run(&["secrets", "keygen", "--out", "old.key"]).code, 0);
    place.file("milepost.toml", "allow_shell = true\n[secrets]\nkey_file = 'old.key'\n");
    let server = place.serve(&[]);
    assert_eq!(set(&place, &server, "hunter2", &["a"]).code, 0);
    server.stop();
    let new = place.run(&["secrets", "keygen"]).out;
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("MILEPOST_SECRETS_KEY", new.trim());
    let server = Server::start(command);
    let rotated = place.run(&["secrets", "rotate", "--server", &server.url]);
    assert_eq!(rotated.out, "1 versions are sealed anew, none of the keys opens 0\n", "{}", rotated.err);
    let run = server.ended_run(&server.start_run(&document("secret://a")));
    assert_eq!(run["steps"][0]["output"], json!({"n": 7}), "{run}");
    server.stop();
    // The key in the file is not needed any more, nor does it open anything.
    let server = place.serve(&[]);
    let run = server.ended_run(&server.start_run(&document("secret://a")));
    assert_eq!(run["steps"][0]["error"]["code"], "secret_unavailable", "{run}");
    server.stop();

    place.file("milepost.toml", "[secrets]\nkey_file = 'gone.key'\n");
    let refused = place.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(refused.code == 2 && refused.err.contains("gone.key cannot be read"), "{}", refused.err);
}
