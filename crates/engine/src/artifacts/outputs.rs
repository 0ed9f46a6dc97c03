//! Outputs that are too large for the log: their text is content like any other, and the log says where it is.
//!
//! ```text
//!   output ─► large? ─► content by hash ─► StepCompleted with `output_blob`, and an artifact of the kind `output`
//!                                                  │
//!   an expression needs it: `missing` ─► read, compared with its hash ─► a fact like any other; gone: a fact that is lost
//! ```

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{TryStreamExt as _, stream};
use milepost_core::artifact::{Artifact, Beyond, BlobRef, NewArtifact, OUTPUT};
use milepost_core::hash::Digest;
use milepost_core::id::{ArtifactId, OrgId};
use milepost_core::json::Json;
use uuid::Uuid;

use super::Artifacts;
use crate::error::EngineError;
use crate::skills::SkillError;

/// So much of what was read last is at hand.
const AT_HAND: usize = 64 * 1024 * 1024;
/// How often, and how long after each other, it is tried to store an output that nobody could say again.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// Who is about to name content that was stored longer ago than this stores it again.
const FRESH: Duration = Duration::from_secs(10);

/// Outputs that were read or stored a moment ago, the newest last.
#[derive(Debug, Default)]
pub(super) struct AtHand {
    outputs: Mutex<(usize, VecDeque<Output>)>,
}

#[derive(Debug)]
struct Output {
    key: (OrgId, Digest),
    json: Json,
    stored: Option<Instant>,
}

impl AtHand {
    fn get(&self, key: (OrgId, Digest)) -> Option<Json> {
        let outputs = self.outputs.lock().expect("no holder of this lock panics");
        outputs.1.iter().find(|output| output.key == key).map(|output| output.json.clone())
    }

    /// Whether it was stored just now.
    fn is_fresh(&self, key: (OrgId, Digest)) -> bool {
        let outputs = self.outputs.lock().expect("no holder of this lock panics");
        let fresh = |output: &Output| output.stored.is_some_and(|at| at.elapsed() < FRESH);
        outputs.1.iter().any(|output| output.key == key && fresh(output))
    }

    fn put(&self, key: (OrgId, Digest), json: &Json, stored: Option<Instant>) {
        let mut outputs = self.outputs.lock().expect("no holder of this lock panics");
        let (bytes, line) = &mut *outputs;
        if let Some(known) = line.iter_mut().find(|output| output.key == key) {
            known.stored = stored.or(known.stored);
            return;
        }
        *bytes += json.len();
        line.push_back(Output { key, json: json.clone(), stored });
        while *bytes > AT_HAND && line.len() > 1 {
            let Some(oldest) = line.pop_front() else { break };
            *bytes -= oldest.json.len();
        }
    }
}

impl Artifacts {
    /// How many bytes an output may have.
    pub(crate) fn most_output(&self) -> usize {
        match self.blobs {
            Some(_) => self.limits.large_output_bytes.max(self.limits.output_bytes),
            None => self.limits.output_bytes,
        }
    }

    /// What the log has of an output: `None`, if it has all of it.
    ///
    /// # Errors
    /// It is large and cannot be stored.
    pub(crate) async fn keep_output(&self, org: OrgId, output: &Json) -> Result<Option<Beyond>, EngineError> {
        if !self.is_large(output) {
            return Ok(None);
        }
        let hash = Digest::of(output.as_str().as_bytes());
        // What is there is only looked for; what was lost meanwhile is stored again.
        let content = Bytes::copy_from_slice(output.as_str().as_bytes());
        self.upload(org, Some(hash), stream::iter([Ok::<_, std::io::Error>(content)])).await?;
        self.at_hand.put((org, hash), output, Some(Instant::now()));
        self.stored_output(hash, output.len() as u64).map(Some)
    }

    /// The same, if nothing has to be written for it.
    pub(crate) fn kept_output(&self, org: OrgId, output: &Json) -> Option<Beyond> {
        let hash = Digest::of(output.as_str().as_bytes());
        let fresh = self.is_large(output) && self.at_hand.is_fresh((org, hash));
        if fresh { self.stored_output(hash, output.len() as u64).ok() } else { None }
    }

    /// Whether an output belongs into the blob store.
    pub(crate) fn is_large(&self, output: &Json) -> bool {
        output.len() > self.limits.output_bytes && output.len() <= self.most_output()
    }

    fn stored_output(&self, hash: Digest, size_bytes: u64) -> Result<Beyond, EngineError> {
        let new = NewArtifact {
            kind: Some(OUTPUT.to_owned()),
            sha256: Some(hash),
            size_bytes: Some(size_bytes),
            media_type: Some("application/json".to_owned()),
            filename: Some("output.json".to_owned()),
            expires_at: self.expires_at(OUTPUT, self.clock.now()),
            ..NewArtifact::default()
        };
        let artifact: Artifact = new.check(ArtifactId(Uuid::now_v7()), &self.limits)?;
        let output_blob = Some(BlobRef { sha256: hash, size_bytes });
        Ok(Beyond { output_blob, artifacts: vec![artifact], ..Beyond::default() })
    }

    /// The same for an attempt that ended in this process: nobody else could say its output again, so it is tried for a while.
    pub(crate) async fn keep_own_output(&self, org: OrgId, output: &Json) -> Result<Option<Beyond>, SkillError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.keep_output(org, output).await {
                Ok(kept) => return Ok(kept),
                Err(error) if error.is_passing() && tries < TRIES => tokio::time::sleep(PAUSE * tries).await,
                Err(error) => {
                    return Err(SkillError::new("output_not_stored", format!("the output cannot be stored: {error}")));
                }
            }
        }
    }

    /// The output that is there. `None`: it is gone, or damaged.
    ///
    /// # Errors
    /// That cannot be found out now.
    pub(crate) async fn read_output(&self, org: OrgId, blob: BlobRef) -> Result<Option<Json>, EngineError> {
        let key = (org, blob.sha256);
        if let Some(json) = self.at_hand.get(key) {
            return Ok(Some(json));
        }
        let found = match self.find(org, blob.sha256).await {
            Ok(found) => found,
            Err(EngineError::Rejected(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let download = match self.download(&found, None).await {
            Ok(download) => download,
            Err(EngineError::Rejected(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let pieces: Vec<Bytes> = download.pieces.try_collect().await?;
        let content = pieces.concat();
        if Digest::of(&content) != blob.sha256 {
            tracing::error!(sha256 = %blob.sha256, "an output in the blob store is damaged");
            return Ok(None);
        }
        let Ok(text) = String::from_utf8(content) else { return Ok(None) };
        let json = Json::trusted(text);
        self.at_hand.put(key, &json, None);
        Ok(Some(json))
    }
}

/// Why an output that is gone cannot be had.
pub(crate) fn lost(blob: BlobRef) -> String {
    format!("its file sha256:{} is gone from the blob store; run that step again", blob.sha256)
}
