//! Steps that are pushed, through servers that are killed at the worst moments.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::common::{Random, postgres_schema};
use super::receiver::{KEY, Receiver, pushed_to};
use super::{Place, Server, eventually};

/// A server that signs and may call this machine, on the place's SQLite file or on a Postgres.
fn serve(place: &Place, database: Option<&str>, variables: &[(&str, &str)]) -> Server {
    let mut args = vec!["serve", "--listen", "127.0.0.1:0", "--allow-private-http"];
    args.extend(database.into_iter().flat_map(|database| ["--db", database]));
    let mut command = place.command(&args);
    command.env("MILEPOST_PUSH_SECRET", KEY).envs(variables.iter().copied());
    Server::start(command)
}

fn kill(mut server: Server) {
    server.child.kill().unwrap();
    server.child.wait().unwrap();
}

fn outbox(server: &Server) -> Vec<Value> {
    server.get("/api/v1/outbox").body["items"].as_array().unwrap().clone()
}

fn is_done(server: &Server, run: &str) {
    let ended = server.ended_run(run);
    assert_eq!((&ended["status"], &ended["output"]["b"]["n"]), (&json!("completed"), &json!(3)), "{ended}");
}

fn nothing_is_owed(server: &Server) {
    eventually("an empty outbox", || outbox(server).is_empty().then_some(()));
}

fn killed_before_the_request(database: Option<&str>) {
    let place = Place::new();
    // Nobody listens there yet.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = serve(&place, database, &[]);
    let run = server.start_run(&pushed_to(&address));
    eventually("a try in vain", || outbox(&server).iter().any(|item| item["last_error"].is_string()).then_some(()));
    kill(server);
    let receiver = Receiver::on(&address);
    let server = serve(&place, database, &[]);
    is_done(&server, &run);
    nothing_is_owed(&server);
    assert_eq!((receiver.received().len(), receiver.forged()), (2, 0), "each step once");
    server.stop();
}

fn killed_before_the_answer(database: Option<&str>) {
    let place = Place::new();
    let receiver = Receiver::on("127.0.0.1:0");
    receiver.open(false);
    let server = serve(&place, database, &[]);
    let run = server.start_run(&receiver.document());
    eventually("a request", || (receiver.received().len() == 1).then_some(()));
    kill(server);
    receiver.open(true);
    let server = serve(&place, database, &[]);
    is_done(&server, &run);
    nothing_is_owed(&server);
    let mut received = receiver.received();
    assert_eq!((received.len(), receiver.forged()), (3, 0));
    // The time in which no server was there is not the receiver's.
    received.iter_mut().for_each(|(_, body)| body["lease_expires_at"] = Value::Null);
    assert_eq!(received[0], received[1], "the same attempt, with the same key, worked out again");
    server.stop();
}

