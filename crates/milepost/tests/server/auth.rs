//! Who may come in.

use serde_json::{Value, json};

use super::{Place, shell};

fn token(place: &Place) -> (String, String) {
    let ran = place.run(&["token", "-o", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    let text = |name: &str| value[name].as_str().unwrap().to_owned();
    (text("token"), text("hash"))
}

#[test]
fn a_token_comes_with_its_hash_and_is_kept_nowhere() {
    let place = Place::new();
    let ran = place.run(&["token"]);
    let lines: Vec<&str> = ran.out.lines().collect();
    let token = lines[0].strip_prefix("token: ").unwrap();
    let hash = lines[1].strip_prefix("hash:  ").unwrap();
    assert!(token.starts_with("mp_") && token.len() == 67, "{token}");
    assert!(ran.err.contains(&format!("tokens = [\"{hash}\"]")), "{}", ran.err);
    assert!(!ran.err.contains(token));
    let (again, _) = self::token(&place);
    assert_ne!(again, token);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn others_are_let_in_only_with_a_token_or_by_name() {
    let place = Place::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let ran = place.run(&["serve", "--listen", address, "-o", "json"]);
        assert_eq!(ran.code, 2);
        let error: Value = serde_json::from_str(&ran.err).unwrap();
        assert_eq!(error["code"], "no_auth");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("`milepost token`") && message.contains("--insecure-no-auth"), "{message}");
    }
    assert!(!place.path().join(".milepost").exists());
    let server = place.start(&["serve", "--listen", "0.0.0.0:0", "--insecure-no-auth"]);
    server.says("NO AUTHENTICATION");
    assert_eq!(server.get("/api/v1/runs").status, 200);
    let named = server.request("GET", "/api/v1/runs").header("host", "milepost.example").send();
    assert_eq!(named.status, 200, "a server for others answers to any name");
}

#[test]
fn a_server_with_tokens_wants_one() {
    let place = Place::new();
    let (token, hash) = token(&place);
    place.file("milepost.toml", &format!("listen = \"0.0.0.0:0\"\n[auth]\ntokens = [\"{hash}\"]\n"));
    let server = place.start(&["serve"]);
    assert!(!server.said().contains("NO AUTHENTICATION"));
    let nobody = server.get("/api/v1/runs");
    assert_eq!((nobody.status, &nobody.body["code"]), (401, &json!("unauthorized")));
    let call =
        |token: &str| server.request("GET", "/api/v1/runs").header("authorization", &format!("Bearer {token}")).send();
    assert_eq!(call("mp_wrong").status, 401);
    assert_eq!(call(&token).status, 200);
    assert_eq!(call(&hash).status, 401);
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/readyz").status, 200);
}

#[test]
fn hashes_may_come_from_the_environment() {
    let place = Place::new();
    let ((one, first), (two, second)) = (token(&place), token(&place));
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("MILEPOST_TOKEN_HASHES", format!("{first},{second}"));
    let server = super::Server::start(command);
    for token in [one, two] {
        let request = server.request("GET", "/api/v1/runs").header("authorization", &format!("Bearer {token}"));
        assert_eq!(request.send().status, 200);
    }
    assert_eq!(server.get("/api/v1/runs").status, 401);
}

#[test]
fn a_token_with_a_name_says_who_moves_a_tag() {
    let place = Place::new();
    let named = place.run(&["token", "--name", "ci", "-o", "json"]);
    let named: Value = serde_json::from_str(&named.out).unwrap();
    let (of_ci, entry) = (named["token"].as_str().unwrap(), named["hash"].as_str().unwrap());
    assert!(entry.starts_with("ci=sha256:"), "{entry}");
    let (other, hash) = token(&place);
    assert_eq!(place.run(&["token", "--name", "a,b"]).code, 2);
    place.file("milepost.toml", &format!("listen = \"127.0.0.1:0\"\n[auth]\ntokens = [\"{entry}\", \"{hash}\"]\n"));
    place.file("flow.yaml", "name: flow\nsteps: {a: {skill: noop}}\n");
    let server = place.start(&["serve"]);
    let tell = |token: &str, args: &[&str]| {
        let ran = place.run(&[args, &["-o", "json", "--server", &server.url, "--token", token]].concat());
        let said = if ran.out.is_empty() { ran.err } else { ran.out };
        (ran.code, serde_json::from_str::<Value>(&said).unwrap_or_else(|error| panic!("{error}: {said}")))
    };
    assert_eq!(tell(of_ci, &["deploy", "flow.yaml", "--as", "bob"]).0, 0);
    assert_eq!(tell(&other, &["tags", "show", "flow"]).1["moved_by"], "ci");
    assert_eq!(tell(of_ci, &["tags", "protect", "flow", "--mover", "ci"]).0, 0);
    place.file("flow.yaml", "name: flow\nsteps: {b: {skill: noop}}\n");
    for name in ["ci", "bob"] {
        let (status, said) = tell(&other, &["deploy", "flow.yaml", "--as", name]);
        assert_eq!((status, &said["code"]), (2, &json!("tag_protected")), "{said}");
    }
    assert_eq!(tell(of_ci, &["deploy", "flow.yaml", "--as", "bob"]).0, 0);
    let shown = place.run(&["serve", "--print-config"]).out;
    assert!(shown.contains("tokens = [\"ci=sha256:********\", \"sha256:********\"]"), "{shown}");
}

#[test]
fn serve_runs_programs_only_when_told() {
    let place = Place::new();
    let document = shell("echo '{\"n\": 1}'");
    let server = place.serve(&[]);
    let refused = server.post("/api/v1/runs", &json!({ "document": document }));
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("unknown_skill")), "{}", refused.body);
    server.stop();
    let server = place.serve(&["--allow-shell"]);
    let run = server.start_run(&document);
    assert_eq!(server.ended_run(&run)["output"], json!({"only": {"n": 1}}));
}

