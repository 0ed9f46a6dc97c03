//! `{{secret:NAME}}` in the texts of an input: where a skill that starts no program has its secrets.

use serde_json::Value;

use super::SkillError;
use crate::secrets::Resolved;

const OPEN: &str = "{{secret:";
const CLOSE: &str = "}}";

/// The text with secrets in the place of their names.
pub(super) fn fill(text: &str, secrets: &Resolved) -> Result<String, SkillError> {
    fill_with(text, secrets, |_, value| value.to_owned())
}

/// The same for an address: what stands first is taken as it is, as a whole address may be secret; all else is encoded.
pub(super) fn fill_url(url: &str, secrets: &Resolved) -> Result<String, SkillError> {
    fill_with(url, secrets, |before, value| match before.is_empty() {
        true => value.to_owned(),
        false => percent_encoded(value),
    })
}

/// The same for all texts in a value.
pub(super) fn fill_value(value: Value, secrets: &Resolved) -> Result<Value, SkillError> {
    Ok(match value {
        Value::String(text) => Value::String(fill(&text, secrets)?),
        Value::Array(items) => items.into_iter().map(|item| fill_value(item, secrets)).collect::<Result<_, _>>()?,
        Value::Object(map) => {
            let filled = map.into_iter().map(|(key, value)| Ok((key, fill_value(value, secrets)?)));
            Value::Object(filled.collect::<Result<_, SkillError>>()?)
        }
        other => other,
    })
}

fn fill_with(text: &str, secrets: &Resolved, put: impl Fn(&str, &str) -> String) -> Result<String, SkillError> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, name, after)) = next(rest) {
        filled.push_str(before);
        let value = secrets.get(name).ok_or_else(|| {
            let message = format!("the step has no secret `{name}`; declare it under `secrets`: {name}: secret://…");
            SkillError::fatal("unknown_secret", message)
        })?;
        let value = put(&filled, value);
        filled.push_str(&value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// What stands before the next name, the name, and what stands after it.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(OPEN)?;
    let (name, after) = rest.split_once(CLOSE)?;
    Some((before, name.trim(), after))
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

    #[test]
    fn names_are_replaced_and_what_comes_in_is_not_looked_at_again() {
        assert_eq!(fill("Bearer {{secret:KEY}}!", &secrets()).unwrap(), "Bearer a/b {{secret:KEY}}!");
        assert_eq!(fill("{{ secret:KEY }} {{secret:", &secrets()).unwrap(), "{{ secret:KEY }} {{secret:");
        let filled = fill_value(json!({"{{secret:X}}": ["{{secret:HOOK}}", 1]}), &secrets()).unwrap();
        assert_eq!(filled, json!({"{{secret:X}}": ["https://h/x?y=1", 1]}));
    }

    #[test]
    fn in_an_address_a_secret_is_encoded_unless_it_begins_it() {
        assert_eq!(fill_url("{{secret:HOOK}}&z=1", &secrets()).unwrap(), "https://h/x?y=1&z=1");
        let encoded = fill_url("https://h/?k={{secret:KEY}}", &secrets()).unwrap();
        assert_eq!(encoded, "https://h/?k=a%2Fb%20%7B%7Bsecret%3AKEY%7D%7D");
    }

    #[test]
    fn what_the_step_does_not_declare_is_not_there() {
        let refused = fill("{{secret:OTHER}}", &secrets()).unwrap_err();
        assert_eq!((refused.code.as_str(), refused.retryable), ("unknown_secret", false));
    }
}
