//! A campaign is built, and then changed: each change has exactly what hears of it built again, as the plan had said. A worker
//! counts what it is really given.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use milepost_sdk::{Client, Context, SkillError, Worker};
use serde_json::{Value, json};

use super::Server;

const DOCUMENT: &str = "
name: campaign.build
version: 1.0.0
defaults: {cache: {enabled: true}}
steps:
  brief: {skill: make, input: {topic: '${{ payload.topic }}'}}
  bgm: {skill: make, input: {audio: '${{ payload.audio }}', mood: '${{ steps.brief.output.made }}'}}
  shots: {skill: make, foreach: '${{ payload.shots }}', input: {shot: '${{ item }}', brief: '${{ steps.brief.output.made }}'}}
  intro: {skill: make, input: {intro: '${{ payload.intro }}', brief: '${{ steps.brief.output.made }}'}}
  outcome: {skill: make, input: {outcome: '${{ payload.outcome }}', brief: '${{ steps.brief.output.made }}'}}
  asset3d: {skill: make, input: {model: '${{ payload.assets[\"3d\"] }}'}}
  cut:
    skill: make
    when: '${{ payload.video }}'
    input: {intro: '${{ steps.intro.output }}', bgm: '${{ steps.bgm.output }}', shots: '${{ steps.shots.output }}'}
  game_config:
    skill: make
    input: {game: '${{ payload.game }}', outcome: '${{ steps.outcome.output }}', model: '${{ steps.asset3d.output }}'}
  publish: {skill: make, input: {cut: '${{ steps.cut.output }}', game: '${{ steps.game_config.output }}'}}
changes:
  audio.update: {merge: /audio}
  intro.update: {merge: /intro}
  outcome.update: {merge: /outcome}
  game_config.update: {merge: /game}
  asset3d.replace: {replace: /assets/3d}
  shots.replace: {replace: /shots}
  full_rebuild: {rebuild: all}
";

/// How often the worker was given each step since somebody looked.
type Given = Arc<Mutex<BTreeMap<String, u32>>>;

/// What is made says all that it was made of, but for notes.
async fn make(given: Given, ctx: Context, input: Value) -> Result<Value, SkillError> {
    *given.lock().unwrap().entry(ctx.step_id().to_owned()).or_default() += 1;
    let mut of = input;
    if let Some(outcome) = of.get_mut("outcome").and_then(Value::as_object_mut) {
        outcome.remove("note");
    }
    Ok(json!({"made": of}))
}

struct Campaign {
    client: Client,
    given: Given,
}

impl Campaign {
    /// Has an update made, and sees that it did what was planned. Answers the run and the steps that ran.
    async fn update(&self, base: &str, changes: &[(&str, Value)]) -> (String, Vec<String>) {
        let changes: Vec<Value> =
            changes.iter().map(|(kind, payload)| json!({"type": kind, "payload": payload})).collect();
        let body = json!({"base_run_id": base, "changes": changes});
        let (_, plan): (u16, Value) = self.client.post(&["runs", "plan"], &body).await.unwrap();
        let (_, started): (u16, Value) = self.client.post(&["runs"], &body).await.unwrap();
        let (run, ran) = self.ended(&started).await;
        let planned = |decision: &str| -> Vec<String> {
            let steps = plan["steps"].as_array().unwrap().iter().filter(|step| step["decision"] == decision);
            steps.map(|step| step["step_id"].as_str().unwrap().to_owned()).collect()
        };
        for step in planned("reuse") {
            assert!(!ran.iter().any(|name| name.split('[').next() == Some(&*step)), "{step} was to be reused: {ran:?}");
        }
        for step in planned("run") {
            assert!(ran.iter().any(|name| name.split('[').next() == Some(&*step)), "{step} was to run: {ran:?}");
        }
        let told: usize = ["reuse", "run", "unknown"].map(|decision| planned(decision).len()).iter().sum();
        assert_eq!(told, 9, "{plan:#}");
        assert_eq!(planned("reuse").len() == 9, ran.is_empty(), "{plan:#}");
        (run, ran)
    }