/// Kills servers under load, at random moments, and looks at what became of everything.
fn killed_again_and_again(database: Option<&str>) {
    const KILLS: usize = 10;
    let place = Place::new();
    let receiver = Receiver::on("127.0.0.1:0");
    let mut random = Random(0xB0C5);
    let mut runs = Vec::new();
    for _ in 0..KILLS {
        let server = serve(&place, database, &[]);
        let before = receiver.received().len();
        runs.extend((0..8).map(|_| server.start_run(&receiver.document())));
        let enough = before + random.below(16);
        eventually("some requests", || (receiver.received().len() >= enough).then_some(()));
        kill(server);
    }
    let server = serve(&place, database, &[]);
    for run in &runs {
        is_done(&server, run);
    }
    nothing_is_owed(&server);
    let mut sent: BTreeMap<String, usize> = BTreeMap::new();
    for (_, body) in receiver.received() {
        *sent.entry(body["task_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!((sent.len(), receiver.forged()), (2 * runs.len(), 0), "every step was pushed");
    for run in &runs {
        let events = server.get(&format!("/api/v1/runs/{run}/events")).body;
        let completed =
            events["items"].as_array().unwrap().iter().filter(|event| event["event_type"] == "StepCompleted");
        assert_eq!(completed.count(), 2, "each outcome is recorded once");
    }
    server.stop();
}

#[test]
fn a_kill_before_the_request_loses_nothing() {
    killed_before_the_request(None);
}

#[test]
fn a_kill_before_the_request_loses_nothing_on_postgres() {
    killed_before_the_request(Some(&postgres_schema("push")));
}

#[test]
fn a_kill_before_the_answer_is_recorded_loses_nothing() {
    killed_before_the_answer(None);
}

#[test]
fn a_kill_before_the_answer_is_recorded_loses_nothing_on_postgres() {
    killed_before_the_answer(Some(&postgres_schema("push")));
}

#[test]
fn kills_at_any_moment_lose_nothing() {
    killed_again_and_again(None);
}

#[test]
fn kills_at_any_moment_lose_nothing_on_postgres() {
    killed_again_and_again(Some(&postgres_schema("push")));
}

#[test]
fn dead_letters_are_told_and_tried_again() {
    let place = Place::new();
    let receiver = Receiver::on("127.0.0.1:0");
    receiver.answer(503);
    let server = serve(&place, None, &[("MILEPOST_OUTBOX_MAX_TRIES", "1")]);
    let run = server.start_run(&receiver.document());
    let ended = server.ended_run(&run);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("push_failed")), "{ended}");
    eventually("a dead letter", || outbox(&server).iter().any(|item| item["status"] == "dead").then_some(()));
    let listed = place.run(&["outbox", "list", "--dead", "--server", &server.url]);
    assert!(listed.out.contains(&run) && listed.out.contains("503"), "{}{}", listed.out, listed.err);
    let found = place.run(&["doctor", "--db", ".milepost/milepost.db"]);
    assert!(found.code == 1 && found.out.contains("dead_letters: a delivery was given up"), "{}", found.out);
    let metrics = server.get("/metrics").body.as_str().unwrap().to_owned();
    for line in
        ["milepost_dead_letters 1", "milepost_outbox_pending 0", "milepost_outbox_deliveries_total{result=\"dead\"} 1"]
    {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }

    receiver.answer(200);
    let retried = place.run(&["outbox", "retry", "--all", "--server", &server.url]);
    assert!(retried.code == 0 && retried.out.contains("which is tried again"), "{}{}", retried.out, retried.err);
    is_done(&server, &run);
    let listed = place.run(&["outbox", "list", "--dead", "--server", &server.url]);
    assert_eq!(listed.out, "no dead letters\n");
    server.stop();
    let again = place.run(&["outbox", "retry", "--all", "--db", ".milepost/milepost.db", "-o", "json"]);
    assert_eq!(
        (again.code, serde_json::from_str::<Value>(&again.out).unwrap()),
        (0, json!({"items": []})),
        "{}",
        again.err
    );
}

#[test]
fn a_command_without_a_server_pushes_nothing() {
    let place = Place::new();
    place.file("flow.json", &pushed_to("127.0.0.1:9").to_string());
    let refused = place.run(&["run", "flow.json"]);
    assert!(refused.code == 2 && refused.err.contains("no worker"), "{}: {}", refused.code, refused.err);
}

/// A program of the documentation that listens.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The blocks of a language in docs/push.md, in their order.
fn blocks(language: &str) -> Vec<String> {
    let docs = include_str!("../../../../docs/push.md");
    let fence = format!("```{language}\n");
    docs.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The key that docs/push.md derives of the server's for one host.
fn key_of(secret: &str, host: &str) -> String {
    let docs = include_str!("../../../../docs/push.md");
    let line = docs.lines().find(|line| line.starts_with("python3 -c ")).unwrap();
    let program = line.split('\'').nth(1).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", program, host]).env("MILEPOST_PUSH_SECRET", secret);
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}

fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Listens on an address, and takes requests for it that are signed with the key.
fn start_example(program: &str, file: &std::path::Path, address: &str, key: &str, origin: &str) -> Example {
    let port = address.rsplit(':').next().unwrap();
    let mut command = Command::new(program);
    command.arg(file).env("PORT", port).env("MILEPOST_PUSH_KEY", key).env("MILEPOST_PUSH_ORIGIN", origin);
    let child = Example(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("the example to listen", || std::net::TcpStream::connect(address).is_ok().then_some(()));
    child
}

/// The programs of docs/push.md take what this server signs for them, once, and nothing else.
#[test]
fn the_receivers_of_the_documentation_check_signatures() {
    let place = Place::new();
    let (python, js) = (blocks("python"), blocks("js"));
    place.file("receiver.py", &[&*python[0], &*python[1]].join("\n"));
    place.file("receiver.mjs", &js[0]);
    let server = serve(&place, None, &[]);
    for (program, file) in [("python3", "receiver.py"), ("node", "receiver.mjs")] {
        for (secret, elsewhere, status) in [
            (KEY, false, "completed"),
            ("another secret altogether", false, "failed"),
            // What was signed for one address is brought to another, which has the same key.
            (KEY, true, "failed"),
        ] {
            let address = free_address();
            let key = key_of(secret, &address);
            let origin = if elsewhere { "https://elsewhere.example".to_owned() } else { format!("http://{address}") };
            let _example = start_example(program, &place.path().join(file), &address, &key, &origin);
            let run = server.start_run(&json!({"name": "letters", "steps": {"a": {
                "skill": "letters", "runtime": "push", "push": {"url": format!("http://{address}/hooks?by=post")},
                "input": {"text": "mëasure"},
            }}}));
            let ended = server.ended_run(&run);
            assert_eq!(ended["status"], status, "{program}: {ended}");
            match status {
                "completed" => assert_eq!(ended["output"]["a"], json!({"letters": 7}), "{program}"),
                _ => assert_eq!(ended["error"]["code"], "push_rejected", "{program}"),
            }
        }
    }
    server.stop();
}

/// What was recorded on its way is refused when it comes again.
#[test]
fn the_receivers_of_the_documentation_take_a_delivery_once() {
    let place = Place::new();
    let (python, js) = (blocks("python"), blocks("js"));
    place.file("receiver.py", &[&*python[0], &*python[1]].join("\n"));
    place.file("receiver.mjs", &js[0]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (program, file) in [("python3", "receiver.py"), ("node", "receiver.mjs")] {
        let address = free_address();
        let (key, origin) = ("some key", format!("http://{address}"));
        let _example = start_example(program, &place.path().join(file), &address, key, &origin);
        let body = r#"{"input":{"text":"mëasure"}}"#;
        let sent_at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let signature = |delivery: &str| {
            let head = format!("{sent_at}\n{delivery}\n{origin}/hook\n");
            format!("t={sent_at},v2={}", super::receiver::hmac(key.as_bytes(), &[head.as_bytes(), body.as_bytes()]))
        };
        let send = |delivery: &str, signature: &str| {
            let post = reqwest::Client::new().post(format!("{origin}/hook")).body(body);
            let sent = post.header("milepost-delivery", delivery).header("milepost-signature", signature).send();
            runtime.block_on(sent).unwrap().status().as_u16()
        };
        let first = signature("one");
        assert_eq!(send("one", &first), 200, "{program}");
        assert_eq!(send("one", &first), 401, "{program}: a replay");
        assert_eq!(send("two", &first), 401, "{program}: a replay under another name");
        assert_eq!(send("two", &signature("two")), 200, "{program}");
    }
}

/// The function of docs/push.md, called as Lambda calls it with what a receiver was sent.
#[test]
fn the_function_of_the_documentation_is_called_as_lambda_does() {
    let place = Place::new();
    let python = blocks("python");
    let driver = "
from http.server import BaseHTTPRequestHandler, HTTPServer

class FunctionUrl(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        headers = {name.lower(): value for name, value in self.headers.items()}
        path, _, query = self.path.partition('?')
        event = {'headers': headers, 'rawPath': path, 'rawQueryString': query, 'body': base64.b64encode(body).decode(), 'isBase64Encoded': True}
        answer = handler(event, None)
        self.send_response(answer.get('statusCode', 200))
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

HTTPServer(('127.0.0.1', int(os.environ['PORT'])), FunctionUrl).serve_forever()
";
    place.file("function.py", &[&*python[0], &*python[2], driver].join("\n"));
    let address = free_address();
    let (key, origin) = (key_of(KEY, &address), format!("http://{address}"));
    let _example = start_example("python3", &place.path().join("function.py"), &address, &key, &origin);
    let server = serve(&place, None, &[]);
    let run = server.start_run(&json!({"name": "letters", "steps": {"a": {
        "skill": "letters", "runtime": "push", "push": {"url": format!("http://{address}")}, "input": {"text": "four"},
    }}}));
    let ended = server.ended_run(&run);
    assert_eq!((&ended["status"], &ended["output"]["a"]), (&json!("completed"), &json!({"letters": 4})), "{ended}");
    server.stop();
}
