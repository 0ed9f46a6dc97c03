//! Lines out of a pipe, none of them longer than there is room for.
//!
//! **Invariant:** what was written before something else was read is found by `ready`: the pipe itself is asked, not what is
//! remembered of it.
//! **Invariant:** a line takes no more memory than it may have, however long it is.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe::Receiver;

const PIECE: usize = 16 * 1024;
/// Of a line that is too long, so much of its beginning is passed on.
const BEGINNING: usize = 16 * 1024;

/// What a program that is followed wrote, line by line.
#[derive(Debug)]
pub struct Lines {
    pipe: Receiver,
    /// Bytes that a line may have.
    longest: usize,
    buffer: Vec<u8>,
    /// So much of the buffer has no line's end in it.
    searched: usize,
    /// The end of a line that was too long is still to come.
    skipping: bool,
    ended: bool,
}

/// A line without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Whole(String),
    /// The beginning of one that was too long; the rest is left out.
    Cut(String),
}

impl Line {
    /// As it can be quoted. Of one that was cut there is nothing: it may end with a piece of a secret.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Line::Whole(text) => text,
            Line::Cut(_) => "… (a line that was too long)",
        }
    }
}

impl Lines {
    /// # Errors
    /// That is no pipe to read from.
    pub fn new(pipe: OwnedFd, longest: usize) -> io::Result<Lines> {
        let pipe = Receiver::from_owned_fd(pipe)?;
        Ok(Lines { pipe, longest, buffer: Vec::new(), searched: 0, skipping: false, ended: false })
    }

    /// The next line; `None` when no more come. May be dropped and called again.
    pub async fn next(&mut self) -> Option<Line> {
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
    pub fn ready(&mut self) -> Option<Line> {
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

    fn cut(&mut self) -> Option<Line> {
        loop {
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
                None if self.skipping => {
                    (self.searched, self.buffer) = (0, Vec::new());
                    return None;
                }
                None if self.buffer.len() > self.longest => {
                    (self.searched, self.skipping) = (0, true);
                    return Some(beginning(&std::mem::take(&mut self.buffer)));
                }
                None => {
                    self.searched = self.buffer.len();
                    return None;
                }
            };
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            return Some(match line.len() > self.longest {
                true => beginning(line),
                false => Line::Whole(String::from_utf8_lossy(line).trim_end_matches('\r').to_owned()),
            });
        }
    }

    /// Takes in what was read. Answers whether there is anything new to look at.
    fn take_in(&mut self, read: io::Result<usize>, piece: &[u8]) -> bool {
        match read {
            Ok(count @ 1..) => {
                self.buffer.extend_from_slice(&piece[..count]);
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

fn beginning(line: &[u8]) -> Line {
    Line::Cut(String::from_utf8_lossy(&line[..line.len().min(BEGINNING)]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn pipe() -> (Lines, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        (Lines::new(reader.into(), 20_000).unwrap(), writer)
    }

    fn whole(text: &str) -> Option<Line> {
        Some(Line::Whole(text.to_owned()))
    }

    #[tokio::test]
    async fn lines_may_come_in_pieces_and_the_last_needs_no_end() {
        let (mut lines, mut writer) = pipe();
        writer.write_all(b"one\r\nt").unwrap();
        assert_eq!(lines.next().await, whole("one"));
        assert_eq!(lines.ready(), None);
        writer.write_all(b"wo\n\nthr\xffee").unwrap();
        assert_eq!(lines.next().await, whole("two"));
        drop(writer);
        assert_eq!(lines.next().await, whole(""));
        assert_eq!(lines.next().await, whole("thr\u{fffd}ee"));
        assert_eq!(lines.next().await, None);
    }

    #[tokio::test]
    async fn what_was_written_is_ready() {
        let (mut lines, mut writer) = pipe();
        for n in 0..100 {
            writer.write_all(format!("{n}\n").as_bytes()).unwrap();
            assert_eq!(lines.ready(), whole(&n.to_string()));
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_cut_and_the_next_one_is_whole() {
        for ends in [true, false] {
            let (mut lines, mut writer) = pipe();
            let writing = std::thread::spawn(move || {
                writer.write_all(b"before\n").unwrap();
                (0..500).for_each(|_| writer.write_all(&[b'x'; 1000]).unwrap());
                writer.write_all(if ends { b"\nafter\n" } else { b"" }).unwrap();
            });
            assert_eq!(lines.next().await, whole("before"));
            assert_eq!(lines.next().await, Some(Line::Cut("x".repeat(BEGINNING))));
            assert!(lines.buffer.capacity() < 100_000, "{}", lines.buffer.capacity());
            if ends {
                assert_eq!(lines.next().await, whole("after"));
            }
            assert_eq!(lines.next().await, None);
            writing.join().unwrap();
        }
    }

    #[tokio::test]
    async fn a_line_of_just_the_length_is_whole() {
        let (mut lines, mut writer) = pipe();
        for length in [20_000, 20_001] {
            writer.write_all(format!("{}\n", "y".repeat(length)).as_bytes()).unwrap();
            let line = lines.next().await;
            assert_eq!(matches!(line, Some(Line::Whole(_))), length == 20_000, "{length}");
        }
    }
}
