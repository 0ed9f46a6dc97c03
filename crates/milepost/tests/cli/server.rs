//! The same verbs through a server: they look as they do on a database, and end as they do there.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::processes::{SLOW, eventually, send};
use super::verbs::{TALK, without_times};
use super::{Place, Ran, example, finish, step};

/// `milepost dev` in a folder of its own.
pub(crate) struct Server {
    pub(crate) place: Place,
    child: Child,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start() -> Server {
        let place = Place::new();
        let (child, url) = dev(&place, "127.0.0.1:0");
        Server { place, child, url }
    }

    /// Ends it as a power failure would, and starts it again where it was.
    fn die_and_come_back(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let address = self.url.strip_prefix("http://").unwrap().to_owned();
        (self.child, self.url) = dev(&self.place, &address);
    }

    /// A command in another folder, which is told where the server is.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Place::new().run(&[args, &["--server", &self.url]].concat())
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        Place::new().json(&[args, &["--server", &self.url]].concat())
    }

    pub(crate) fn start_command(&self, args: &[&str]) -> Child {
        self.place.start(&[args, &["--server", &self.url]].concat())
    }

    /// Waits until the log of a run has this event of this step.
    fn has_happened(&self, run: &str, event_type: &str, step_id: &str) {
        eventually(&format!("{event_type} of {step_id}"), || {
            let page = self.json(&["runs", "events", run]);
            let events = page["items"].as_array().unwrap();
            events.iter().any(|event| event["event_type"] == event_type && event["step_id"] == step_id).then_some(())
        });
    }

    /// The run that is there; lists are a moment behind the log.
    fn only_run(&self) -> String {
        eventually("a run", || Some(self.json(&["runs", "list"])["items"][0]["run_id"].as_str()?.to_owned()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn dev(place: &Place, listen: &str) -> (Child, String) {
    let mut command = place.command(&["dev", "--listen", listen]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim_end().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
    (child, url)
}

fn error(ran: &Ran) -> Value {
    serde_json::from_str(&ran.err).unwrap_or_else(|_| panic!("{}", ran.err))
}

/// Lines without what differs from run to run: times, ids, how long it took.
fn shape(text: &str) -> Vec<String> {
    let plain = |word: &str| match word.chars().any(|letter| letter.is_ascii_digit()) {
        true => "#".to_owned(),
        false => word.to_owned(),
    };
    text.lines().map(|line| line.split_whitespace().map(plain).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_file_runs_on_a_server_as_it_runs_here() {
    let server = Server::start();
    for name in ["diamond.yaml", "retries.yaml", "continue.yaml", "child.yaml", "campaign.yaml"] {
        let (here, there) = (Place::new().run(&["run", &example(name)]), server.run(&["run", &example(name)]));
        assert_eq!((here.code, shape(&here.out)), (there.code, shape(&there.out)), "{name}: {}", there.err);
        let sorted = |ran: &Ran| {
            let mut lines = shape(&ran.err);
            lines.sort();
            lines
        };
        assert_eq!(sorted(&here), sorted(&there), "{name}");
    }
}

#[test]
fn with_json_there_is_one_object_the_run_as_it_is_stored() {
    let server = Server::start();
    let ran = server.run(&["run", &example("chain.yaml"), "--payload", r#"{"start": 5}"#, "-o", "json"]);
    assert_eq!((ran.code, ran.out.lines().count(), ran.err.as_str()), (0, 1, ""));
    let run: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(run["output"], json!({"s10": {"n": 14}}));
    let id = run["run_id"].as_str().unwrap();
    assert_eq!(server.json(&["runs", "show", id]), run);
    // The same, read from its database.
    assert_eq!(server.place.json(&["runs", "show", id, "--db", ".milepost/milepost.db"]), run);
    let (here, there) = (["runs", "events", id, "--db", ".milepost/milepost.db"], ["runs", "events", id]);
    assert_eq!(server.place.json(&here), server.json(&there));
}

#[test]
fn the_server_of_this_folder_is_found() {
    let server = Server::start();
    // It is the server's process that runs it: this one may go.
    let started = server.place.json(&["run", &example("diamond.yaml"), "--detach"]);
    let watched = server.place.json(&["runs", "watch", started["run_id"].as_str().unwrap()]);
    assert_eq!(watched["status"], "completed");
    let signal = ["--signal", r#"approved={"by": "Ada"}"#];
    let ran = server.place.run(&[&["run", &example("wait.yaml")], &signal[..]].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

#[test]
fn what_was_deployed_on_a_server_runs_by_its_name() {
    let server = Server::start();
    let deployed = server.json(&["deploy", &example("chain.yaml"), "--message", "the first"]);
    assert_eq!(deployed["tag"], "example.chain");
    assert_eq!(server.json(&["run", "example.chain"])["status"], "completed");
    let hash = deployed["version_hash"].as_str().unwrap();
    assert_eq!(server.json(&["run", hash])["workflow"], "example.chain");
    assert_eq!(server.json(&["workflows"])["items"][0]["tag"], "example.chain");
    assert_eq!(server.json(&["workflows", "show", "example.chain"])["document"]["name"], "example.chain");
}

#[test]
fn what_a_server_refuses_is_told_in_its_words() {
    let server = Server::start();
    let unknown = server.run(&["run", "nobody.knows", "-o", "json"]);
    assert_eq!((unknown.code, error(&unknown)["code"].as_str()), (2, Some("unknown_workflow")), "{}", unknown.err);
    let file = server
        .place
        .file("params.yaml", "name: x\nparams: {type: object, required: [topic]}\nsteps:\n  a: {skill: noop}\n");
    let payload = server.run(&["run", &file, "-o", "json"]);
    assert_eq!((payload.code, error(&payload)["code"].as_str()), (2, Some("payload_invalid")));
    let none = server.run(&["runs", "show", "01a1defb-2230-7772-a9d6-506d39a96b23", "-o", "json"]);
    assert_eq!((none.code, error(&none)["code"].as_str()), (2, Some("unknown_run")));
    assert!(none.err.contains("milepost runs list"), "{}", none.err);
    server.run(&["run", &example("chain.yaml")]);
    let ended = server.run(&["runs", "cancel", &server.only_run()]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("takes no CANCEL any more"), "{}", ended.err);
}

#[test]
fn signals_reach_a_run_on_a_server() {
    let server = Server::start();
    let child = server.start_command(&["run", &example("wait.yaml")]);
    let run = server.only_run();
    server.has_happened(&run, "StepStarted", "sign_off");
    assert_eq!(server.json(&["runs", "pause", &run])["status"], "paused");
    assert_eq!(server.json(&["runs", "resume", &run])["status"], "running");
    let sent = server.json(&["runs", "signal", &run, "approved", "--payload", r#"{"by": "Ada"}"#]);
    assert_eq!(sent["accepted"], true);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("\"approved_by\": \"Ada\""), "{}", ran.out);
    for part in ["signal PAUSE accepted", "run paused", "signal approved accepted"] {
        assert!(ran.err.contains(part), "`{part}` is not in: {}", ran.err);
    }
}

#[test]
fn ctrl_c_cancels_a_run_on_a_server() {
    let server = Server::start();
    let file = server.place.file("slow.yaml", SLOW);
    let child = server.start_command(&["run", &file, "-o", "json"]);
    let run = server.only_run();
    server.has_happened(&run, "StepStarted", "second");
    send(&child, rustix::process::Signal::INT);
    let ran = finish(child);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let run: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(run["status"], "cancelled");
}

#[test]
fn a_second_ctrl_c_leaves_at_once_even_if_the_server_does_not_answer() {
    let server = Server::start();
    let file = server.place.file("slow.yaml", SLOW);
    let mut child = server.start_command(&["run", &file]);
    let run = server.only_run();
    server.has_happened(&run, "StepStarted", "second");
    send(&server.child, rustix::process::Signal::STOP);
    send(&child, rustix::process::Signal::INT);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("press Ctrl-C again")), "the first one cancels");
    send(&child, rustix::process::Signal::INT);
    assert_eq!(finish(child).code, 1);
    send(&server.child, rustix::process::Signal::CONT);
}

#[test]
fn a_process_that_is_told_to_go_leaves_its_run_to_the_server() {
    let server = Server::start();
    let file = server.place.file("slow.yaml", SLOW);
    let child = server.start_command(&["run", &file]);
    let run = server.only_run();
    server.has_happened(&run, "StepStarted", "second");
    send(&child, rustix::process::Signal::TERM);
    let ran = finish(child);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("milepost runs watch"), "{}", ran.err);
    server.place.file("go", "");
    assert_eq!(server.json(&["runs", "watch", &run])["output"], json!({"third": {"n": 3}}));
}

#[test]
fn following_goes_on_when_the_server_was_killed_and_came_back() {
    let mut server = Server::start();
    let file = server.place.file("slow.yaml", SLOW);
    let child = server.start_command(&["run", &file]);
    let run = server.only_run();
    let mut events = server.start_command(&["runs", "events", &run, "-f", "-o", "json"]);
    let (mut followed, mut lines) = (BufReader::new(events.stdout.take().unwrap()), String::new());
    // Whoever is to be cut off has to be connected first.
    followed.read_line(&mut lines).unwrap();
    server.has_happened(&run, "StepStarted", "second");
    server.die_and_come_back();
    server.place.file("go", "");
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("step third completed"), "{}", ran.err);
    followed.read_to_string(&mut lines).unwrap();
    assert_eq!(finish(events).code, 0);
    let seqs: Vec<u64> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["run_seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "no gap and no duplicate");
    let shown = server.json(&["runs", "show", &run]);
    assert_eq!(shown["last_event_seq"].as_u64(), seqs.last().copied());
    assert_eq!(step(&shown, "second")["engine_attempt"], 2, "the server was killed in the middle of it");
}

#[test]
fn many_runs_on_a_server_are_told_at_once() {
    let server = Server::start();
    let runs: Vec<Value> = (0..3).map(|_| server.json(&["run", &example("wait.yaml"), "--detach"])).collect();
    let all = ["runs", "cancel", "--workflow", "example.wait"];
    eventually("three runs in the list", || {
        (server.json(&[&all[..], &["--dry-run"]].concat())["matched"] == 3).then_some(())
    });
    let unsure = server.run(&[&all[..], &["-o", "json"]].concat());
    assert_eq!((unsure.code, error(&unsure)["code"].as_str()), (2, Some("needs_yes")));
    let done = server.json(&[&all[..], &["--yes", "--payload", r#"{"reason": "enough"}"#]].concat());
    assert_eq!((&done["accepted"], &done["more"]), (&json!(3), &json!(false)));
    for run in &runs {
        let watched = server.run(&["runs", "watch", run["run_id"].as_str().unwrap(), "-o", "json"]);
        let shown: Value = serde_json::from_str(&watched.out).unwrap();
        assert_eq!((watched.code, &shown["status"]), (1, &json!("cancelled")));
    }
}

#[test]
fn steps_are_shown_and_tried_again_on_a_server() {
    let server = Server::start();
    let command = "[ -e fixed ]";
    let file = server
        .place
        .file("fix.yaml", &format!("name: x\nsteps:\n  a: {{skill: shell, input: {{command: \"{command}\"}}}}\n"));
    let failed = server.run(&["run", &file, "-o", "json"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    let run: Value = serde_json::from_str(&failed.out).unwrap();
    let run = run["run_id"].as_str().unwrap();
    let shown = server.json(&["runs", "show", run, "--step", "a"]);
    assert_eq!((&shown["input"], &shown["status"]), (&json!({"command": command}), &json!("failed")));
    server.place.file("fixed", "");
    assert_eq!(server.json(&["runs", "retry", run])["steps"], json!(["a"]));
    assert_eq!(server.json(&["runs", "watch", run])["status"], "completed");
    let text = server.run(&["runs", "show", run]).out;
    for part in ["failed → running", "running → completed", "transitions:"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn an_earlier_run_on_a_server_is_planned_and_run_again_with_a_change() {
    let server = Server::start();
    let payload = ["--payload", r#"{"topic": "tea", "audio": {"prompt": "flute"}}"#];
    let campaign = example("campaign.yaml");
    let (here, there) = (Place::new().json(&["plan", &campaign]), server.json(&["plan", &campaign]));
    assert_eq!(here, there);
    let base = server.json(&[&["run", &campaign], &payload[..]].concat());
    let change = ["--change", r#"audio.update={"prompt": "harp"}"#];
    let id = base["run_id"].as_str().unwrap();
    let planned = server.json(&[&["plan", "--base-run", id], &change[..]].concat());
    assert_eq!(planned["steps"].as_array().unwrap().len(), there["steps"].as_array().unwrap().len());
    let run = server.json(&[&["rebuild", id], &change[..]].concat());
    assert_eq!((&run["base_run_id"], &run["payload"]["audio"]["prompt"]), (&base["run_id"], &json!("harp")));
    let again = server.json(&["rebuild", id, "--step", "asset3d"]);
    let why = server.json(&["runs", "explain", again["run_id"].as_str().unwrap(), "asset3d"]);
    assert_eq!((&why["decision"], &why["reason"]), (&json!("ran"), &json!("rebuild")), "{why}");
    let foreseen = server.json(&["plan", "--base-run", id, "--rebuild=asset3d"]);
    assert_eq!(step(&foreseen, "asset3d")["reason"], "rebuild");
}

#[test]
fn what_steps_say_on_a_server_is_heard_while_they_run_and_later() {
    let server = Server::start();
    let file = server.place.file("talk.yaml", TALK);
    let ran = server.run(&["run", &file]);
    let said: Vec<&str> = ran.err.lines().filter(|line| line.contains(" | ")).collect();
    assert_eq!(said, ["one | a", "one | b", "two | c"], "{}", ran.err);
    let run = server.only_run();
    let logs = server.run(&["runs", "logs", &run]).out;
    assert_eq!(without_times(&logs), said);
    assert_eq!(server.place.run(&["runs", "logs", &run, "--db", ".milepost/milepost.db"]).out, logs);
    assert_eq!(without_times(&server.run(&["runs", "logs", &run, "--step", "two"]).out), ["c"]);
}

#[test]
fn logs_are_followed_up_to_the_end_of_the_run() {
    let server = Server::start();
    let file = server.place.file("slow.yaml", &SLOW.replace("command: \"", "command: \"echo begun; "));
    let started = server.json(&["run", &file, "--detach"]);
    let run = started["run_id"].as_str().unwrap();
    server.has_happened(run, "StepStarted", "second");
    let mut child = server.start_command(&["runs", "logs", run, "-f"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().ends_with("second | begun"));
    server.place.file("go", "");
    assert!(lines.next().unwrap().unwrap().ends_with("second | {\"n\": 2}"));
    assert!(lines.next().is_none());
    assert_eq!(finish(child).code, 0);
}

#[test]
fn who_has_no_token_is_told_so() {
    let place = Place::new();
    let token = place.json(&["token"]);
    let hash = token["hash"].as_str().unwrap();
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0", "--token-hash", hash]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim_end().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
    let server = Server { place: Place::new(), child, url };
    let stranger = server.run(&["runs", "list", "-o", "json"]);
    assert_eq!((stranger.code, error(&stranger)["code"].as_str()), (2, Some("unauthorized")));
    let known = server.run(&["run", &example("diamond.yaml"), "--token", token["token"].as_str().unwrap()]);
    assert_eq!(known.code, 0, "{}", known.err);
}
