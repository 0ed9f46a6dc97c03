//! What every command shares: the flags that come before or after any verb.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};
use milepost_core::limits::Limits;

use crate::config::values::LogFormat;
use crate::database::{self, Database};
use crate::logging;
use crate::output::error::Refusal;
use crate::target::{Otherwise, Target, Wanted};

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
    /// The server to talk to, such as http://127.0.0.1:7400 [env: MILEPOST_URL]
    #[arg(long, global = true, value_name = "URL", help_heading = GLOBAL)]
    server: Option<String>,
    /// What the server knows you by [env: MILEPOST_TOKEN]
    #[arg(long, global = true, value_name = "TOKEN", help_heading = GLOBAL)]
    token: Option<String>,
    /// The database, where no server is asked: a file (SQLite), or a postgres:// address [env: MILEPOST_DB]
    #[arg(long, global = true, value_name = "PATH|URL", help_heading = GLOBAL)]
    db: Option<String>,
    /// Say more on standard error (`-vv`: still more); RUST_LOG has the last word
    #[arg(short = 'v', long, global = true, action = ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
    /// How logs are written to standard error: text or json [env: MILEPOST_LOG_FORMAT] [default: text]
    #[arg(long, global = true, value_name = "FORMAT", help_heading = GLOBAL)]
    log_format: Option<LogFormat>,
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
    /// What is logged where `-v` says nothing: a server tells more than a verb.
    pub(crate) fn start_logging(&self, default: &str) {
        let variable = std::env::var("MILEPOST_LOG_FORMAT").ok().filter(|text| !text.trim().is_empty());
        let named = variable.map(|text| text.trim().parse::<LogFormat>());
        let format = self.log_format.or_else(|| named.as_ref()?.as_ref().ok().copied());
        logging::start(self.verbose, default, format.unwrap_or(LogFormat::Text));
        if let Some(Err(problem)) = named {
            tracing::warn!("MILEPOST_LOG_FORMAT: {problem}");
        }
    }
}

/// The flags, read.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) format: Format,
    /// The one that is named, or the one in this folder. For verbs that work on a database and on nothing else.
    pub(crate) database: Database,
    wanted: Wanted,
    limits: Limits,
    limit_flags: BTreeMap<String, u64>,
    /// `--log-format`, for verbs that read the rest themselves.
    pub(crate) log_format: Option<LogFormat>,
    has_token_flag: bool,
}

impl Context {
    pub(crate) fn new(globals: Globals) -> anyhow::Result<Context> {
        let mut limits = Limits::default();
        globals.limits.apply(&mut limits)?;
        let env = Wanted::from_env();
        let has_token_flag = globals.token.is_some();
        let token = globals.token.or_else(|| env.token.clone());
        let wanted = Wanted { server_flag: globals.server, db_flag: globals.db, token, ..env };
        let database = wanted.database().unwrap_or_else(|| Database::parse(database::DEFAULT));
        let limit_flags = globals.limits.pairs().collect();
        let (format, log_format) = (globals.format, globals.log_format);
        Ok(Context { format, database, wanted, limits, limit_flags, log_format, has_token_flag })
    }

    /// Where the verb goes: to a server or to a database.
    pub(crate) async fn target(&self, otherwise: Otherwise) -> anyhow::Result<Target> {
        self.wanted.target(otherwise).await
    }

    /// For a verb that works on a database only.
    pub(crate) fn refuse_server(&self, verb: &str) -> anyhow::Result<()> {
        match self.wanted.server_flag {
            None => Ok(()),
            Some(_) => Err(Refusal::new(
                "needs_database",
                format!("`milepost {verb}` works on a database, not through a server; name the database with --db"),
            )
            .into()),
        }
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

    /// For a verb that is a server itself.
    pub(crate) fn refuse_callers_flags(&self, verb: &str) -> anyhow::Result<()> {
        self.refuse_server(verb)?;
        match self.has_token_flag {
            false => Ok(()),
            // Whoever passes one may believe that the server wants it from now on.
            true => Err(Refusal::new(
                "needs_hash",
                format!("--token is for those who call a server, and `milepost {verb}` is one; a server is told the hashes of its tokens: `milepost token` makes both"),
            )
            .into()),
        }
    }

    /// `--server`, for a verb that needs no more than an address.
    pub(crate) fn server_flag(&self) -> Option<&str> {
        self.wanted.server_flag.as_deref()
    }

    /// `--db`, for verbs that read the rest themselves.
    pub(crate) fn db_flag(&self) -> Option<&str> {
        self.wanted.db_flag.as_deref()
    }

    /// `--limit`, before the verb and after it, by name.
    pub(crate) fn limit_flags(&self, flags: &LimitFlags) -> BTreeMap<String, u64> {
        self.limit_flags.clone().into_iter().chain(flags.pairs()).collect()
    }

    pub(crate) fn default_limits(&self) -> &Limits {
        &self.limits
    }
}
