//! Whose terminal this is: the name that histories have where no token says another.

use milepost_core::text::name_fault;

use crate::target::variable;

/// As long as a name may be everywhere.
const MOST_CHARS: usize = 255;

/// The name that somebody set for what they do from here.
pub(crate) fn said() -> Option<String> {
    variable("MILEPOST_ACTOR").map(|name| name.trim().to_owned())
}

/// Who does what is done on a database alone.
pub(crate) fn name() -> String {
    said().unwrap_or_else(user)
}

/// The user of this machine who runs this.
pub(crate) fn user() -> String {
    let named = ["USER", "LOGNAME", "USERNAME"].into_iter().filter_map(variable);
    let fits = |name: &String| name_fault(name, MOST_CHARS).is_none();
    let number = || format!("user {}", rustix::process::geteuid().as_raw());
    named.map(|name| name.trim().to_owned()).find(fits).unwrap_or_else(number)
}
