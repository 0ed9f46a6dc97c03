//! What evaluating may cost. It is paid before memory is taken or work is done, so whatever stands in a document and whatever
//! values it is given, both are bounded.
//!
//! Bytes of what is rendered and work of expressions are counted apart: the first is a limit on what a step is given, the
//! second on how it is worked out.

use std::cell::Cell;

use serde_json::Value;

use super::EvalError;
use crate::limits::Limits;
use crate::patience;

/// Bytes of text and items of lists that one unit of fuel pays for.
const WORK_PER_FUEL: u64 = 160;

/// The budget of one rendering: all expressions of one value share it.
#[derive(Debug)]
pub struct Budget {
    bytes: Cell<usize>,
    all_bytes: usize,
    work: Cell<u64>,
    all_work: u64,
    /// What one expression may take of the work.
    expression: u64,
}

impl Budget {
    /// For a value of so many bytes.
    #[must_use]
    pub fn new(bytes: usize, limits: &Limits) -> Budget {
        let expression = limits.expression_fuel.saturating_mul(WORK_PER_FUEL);
        let work = limits.step_fuel.saturating_mul(WORK_PER_FUEL).max(expression);
        Budget { bytes: Cell::new(bytes), all_bytes: bytes, work: Cell::new(work), all_work: work, expression }
    }

    /// All that was paid from it.
    #[must_use]
    pub fn spent(&self) -> u64 {
        (self.all_bytes - self.bytes.get()) as u64 + (self.all_work - self.work.get())
    }

    /// Pays for bytes that are about to be rendered.
    pub(super) fn pay_bytes(&self, bytes: usize) -> Result<(), EvalError> {
        patience::look();
        match self.bytes.get().checked_sub(bytes) {
            Some(left) => {
                self.bytes.set(left);
                Ok(())
            }
            None => Err(EvalError { message: format!("it has more than {} bytes", self.all_bytes), too_large: true }),
        }
    }

    /// Pays for a value before it is copied: no more than its shortest text has.
    pub(super) fn pay_value(&self, value: &Value) -> Result<(), EvalError> {
        match value {
            Value::Null | Value::Bool(_) => self.pay_bytes(4),
            Value::Number(_) => self.pay_bytes(1),
            Value::String(text) => self.pay_bytes(text.len() + 2),
            Value::Array(items) => {
                self.pay_bytes(2 + items.len().saturating_sub(1))?;
                items.iter().try_for_each(|item| self.pay_value(item))
            }
            Value::Object(map) => {
                self.pay_bytes(2 + map.len().saturating_sub(1))?;
                map.iter().try_for_each(|(key, value)| {
                    self.pay_bytes(key.len() + 3)?;
                    self.pay_value(value)
                })
            }
        }
    }

    /// The work that an expression may do which begins now.
    pub(super) fn work_of_expression(&self) -> u64 {
        patience::look();
        self.work.get().min(self.expression)
    }

    /// Pays for work outside of what is metered.
    pub(super) fn try_pay_work(&self, work: usize) -> Result<(), EvalError> {
        let left = self.work.get().checked_sub(work as u64).ok_or_else(EvalError::more_work)?;
        self.work.set(left);
        Ok(())
    }

    pub(super) fn pay_work(&self, work: u64) {
        self.work.set(self.work.get().saturating_sub(work));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::canonical;

    #[test]
    fn a_value_costs_no_more_than_its_text_has_bytes() {
        for value in [
            json!(null),
            json!([]),
            json!({}),
            json!([1, 2, 3]),
            json!({"a": [true, false, null], "b": {"c": "text", "d": -1.5}}),
            json!("\u{0}\"quoted\""),
        ] {
            let budget = Budget::new(1000, &Limits::default());
            budget.pay_value(&value).unwrap();
            assert!(budget.spent() <= canonical::write(&value).len() as u64, "{value}");
            assert!(Budget::new(budget.spent() as usize - 1, &Limits::default()).pay_value(&value).is_err());
        }
    }
}
