//! Definitions in versions, through a server and on a database alone: both say the same.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::Place;

const FLOW: &str = "name: camp\nsteps:\n  brief: {skill: echo, input: {topic: tea, n: 1}}\n  old: {skill: noop}\n";
const WITHOUT_OLD: &str = "name: camp\nsteps:\n  brief: {skill: echo, input: {topic: gin, n: 1}}\n";

/// Commands of one user after the other, told to a server or to a database.
struct Told<'a> {
    place: &'a Place,
    whom: [&'a str; 2],
    /// Of a server that knows people by their tokens: those of `alice` and `bob`.
    tokens: Option<[String; 2]>,
    /// What each was answered, ids and times taken out.
    answers: Vec<(String, i32, Value)>,
    names: HashMap<String, String>,
}

impl<'a> Told<'a> {
    fn new(place: &'a Place, whom: [&'a str; 2]) -> Told<'a> {
        Told { place, whom, tokens: None, answers: Vec::new(), names: HashMap::new() }
    }

    /// What it answers: on standard output, or why it is refused.
    fn tell(&mut self, code: i32, args: &[&str]) -> Value {
        let mut command = self.place.command(&[args, &["-o", "json"], &self.whom].concat());
        command.env("MILEPOST_ACTOR", "alice");
        if let Some([alice, bob]) = &self.tokens {
            command.env("MILEPOST_TOKEN", if args.contains(&"bob") { bob } else { alice });
        }
        let ran = super::ended(command);
        assert_eq!(ran.code, code, "{args:?}: {}{}", ran.out, ran.err);
        let said = if ran.out.is_empty() { &ran.err } else { &ran.out };
        let answer: Value = serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said}"));
        let plain = self.plain(&answer);
        // Moments differ, and stand in some arguments.
        let shown: Vec<&str> = args.iter().filter(|arg| !arg.ends_with('Z')).copied().collect();
        self.answers.push((shown.join(" "), code, plain));
        answer
    }

    fn patch(&mut self, code: i32, tag: &str, ops: &Value) -> Value {
        self.tell(code, &["workflows", "patch", tag, "--ops", &ops.to_string()])
    }

    fn plain(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let plain = fields.iter().map(|(name, value)| match name.as_str() {
                    "moved_at" | "created_at" | "at" => (name.clone(), json!("then")),
                    _ => (name.clone(), self.plain(value)),
                });
                Value::Object(plain.collect())
            }
            Value::Array(items) => items.iter().map(|item| self.plain(item)).collect(),
            Value::String(text) if text.parse::<uuid::Uuid>().is_ok() => {
                let next = format!("id {}", self.names.len());
                self.names.entry(text.clone()).or_insert(next).clone().into()
            }
            Value::String(text) => text.split_once("@2").map_or(text.as_str(), |(before, _)| before).into(),
            other => other.clone(),
        }
    }
}

fn n(value: i64) -> Value {
    json!([{"op": "replace", "path": "/steps/brief/input/n", "value": value}])
}

