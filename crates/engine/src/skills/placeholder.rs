//! `{{secret:NAME}}` in the texts of an input: where a skill that starts no program has its secrets.
//!
//! **Invariant:** only what the document itself wrote is filled. A payload, an item or an output that looks like it stays as
//! it is: whoever wrote it must not choose where secrets go.

use milepost_core::json::Json;
use milepost_core::secret::{Placeholders, placeholder};
use serde_json::Value;

use super::SkillError;
use crate::secrets::Resolved;

/// What to fill in: the secrets of a step, and where its document says that they go.
#[derive(Clone, Copy)]
pub(super) struct Filling<'a> {
    pub(super) secrets: &'a Resolved,
    pub(super) placeholders: &'a Placeholders,
}

impl Filling<'_> {
    /// The text at a JSON pointer of the input, with secrets in the place of their names.
    pub(super) fn text(&self, text: &str, pointer: &str) -> Result<String, SkillError> {
        self.fill(text, self.placeholders.at(pointer), |_, value| value.to_owned())
    }

    /// The same for an address: what stands first is taken as it is, as a whole address may be secret; all else is encoded.
    pub(super) fn url(&self, url: &str, pointer: &str) -> Result<String, SkillError> {
        self.fill(url, self.placeholders.at(pointer), |before, value| match before.is_empty() {
            true => value.to_owned(),
            false => percent_encoded(value),
        })
    }

    /// The same for all texts in the value at a JSON pointer of the input.
    pub(super) fn json(&self, json: Json, pointer: &str) -> Result<Json, SkillError> {
        let mut below = self.placeholders.below(pointer).peekable();
        if below.peek().is_none() {
            return Ok(json);
        }
        let mut value = json.to_value();
        for (inside, offsets) in below {
            if let Some(Value::String(text)) = value.pointer_mut(inside) {
                *text = self.fill(text, offsets, |_, value| value.to_owned())?;
            }
        }
        Ok(Json::of(&value))
    }

    fn fill(&self, text: &str, offsets: &[usize], put: impl Fn(&str, &str) -> String) -> Result<String, SkillError> {
        let (mut filled, mut done) = (String::new(), 0);
        for offset in offsets {
            let found = text.get(*offset..).and_then(placeholder).filter(|(span, _)| span.start == 0);
            let Some((span, name)) = found.filter(|_| *offset >= done) else { continue };
            filled.push_str(&text[done..*offset]);
            let value = self.secrets.get(name).ok_or_else(|| {
                let message =
                    format!("the step has no secret `{name}`; declare it under `secrets`: {name}: secret://…");
                SkillError::fatal("unknown_secret", message)
            })?;
            let value = put(&filled, value);
            filled.push_str(&value);
            done = offset + span.end;
        }
        filled.push_str(&text[done..]);
        Ok(filled)
    }
}

fn percent_encoded(value: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    value.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secrets() -> Resolved {
        Resolved::of(&[("KEY", "a/b {{secret:KEY}}"), ("HOOK", "https://h/x?y=1")])
    }

    /// The value at `/body`, with all that looks like a placeholder in the literal.
    fn filled(literal: &Value) -> Result<Value, SkillError> {
        let placeholders = Placeholders::of(&json!({ "body": literal }));
        Filling { secrets: &secrets(), placeholders: &placeholders }
            .json(Json::of(literal), "/body")
            .map(|json| json.to_value())
    }

    fn filled_url(url: &str) -> String {
        let placeholders = Placeholders::of(&json!({ "url": url }));
        Filling { secrets: &secrets(), placeholders: &placeholders }.url(url, "/url").unwrap()
    }

    #[test]
    fn names_are_replaced_and_what_comes_in_is_not_looked_at_again() {
        assert_eq!(filled(&json!("Bearer {{secret:KEY}}!")).unwrap(), "Bearer a/b {{secret:KEY}}!");
        assert_eq!(filled(&json!("{{ secret:KEY }} {{secret:")).unwrap(), "{{ secret:KEY }} {{secret:");
        let all = filled(&json!({"{{secret:X}}": ["{{secret:HOOK}} {{secret:HOOK}}", 1], "a/b~": "{{secret:HOOK}}"}));
        let hook = "https://h/x?y=1";
        assert_eq!(all.unwrap(), json!({"{{secret:X}}": [format!("{hook} {hook}"), 1], "a/b~": hook}));
    }

    #[test]
    fn in_an_address_a_secret_is_encoded_unless_it_begins_it() {
        assert_eq!(filled_url("{{secret:HOOK}}&z=1"), "https://h/x?y=1&z=1");
        assert_eq!(filled_url("https://h/?k={{secret:KEY}}"), "https://h/?k=a%2Fb%20%7B%7Bsecret%3AKEY%7D%7D");
    }

    #[test]
    fn what_the_step_does_not_declare_is_not_there() {
        let refused = filled(&json!("{{secret:OTHER}}")).unwrap_err();
        assert_eq!((refused.code.as_str(), refused.retryable), ("unknown_secret", false));
    }

    #[test]
    fn what_the_document_did_not_write_is_not_filled() {
        let filling = Filling { secrets: &secrets(), placeholders: &Placeholders::default() };
        for text in ["{{secret:KEY}}", "{{secret:OTHER}}"] {
            assert_eq!(filling.text(text, "/headers/a").unwrap(), text);
            assert_eq!(filling.url(text, "/url").unwrap(), text);
            let body = Json::of(&json!({ "a": text }));
            assert_eq!(filling.json(body.clone(), "/body").unwrap(), body);
        }
    }
}
