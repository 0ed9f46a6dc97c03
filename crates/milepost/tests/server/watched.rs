//! What a server tells those who watch over it: logs, metrics and traces.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::{Value, json};

use super::{Place, Server, eventually};

fn echo() -> Value {
    json!({ "name": "watched", "steps": {"only": {"skill": "echo", "input": {"n": 1}}} })
}

/// Every line of a log is an object that has all that a line has.
fn parsed(log: &str) -> Vec<Value> {
    let line = |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let lines: Vec<Value> = log.lines().map(line).collect();
    for line in &lines {
        for key in ["timestamp", "level", "target", "message"] {
            assert!(line[key].is_string(), "no {key}: {line}");
        }
        assert!(line["fields"].is_object(), "{line}");
    }
    lines
}

fn messages(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["message"].as_str()).collect()
}

#[test]
fn every_line_of_a_servers_log_is_json_where_that_is_asked_for() {
    let place = Place::new();
    let by_flag = place.serve(&["--log-format", "json"]);
    by_flag.ended_run(&by_flag.start_run(&echo()));
    let lines = parsed(&by_flag.stop());
    assert!(messages(&lines).contains(&"ready") && messages(&lines).contains(&"an engine runs"), "{lines:?}");
    let node = |message: &str| &lines.iter().find(|line| line["message"] == message).unwrap()["fields"]["node"];
    assert_eq!(node("ready"), node("an engine runs"));
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("MILEPOST_LOG_FORMAT", "json");
    assert!(!parsed(&Server::start(command).stop()).is_empty());
    place.file("milepost.toml", "[log]\nformat = 'json'\n");
    assert!(messages(&parsed(&place.serve(&[]).stop())).contains(&"ready"));
    // A flag has the last word, and what is no terminal gets no colours.
    let text = place.serve(&["--log-format", "text"]).stop();
    assert!(text.contains("INFO") && !text.contains('{') && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn verbs_log_as_json_too() {
    let place = Place::new();
    place.file("echo.json", &echo().to_string());
    let ran = place.run(&["-v", "--log-format", "json", "-o", "json", "run", "echo.json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(messages(&parsed(&ran.err)), ["an engine runs", "the engine has ended in good order"]);
    assert_eq!(place.run(&["--log-format", "xml", "limits"]).code, 2);
}

/// The lines of the page that begin like this.
fn lines<'p>(page: &'p str, begin: &str) -> Vec<&'p str> {
    page.lines().filter(|line| line.starts_with(begin)).collect()
}

#[test]
fn a_server_can_be_scraped() {
    let place = Place::new();
    let server = place.serve(&[]);
    server.ended_run(&server.start_run(&echo()));
    let counted = "milepost_runs_total{status=\"completed\"} 1";
    let page = eventually("the run on the page", || {
        let page = server.get("/metrics");
        assert_eq!(page.status, 200);
        page.body.as_str().filter(|page| page.contains(counted)).map(ToOwned::to_owned)
    });
    let page = page.as_str();
    let started = "milepost_http_requests_total{method=\"POST\",route=\"/api/v1/runs\",status=\"201\"} 1";
    assert_eq!(lines(page, "milepost_http_requests_total{method=\"POST\""), [started]);
    assert_eq!(lines(page, "milepost_open_runs{status=\"running\"}"), ["milepost_open_runs{status=\"running\"} 0"]);
    assert!(!lines(page, "milepost_commit_seconds_bucket{le=\"0.001\"}").is_empty());
}

/// Takes one request, answers it, and gives its path, head and body.
fn collector() -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut chunk).unwrap();
            bytes.extend_from_slice(&chunk[..count]);
            let text = String::from_utf8_lossy(&bytes);
            let whole =
                text.split_once("\r\n\r\n").and_then(|(head, body)| Some((head, serde_json::from_str(body).ok()?)));
            if let Some((head, body)) = whole {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
                sender.send((head.to_lowercase(), body)).unwrap();
                return;
            }
        }
    });
    (address, received)
}

#[test]
fn a_callers_trace_goes_through_the_server_to_the_collector() {
    let place = Place::new();
    let (address, received) = collector();
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address);
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "x-team=night%20shift").env("OTEL_SERVICE_NAME", "flows");
    let server = Server::start(command);
    let request = server.request("POST", "/api/v1/runs");
    let request = request.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let run = request.json(&json!({ "document": echo() })).send().body["run_id"].as_str().unwrap().to_owned();
    server.ended_run(&run);
    server.stop();
    let (head, body) = received.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
    assert!(head.starts_with("post /v1/traces ") && head.contains("x-team: night shift"), "{head}");
    let resource = &body["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "flows");
    let whole = &resource["scopeSpans"][0]["spans"][0];
    assert_eq!((&whole["name"], &whole["parentSpanId"]), (&json!("watched"), &json!("00f067aa0ba902b7")));
    assert_eq!(whole["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[test]
fn a_collector_that_cannot_be_meant_is_refused_at_the_start() {
    let place = Place::new();
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317");
    let ran = super::ended(command);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("http://localhost:4318"), "{}", ran.err);
}