/// The life of a tag, from its first document to what is left of it.
fn live(told: &mut Told<'_>) {
    let first = told.tell(0, &["deploy", "flow.yaml", "-m", "first"]);
    assert_eq!(told.tell(0, &["deploy", "flow.yaml"]), first, "the same again changes nothing");
    told.patch(0, "camp", &n(2));
    let second = told.tell(0, &["tags", "show", "camp"]);
    assert_eq!((&second["tag_version"], &second["kind"]), (&json!(2), &json!("patch_set")));
    let then = second["moved_at"].as_str().unwrap();
    told.patch(0, "camp", &n(3));

    // Undo twice, redo twice; an edit ends what can be redone.
    assert_eq!(told.tell(0, &["tags", "undo", "camp"])["move"]["restores_move_id"], 2);
    let undone = told.tell(0, &["tags", "undo", "camp", "-m", "too many"]);
    assert_eq!((&undone["version_hash"], &undone["tag_version"]), (&first["version_hash"], &json!(5)));
    assert_eq!(told.tell(2, &["tags", "undo", "camp"])["code"], "nothing_to_undo");
    assert_eq!(told.tell(0, &["tags", "redo", "camp"])["version_hash"], second["version_hash"]);
    assert_eq!(told.tell(0, &["tags", "redo", "camp"])["move"]["restores_move_id"], 3);
    assert_eq!(told.tell(2, &["tags", "redo", "camp"])["code"], "nothing_to_redo");
    told.tell(0, &["tags", "undo", "camp"]);
    told.patch(0, "camp", &n(4));
    assert_eq!(told.tell(2, &["tags", "redo", "camp"])["code"], "nothing_to_redo");

    // By name, by steps back, by time.
    assert_eq!(told.tell(0, &["workflows", "show", "camp~2"])["version_hash"], first["version_hash"]);
    let at = format!("camp@{then}");
    assert_eq!(told.tell(0, &["workflows", "show", &at])["version_hash"], second["version_hash"]);
    assert_eq!(told.tell(0, &["tags", "restore", "camp", "camp~2"])["move"]["kind"], "restore");
    let restored = told.tell(0, &["tags", "restore", "camp", "--at", then]);
    assert_eq!(
        (&restored["version_hash"], &restored["move"]["restores_move_id"]),
        (&second["version_hash"], &json!(2))
    );
    for (reference, code) in [
        ("camp~99", "unknown_ref"),
        ("sha256:00", "unknown_ref"),
        ("camp@noon", "unknown_ref"),
        ("c", "unknown_workflow"),
    ] {
        assert_eq!(told.tell(2, &["workflows", "show", reference])["code"], code);
    }

    // What is different.
    let diff = told.tell(1, &["diff", "camp~1", "camp", "--exit-code"]);
    assert_eq!(diff["ops"], json!([{"op": "replace", "path": "/steps/brief/input/n", "value": 2}]));
    told.tell(0, &["diff", "camp", "camp", "--exit-code"]);
    told.tell(0, &["diff", "camp", "without-old.yaml"]);

    // Merges: nothing new, forward, together, and not at all.
    told.tell(0, &["tags", "set", "team/next", "camp", "-m", "a line of its own"]);
    assert_eq!(told.tell(0, &["tags", "merge", "camp", "team/next"])["outcome"], "up_to_date");
    told.patch(0, "team/next", &json!([{"op": "remove", "path": "/steps/old"}]));
    assert_eq!(told.tell(0, &["tags", "merge", "camp", "team/next"])["outcome"], "fast_forward");
    told.patch(0, "team/next", &n(9));
    told.patch(0, "camp", &json!([{"op": "replace", "path": "/steps/brief/input/topic", "value": "rum"}]));
    let before = told.tell(0, &["tags", "show", "camp"]);
    assert_eq!(told.tell(0, &["tags", "merge", "camp", "team/next", "--dry-run"])["outcome"], "merged");
    assert_eq!(told.tell(0, &["tags", "show", "camp"]), before, "a dry run leaves nothing");
    told.tell(0, &["tags", "merge", "camp", "team/next"]);
    let merged = told.tell(0, &["workflows", "show", "camp"]);
    assert_eq!(merged["document"]["steps"], json!({"brief": {"skill": "echo", "input": {"topic": "rum", "n": 9}}}));
    told.patch(0, "team/next", &n(10));
    told.patch(0, "camp", &n(11));
    let clash = told.tell(2, &["tags", "merge", "camp", "team/next"]);
    let conflict = &clash["conflicts"][0];
    assert_eq!((&clash["code"], &conflict["kind"]), (&json!("merge_conflict"), &json!("both_changed")), "{clash}");
    assert_eq!((&conflict["base"], &conflict["ours"], &conflict["theirs"]), (&json!(9), &json!(11), &json!(10)));

    // What cannot be: a test that fails, steps in a circle, a version that is not there any more, another's move.
    let test = json!([{"op": "test", "path": "/steps/brief/input/n", "value": 1}]);
    assert_eq!(told.patch(2, "camp", &test)["code"], "patch_failed");
    let circle = json!([{"op": "add", "path": "/steps/brief/depends_on", "value": ["brief"]}]);
    let refused = told.patch(2, "camp", &circle);
    assert!(refused["code"] == "invalid_document" && refused["problems"][0]["path"].is_string(), "{refused}");
    assert_eq!(told.tell(2, &["deploy", "flow.yaml", "--expect", "1"])["code"], "tag_moved");
    assert_eq!(told.tell(2, &["tags", "undo", "camp", "--as", "bob"])["code"], "moved_by_another");
    assert_eq!(told.tell(2, &["deploy", "flow.yaml", "--tag", "a~b"])["code"], "bad_tag");
    told.tell(0, &["tags", "undo", "camp", "--as", "bob", "--force"]);

    // Only some may move it.
    told.tell(0, &["tags", "protect", "camp", "--mover", "alice"]);
    assert_eq!(told.tell(2, &["deploy", "flow.yaml", "--as", "bob"])["code"], "tag_protected");
    assert_eq!(told.tell(2, &["tags", "protect", "camp", "--off", "--as", "bob"])["code"], "tag_protected");
    told.tell(0, &["deploy", "flow.yaml"]);
    told.tell(0, &["tags", "protect", "camp", "--off"]);

    told.tell(0, &["tags", "log", "camp", "--all"]);
    told.tell(0, &["tags", "log", "camp", "-n", "3"]);
    told.tell(0, &["tags", "list"]);
    told.tell(0, &["workflows", "list"]);
    assert_eq!(told.tell(0, &["gc", "--dry-run"])["revisions"], 0);
}

