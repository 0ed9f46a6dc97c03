//! Files of runs on servers of the real program: from a worker, in a folder and in a bucket, over a server that is killed, and
//! from a client that goes away.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;

use milepost_core::hash::Digest;
use milepost_sdk::{ArtifactFilter, Client, Context, NewArtifact, Worker};
use serde_json::{Value, json};

use super::blobs::files;
use super::moto::{Moto, variables};
use super::{Place, Server, eventually, has_begun, slow};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A file that goes in parts.
fn large(folder: &Path) -> (std::path::PathBuf, String) {
    let content: Vec<u8> = (0..20_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let path = folder.join("large.bin");
    std::fs::write(&path, &content).unwrap();
    (path, Digest::of(&content).to_string())
}

/// A worker whose skill uploads a large file, gets it back, and leaves it with a checkpoint that it recorded at once.
async fn trained(url: &str, folder: &Path) -> Value {
    let client = Client::new(url).unwrap();
    let (path, hash) = large(folder);
    let back = folder.join("back.bin");
    let skill = move |context: Context, _: Value| {
        let (path, back) = (path.clone(), back.clone());
        async move {
            let kept =
                context.upload_file(&path, NewArtifact::kind("policy").media_type("application/x-policy")).await?;
            let checkpoint = NewArtifact::kind("checkpoint").training_step(100).metadata("loss", 0.5);
            let checkpoint = context.upload_bytes("the weights", checkpoint.filename("w.bin")).await?;
            context.record(&checkpoint).await?;
            let size = context.download(kept.sha256.as_deref().unwrap_or_default(), &back).await?;
            Ok(json!({ "size": size }))
        }
    };
    let worker = Worker::builder(url).skill("train", skill).build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
    let document = json!({"name": "train", "steps": {"a": {"skill": "train"}}});
    let started: Value = client.post(&["runs"], &json!({ "document": document })).await.unwrap().1;
    let run = started["run_id"].as_str().unwrap().parse().unwrap();
    let ended = loop {
        let run: Value = client.get(&["runs", started["run_id"].as_str().unwrap()], &[]).await.unwrap();
        if run["status"] != "running" && run["status"] != "queued" {
            break run;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    drop(stop);
    working.await.unwrap().unwrap();
    assert_eq!(
        (&ended["status"], &ended["steps"][0]["output"]["size"]),
        (&json!("completed"), &json!(20_000_000)),
        "{ended}"
    );
    let listed = client.artifacts(run, &ArtifactFilter::default()).await.unwrap().items;
    let kinds: Vec<(&str, Option<&str>)> = listed.iter().map(|a| (&*a.kind, a.filename.as_deref())).collect();
    assert_eq!(kinds, [("checkpoint", Some("w.bin")), ("policy", Some("large.bin"))]);
    assert_eq!(listed[1].sha256.as_deref(), Some(&*hash));
    client.download_artifact(&listed[1], folder.join("again.bin")).await.unwrap();
    assert_eq!(std::fs::read(folder.join("again.bin")).unwrap(), std::fs::read(folder.join("large.bin")).unwrap());
    assert_eq!(
        client.upload_file(folder.join("large.bin")).await.unwrap().sha256,
        hash,
        "it is there, and not sent again"
    );
    ended
}

#[test]
fn a_worker_leaves_large_files_in_a_folder() {
    let place = Place::new();
    let server = place.dev(&[]);
    let run = runtime().block_on(trained(&server.url, place.path()));
    let got = place.run(&["runs", "artifacts", run["run_id"].as_str().unwrap(), "--get", "w.bin", "--to", "-"]);
    assert_eq!(got.out, "the weights");
    assert_eq!(files(&place.path().join(".milepost/blobs/artifacts")).len(), 2);
    server.stop();
}

#[test]
fn a_worker_leaves_large_files_in_a_bucket_which_has_addresses_of_its_own() {
    let (place, moto) = (Place::new(), Moto::start());
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0", "--blobs", "s3://bucket/milepost"]);
    command.envs(variables(moto.port()));
    let server = Server::start(command);
    let run = runtime().block_on(trained(&server.url, place.path()));
    let artifact = &run["steps"][0]["artifacts"][0];
    let hash = artifact["sha256"].as_str().unwrap();
    let presigned = server.post(&format!("/api/v1/blobs/sha256:{hash}/presign"), &json!({"expires_in_s": 60}));
    assert_eq!((presigned.status, &presigned.body["method"]), (200, &json!("GET")), "{}", presigned.body);
    // Without a word to the server: from the bucket itself.
    let fetched = runtime().block_on(async {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.get(presigned.body["url"].as_str().unwrap()).send().await.unwrap().text().await.unwrap()
    });
    assert_eq!(fetched, "the weights");
    let too_long = server.post(&format!("/api/v1/blobs/sha256:{hash}/presign"), &json!({"expires_in_s": 604_801}));
    assert_eq!((too_long.status, &too_long.body["code"]), (422, &json!("bad_expiry")));
    let (run, id) = (run["run_id"].as_str().unwrap(), artifact["artifact_id"].as_str().unwrap());
    // reqwest follows it.
    let redirected = server.get(&format!("/api/v1/runs/{run}/artifacts/{id}/content?presign=true"));
    assert_eq!((redirected.status, redirected.body), (200, json!("the weights")));
    let part = server.request("GET", &format!("/api/v1/blobs/sha256:{hash}")).header("range", "bytes=4-").send();
    assert_eq!((part.status, part.body), (206, json!("weights")));
    server.stop();
}

/// Half of an upload, over a connection that stays open.
fn half_an_upload(server: &Server, hash: &str, size: usize) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let head = format!("PUT /api/v1/blobs/sha256:{hash} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {size}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![7; size / 2]).unwrap();
    stream
}

#[test]
fn a_client_that_goes_away_in_the_middle_leaves_nothing() {
    let place = Place::new();
    let server = place.dev(&[]);
    let content = vec![7; 40_000_000];
    let hash = Digest::of(&content).to_string();
    let blobs = place.path().join(".milepost/blobs");
    let upload = half_an_upload(&server, &hash, content.len());
    eventually("a part of it on disk", || (!files(&blobs).is_empty()).then_some(()));
    assert_eq!(server.get(&format!("/api/v1/blobs/sha256:{hash}")).status, 404, "half of it is nothing");
    drop(upload);
    eventually("nothing of it on disk", || files(&blobs).is_empty().then_some(()));
    server.stop();
}

#[test]
fn a_server_that_is_killed_keeps_what_it_acknowledged_and_nothing_else_is_seen() {
    let place = Place::new();
    let server = place.dev(&[]);
    let stored = runtime().block_on(async { Client::new(&server.url).unwrap().upload_bytes("hello").await.unwrap() });
    let run = server.start_run(&slow(&place));
    has_begun(&place, 1);
    let record = json!({"sha256": stored.sha256, "kind": "policy", "training_step": 1});
    let path = format!("/api/v1/runs/{run}/artifacts");
    let recorded = server.post(&path, &record);
    assert_eq!(recorded.status, 201, "{}", recorded.body);
    let content = vec![7; 40_000_000];
    let hash = Digest::of(&content).to_string();
    let upload = half_an_upload(&server, &hash, content.len());
    eventually("a part of it on disk", || (files(&place.path().join(".milepost/blobs")).len() > 1).then_some(()));
    // SIGKILL, in the middle of an upload, between an upload and its outcome.
    drop(server);
    drop(upload);
    let server = place.dev(&[]);
    assert_eq!(server.get(&format!("/api/v1/blobs/sha256:{hash}")).status, 404);
    assert_eq!(server.get(&format!("/api/v1/blobs/sha256:{}", stored.sha256)).body, json!("hello"));
    let again = server.post(&path, &record);
    assert_eq!((again.status, &again.body), (200, &recorded.body), "the same is recorded once");
    place.file("go", "");
    let ended = server.ended_run(&run);
    assert_eq!((&ended["status"], ended["artifacts"].as_array().unwrap().len()), (&json!("completed"), 1));
    server.stop();
}

#[test]
fn kinds_are_kept_as_the_settings_say() {
    let place = Place::new();
    let server = place.serve(&["--artifact-retention", "replay=7d", "--artifact-retention", "checkpoint=30d"]);
    let run = server.start_run(&json!({"name": "n", "steps": {"a": {"skill": "noop"}}}));
    server.ended_run(&run);
    let path = format!("/api/v1/runs/{run}/artifacts");
    let expires = |kind: &str| server.post(&path, &json!({"kind": kind, "uri": "s3://b/x"})).body["expires_at"].clone();
    assert!(expires("replay").is_string() && expires("checkpoint").is_string() && expires("policy").is_null());
    let printed = place.run(&["serve", "--artifact-retention", "replay=7d", "--print-config"]).out;
    assert!(printed.contains("artifacts = { replay = \"7d\" }  # --artifact-retention"), "{printed}");
    assert!(printed.contains("blob_grace = \"1d\"  # default"), "{printed}");
    server.stop();
}
