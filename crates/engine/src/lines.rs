//! Lines out of a pipe.
//!
//! **Invariant:** what was written before something else was read is found by `ready`: the pipe itself is asked, not what is
//! remembered of it.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe::Receiver;

/// A program that says more without a line's end has lost its way.
const LONGEST_LINE: usize = 16 * 1024 * 1024;
const PIECE: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Lines {
    pipe: Receiver,
    buffer: Vec<u8>,
    /// So much of the buffer has no line's end in it.
    searched: usize,
    ended: bool,
}

impl Lines {
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Lines> {
        Ok(Lines { pipe: Receiver::from_owned_fd(pipe)?, buffer: Vec::new(), searched: 0, ended: false })
    }

    /// The next line without its end; `None` when no more come. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.ready() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            let readable = self.pipe.readable().await;
            let mut piece = [0; PIECE];
            // Not the pipe itself: this way it is known afterwards that there was nothing.
            let read = readable.and_then(|()| self.pipe.try_read(&mut piece));
            self.take_in(read, &piece);
        }
    }

    /// A line that is there already.
    pub(super) fn ready(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.cut() {
                return Some(line);
            }
            let mut piece = [0; PIECE];
            if self.ended {
                return None;
            }
            let read = rustix::io::read(&self.pipe, &mut piece).map_err(io::Error::from);
            if !self.take_in(read, &piece) {
                return None;
            }
        }
    }

    fn cut(&mut self) -> Option<String> {
        let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
        let line: Vec<u8> = match end {
            Some(end) => {
                self.searched = 0;
                self.buffer.drain(..=end).collect()
            }
            // What a program said last may have no end.
            None if self.ended && !self.buffer.is_empty() => {
                self.searched = 0;
                std::mem::take(&mut self.buffer)
            }
            None => {
                self.searched = self.buffer.len();
                return None;
            }
        };
        Some(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned())
    }

    /// Takes in what was read. Answers whether there is anything new to look at.
    fn take_in(&mut self, read: io::Result<usize>, piece: &[u8]) -> bool {
        match read {
            Ok(count @ 1..) => {
                self.buffer.extend_from_slice(&piece[..count]);
                if self.buffer.len() > LONGEST_LINE {
                    (self.ended, self.searched) = (true, 0);
                    self.buffer.clear();
                }
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Ok(0) | Err(_) => {
                self.ended = true;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn pipe() -> (Lines, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        (Lines::new(reader.into()).unwrap(), writer)
    }

    #[tokio::test]
    async fn lines_may_come_in_pieces_and_the_last_needs_no_end() {
        let (mut lines, mut writer) = pipe();
        writer.write_all(b"one\r\nt").unwrap();
        assert_eq!(lines.next().await.as_deref(), Some("one"));
        assert_eq!(lines.ready(), None);
        writer.write_all(b"wo\n\nthr\xffee").unwrap();
        assert_eq!(lines.next().await.as_deref(), Some("two"));
        drop(writer);
        assert_eq!(lines.next().await.as_deref(), Some(""));
        assert_eq!(lines.next().await.as_deref(), Some("thr\u{fffd}ee"));
        assert_eq!(lines.next().await, None);
    }

    #[tokio::test]
    async fn what_was_written_is_ready() {
        let (mut lines, mut writer) = pipe();
        for n in 0..100 {
            writer.write_all(format!("{n}\n").as_bytes()).unwrap();
            assert_eq!(lines.ready(), Some(n.to_string()));
        }
    }
}
