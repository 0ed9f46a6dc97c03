//! What an address says about TLS, taken off it: the driver's own parser knows only half of it.
//!
//! Reads both forms as the driver does: `postgres://…?key=value&…` and `key=value key='value'`.
//!
//! **Invariant:** no error quotes the address, as any part of it may be a piece of a password.

use crate::{Result, StoreError};

/// An address in two parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// For the driver.
    pub(super) rest: String,
    /// `sslmode`, if it is there and not empty.
    pub(super) mode: Option<String>,
    /// `sslrootcert`, likewise.
    pub(super) root: Option<String>,
}

impl Split {
    /// Keeps what is about TLS, the last of several; answers whether it did.
    fn take(&mut self, key: &str, value: String) -> bool {
        let place = match key {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.root,
            _ => return false,
        };
        *place = Some(value).filter(|value| !value.is_empty());
        true
    }
}

pub(super) fn split(address: &str) -> Result<Split> {
    let url = ["postgres://", "postgresql://"].iter().find_map(|scheme| address.strip_prefix(scheme));
    match url {
        Some(url) => split_url(address, address.len() - url.len()),
        None => split_keywords(address),
    }
}

/// The text for an address that cannot be read.
pub(super) fn unreadable(why: &str) -> StoreError {
    StoreError::Unusable(format!(
        "this is no Postgres URL: {why}; it looks like postgres://user:password@host:5432/database"
    ))
}

fn split_url(address: &str, start: usize) -> Result<Split> {
    // A `?` before the first `@` belongs to the password.
    let host = address[start..].find('@').map_or(start, |at| start + at + 1);
    let Some(query) = address[host..].find('?').map(|at| host + at) else {
        return Ok(Split { rest: address.to_owned(), ..Split::default() });
    };
    let mut split = Split::default();
    let mut others = Vec::new();
    for pair in address[query + 1..].split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| not_a_pair("&"))?;
        let key = known_shape(&decode(key)?, "&")?.to_owned();
        if !split.take(&key, decode(value)?) {
            others.push(pair);
        }
    }
    split.rest = address[..query].to_owned();
    if !others.is_empty() {
        split.rest = format!("{}?{}", split.rest, others.join("&"));
    }
    Ok(split)
}

fn split_keywords(address: &str) -> Result<Split> {
    let mut split = Split::default();
    let mut others = Vec::new();
    let mut text = address.trim();
    while !text.is_empty() {
        let (key, value, tail) = keyword(text).ok_or_else(|| not_a_pair("spaces"))?;
        known_shape(key, "spaces")?;
        if !split.take(key, value) {
            others.push(text[..text.len() - tail.len()].trim_end());
        }
        text = tail.trim_start();
    }
    split.rest = others.join(" ");
    Ok(split)
}

/// The first `key = value` of a text, and what comes after it.
fn keyword(text: &str) -> Option<(&str, String, &str)> {
    let end = text.find(|c: char| c == '=' || c.is_whitespace())?;
    let after = text[end..].trim_start().strip_prefix('=')?.trim_start();
    let (value, tail) = keyword_value(after)?;
    Some((&text[..end], value, tail))
}

fn keyword_value(text: &str) -> Option<(String, &str)> {
    let body = text.strip_prefix('\'');
    let quoted = body.is_some();
    let body = body.unwrap_or(text);
    let mut value = String::new();
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Some((value, &body[at + 1..])),
            c if !quoted && c.is_whitespace() => return Some((value, &body[at..])),
            c => value.push(c),
        }
    }
    (!quoted).then_some((value, ""))
}

/// A key that looks like none may be a piece of a password, and the driver would quote it.
fn known_shape<'a>(key: &'a str, between: &str) -> Result<&'a str> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if key.is_empty() || !key.bytes().all(fits) { Err(not_a_pair(between)) } else { Ok(key) }
}

fn not_a_pair(between: &str) -> StoreError {
    unreadable(&match between {
        "&" => "what comes after `?` must be key=value pairs with `&` between them, and `@`, `?`, `/` and `:` in a \
                password are written %40, %3F, %2F and %3A"
            .to_owned(),
        _ => format!("it does not begin with postgres:// and is not key=value pairs with {between} between them"),
    })
}

fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let coded = if byte == b'%' { hex(tail) } else { None };
        bytes.push(coded.unwrap_or(byte));
        rest = if coded.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).map_err(|_| unreadable("a %-sequence in it is no UTF-8"))
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, rest: &str, mode: Option<&str>, root: Option<&str>) {
        let expected = Split { rest: rest.to_owned(), mode: mode.map(str::to_owned), root: root.map(str::to_owned) };
        assert_eq!(split(address).expect(address), expected, "{address}");
    }

    #[test]
    fn what_is_about_tls_is_taken_off_a_url() {
        check("postgres://h/d", "postgres://h/d", None, None);
        check("postgres://h/d?sslmode=verify-full", "postgres://h/d", Some("verify-full"), None);
        check(
            "postgresql://u:p@h/d?options=-c%20a%3Db&sslrootcert=/a%20b/%C3%A4.pem&sslmode=require&port=1",
            "postgresql://u:p@h/d?options=-c%20a%3Db&port=1",
            Some("require"),
            Some("/a b/ä.pem"),
        );
        check("postgres://u:p?sslmode=x@h/d", "postgres://u:p?sslmode=x@h/d", None, None);
        check("postgres://h?sslmode=require&sslmode=disable&sslrootcert=", "postgres://h", Some("disable"), None);
    }

    #[test]
    fn what_is_about_tls_is_taken_off_keywords() {
        check("host=h user=u", "host=h user=u", None, None);
        check(
            " host = h sslmode = verify-ca  password='a \\' sslmode=x' sslrootcert='/a b.pem' ",
            "host = h password='a \\' sslmode=x'",
            Some("verify-ca"),
            Some("/a b.pem"),
        );
    }

    #[test]
    fn no_error_quotes_the_address() {
        for address in [
            "postgre://u:secret@h/d?sslmode=require",
            "postgres://u:s@x?secret@h/d",
            "postgres://u:s@x?secret@h/d?sslmode=require",
            "postgres://h/d?secret",
            "host=h password=a secret",
            "host=h password='secret",
            "host=h SECRET=1",
            "postgres://h/d?sslrootcert=secret%FF",
            "/var/lib/secret",
        ] {
            let text = split(address).expect_err(address).to_string();
            assert!(
                text.contains("postgres://user:password@host") && !text.to_lowercase().contains("secret"),
                "{text}"
            );
        }
    }
}
