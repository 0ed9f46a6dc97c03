//! The steps of a checkpoint as bytes: a byte or two for most, one for a whole row of those that have not begun.

use super::UnreadableCheckpoint;
use crate::run::state::{Phase, StepState};
use crate::status::SkipReason;

/// Set in a step's first byte when its attempts are the usual ones: none before it begins, one after.
const USUAL: u8 = 0x10;

/// Far more than any limit allows: a damaged length must not take all memory.
const MOST_STEPS: usize = 10_000_000;

/// Room is made for so many at once; a damaged length asks for no more.
const LIKELY_STEPS: usize = 131_072;

/// The phase of a step that a node's executor has; the node follows.
const TASK: u8 = 11;

pub(super) fn put_steps(bytes: &mut Vec<u8>, steps: &[StepState], held: impl Fn(u32) -> Option<usize>) {
    put_number(bytes, steps.len() as u64);
    let mut last_output = 0_u64;
    let mut index = 0;
    while let Some(step) = steps.get(index) {
        let usual = is_usual(step);
        let worker = if step.phase == Phase::Running { held(index as u32) } else { None };
        let code = if worker.is_some() { TASK } else { phase_code(step.phase) };
        bytes.push(code | if usual { USUAL } else { 0 });
        index += 1;
        // What has not begun lies side by side: it is counted.
        if usual && is_untouched(step.phase) {
            let alike = steps[index..].iter().take_while(|next| next.phase == step.phase && is_usual(next)).count();
            put_number(bytes, alike as u64);
            index += alike;
        }
        if let Some(worker) = worker {
            put_number(bytes, worker as u64);
        }
        if !usual {
            put_number(bytes, u64::from(step.logical_attempt));
            put_number(bytes, u64::from(step.engine_attempt));
            put_number(bytes, u64::from(step.spent));
        }
        if has_output(step.phase) {
            // Outputs mostly lie near each other in the log.
            put_number(bytes, zigzag(step.output_seq.cast_signed().wrapping_sub(last_output.cast_signed())));
            last_output = step.output_seq;
        }
    }
}

fn is_untouched(phase: Phase) -> bool {
    matches!(phase, Phase::Pending | Phase::Ready)
}

fn has_output(phase: Phase) -> bool {
    matches!(phase, Phase::Completed | Phase::Skipped(SkipReason::CacheHit))
}

fn is_usual(step: &StepState) -> bool {
    let attempts = u32::from(!is_untouched(step.phase));
    (step.logical_attempt, step.engine_attempt, step.spent) == (attempts, attempts, 0)
}

fn phase_code(phase: Phase) -> u8 {
    match phase {
        Phase::Pending => 0,
        Phase::Ready => 1,
        Phase::Running => 2,
        Phase::Backoff => 3,
        Phase::Completed => 4,
        Phase::Failed => 5,
        Phase::Skipped(SkipReason::CacheHit) => 6,
        Phase::Skipped(SkipReason::Condition) => 7,
        Phase::Skipped(SkipReason::UpstreamFailed) => 8,
        Phase::Skipped(SkipReason::Cancelled) => 9,
        Phase::Skipped(SkipReason::Operator) => 10,
        Phase::Skipped(SkipReason::Removed) => 12,
        Phase::Skipped(SkipReason::RunStopped) => 13,
    }
}

fn phase_of(code: u8) -> Result<Phase, UnreadableCheckpoint> {
    Ok(match code {
        0 => Phase::Pending,
        1 => Phase::Ready,
        2 | TASK => Phase::Running,
        3 => Phase::Backoff,
        4 => Phase::Completed,
        5 => Phase::Failed,
        6 => Phase::Skipped(SkipReason::CacheHit),
        7 => Phase::Skipped(SkipReason::Condition),
        8 => Phase::Skipped(SkipReason::UpstreamFailed),
        9 => Phase::Skipped(SkipReason::Cancelled),
        10 => Phase::Skipped(SkipReason::Operator),
        12 => Phase::Skipped(SkipReason::Removed),
        13 => Phase::Skipped(SkipReason::RunStopped),
        _ => return Err(UnreadableCheckpoint(format!("a step has the phase {code}"))),
    })
}

pub(super) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number as u8) | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Tells bytes that were damaged from those that were written; quick, and no protection against people.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

pub(super) fn cut() -> UnreadableCheckpoint {
    UnreadableCheckpoint("it ends too early".to_owned())
}

pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], UnreadableCheckpoint> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or_else(cut)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, UnreadableCheckpoint> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn number(&mut self) -> Result<u64, UnreadableCheckpoint> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(UnreadableCheckpoint("a number is too long".to_owned()))
    }

    fn small(&mut self) -> Result<u32, UnreadableCheckpoint> {
        u32::try_from(self.number()?).map_err(|_| UnreadableCheckpoint("a number is too large".to_owned()))
    }

    /// `held` is told of each step that a node's executor has.
    pub(super) fn steps(
        &mut self,
        mut held: impl FnMut(u32, usize) -> Result<(), UnreadableCheckpoint>,
    ) -> Result<Vec<StepState>, UnreadableCheckpoint> {
        let length = usize::try_from(self.number()?).ok().filter(|length| *length <= MOST_STEPS);
        let length = length.ok_or_else(|| UnreadableCheckpoint("it has too many steps".to_owned()))?;
        let mut steps = Vec::with_capacity(length.min(LIKELY_STEPS));
        let mut last_output = 0_u64;
        while steps.len() < length {
            let code = self.byte()?;
            let usual = code & USUAL != 0;
            let mut step = StepState { phase: phase_of(code & !USUAL)?, ..StepState::new(0) };
            if usual && is_untouched(step.phase) {
                let alike = usize::try_from(self.number()?).ok().filter(|alike| *alike < length - steps.len());
                steps.resize(steps.len() + alike.ok_or_else(cut)? + 1, step);
                continue;
            }
            if code & !USUAL == TASK {
                held(steps.len() as u32, self.small()? as usize)?;
            }
            if usual {
                (step.logical_attempt, step.engine_attempt) = (1, 1);
            } else {
                (step.logical_attempt, step.engine_attempt, step.spent) = (self.small()?, self.small()?, self.small()?);
            }
            if has_output(step.phase) {
                last_output = last_output.cast_signed().wrapping_add(unzigzag(self.number()?)).cast_unsigned();
                step.output_seq = last_output;
            }
            steps.push(step);
        }
        Ok(steps)
    }
}
