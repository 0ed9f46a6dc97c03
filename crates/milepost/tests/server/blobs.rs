//! Large logs of a server of the real program: in a folder, and in a bucket.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::moto::{Moto, variables};
use super::{Place, Server, eventually, has_begun, shell};

/// Says 400 lines of 100 characters, waits for the file `go`, and says one more.
fn loud(place: &Place) -> Value {
    let folder = place.path().display();
    shell(&format!(
        "echo x >> {folder}/began; i=0; while [ $i -lt 400 ]; do printf 'line %095d\\n' $i; i=$((i+1)); done; \
         while [ ! -e {folder}/go ]; do sleep 0.02; done; echo last"
    ))
}

pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| below(entry.unwrap().path())).collect()
}

fn texts(server: &Server, run: &str) -> Vec<String> {
    let page = server.get(&format!("/api/v1/runs/{run}/logs?limit=10000")).body;
    let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
    items.iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

fn expected() -> Vec<String> {
    (0..400).map(|n| format!("line {n:095}")).collect()
}

#[test]
fn a_large_log_is_in_files_and_can_be_read_while_it_grows() {
    let place = Place::new();
    let server = place.dev(&[]);
    let run = server.start_run(&loud(&place));
    has_begun(&place, 1);
    eventually("the lines of a step that goes on", || (texts(&server, &run).len() == 400).then_some(()));
    let blobs = place.path().join(".milepost/blobs");
    let held = files(&blobs);
    assert!(!held.is_empty() && held.iter().all(|file| file.to_str().unwrap().contains(&run)), "{held:?}");
    place.file("go", "");
    server.ended_run(&run);
    let all = [expected(), vec!["last".to_owned()]].concat();
    assert_eq!(texts(&server, &run), all);
    let followed = place.run(&["runs", "logs", &run, "-f"]);
    assert_eq!(followed.out.lines().count(), 401, "{}{}", followed.out, followed.err);
    server.stop();
    // By the database alone, and by another server.
    let read = place.run(&["runs", "logs", &run, "--db", ".milepost/milepost.db"]);
    assert_eq!(read.out.lines().count(), 401, "{}{}", read.out, read.err);
    let server = place.dev(&[]);
    assert_eq!(texts(&server, &run), all);
    std::fs::remove_dir_all(&blobs).unwrap();
    // The first line may have been written by itself, and then it is a row.
    let left = texts(&server, &run);
    assert!(
        left.iter().any(|text| text.contains("lines missing here: ")) && left.last().unwrap() == "last",
        "{left:?}"
    );
    server.stop();
}

#[test]
fn a_large_log_is_in_a_bucket_that_servers_share() {
    let (place, moto) = (Place::new(), Moto::start());
    let serve = || {
        let args = ["serve", "--listen", "127.0.0.1:0", "--allow-shell", "--blobs", "s3://bucket/milepost"];
        let mut command = place.command(&args);
        command.envs(variables(moto.port()));
        Server::start(command)
    };
    let server = serve();
    place.file("go", "");
    let run = server.start_run(&loud(&place));
    server.ended_run(&run);
    let all = [expected(), vec!["last".to_owned()]].concat();
    assert_eq!(texts(&server, &run), all);
    server.stop();
    let listed = moto.request("GET /bucket?list-type=2").unwrap();
    assert!(listed.contains("<Key>milepost/runs/1/") && listed.contains(&run), "{listed}");
    assert!(!place.path().join(".milepost/blobs").exists());
    let server = serve();
    assert_eq!(texts(&server, &run), all);
    // When the bucket is away a reader is told so, and steps go on.
    drop(moto);
    let away = server.get(&format!("/api/v1/runs/{run}/logs"));
    assert_eq!((away.status, &away.body["code"]), (503, &Value::from("blobs_unavailable")), "{}", away.body);
    let run = server.start_run(&loud(&place));
    assert_eq!(server.ended_run(&run)["status"], "completed");
    eventually("the lines in the database", || (texts(&server, &run) == all).then_some(()));
    server.says("log lines stay in the database");
    server.stop();
}

#[test]
fn a_place_for_blobs_that_is_none_is_told_at_the_start() {
    let place = Place::new();
    for address in ["ftp://h/x", "s3://", "file://other/x"] {
        let refused = place.run(&["serve", "--listen", "127.0.0.1:0", "--blobs", address]);
        assert!(refused.code == 2 && refused.err.contains("--blobs: "), "{}", refused.err);
    }
}
