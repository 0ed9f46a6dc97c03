//! Several servers on one Postgres, with no further setting.

use serde_json::json;

use super::common::postgres_schema;
use super::{Place, has_begun, slow};

#[test]
fn what_a_server_leaves_goes_on_in_another() {
    let place = Place::new();
    let database = postgres_schema("serve");
    let start = |data: &str| place.serve(&["--allow-shell", "--db", &database, "--data", data]);
    let first = start("one");
    let run = first.start_run(&slow(&place));
    has_begun(&place, 1);
    let second = start("two");
    assert_eq!(second.get(&format!("/api/v1/runs/{run}")).body["status"], "running");
    let said = first.stop();
    assert!(!said.contains("WARN"), "{said}");
    has_begun(&place, 2);
    place.file("go", "");
    let ended = second.ended_run(&run);
    assert_eq!((&ended["status"], &ended["output"]), (&json!("completed"), &json!({"only": {"n": 1}})));
    assert!(!place.path().join("one/milepost.db").exists());
    second.stop();
}
