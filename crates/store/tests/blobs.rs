//! Blobs in a folder and in a bucket. The bucket is in a real server, moto, which this starts: `scripts/python-env` installs it.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod moto;

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::TryStreamExt as _;
use milepost_core::id::{OrgId, RunId};
use milepost_store::blobs::{BlobError, Blobs, prefix_of};
use moto::{Moto, variables};

/// What every place for blobs must do.
async fn check(blobs: &Blobs) {
    let (key, other) = ("runs/1/ab/x/logs/1", "runs/1/ab/xy/logs/1");
    assert_eq!(blobs.get(key).await, Ok(None));
    assert_eq!(blobs.exists(key).await, Ok(false));
    assert_eq!(blobs.get_range(key, 0..1).await, Ok(None));
    blobs.delete(key).await.unwrap();
    blobs.delete_prefix("runs/1/ab/x").await.unwrap();
    let content = Bytes::from_static(b"0123456789\0\xff");
    blobs.put(key, content.clone()).await.unwrap();
    assert_eq!(blobs.get(key).await, Ok(Some(content.clone())));
    assert_eq!((blobs.size(key).await, blobs.exists(key).await), (Ok(Some(12)), Ok(true)));
    for (range, expected) in [(2..5, &b"234"[..]), (9..100, b"9\0\xff"), (12..20, b""), (100..200, b""), (3..3, b"")] {
        let found = blobs.get_range(key, range.clone()).await;
        assert_eq!(found, Ok(Some(Bytes::copy_from_slice(expected))), "{range:?}");
    }
    blobs.put(key, Bytes::new()).await.unwrap();
    assert_eq!(blobs.get(key).await, Ok(Some(Bytes::new())), "replaced, and as empty as it may be");
    blobs.put("runs/1/ab/x/logs/2", content.clone()).await.unwrap();
    blobs.put(other, content.clone()).await.unwrap();
    blobs.delete(key).await.unwrap();
    assert_eq!((blobs.exists(key).await, blobs.exists("runs/1/ab/x/logs/2").await), (Ok(false), Ok(true)));
    for n in 0..25 {
        blobs.put(&format!("runs/1/ab/x/more/{n}"), content.clone()).await.unwrap();
    }
    blobs.delete_prefix("runs/1/ab/x").await.unwrap();
    assert_eq!(blobs.exists("runs/1/ab/x/logs/2").await, Ok(false));
    assert_eq!(blobs.exists("runs/1/ab/x/more/24").await, Ok(false));
    assert_eq!(blobs.exists(other).await, Ok(true), "another run has an id that begins alike");
    for bad in ["", "../x", "a/../b", "a//b", "/a"] {
        let refused = blobs.put(bad, Bytes::new()).await;
        assert!(matches!(refused, Err(BlobError::Unusable(_))), "{bad}: {refused:?}");
    }
}

/// What comes piece by piece, of a size that goes in one, and of one that goes in parts.
async fn check_streams(blobs: &Blobs) {
    for (name, pieces, size) in [("small", 3, 1000), ("large", 300, 100_000)] {
        let key = format!("artifacts/1/ab/{name}/blob");
        assert!(blobs.download(&key, None).await.unwrap().is_none());
        let mut upload = blobs.upload(&key).unwrap();
        for n in 0..pieces {
            upload.write(vec![u8::try_from(n % 251).unwrap(); size].into()).await.unwrap();
        }
        let total = pieces as u64 * size as u64;
        assert_eq!(upload.size(), total);
        assert_eq!(blobs.exists(&key).await, Ok(false), "nothing is there before it is whole");
        upload.finish().await.unwrap();
        assert_eq!(blobs.size(&key).await, Ok(Some(total)));
        let whole = read(blobs, &key, None).await;
        assert!(whole.len() as u64 == total && whole[size - 1] == 0 && whole[size] == 1 && whole[2 * size] == 2);
        for range in [0..1, 999..1001, total - 1..total, 5..5] {
            let (from, to) = (usize::try_from(range.start).unwrap(), usize::try_from(range.end).unwrap());
            assert_eq!(read(blobs, &key, Some(range)).await, whole[from..to]);
        }
    }
    for given_up in [false, true] {
        let mut upload = blobs.upload("artifacts/1/ab/left/blob").unwrap();
        for _ in 0..100 {
            upload.write(vec![7; 100_000].into()).await.unwrap();
        }
        if given_up {
            upload.give_up().await;
        }
        drop(upload);
        assert_eq!(blobs.exists("artifacts/1/ab/left/blob").await, Ok(false));
    }
}

