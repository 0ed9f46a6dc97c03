//! What a program with skills says on its standard output, line by line.

use milepost_sdk::{LogStream, SkillError};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// One line, understood.
#[derive(Debug)]
pub(super) enum Message {
    Skills(Vec<String>),
    Log(LogStream, String),
    Progress(Box<RawValue>),
    Completed(Box<RawValue>),
    Failed(SkillError),
    /// Nothing of these: a line of the log.
    Text(String),
}

#[derive(Deserialize)]
struct Object {
    skills: Option<Vec<String>>,
    log: Option<Log>,
    #[serde(default, deserialize_with = "some")]
    progress: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "some")]
    completed: Option<Box<RawValue>>,
    failed: Option<Failed>,
}

#[derive(Deserialize)]
struct Log {
    #[serde(default)]
    stream: LogStream,
    text: String,
}

#[derive(Deserialize)]
#[serde(default)]
struct Failed {
    code: String,
    message: String,
    retryable: bool,
}

impl Default for Failed {
    fn default() -> Failed {
        Failed { code: "failed".to_owned(), message: "the program did not say why".to_owned(), retryable: true }
    }
}

impl Message {
    pub(super) fn read(line: String) -> Message {
        let object = match line.trim_start().starts_with('{') {
            true => serde_json::from_str::<Object>(&line).ok(),
            false => None,
        };
        match object {
            Some(Object { completed: Some(output), .. }) => Message::Completed(output),
            Some(Object { failed: Some(Failed { code, message, retryable }), .. }) => {
                Message::Failed(SkillError { code, message, retryable })
            }
            Some(Object { progress: Some(progress), .. }) => Message::Progress(progress),
            Some(Object { log: Some(log), .. }) => Message::Log(log.stream, log.text),
            Some(Object { skills: Some(skills), .. }) => Message::Skills(skills),
            _ => Message::Text(line),
        }
    }
}

/// A value that is `null` is a value.
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        match Message::read(line.to_owned()) {
            Message::Skills(skills) => format!("skills {}", skills.join(" ")),
            Message::Log(stream, text) => format!("{stream:?} {text}"),
            Message::Progress(progress) => format!("progress {progress}"),
            Message::Completed(output) => format!("completed {output}"),
            Message::Failed(error) => format!("failed {error} {}", error.retryable),
            Message::Text(text) => format!("text {text}"),
        }
    }

    #[test]
    fn what_is_no_message_is_a_line_of_the_log() {
        for (line, means) in [
            (r#"{"skills": ["a.b", "c"]}"#, "skills a.b c"),
            (r#"{"completed": {"n": 1.0}}"#, r#"completed {"n": 1.0}"#),
            (r#" {"completed": null}"#, "completed null"),
            (r#"{"failed": {"code": "bad", "message": "no", "retryable": false}}"#, "failed bad: no false"),
            (r#"{"failed": {}}"#, "failed failed: the program did not say why true"),
            (r#"{"progress": 40}"#, "progress 40"),
            (r#"{"log": {"stream": "stderr", "text": "oh"}}"#, "Stderr oh"),
            (r#"{"log": {"text": "oh"}}"#, "Log oh"),
            (r#"{"level": "info", "msg": "hello"}"#, r#"text {"level": "info", "msg": "hello"}"#),
            ("{not json", "text {not json"),
            ("42", "text 42"),
            ("", "text "),
        ] {
            assert_eq!(read(line), means);
        }
    }
}
