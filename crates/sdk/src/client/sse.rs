//! Server-sent events, out of bytes that are cut anywhere.

/// One message of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: Option<String>,
    /// Empty for an ordinary one.
    pub(super) event: String,
    pub(super) data: String,
}

/// Keeps what has come of a line and of a message until the rest is there.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    message: Message,
    /// Whether the message has anything but comments; an empty one is none.
    begun: bool,
}

impl Parser {
    /// Takes the next bytes. Answers the messages that they complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        for byte in bytes {
            let joined = std::mem::replace(&mut self.after_return, *byte == b'\r') && *byte == b'\n';
            match byte {
                b'\n' if joined => {}
                b'\r' | b'\n' => messages.extend(self.end_line()),
                _ => self.line.push(*byte),
            }
        }
        messages
    }

    fn end_line(&mut self) -> Option<Message> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line);
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            return std::mem::take(&mut self.begun).then(|| without_last_break(message));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => self.message.data.extend([value, "\n"]),
            "event" => value.clone_into(&mut self.message.event),
            "id" => self.message.id = Some(value.to_owned()),
            // A comment keeps the connection alive; other fields mean nothing here.
            _ => return None,
        }
        self.begun = true;
        None
    }
}

fn without_last_break(mut message: Message) -> Message {
    message.data.pop();
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, event: &str, data: &str) -> Message {
        let id = Some(id.to_owned()).filter(|id| !id.is_empty());
        Message { id, event: event.to_owned(), data: data.to_owned() }
    }

    const STREAM: &str = "\u{feff}: welcome\n\nid: 1\ndata: {\"a\": \"ä\"}\n\n:\r\n\r\nid:2\r\ndata: one\r\ndata: two\r\n\r\nevent: end\rdata\r\rretry: 500\n\ndata: cut";

    #[test]
    fn bytes_may_be_cut_anywhere() {
        let whole = [message("1", "", "{\"a\": \"ä\"}"), message("2", "", "one\ntwo"), message("", "end", "")];
        assert_eq!(Parser::default().take(STREAM.as_bytes()), whole);
        for cut in 0..STREAM.len() {
            let mut parser = Parser::default();
            let (before, after) = STREAM.as_bytes().split_at(cut);
            assert_eq!([parser.take(before), parser.take(after)].concat(), whole, "cut at {cut}");
        }
        let mut parser = Parser::default();
        let one_by_one: Vec<Message> = STREAM.bytes().flat_map(|byte| parser.take(&[byte])).collect();
        assert_eq!(one_by_one, whole);
    }

    #[test]
    fn a_message_that_was_not_finished_is_none() {
        assert_eq!(Parser::default().take(b"id: 7\ndata: {}\n"), []);
    }
}
