//! Logs: one set-up for all verbs. They go to standard error, as text for people or as one JSON object per line.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use milepost_engine::{Clock as _, SystemClock};
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::values::LogFormat;
use crate::output::plain;

/// Lines are JSON. Not known for sure before a server has read its file, and that may already have something to say.
static JSON: AtomicBool = AtomicBool::new(false);

/// `default` is what is logged where nobody asks for more; `RUST_LOG` has the last word.
pub(crate) fn start(verbose: u8, default: &str, format: LogFormat) {
    let level = match verbose {
        0 => default,
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Filtered::default);
    logs.with_ansi(io::stderr().is_terminal()).event_format(Lines::default()).init();
    set_format(format);
}

/// From now on lines are written like this.
pub(crate) fn set_format(format: LogFormat) {
    let json = format == LogFormat::Json;
    if json && !JSON.swap(true, Ordering::Relaxed) {
        std::panic::set_hook(Box::new(log_panic));
    }
    JSON.store(json, Ordering::Relaxed);
}

/// Standard error, for lines that quote others.
#[derive(Default)]
struct Filtered;

impl Write for Filtered {
    /// Lines come whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let filtered = match JSON.load(Ordering::Relaxed) {
            true => plain::escaped(&text),
            false => plain::shown(&text, io::stderr().is_terminal()),
        };
        io::stderr().write_all(filtered.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// A panic is a line like any other.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let said = panic.payload_as_str().unwrap_or("no message");
    tracing::error!(place, said, "panicked");
}

/// One line.
#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    level: &'a str,
    target: &'a str,
    message: String,
    fields: Map<String, Value>,
}

#[derive(Default)]
struct Lines {
    text: Format,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        match JSON.load(Ordering::Relaxed) {
            true => writeln!(writer, "{}", as_json(event)?),
            false => self.text.format_event(context, writer, event),
        }
    }
}

fn as_json(event: &Event<'_>) -> Result<String, fmt::Error> {
    let mut said = Said::default();
    event.record(&mut said);
    let line = Line {
        timestamp: SystemClock.now().to_string(),
        level: event.metadata().level().as_str(),
        target: event.metadata().target(),
        message: said.message,
        fields: said.fields,
    };
    serde_json::to_string(&line).map_err(|_| fmt::Error)
}

/// What an event says.
#[derive(Default)]
struct Said {
    message: String,
    fields: Map<String, Value>,
}

impl Said {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.add(field, value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }
}
