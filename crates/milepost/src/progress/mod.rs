//! A run as it happens: a tree that is drawn again and again on a terminal, plain lines elsewhere. All on standard
//! error; standard output is for results.

mod follow;
mod happening;
mod lines;
mod model;
mod outline;
mod tree;

use std::io::IsTerminal as _;

use crate::backend::logs::Line;
use crate::output::plain::plain;
pub(crate) use follow::{Ended, Follower, Interrupt};
use happening::Happening;
use lines::Lines;
use model::Model;
pub(crate) use outline::Outline;
use tree::Tree;

/// Where progress is shown.
#[derive(Debug)]
enum Screen {
    Silent,
    Lines(Lines),
    Tree(Tree),
}

impl Screen {
    /// A tree where there is a terminal that can draw one, lines elsewhere.
    fn open(outline: &Outline) -> Screen {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match std::io::stderr().is_terminal() && !dumb {
            true => Screen::Tree(Tree::new(outline)),
            false => Screen::Lines(Lines::default()),
        }
    }

    /// Something happened; the model knows of it already.
    fn happened(&mut self, model: &Model, happening: &Happening) {
        match self {
            Screen::Silent | Screen::Tree(_) => {}
            Screen::Lines(lines) => lines.happened(model, happening),
        }
    }

    /// A line of a step's own.
    fn log(&mut self, line: &Line) {
        self.note(&format!("{} | {}", line.step_id, plain(&line.text)));
    }

    /// A word to the person who watches.
    fn note(&mut self, text: &str) {
        match self {
            Screen::Silent => {}
            Screen::Lines(lines) => lines.say(text),
            Screen::Tree(tree) => tree.say(text),
        }
    }

    fn tick(&mut self, model: &Model) {
        match self {
            Screen::Silent => {}
            Screen::Lines(lines) => lines.tick(model),
            Screen::Tree(tree) => tree.draw(model),
        }
    }
}