async fn read(blobs: &Blobs, key: &str, range: Option<std::ops::Range<u64>>) -> Vec<u8> {
    let download = blobs.download(key, range).await.unwrap().unwrap();
    let expected = download.range.end - download.range.start;
    let pieces: Vec<Bytes> = download.pieces.try_collect().await.unwrap();
    assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>() as u64, expected);
    pieces.concat()
}

#[tokio::test]
async fn a_folder_has_blobs() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("deep/blobs");
    let blobs = Blobs::in_folder(&folder);
    assert_eq!(blobs.get("runs/1/ab/x").await, Ok(None));
    blobs.delete_prefix("runs/1/ab/x").await.unwrap();
    assert!(!home.path().join("deep").exists(), "reading makes nothing");
    check(&blobs).await;
    check_streams(&blobs).await;
    let refused = blobs.presign("runs/1/ab/x", Duration::from_secs(60)).await.unwrap_err().to_string();
    assert!(refused.contains("download it from this server"), "{refused}");
    // What was given up or dropped is removed beside whoever had it.
    let left = || std::fs::read_dir(folder.join("artifacts/1/ab/left")).map_or(0, Iterator::count);
    let begun = Instant::now();
    while left() > 0 && begun.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(left(), 0);
    let url = format!("file://{}", folder.display());
    assert_eq!(Blobs::open(&url).unwrap().exists("runs/1/ab/xy/logs/1").await, Ok(true));
    // What a process left that was killed while it wrote.
    blobs.put("runs/1/cd/z/1", Bytes::from_static(b"x")).await.unwrap();
    std::fs::write(folder.join("runs/1/cd/z/2#1"), "half").unwrap();
    blobs.delete_prefix("runs/1/cd/z").await.unwrap();
    assert!(!folder.join("runs/1/cd/z").exists());
}

#[test]
fn all_of_a_run_is_in_one_place() {
    let run: RunId = "01a1defb-20b0-76b2-bcac-6128b7360903".parse().unwrap();
    assert_eq!(prefix_of(OrgId(1), run), "runs/1/03/01a1defb-20b0-76b2-bcac-6128b7360903");
}

/// Set in the process that has the variables for S3: those are read from the environment, which a test cannot change.
const INSIDE: &str = "MILEPOST_TEST_INSIDE";

/// Runs one test of this file again, in a process with variables of its own.
fn again_with(test: &str, port: u16) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").envs(variables(port));
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}

#[test]
fn a_bucket_has_blobs() {
    if std::env::var(INSIDE).is_ok() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(async {
            check(&Blobs::open("s3://bucket/some/prefix").unwrap()).await;
            check(&Blobs::open("s3://bucket").unwrap()).await;
            let blobs = Blobs::open("s3://bucket/streams").unwrap();
            check_streams(&blobs).await;
            let url = blobs.presign("artifacts/1/ab/small/blob", Duration::from_secs(60)).await.unwrap();
            let (address, query) = url.split_once('?').unwrap();
            assert!(address.ends_with("/bucket/streams/artifacts/1/ab/small/blob"), "{url}");
            assert!(query.contains("X-Amz-Expires=60") && query.contains("X-Amz-Signature="), "{url}");
            let nowhere = Blobs::open("s3://no-such-bucket").unwrap();
            assert!(nowhere.put("a", Bytes::new()).await.is_err(), "there is no such bucket");
        });
    }
    let moto = Moto::start();
    again_with("a_bucket_has_blobs", moto.port());
    // All of it under the prefix, as the server itself sees it.
    let listed = moto.request("GET /bucket?list-type=2").unwrap();
    assert!(listed.contains("<Key>some/prefix/runs/1/ab/xy/logs/1</Key>"), "{listed}");
}

#[test]
fn who_cannot_be_reached_is_told_of_soon() {
    if std::env::var(INSIDE).is_ok() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let gone = runtime.block_on(Blobs::open("s3://bucket").unwrap().get("a"));
        assert!(matches!(gone, Err(BlobError::Unavailable(_))), "{gone:?}");
        return;
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    again_with("who_cannot_be_reached_is_told_of_soon", free.port());
}
