//! How servers end, and what the next one goes on with.

use rustix::process::Signal;
use serde_json::json;

use super::{Place, begun, eventually, has_begun, shell, slow};

#[test]
fn a_step_under_way_goes_on_at_the_next_start() {
    let place = Place::new();
    let mut server = place.dev(&[]);
    let run = server.start_run(&slow(&place));
    has_begun(&place, 1);
    server.send(Signal::INT);
    let status = server.ends_within(8);
    assert!(status.success(), "{status}: {}", server.said());
    assert!(!place.path().join(".milepost/server.json").exists());
    let server = place.dev(&[]);
    has_begun(&place, 2);
    place.file("go", "");
    let run = server.ended_run(&run);
    assert_eq!((&run["status"], &run["output"]), (&json!("completed"), &json!({"only": {"n": 1}})));
    let step = &run["steps"][0];
    assert_eq!((&step["logical_attempt"], &step["engine_attempt"]), (&json!(1), &json!(2)));
}

#[test]
fn every_way_to_ask_ends_a_server_in_good_order() {
    let place = Place::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut server = place.serve(&[]);
        server.send(signal);
        assert!(server.ends_within(8).success(), "{signal:?}: {}", server.said());
    }
}

#[test]
fn a_server_that_outlives_its_terminal_does_not_hear_it_go() {
    let place = Place::new();
    let mut command = std::process::Command::new("sh");
    let milepost = env!("CARGO_BIN_EXE_milepost");
    command.args(["-c", "trap '' HUP; exec \"$0\" serve --listen 127.0.0.1:0", milepost]).current_dir(place.path());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let server = super::Server::start(command);
    server.send(Signal::HUP);
    // Long enough for one that hears it to be gone.
    let run = server.start_run(&json!({"name": "naps", "steps": {"one": {"skill": "sleep", "input": {"ms": 500}}}}));
    assert_eq!(server.ended_run(&run)["status"], "completed");
    server.stop();
}

/// A request that stays under way: its body never ends.
fn half_a_request(server: &super::Server) -> std::net::TcpStream {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let head = "POST /api/v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{";
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[test]
fn requests_under_way_may_end_and_new_connections_are_refused() {
    use std::io::{Read as _, Write as _};
    let place = Place::new();
    let mut server = place.serve(&["--drain-seconds", "60"]);
    let mut stream = half_a_request(&server);
    // An answer to a later request says that the first one has reached the server.
    assert_eq!(server.get("/readyz").status, 200);
    server.send(Signal::TERM);
    eventually("the end of listening", || {
        std::net::TcpStream::connect(server.url.strip_prefix("http://").unwrap()).is_err().then_some(())
    });
    assert!(server.child.try_wait().unwrap().is_none());
    let rest = format!("{:>49}", "\"document\": {\"name\": \"n\", \"steps\": {}}}");
    stream.write_all(rest.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
    assert!(server.ends_within(8).success(), "{}", server.said());
}

#[test]
fn who_follows_a_run_is_told_and_holds_nothing_up() {
    use std::io::{Read as _, Write as _};
    let place = Place::new();
    let mut server = place.serve(&["--drain-seconds", "600"]);
    let document = json!({"name": "waits", "steps": {"one": {"skill": "wait", "input": {"signal": "go"}}}});
    let run = server.start_run(&document);
    let mut stream = std::net::TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    write!(stream, "GET /api/v1/runs/{run}/stream HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("StepStarted") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    server.send(Signal::TERM);
    assert!(server.ends_within(8).success(), "{}", server.said());
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("event: shutdown"), "{rest}");
}

#[test]
fn nobody_is_waited_for_longer_than_is_set() {
    let place = Place::new();
    let mut server = place.serve(&["--drain-seconds", "1"]);
    let _stream = half_a_request(&server);
    assert_eq!(server.get("/readyz").status, 200);
    server.send(Signal::TERM);
    assert!(server.ends_within(8).success(), "{}", server.said());
}

#[test]
fn asked_again_a_server_ends_at_once() {
    let place = Place::new();
    let mut server = place.serve(&["--drain-seconds", "600", "--allow-shell"]);
    let _stream = half_a_request(&server);
    server.start_run(&slow(&place));
    has_begun(&place, 1);
    server.send(Signal::INT);
    server.says("asked to end");
    assert!(server.child.try_wait().unwrap().is_none());
    server.send(Signal::INT);
    assert_eq!(server.ends_within(3).code(), Some(1), "{}", server.said());
    assert!(!place.path().join(".milepost/server.json").exists());
}

#[test]
fn what_was_acknowledged_survives_a_kill_and_goes_on() {
    let place = Place::new();
    let mut server = place.dev(&[]);
    let slow_run = server.start_run(&slow(&place));
    let runs: Vec<String> = (0..20).map(|n| server.start_run(&shell(&format!("sleep 0.1; echo {n}")))).collect();
    has_begun(&place, 1);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = place.dev(&[]);
    place.file("go", "");
    for (n, run) in runs.iter().enumerate() {
        let run = server.ended_run(run);
        assert_eq!((&run["status"], &run["output"]["only"]), (&json!("completed"), &json!(n)));
    }
    assert_eq!(server.ended_run(&slow_run)["status"], "completed");
    assert!(begun(&place) >= 1);
    server.stop();
    let doctor = place.run(&["doctor"]);
    assert_eq!(doctor.code, 0, "{}{}", doctor.out, doctor.err);
}

#[test]
fn a_server_without_shell_leaves_such_steps_to_one_that_has_it() {
    let place = Place::new();
    let server = place.dev(&[]);
    let run = server.start_run(&slow(&place));
    has_begun(&place, 1);
    server.stop();
    let server = place.serve(&[]);
    assert_eq!(server.get(&format!("/api/v1/runs/{run}")).body["status"], "running");
    server.stop();
    place.file("go", "");
    let server = place.dev(&[]);
    assert_eq!(server.ended_run(&run)["status"], "completed");
}

#[test]
fn a_port_that_is_taken_is_an_error_for_serve() {
    let place = Place::new();
    let server = place.serve(&[]);
    let taken = format!("127.0.0.1:{}", server.port());
    let ran = place.run(&["serve", "--listen", &taken, "--data", "other"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains(&format!("error: {taken} is taken by another program\nhelp: ")), "{}", ran.err);
    assert!(!place.path().join("other").exists(), "nothing is made before it is clear that the server can start");
}