#[test]
fn what_is_for_callers_is_refused() {
    let place = Place::new();
    for (flags, code) in [(["--token", "mp_x"], "needs_hash"), (["--server", "http://127.0.0.1:1"], "needs_database")] {
        for verb in ["serve", "dev"] {
            let ran = place.run(&[&[verb, "--listen", "127.0.0.1:0", "-o", "json"], &flags[..]].concat());
            assert_eq!(ran.code, 2);
            assert_eq!(serde_json::from_str::<Value>(&ran.err).unwrap()["code"], code);
        }
    }
}

#[test]
fn the_security_log_has_refusals_and_deeds_and_no_token() {
    let place = Place::new();
    let named = place.run(&["token", "--name", "ci", "-o", "json"]);
    let named: Value = serde_json::from_str(&named.out).unwrap();
    let (token, entry) = (named["token"].as_str().unwrap(), named["hash"].as_str().unwrap());
    place.file("milepost.toml", &format!("listen = \"127.0.0.1:0\"\n[auth]\ntokens = [\"{entry}\"]\n"));
    place.file("flow.yaml", "name: flow\nsteps: {a: {skill: noop}}\n");
    let server = place.start(&["serve", "--log-format", "json"]);
    let call = |token: &str, method: &str, path: &str, body: &Value| {
        let bearer = format!("Bearer {token}");
        server.request(method, path).header("authorization", &bearer).json(body).send()
    };
    for _ in 0..50 {
        assert_eq!(call("mp_guessed", "GET", "/api/v1/runs", &json!(null)).status, 401);
    }
    assert_eq!(place.run(&["deploy", "flow.yaml", "--server", &server.url, "--token", token]).code, 0);
    let protection = "/api/v1/tags/flow/protection";
    assert_eq!(call(token, "PUT", protection, &json!({"movers": ["ada"]})).status, 200);
    assert_eq!(call(token, "DELETE", protection, &json!(null)).status, 403);
    assert_eq!(call(token, "POST", "/api/v1/runs/bulk", &json!({"action": "cancel", "filter": {}})).status, 200);
    assert_eq!(call(token, "POST", "/api/v1/gc", &json!({})).status, 200);
    assert_eq!(call(token, "PUT", "/api/v1/queues/slow", &json!({"concurrency": 1})).status, 200);
    let page = call(token, "GET", "/metrics", &json!(null)).body;
    let page = page.as_str().unwrap();
    assert!(page.contains("milepost_http_refused_total{status=\"401\",code=\"unauthorized\"} 50"), "{page}");
    assert!(page.contains("milepost_http_refused_total{status=\"403\",code=\"tag_protected\"} 1"), "{page}");

    let log = server.stop();
    assert!(!log.contains("mp_"), "{log}");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines: Vec<Value> = lines.filter(|line| line["target"] == "security").collect();
    let of = |field: &str, value: Value| lines.iter().filter(|line| line["fields"][field] == value).collect::<Vec<_>>();
    let refused = of("code", json!("unauthorized"));
    assert!((1..=10).contains(&refused.len()), "one peer's lines are bounded, not {}", refused.len());
    let fields = &refused[0]["fields"];
    assert!(fields["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:")), "{fields}");
    assert_eq!((&fields["route"], &fields["method"]), (&json!("/api/v1/runs"), &json!("GET")));
    for (action, object) in [
        ("tag.protect", "tag:flow"),
        ("runs.cancel", "runs:0 accepted:0"),
        ("definitions.gc", "org"),
        ("queue.limit", "queue:slow"),
    ] {
        let done = of("action", json!(action));
        assert_eq!(done.len(), 1, "{action}: {lines:?}");
        assert_eq!((&done[0]["fields"]["actor"], &done[0]["fields"]["object"]), (&json!("ci"), &json!(object)));
    }
}
