//! What a load used: CPU time of this process (and of a Postgres on the same machine), and memory.

use crate::database::Database;

/// CPU seconds since some fixed moment.
pub(super) struct Usage {
    pub(super) cpu_s: f64,
}

impl Usage {
    pub(super) fn now(database: &Database) -> Usage {
        Usage { cpu_s: cpu_s() + database_cpu_s(database) }
    }

    pub(super) fn since(self, before: &Usage) -> Usage {
        Usage { cpu_s: self.cpu_s - before.cpu_s }
    }
}

/// Of a database that has processes of its own.
pub(super) fn database_cpu_s(database: &Database) -> f64 {
    match database {
        Database::Postgres(_) => postgres_cpu_s(),
        Database::Sqlite(_) => 0.0,
    }
}

/// User and system time of this process.
pub(super) fn cpu_s() -> f64 {
    process_cpu_s("self")
}

pub(super) fn process_cpu_s(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name may hold spaces; the fields after it are counted from its closing bracket.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64
}

/// All processes called `postgres`: the backends are among them. Those that ended count in their parent.
fn postgres_cpu_s() -> f64 {
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0.0 };
    processes
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|name| {
            std::fs::read_to_string(format!("/proc/{name}/comm")).is_ok_and(|comm| comm.trim() == "postgres")
        })
        .map(|name| process_cpu_s(&name))
        .sum()
}

pub(super) fn rss_mib() -> f64 {
    status_mib("self", "VmRSS:")
}

pub(super) fn peak_rss_mib() -> f64 {
    status_mib("self", "VmHWM:")
}

pub(super) fn process_rss_mib(pid: u32) -> f64 {
    status_mib(&pid.to_string(), "VmRSS:")
}

pub(super) fn process_peak_rss_mib(pid: u32) -> f64 {
    status_mib(&pid.to_string(), "VmHWM:")
}

fn status_mib(process: &str, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Three digits after the point are enough.
pub(super) fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
