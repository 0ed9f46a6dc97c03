//! Every document under `examples/` does what its comments say.

use serde_json::{Value, json};

use super::{Place, example, finish, step};

fn completes(name: &str, more: &[&str]) -> Value {
    let place = Place::new();
    let run = place.run_json(&example(name), more);
    assert_eq!(run["status"], "completed", "{name}: {run}");
    run
}

#[test]
fn chain() {
    let run = completes("chain.yaml", &["--payload", r#"{"start": 5}"#]);
    assert_eq!(run["output"], json!({"s10": {"n": 14}}));
    assert_eq!(run["steps"].as_array().unwrap().len(), 10);
}

#[test]
fn diamond() {
    let run = completes("diamond.yaml", &[]);
    assert_eq!(run["output"], json!({"report": {"text": "16 in all, the largest is 8", "share": 0.5}}));
}

#[test]
fn foreach() {
    let run = completes("foreach.yaml", &[]);
    assert_eq!(run["output"], json!({"sheet": {"frames": 1000, "last": 998_001}}));
    assert_eq!(step(&run, "frames[999]")["output"]["frame"], 999);
}

#[test]
fn retries() {
    let run = completes("retries.yaml", &[]);
    assert_eq!(step(&run, "flaky")["logical_attempt"], 3);
    assert_eq!(step(&run, "stubborn")["logical_attempt"], 6);
    assert_eq!(run["output"], json!({"result": {"answer": 42}}));
}

#[test]
fn a_failed_branch_leaves_the_other_one_alone_and_the_run_fails() {
    let place = Place::new();
    let ran = place.run(&["run", &example("continue.yaml"), "-o", "json"]);
    assert_eq!(ran.code, 1);
    let run: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(run["status"], "failed");
    assert_eq!(step(&run, "enrich")["error"]["code"], "service_down");
    assert_eq!(step(&run, "publish_enriched")["skip_reason"], "upstream_failed");
    assert_eq!(step(&run, "publish_clean")["output"], json!({"rows": 3}));
}

#[test]
fn when() {
    let run = completes("when.yaml", &["--payload", r#"{"video": true}"#]);
    assert_eq!(step(&run, "video")["status"], "completed");
    assert_eq!(step(&run, "subtitles")["skip_reason"], "condition");
    assert_eq!(run["output"], json!({"bundle": {"words": 120}}));
}

#[test]
fn wait() {
    let run = completes("wait.yaml", &["--signal", r#"approved={"by": "Ada"}"#]);
    assert_eq!(run["output"], json!({"publish": {"title": "Spring campaign", "approved_by": "Ada"}}));
}

#[test]
fn child() {
    let run = completes("child.yaml", &[]);
    assert_eq!(run["output"], json!({"card": {"first": "HELLO, LYON!", "last": "HELLO, GRAZ!", "count": 3}}));
}

#[test]
fn concurrency() {
    let place = Place::new();
    let payload = ["--payload", r#"{"customer": "acme"}"#];
    let file = example("concurrency.yaml");
    let args = [&["run", &file, "-o", "json"], &payload[..]].concat();
    let started: Vec<_> = (0..3).map(|_| place.start(&args)).collect();
    for child in started {
        let ran = finish(child);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    // The third could start only when another had ended.
    let runs = place.json(&["runs", "list"]);
    let runs = runs["items"].as_array().unwrap();
    let started: Vec<&str> = runs.iter().map(|run| run["started_at"].as_str().unwrap()).collect();
    let ended: Vec<&str> = runs.iter().map(|run| run["completed_at"].as_str().unwrap()).collect();
    assert!(started.iter().max().unwrap() >= ended.iter().min().unwrap(), "{started:?} {ended:?}");
}

#[test]
fn campaign() {
    let run = completes("campaign.yaml", &["--payload", r#"{"topic": "tea", "audio": {"prompt": "harp"}}"#]);
    let published = &run["output"]["publish"];
    assert_eq!(
        *published,
        json!({"title": "All about tea", "level": 1, "images": 6, "track": "warm-harp.ogg", "model": "cup.glb"})
    );
    assert_eq!(step(&run, "cut")["output"]["shots"], 6);
    let still = completes("campaign.yaml", &["--payload", r#"{"video": false}"#]);
    assert_eq!(step(&still, "cut")["skip_reason"], "condition");
}

#[test]
fn a_campaign_is_built_again_where_it_changes() {
    let place = Place::new();
    let payload = format!("@{}", example("campaign.json"));
    place.run_json(&example("campaign.yaml"), &["--payload", &payload]);
    let ran = |change: &str| -> Vec<String> {
        let run = place.json(&["rebuild", "last", "--change", change]);
        assert_eq!(run["status"], "completed", "{run}");
        let steps = run["steps"].as_array().unwrap().iter().filter(|step| step["status"] == "completed");
        // A list whose items are all there is nobody's work.
        let steps = steps.map(|step| step["step_id"].as_str().unwrap().to_owned()).filter(|step| step != "shots");
        let mut names: Vec<String> = steps.collect();
        names.sort_unstable();
        names
    };
    assert_eq!(ran(r#"audio.update={"prompt": "flute"}"#), ["bgm", "cut", "publish"]);
    assert_eq!(ran(r#"intro.update={"style": "bold"}"#), ["cut", "intro"]);
    assert_eq!(ran(r#"outcome.update={"text": "Tea is yours"}"#), ["game_config", "outcome"]);
    assert_eq!(ran(r#"game_config.update={"level": 2}"#), ["game_config", "publish"]);
    assert_eq!(ran(r#"asset3d.replace="pot.glb""#), ["asset3d", "game_config", "publish"]);
    assert_eq!(ran(r#"audio.update={"prompt": "flute"}"#), [""; 0]);
    assert_eq!(ran("full_rebuild=null").len(), 8 + 4);
}

#[test]
fn every_example_is_in_order_and_listed() {
    let place = Place::new();
    let folder = std::path::PathBuf::from(example(""));
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".yaml") {
            seen += 1;
            let ran = place.run(&["validate", &example(&name)]);
            assert_eq!(ran.code, 0, "{name}: {}", ran.out);
            assert!(readme.contains(&format!("milepost run examples/{name}")), "{name} is not in the README");
        }
    }
    assert_eq!(seen, 10);
}
