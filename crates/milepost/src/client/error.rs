//! What it means to a verb when a server says no, says nothing, or is none.

use milepost_sdk::{Error, Problem};

use crate::output::error::Refusal;
use crate::target::{Server, Source};

pub(crate) fn refusal(server: &Server, error: Error) -> anyhow::Error {
    match error {
        Error::Refused(problem) => {
            let Problem { status, code, message, problems, conflicts, .. } = *problem;
            let help = match status {
                401 if server.source == Source::Found && server.token.is_none() => {
                    "; a token goes to a server that is named alone: add --server URL or set MILEPOST_URL"
                }
                401 if server.token.is_none() && !message.contains("; ") => {
                    "; name yourself with --token or MILEPOST_TOKEN"
                }
                _ => "",
            };
            Refusal::new(code, format!("{message}{help}")).with_problems(problems).with_conflicts(conflicts).into()
        }
        Error::Unreachable { url, why } if server.source == Source::Default => Refusal::no_server(format!(
            "there is no database here, and no server at {url} ({why}); start one with `milepost dev`, or name one with --server or --db"
        ))
        .into(),
        error @ (Error::Unreachable { .. } | Error::Stranger { .. }) => Refusal::no_server(error.to_string()).into(),
        error @ Error::Unreadable { .. } => Refusal::new("unreadable_answer", error.to_string()).into(),
        error @ Error::BadAddress(_) => Refusal::new("bad_server", error.to_string()).into(),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::error::{NO_SERVER, WRONG_USE, exit_status};

    fn server(source: Source) -> Server {
        Server { url: "http://a:7400".to_owned(), token: None, source }
    }

    fn refused(status: u16, code: &str, message: &str) -> anyhow::Error {
        let (code, message) = (code.to_owned(), message.to_owned());
        let problem = Problem { status, code, message, problems: Vec::new(), conflicts: Vec::new(), retry_after: None };
        refusal(&server(Source::Named), Error::Refused(Box::new(problem)))
    }

    #[test]
    fn what_a_server_says_is_passed_on_with_its_code() {
        let error = refused(409, "signal_rejected", "only a running run can be paused; resume it");
        assert_eq!(error.to_string(), "only a running run can be paused; resume it");
        assert_eq!(error.downcast_ref::<Refusal>().map(Refusal::code), Some("signal_rejected"));
        assert_eq!(exit_status(&error), WRONG_USE);
    }

    #[test]
    fn who_is_not_known_is_told_how_to_say_who_it_is() {
        let error = refused(401, "unauthorized", "Unauthorized").to_string();
        assert_eq!(error, "Unauthorized; name yourself with --token or MILEPOST_TOKEN");
    }

    #[test]
    fn where_nobody_listens_it_says_how_to_start_one() {
        for (source, says) in
            [(Source::Default, "no database here"), (Source::Named, "does not answer: Connection refused")]
        {
            let error = Error::Unreachable { url: "http://a:7400".to_owned(), why: "Connection refused".to_owned() };
            let error = refusal(&server(source), error);
            assert!(error.to_string().contains(says) && error.to_string().contains("`milepost dev`"), "{error}");
            assert_eq!(exit_status(&error), NO_SERVER);
        }
    }
}
