//! How large and how many. Every limit is a setting with a default and is checked at the door, before anything is stored.

use serde::{Deserialize, Serialize};

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr,)+) => {
        /// The settings, with the defaults of [`Limits::default`].
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for Limits {
            fn default() -> Self {
                Limits { $($name: $default,)+ }
            }
        }

        impl Limits {
            /// For values that were let in before, perhaps under other limits. They are worked out once more, and no more
            /// than that.
            #[must_use]
            pub fn for_what_was_let_in(&self) -> Limits {
                const INPUT_BYTES: usize = 64 * 1024 * 1024;
                Limits { input_bytes: self.input_bytes.max(INPUT_BYTES), ..self.clone() }
            }

            /// Name, default and meaning of each limit, for `--help` and the documentation.
            pub const TABLE: &'static [(&'static str, u64, &'static str)] =
                &[$((stringify!($name), $default as u64, concat!($($doc),+)),)+];

            /// Changes one limit by its name.
            ///
            /// # Errors
            /// There is no such limit, or the value does not fit it.
            pub fn set(&mut self, name: &str, value: u64) -> Result<(), UnknownLimit> {
                match name {
                    $(stringify!($name) => {
                        self.$name = <$type>::try_from(value)
                            .map_err(|_| UnknownLimit::TooLarge(name.to_owned(), value))?;
                    })+
                    _ => return Err(UnknownLimit::NoSuchName(name.to_owned())),
                }
                Ok(())
            }
        }
    };
}

/// A limit could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum UnknownLimit {
    #[error("there is no limit called `{0}`; `milepost limits` lists them")]
    NoSuchName(String),
    #[error("{1} is too large for the limit `{0}`")]
    TooLarge(String, u64),
}

limits! {
    /// Bytes of a document's source text.
    document_bytes: usize = 4 * 1024 * 1024,
    /// Values in a document or a patch, on all levels.
    document_values: usize = 500_000,
    /// Steps of one document.
    steps: usize = 100_000,
    /// Characters of one `${{ }}` expression.
    expression_chars: usize = 4096,
    /// Nesting depth of one expression.
    expression_depth: usize = 32,
    /// Work one expression may do, in evaluation steps.
    expression_fuel: u64 = 100_000,
    /// Work all expressions of one step may do together, in evaluation steps.
    step_fuel: u64 = 1_000_000,
    /// Nesting depth of documents, payloads and outputs.
    json_depth: usize = 64,
    /// Bytes of one key of an object, in documents, patches and payloads.
    key_bytes: usize = 1024,
    /// Bytes of a run's payload.
    payload_bytes: usize = 1024 * 1024,
    /// Bytes of one step's output kept in the log.
    output_bytes: usize = 256 * 1024,
    /// Bytes of one step's output; what the log does not keep is in the blob store, if there is one.
    large_output_bytes: usize = 64 * 1024 * 1024,
    /// Bytes of one file in the blob store.
    artifact_bytes: u64 = 16 << 30,
    /// Bytes of one artifact's metadata.
    artifact_metadata_bytes: usize = 16 * 1024,
    /// Bytes of one step's resolved input.
    input_bytes: usize = 1024 * 1024,
    /// Bytes of a failed step's message; what is longer is cut.
    error_bytes: usize = 16 * 1024,
    /// Bytes of one attempt's log that are kept.
    log_bytes: usize = 1024 * 1024,
    /// Bytes of the progress that a worker tells with a heartbeat.
    progress_bytes: usize = 16 * 1024,
    /// Bytes of a secret.
    secret_bytes: usize = 64 * 1024,
    /// Items of one `foreach`.
    foreach_items: usize = 100_000,
    /// `retry.max_attempts` of a step.
    attempts: u32 = 100,
    /// Times one logical attempt may be handed out again after its worker was lost.
    engine_attempts: u32 = 10,
    /// Runs nested in runs by the `workflow` skill.
    child_depth: u32 = 16,
    /// Bytes of a signal's payload.
    signal_bytes: usize = 64 * 1024,
    /// Signals one run takes within a minute.
    signals_per_minute: usize = 60,
    /// Signals a run keeps that no step has waited for yet.
    buffered_signals: usize = 1000,
    /// Characters of names, ids, tags, keys and codes.
    name_chars: usize = 255,
    /// Steps after which a run's history rotates.
    continue_steps: u32 = 50,
    /// Bytes of history after which a run's history rotates.
    continue_bytes: u64 = 1024 * 1024,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_set_by_its_name() {
        let mut limits = Limits::default();
        limits.set("payload_bytes", 10).unwrap();
        assert_eq!(limits.payload_bytes, 10);
        assert!(limits.set("payload_byte", 10).is_err());
        assert!(limits.set("attempts", u64::MAX).is_err());
    }
}