    /// Waits for a run's end. Every step of it either ran once or says that its result was there.
    async fn ended(&self, started: &Value) -> (String, Vec<String>) {
        let id = started["run_id"].as_str().unwrap().to_owned();
        self.client.wait(id.parse().unwrap()).await.unwrap();
        let run: Value = self.client.get(&["runs", &id], &[]).await.unwrap();
        assert_eq!(run["status"], "completed", "{run:#}");
        let given = std::mem::take(&mut *self.given.lock().unwrap());
        for step in run["steps"].as_array().unwrap() {
            let name = step["step_id"].as_str().unwrap();
            let times = given.get(name).copied().unwrap_or_default();
            let expected = match (step["status"].as_str().unwrap(), step["skip_reason"].as_str()) {
                // The list itself is nobody's work.
                ("completed", _) if name == "shots" => 0,
                ("completed", _) => 1,
                ("skipped", Some("cache_hit" | "condition")) => 0,
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(times, expected, "{name}: {step:#}");
            assert_eq!(step["cache_hit"], json!(step["skip_reason"] == "cache_hit"), "{step:#}");
        }
        (id, given.into_keys().collect())
    }

    async fn output(&self, run: &str) -> Value {
        self.client.get::<Value>(&["runs", run], &[]).await.unwrap()["output"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_a_change_reaches_is_built_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &folder.path().join("runs.db").display().to_string(), "127.0.0.1:0");
    let given = Given::default();
    let counting = given.clone();
    let skill = move |ctx: Context, input: Value| make(counting.clone(), ctx, input);
    let worker = Worker::builder(&server.url).skill("make", skill).build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
    let campaign = Campaign { client: Client::new(&server.url).unwrap(), given };

    campaign.client.deploy(DOCUMENT).await.unwrap();
    let payload = json!({
        "topic": "tea", "video": true, "shots": ["cup", "leaf", "steam"], "audio": {"prompt": "harp", "bpm": 90},
        "intro": {"text": "Tea!"}, "outcome": {"text": "You know tea"}, "game": {"level": 1}, "assets": {"3d": "cup.glb"},
    });
    let body = json!({"workflow": "campaign.build", "payload": payload});
    let (_, started): (u16, Value) = campaign.client.post(&["runs"], &body).await.unwrap();
    let (base, ran) = campaign.ended(&started).await;
    let all = [
        "asset3d",
        "bgm",
        "brief",
        "cut",
        "game_config",
        "intro",
        "outcome",
        "publish",
        "shots[0]",
        "shots[1]",
        "shots[2]",
    ];
    assert_eq!(ran, all);

    // One change of each type, all of the same base.
    let expected: [(&str, Value, &[&str]); 6] = [
        ("audio.update", json!({"prompt": "flute"}), &["bgm", "cut", "publish"]),
        ("intro.update", json!({"text": "More tea!"}), &["cut", "intro", "publish"]),
        ("outcome.update", json!({"text": "You love tea"}), &["game_config", "outcome", "publish"]),
        ("game_config.update", json!({"level": 2}), &["game_config", "publish"]),
        ("asset3d.replace", json!("pot.glb"), &["asset3d", "game_config", "publish"]),
        ("shots.replace", json!(["steam", "cup", "pot", "leaf"]), &["cut", "publish", "shots[2]"]),
    ];
    let mut audio = String::new();
    for (kind, payload, steps) in expected {
        let (run, ran) = campaign.update(&base, &[(kind, payload)]).await;
        assert_eq!(ran, steps, "{kind}");
        if kind == "audio.update" {
            audio = run;
        }
    }

    // The same change once more: everything is there.
    let (again, ran) = campaign.update(&base, &[("audio.update", json!({"prompt": "flute"}))]).await;
    assert_eq!(ran, [""; 0]);
    assert_eq!(campaign.output(&again).await, campaign.output(&audio).await);

    // An update of an update; several changes at once, of which one was made before.
    let (chained, ran) = campaign.update(&audio, &[("asset3d.replace", json!("pot.glb"))]).await;
    assert_eq!(ran, ["publish"]);
    let (_, ran) = campaign
        .update(&chained, &[("audio.update", json!({"bpm": 120})), ("intro.update", json!({"text": "More tea!"}))])
        .await;
    assert_eq!(ran, ["bgm", "cut", "publish"]);

    // A change that makes no difference to what is made of it goes no further.
    let (_, ran) = campaign.update(&base, &[("outcome.update", json!({"note": "for us only"}))]).await;
    assert_eq!(ran, ["outcome"]);

    // Everything anew, with the same outputs; what it makes serves others as well.
    let (rebuilt, ran) = campaign.update(&base, &[("full_rebuild", Value::Null)]).await;
    assert_eq!(ran, all);
    assert_eq!(campaign.output(&rebuilt).await, campaign.output(&base).await);

    drop(stop);
    working.await.unwrap().unwrap();
}
