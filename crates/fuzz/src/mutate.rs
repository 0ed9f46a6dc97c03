//! Mutations: deep, wide, long, repeated, spliced; with words that are known to hurt.

use crate::random::Random;

/// What texts of a target are made of.
#[derive(Clone, Copy, Debug)]
pub struct Grammar {
    /// What may be put around something, as often as one likes.
    pub pairs: &'static [(&'static str, &'static str)],
    /// What may be put in anywhere.
    pub words: &'static [&'static str],
}

/// Words that hurt somewhere, whatever the grammar.
const ODD: &[&str] = &[
    "\0",
    "\u{1b}[31m",
    "\u{202e}",
    "\u{feff}",
    "\u{1F600}",
    "\\u0000",
    "\\ud800",
    "\\udc00\\ud800",
    "1e999",
    "-0.0",
    "9007199254740993",
    "18446744073709551616",
    "99999999999999999999999999",
    "\n",
    "\r\n",
    "\t",
    " ",
    "%00",
    "..",
    "/",
    "~0",
    "~1",
    ":",
    ",",
    "-",
];

impl Grammar {
    pub const TEXT: Grammar = Grammar { pairs: &[("(", ")"), ("\"", "\"")], words: &[".", "=", "a", "0"] };

    pub const JSON: Grammar = Grammar {
        pairs: &[("[", "]"), ("{\"a\":", "}"), ("\"", "\"")],
        words: &["null", "true", "{}", "[]", "\"a\"", "\"a\":1,", "1,", "1.5e3"],
    };

    /// One to eight mutations of one input.
    pub(crate) fn mutate(&self, pool: &[Vec<u8>], random: &mut Random, max_bytes: usize) -> Vec<u8> {
        let mut bytes = pool[random.below(pool.len())].clone();
        for _ in 0..=random.below(8) {
            self.once(&mut bytes, pool, random);
            bytes.truncate(max_bytes);
        }
        bytes
    }

    fn once(&self, bytes: &mut Vec<u8>, pool: &[Vec<u8>], random: &mut Random) {
        let (from, to) = range(bytes, random);
        let part = bytes[from..to].to_vec();
        match random.below(10) {
            0 => drop(bytes.drain(from..to)),
            1 => put(bytes, from..from, random.pick(ODD).as_bytes()),
            2 => put(bytes, from..from, random.pick(self.words).as_bytes()),
            3 => put(bytes, from..to, random.pick(self.words).as_bytes()),
            4 => {
                let (open, close) = self.pairs[random.below(self.pairs.len())];
                let times = random.skewed(20_000);
                let wrapped = [open.repeat(times).as_bytes(), &part, close.repeat(times).as_bytes()].concat();
                put(bytes, from..to, &wrapped);
            }
            5 => {
                let times = random.skewed(20_000).min(1 << 20 >> part.len().checked_ilog2().unwrap_or(0));
                put(bytes, to..to, &part.repeat(times));
            }
            6 => {
                let other = &pool[random.below(pool.len())];
                let (from_other, to_other) = range(other, random);
                put(bytes, from..to, &other[from_other..to_other]);
            }
            7 => {
                let at = random.below(bytes.len() + 1);
                put(bytes, at..at, &part);
            }
            8 => {
                if let Some(byte) = bytes.get_mut(from) {
                    *byte = random.byte();
                }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(from) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

/// Some of the bytes, most often few.
fn range(bytes: &[u8], random: &mut Random) -> (usize, usize) {
    let from = random.below(bytes.len() + 1);
    (from, from + random.skewed(bytes.len() - from))
}

fn put(bytes: &mut Vec<u8>, at: std::ops::Range<usize>, what: &[u8]) {
    bytes.splice(at, what.iter().copied());
}
