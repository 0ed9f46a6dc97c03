//! What every command shares: the flags that come before or after any verb.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};
use milepost_core::limits::Limits;
use tracing_subscriber::EnvFilter;

use crate::database::{self, Database};
use crate::output::error::Refusal;

/// Where `--help` lists what every verb has.
const GLOBAL: &str = "Global options";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs; the shapes are stable
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Globals {
    /// How results are printed
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        value_enum,
        default_value_t = Format::Text,
        value_name = "FORMAT",
        help_heading = GLOBAL
    )]
    pub(crate) format: Format,
    /// The database: a file (SQLite), or a postgres:// address [env: MILEPOST_DB]
    #[arg(long, global = true, value_name = "PATH|URL", help_heading = GLOBAL)]
    db: Option<String>,
    /// Say more on standard error (`-vv`: still more); RUST_LOG has the last word
    #[arg(short = 'v', long, global = true, action = ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
    #[command(flatten)]
    limits: LimitFlags,
}

/// `--limit`, for the verbs that check anything against one.
#[derive(Debug, Args)]
pub(crate) struct LimitFlags {
    /// Change a limit (see `milepost limits`); may be repeated
    #[arg(long = "limit", id = "limits", value_name = "NAME=VALUE", help_heading = GLOBAL)]
    limits: Vec<Limit>,
}

#[derive(Clone, Debug)]
struct Limit {
    name: String,
    value: u64,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, such as steps=500")?;
        let value = value.parse().map_err(|_| format!("`{value}` is not a whole number"))?;
        Ok(Limit { name: name.to_owned(), value })
    }
}

impl LimitFlags {
    fn pairs(&self) -> impl Iterator<Item = (String, u64)> {
        self.limits.iter().map(|limit| (limit.name.clone(), limit.value))
    }

    fn apply(&self, limits: &mut Limits) -> anyhow::Result<()> {
        for limit in &self.limits {
            limits.set(&limit.name, limit.value).map_err(|error| Refusal::new("unknown_limit", error.to_string()))?;
        }
        Ok(())
    }
}

impl Globals {
    /// Logs go to standard error; by default only what somebody should know.
    pub(crate) fn start_logging(&self, default: &str) {
        let level = match self.verbose {
            0 => default,
            1 => "info",
            _ => "debug",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}

/// The flags, read.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) format: Format,
    pub(crate) database: Database,
    limits: Limits,
    db_flag: Option<String>,
    limit_flags: BTreeMap<String, u64>,
}

impl Context {
    pub(crate) fn new(globals: Globals) -> anyhow::Result<Context> {
        let mut limits = Limits::default();
        globals.limits.apply(&mut limits)?;
        let env = || std::env::var("MILEPOST_DB").ok().filter(|value| !value.is_empty());
        let db = globals.db.clone().or_else(env).unwrap_or_else(|| database::DEFAULT.to_owned());
        Ok(Context {
            format: globals.format,
            database: Database::parse(&db),
            limits,
            db_flag: globals.db,
            limit_flags: globals.limits.pairs().collect(),
        })
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// The limits, with those that the verb was given.
    pub(crate) fn limits(&self, flags: &LimitFlags) -> anyhow::Result<Limits> {
        let mut limits = self.limits.clone();
        flags.apply(&mut limits)?;
        Ok(limits)
    }

    /// `--db`, for verbs that read the rest themselves.
    pub(crate) fn db_flag(&self) -> Option<&str> {
        self.db_flag.as_deref()
    }

    /// `--limit`, before the verb and after it, by name.
    pub(crate) fn limit_flags(&self, flags: &LimitFlags) -> BTreeMap<String, u64> {
        self.limit_flags.clone().into_iter().chain(flags.pairs()).collect()
    }

    pub(crate) fn refuse_server(&self, _verb: &str) -> anyhow::Result<()> {
        Ok(())
    }

    pub(crate) fn default_limits(&self) -> &Limits {
        &self.limits
    }
}