#[test]
fn a_server_and_a_database_alone_say_the_same() {
    let place = Place::new();
    place.file("flow.yaml", FLOW);
    place.file("without-old.yaml", WITHOUT_OLD);
    let server = place.dev(&[]);
    let mut remote = Told::new(&place, ["--server", &server.url]);
    live(&mut remote);
    let mut local = Told::new(&place, ["--db", "alone.db"]);
    live(&mut local);
    for (there, here) in remote.answers.iter().zip(&local.answers) {
        assert_eq!(there, here);
    }
    assert_eq!(remote.answers.len(), local.answers.len());
}

#[test]
fn a_server_on_postgres_says_what_a_file_says() {
    let place = Place::new();
    place.file("flow.yaml", FLOW);
    place.file("without-old.yaml", WITHOUT_OLD);
    let address = super::common::postgres_schema("definitions");
    let made = ["alice", "bob"].map(|name| {
        let made: Value = serde_json::from_str(&place.run(&["token", "--name", name, "-o", "json"]).out).unwrap();
        ["token", "hash"].map(|field| made[field].as_str().unwrap().to_owned())
    });
    let [[alice, known_alice], [bob, known_bob]] = made;
    let server = place.serve(&["--db", &address, "--token-hash", &known_alice, "--token-hash", &known_bob]);
    let mut remote = Told { tokens: Some([alice, bob]), ..Told::new(&place, ["--server", &server.url]) };
    live(&mut remote);
    let mut local = Told::new(&place, ["--db", "alone.db"]);
    live(&mut local);
    assert_eq!(remote.answers, local.answers);
}

#[test]
fn runs_take_what_a_reference_means() {
    let place = Place::new();
    place.file("flow.yaml", FLOW);
    let server = place.dev(&[]);
    for whom in [["--server", &server.url], ["--db", "alone.db"]] {
        let mut told = Told::new(&place, whom);
        told.tell(0, &["deploy", "flow.yaml"]);
        told.patch(0, "camp", &n(2));
        let then = told.tell(0, &["tags", "show", "camp"])["moved_at"].as_str().unwrap().to_owned();
        told.patch(0, "camp", &n(3));
        let at = format!("camp@{then}");
        for (reference, n) in [("camp~2", 1), ("camp~1", 2), (&at, 2), ("camp", 3)] {
            let run = told.tell(0, &["run", reference]);
            assert_eq!(run["output"]["brief"]["n"], n, "{reference}: {run}");
        }
        assert_eq!(told.tell(2, &["run", "camp~7"])["code"], "unknown_ref");
    }
}

#[test]
fn what_a_server_wrote_a_database_alone_goes_on_with() {
    let place = Place::new();
    place.file("flow.yaml", FLOW);
    let server = place.dev(&[]);
    let mut remote = Told::new(&place, ["--server", &server.url]);
    remote.tell(0, &["deploy", "flow.yaml"]);
    remote.patch(0, "camp", &n(2));
    let log = remote.tell(0, &["tags", "log", "camp"]);
    server.stop();
    let mut local = Told::new(&place, ["--db", ".milepost/milepost.db"]);
    assert_eq!(local.tell(0, &["tags", "log", "camp"]), log);
    assert_eq!(local.tell(0, &["tags", "undo", "camp"])["tag_version"], 3);
    let server = place.dev(&[]);
    assert_eq!(server.get("/api/v1/tags/camp").body["tag_version"], 3);
    server.stop();
}
