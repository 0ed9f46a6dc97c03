//! `dev --watch`.

use serde_json::json;

use super::Place;

const GOOD: &str = "name: greet\nsteps:\n  one: {skill: echo, input: {text: hello}}\n";
const BETTER: &str = "name: greet\nsteps:\n  one: {skill: echo, input: {text: good morning}}\n";
const BAD: &str = "name: greet\nsteps:\n  one: {skil: echo}\n";

fn greeting(server: &super::Server) -> serde_json::Value {
    let started = server.post("/api/v1/runs", &json!({"workflow": "greet"}));
    assert_eq!(started.status, 201, "{}", started.body);
    server.ended_run(started.body["run_id"].as_str().unwrap())["output"]["one"]["text"].clone()
}

#[test]
fn documents_are_deployed_at_the_start_and_when_they_change() {
    let place = Place::new();
    place.file("flows/deep/greet.yaml", GOOD);
    place.file("flows/.hidden/other.yaml", "name: hidden\nsteps: {one: {skill: noop}}\n");
    let server = place.dev(&["--watch", "flows"]);
    // It is there when the server says that it is ready.
    assert_eq!(greeting(&server), "hello");
    assert!(server.said().contains("deployed greet (sha256:"), "{}", server.said());
    assert!(!server.said().contains("hidden"));

    place.file("flows/deep/greet.yaml", BAD);
    server.says("flows/deep/greet.yaml has 2 problems");
    let validated = place.run(&["validate", "flows/deep/greet.yaml"]);
    assert!(server.said().contains(validated.out.trim_end()), "{}\nis not in\n{}", validated.out, server.said());
    assert_eq!(greeting(&server), "hello");

    place.file("flows/deep/greet.yaml", BETTER);
    server.says("flows/deep/greet.yaml is in order again\ndeployed greet (sha256:");
    assert_eq!(greeting(&server), "good morning");

    place.file("flows/two.yml", "name: a\nsteps: {one: {skill: noop}}\n---\nname: b\nsteps: {one: {skill: noop}}\n");
    server.says("deployed a (sha256:");
    server.says("deployed b (sha256:");

    std::fs::remove_file(place.path().join("flows/deep/greet.yaml")).unwrap();
    server.says("flows/deep/greet.yaml was removed; greet stays deployed");
    assert_eq!(greeting(&server), "good morning");
}

#[test]
fn a_file_may_be_watched_and_what_is_not_there_is_refused() {
    let place = Place::new();
    place.file("one.yaml", GOOD);
    let server = place.dev(&["--watch", "one.yaml"]);
    assert_eq!(greeting(&server), "hello");
    let ran = place.run(&["dev", "--listen", "127.0.0.1:0", "--watch", "nowhere"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("nowhere cannot be watched"), "{}", ran.err);
}
