//! `milepost limits`: what is checked at the door.

use std::process::ExitCode;

use clap::Args;
use milepost_core::limits::Limits;
use serde_json::{Value, json};

use crate::context::{Context, LimitFlags};
use crate::output::{print_json, table};

/// List the limits, with their values and what they mean.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost limits
  milepost limits -o json
  milepost run flow.yaml --limit payload_bytes=2097152 --limit steps=500")]
pub(crate) struct ShowLimits {
    #[command(flatten)]
    limits: LimitFlags,
}

impl ShowLimits {
    pub(crate) fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let values = serde_json::to_value(context.limits(&self.limits)?)?;
        let value = |name: &str| values.get(name).and_then(Value::as_u64).unwrap_or_default();
        if context.is_json() {
            let item = |(name, default, meaning): &(&str, u64, &str)| json!({"name": name, "value": value(name), "default": default, "meaning": meaning.trim()});
            print_json(&json!({ "items": Limits::TABLE.iter().map(item).collect::<Vec<_>>() }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut rows = table::new(&["NAME", "VALUE", "DEFAULT", "MEANING"]);
        for (name, default, meaning) in Limits::TABLE {
            rows.add_row([*name, &value(name).to_string(), &default.to_string(), meaning.trim()]);
        }
        table::print(&rows);
        Ok(ExitCode::SUCCESS)
    }
}
