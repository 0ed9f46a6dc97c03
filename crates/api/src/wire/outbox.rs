//! What is owed to others, and what was given up.

use milepost_engine::{OutboxItem, OutboxStatus};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// Something that a commit asked for and that is not done yet, or was given up.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Delivery {
    pub(crate) id: Uuid,
    /// `push`: a task is to be sent to its receiver.
    #[schema(example = "push")]
    kind: String,
    status: DeliveryStatus,
    run_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Tries, the one under way among them.
    attempts: u32,
    /// Why the last try did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// Of one that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    next_try_at: Option<String>,
    /// When it was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    died_at: Option<String>,
}

/// `pending`: waits for its next try. `processing`: is being tried. `dead`: was given up.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum DeliveryStatus {
    Pending,
    Processing,
    Dead,
}

impl From<OutboxItem> for Delivery {
    fn from(item: OutboxItem) -> Delivery {
        Delivery {
            id: item.id.0,
            kind: item.kind,
            status: match item.status {
                OutboxStatus::Pending => DeliveryStatus::Pending,
                OutboxStatus::Processing => DeliveryStatus::Processing,
                OutboxStatus::Dead => DeliveryStatus::Dead,
            },
            run_id: item.run_id.0,
            step_id: item.step_id,
            url: item.url,
            attempts: item.attempts,
            last_error: item.last_error,
            created_at: item.created_at.to_string(),
            next_try_at: item.next_try_at.map(|at| at.to_string()),
            died_at: item.died_at.map(|at| at.to_string()),
        }
    }
}
