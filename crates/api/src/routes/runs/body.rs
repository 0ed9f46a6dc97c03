//! What is to be run: the body of `POST /runs` and of `POST /runs/plan`.

use std::sync::Arc;

use milepost_core::cache::Trust;
use milepost_core::canonical::glance;
use milepost_core::change::{ChangeRequest, RebuildRequest};
use milepost_core::id::RunId;
use milepost_core::json::Json as RawJson;
use milepost_core::limits::Limits;
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;
use milepost_core::trace::TraceContext;
use milepost_engine::{Accepted, Engine, EngineError, NewRun};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::error::{Problem, Result};
use crate::wire::Any;

/// What to run: a deployed `workflow`, a `document` that comes along, or another run again, with changes (`base_run_id`).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"workflow": "order", "payload": {"id": 7}, "request_id": "order-7"}))]
pub(super) struct StartBody {
    /// A tag, the id of a revision, `sha256:…`, `tag@2026-01-31T10:00:00Z` or `tag~2`. Beside `base_run_id`: the definition to run now.
    pub(super) workflow: Option<String>,
    /// A document: JSON, or its YAML as one text.
    #[schema(value_type = Option<DocumentBody>)]
    document: Option<Document>,
    /// What the run works on; `{}` if left out. An update run has the payload of its base run.
    #[schema(value_type = Option<Any>)]
    payload: Option<RawJson>,
    /// The same request with the same id again gives the same run. Unique within the workflow.
    #[schema(min_length = 1, max_length = 255)]
    pub(super) request_id: Option<String>,
    /// Higher goes first.
    priority: Option<i32>,
    /// Start at this moment.
    #[schema(value_type = Option<String>, format = DateTime)]
    start_at: Option<Timestamp>,
    /// RFC 6902 operations, applied to the document for this run only.
    #[schema(value_type = Option<Vec<Any>>)]
    patch: Option<Operations>,
    /// The run that this one is an update of.
    base_run_id: Option<Uuid>,
    /// What changes in the base run's payload, in order.
    changes: Option<Vec<Change>>,
    /// Steps that run whatever is kept of earlier runs: `all`, or a list of step ids.
    rebuild: Option<RebuildBody>,
}

/// `all`, or step ids.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum RebuildBody {
    Word(String),
    Steps(Vec<String>),
}

impl RebuildBody {
    fn read(self) -> Result<RebuildRequest> {
        match self {
            RebuildBody::Steps(steps) => Ok(RebuildRequest::Steps(steps)),
            RebuildBody::Word(word) if word == "all" => Ok(RebuildRequest::All),
            RebuildBody::Word(word) => Err(Problem::unprocessable(
                "bad_rebuild",
                format!("`rebuild` is `all` or a list of step ids, not `{word}`; one step is a list of one"),
            )),
        }
    }
}

/// A change of a type that the document declares in `changes`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Change {
    #[serde(rename = "type")]
    kind: String,
    #[schema(value_type = Option<Any>)]
    payload: Option<RawJson>,
}

/// A document as an object, or as text.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what a document may be")]
pub(in crate::routes) enum DocumentBody {
    Text(String),
    Object(serde_json::Map<String, Value>),
}

/// A document that came with a request. It is read where documents are checked.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(in crate::routes) struct Document(RawJson);

impl Document {
    /// Its source.
    pub(in crate::routes) fn into_text(self) -> Result<String> {
        match self.0.as_str().as_bytes().first() {
            Some(b'{') => Ok(self.0.as_str().to_owned()),
            Some(b'"') => serde_json::from_str(self.0.as_str()).map_err(|error| {
                Problem::unprocessable("bad_body", format!("`document` is a text that cannot be read: {error}"))
            }),
            _ => {
                Err(Problem::unprocessable("bad_body", "`document` is neither an object nor a text; send one of them"))
            }
        }
    }
}

/// RFC 6902 operations of a request. They are read when their number is known.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(in crate::routes) struct Operations(RawJson);

impl Operations {
    pub(in crate::routes) fn read(self, limits: &Limits) -> Result<Value> {
        if glance(self.0.as_str()).values > limits.document_values {
            let detail =
                format!("the patch has more than {} values; send several smaller ones", limits.document_values);
            return Err(Problem::unprocessable("too_many_values", detail));
        }
        serde_json::from_str(self.0.as_str())
            .map_err(|error| Problem::unprocessable("bad_body", format!("the patch cannot be read: {error}")))
    }
}

/// A body that was read.
pub(super) struct Request {
    pub(super) subject: Subject,
    pub(super) new: NewRun,
}

pub(super) enum Subject {
    Initial(Arc<Plan>),
    Update {
        base: RunId,
        plan: Option<Arc<Plan>>,
        changes: Vec<ChangeRequest>,
    },
    /// The same request came before: this is the run that it started.
    Before(Accepted),
}

/// Whether documents that come along are stored: for a run they have to be, for a look at one they must not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Yes,
    No,
}

