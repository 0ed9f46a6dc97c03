//! Requests with an id: what a start asks for under one, and the run that it started when it came first.

use milepost_core::change::ChangeRequest;
use milepost_core::id::RunId;
use milepost_core::plan::Plan;
use milepost_core::request::{Asked, AskedParts, RequestDigest, RunRequest};
use milepost_core::run::RejectionKind;
use milepost_store::rows::{Answer, Question};
use serde::Deserialize;

use crate::committer::Accepted;
use crate::definitions::{is_pinned, tag_of};
use crate::engine::{Engine, NewRun};
use crate::error::EngineError;

/// What is compared of a [`Engine::definition_of`].
#[derive(Deserialize)]
struct Followed {
    #[serde(rename = "ref")]
    reference: String,
    version_hash: String,
    #[serde(default)]
    patch: Option<serde_json::Value>,
}

/// The run that an update run goes back to, and its changes.
pub(crate) type Changes<'a> = (RunId, &'a [ChangeRequest]);

impl Engine {
    /// The request that a start is, if it has an id. `named`: the definition came with the request, and is not the base run's.
    pub(crate) fn request_of(
        &self,
        plan: &Plan,
        new: &NewRun,
        base: Option<Changes<'_>>,
        named: bool,
    ) -> Option<Box<RunRequest>> {
        let id = new.request_id.clone()?;
        let followed = new.definition.as_ref().and_then(|json| serde_json::from_str::<Followed>(json.as_str()).ok());
        let version =
            followed.as_ref().and_then(|followed| followed.version_hash.strip_prefix("sha256:")?.parse().ok());
        let pinned = followed.as_ref().map_or(named, |followed| is_pinned(&followed.reference));
        let reference = followed.as_ref().map(|followed| followed.reference.as_str());
        let parts = AskedParts {
            tag: reference.filter(|_| !pinned).map(tag_of),
            base,
            payload: &new.payload,
            patch: followed.as_ref().and_then(|followed| followed.patch.as_ref()),
            rebuild: new.rebuild.as_ref(),
            priority: new.priority,
            start_at: new.start_at,
        };
        let digest = RequestDigest::of(&parts, self.limits().json_depth);
        let asked = Asked { version_hash: version.unwrap_or(plan.hash), digest };
        Some(Box::new(RunRequest { id, asked, pinned }))
    }

    /// A start was refused. If it is a request that came before, it is answered with its run all the same: the tag may have
    /// moved to a document that the request does not fit.
    pub(crate) async fn answer_as_before(
        &self,
        plan: &Plan,
        request: Option<&RunRequest>,
        refused: EngineError,
    ) -> Result<Accepted, EngineError> {
        let by_definition = match &refused {
            EngineError::Rejected(rejection) => {
                rejection.kind == RejectionKind::Invalid && rejection.code != RunRequest::REUSED
            }
            EngineError::UnknownSkills(_) => true,
            _ => false,
        };
        match request.filter(|_| by_definition) {
            Some(request) => self.answer_with_first(plan, request, refused).await,
            None => Err(refused),
        }
    }

    /// The patch of a start does not fit the definition that its tag means now. A request that came before is answered with its
    /// run all the same.
    ///
    /// # Errors
    /// It did not come before, or was another one.
    pub async fn answer_unpatched(
        &self,
        plan: &Plan,
        new: &NewRun,
        base: Option<Changes<'_>>,
        refused: EngineError,
    ) -> Result<Accepted, EngineError> {
        match self.request_of(plan, new, base, true) {
            Some(request) => self.answer_with_first(plan, &request, refused).await,
            None => Err(refused),
        }
    }

    async fn answer_with_first(
        &self,
        plan: &Plan,
        request: &RunRequest,
        refused: EngineError,
    ) -> Result<Accepted, EngineError> {
        let question =
            Question::RunOfRequest { org: self.org, workflow: plan.name.clone(), request_id: request.id.clone() };
        let Ok((_, answers)) = self.store.ask(vec![question]).await else { return Err(refused) };
        let [Answer::RunOfRequest(Some(first))] = answers[..] else { return Err(refused) };
        request.check_same(first.run, first.asked.as_ref())?;
        let head = self.head(first.run).await?;
        Ok(Accepted { run: head.run, status: head.status, existing: true, last_seq: head.last_seq })
    }
}