impl StartBody {
    pub(super) async fn read(
        self,
        engine: &Engine,
        keep: Keep,
        key: Option<String>,
        trace: Option<TraceContext>,
        submitted_by: Option<String>,
    ) -> Result<Request> {
        self.check()?;
        let Definition { plan, from, trust, unpatched } =
            definition(engine, self.workflow, self.document, self.patch, keep).await?;
        let changes: Vec<ChangeRequest> =
            self.changes.unwrap_or_default().into_iter().map(ChangeRequest::from).collect();
        let new = NewRun {
            payload: self.payload.unwrap_or_else(|| NewRun::default().payload),
            request_id: self.request_id.or(key),
            priority: self.priority.unwrap_or(0),
            start_at: self.start_at,
            trace,
            definition: from,
            trust,
            rebuild: self.rebuild.map(RebuildBody::read).transpose()?,
            submitted_by,
        };
        let subject = match (self.base_run_id.map(RunId), plan, unpatched) {
            (base, _, Some((plan, refused))) => {
                let base = base.map(|base| (base, changes.as_slice()));
                Subject::Before(engine.answer_unpatched(&plan, &new, base, refused).await?)
            }
            (Some(base), plan, None) => Subject::Update { base, plan, changes },
            (None, Some(plan), None) => Subject::Initial(plan),
            (None, None, None) => return Err(nothing_to_run()),
        };
        Ok(Request { subject, new })
    }

    /// Fields that do not go together.
    fn check(&self) -> Result<()> {
        let wrong = |code: &str, detail: &str| Err(Problem::unprocessable(code, detail));
        let named = self.workflow.is_some() || self.document.is_some();
        match self {
            StartBody { workflow: Some(_), document: Some(_), .. } => {
                wrong("two_definitions", "there are both `workflow` and `document`; send the one that is to run")
            }
            StartBody { base_run_id: None, changes: Some(_), .. } => {
                wrong("no_base_run", "there are `changes` and no `base_run_id`; name the run that they change")
            }
            StartBody { base_run_id: Some(_), payload: Some(_), .. } => wrong(
                "two_payloads",
                "there are both `base_run_id` and `payload`; an update run has its base run's payload, say what differs in `changes`",
            ),
            StartBody { patch: Some(_), .. } if !named => wrong(
                "nothing_to_patch",
                "there is a `patch` and no definition; name the `workflow` or send the `document`",
            ),
            StartBody { base_run_id: None, .. } if !named => Err(nothing_to_run()),
            _ => Ok(()),
        }
    }
}

/// What is to run, where it came from, and whose results it may take.
#[derive(Default)]
struct Definition {
    plan: Option<Arc<Plan>>,
    from: Option<RawJson>,
    trust: Trust,
    /// The plan that the patch does not fit, and why.
    unpatched: Option<(Arc<Plan>, EngineError)>,
}

/// The definition that is named or comes along, with the patch applied.
async fn definition(
    engine: &Engine,
    workflow: Option<String>,
    document: Option<Document>,
    patch: Option<Operations>,
    keep: Keep,
) -> Result<Definition> {
    let patch = patch.map(|operations| operations.read(engine.limits())).transpose()?;
    let mut from = None;
    let loaded = match (workflow, document) {
        (Some(workflow), _) => {
            let (plan, target) = engine.resolve_target(&workflow).await?;
            match &patch {
                None => {
                    let trust = engine.trust_in(&plan, &target).await?;
                    from = Some(engine.definition_of(&workflow, (&plan, &target), None).await?);
                    return Ok(Definition { plan: Some(plan), from, trust, unpatched: None });
                }
                Some(ops) => {
                    let loaded = match engine.patch(&plan, ops).await {
                        Err(error) if keep == Keep::Yes => {
                            from = Some(engine.definition_of(&workflow, (&plan, &target), Some(ops)).await?);
                            return Ok(Definition { from, unpatched: Some((plan, error)), ..Definition::default() });
                        }
                        loaded => loaded?,
                    };
                    from = Some(engine.definition_of(&workflow, (&loaded.plan, &target), Some(ops)).await?);
                    loaded
                }
            }
        }
        (None, Some(document)) => {
            let loaded = engine.load(document.into_text()?).await?;
            match &patch {
                None => loaded,
                Some(ops) => engine.patch_text(loaded.canonical.into(), ops).await?,
            }
        }
        (None, None) => return Ok(Definition::default()),
    };
    let plan = match keep {
        Keep::Yes => engine.add(loaded).await?,
        Keep::No => Arc::new(loaded.plan),
    };
    Ok(Definition { plan: Some(plan), from, ..Definition::default() })
}

fn nothing_to_run() -> Problem {
    let detail = "there is no `workflow`, `document` or `base_run_id`; say what is to run";
    Problem::unprocessable("nothing_to_run", detail)
}

impl From<Change> for ChangeRequest {
    fn from(change: Change) -> ChangeRequest {
        ChangeRequest { kind: change.kind, payload: change.payload.unwrap_or_else(|| RawJson::trusted("{}")) }
    }
}
