//! A run as it happens: a tree that is drawn again and again on a terminal, plain lines elsewhere. All on standard
//! error; standard output is for results.

mod follow;
mod lines;
mod model;
mod tree;

use std::io::IsTerminal as _;
use std::sync::Arc;

use milepost_core::event::Event;
use milepost_core::plan::Plan;
use milepost_engine::skills::LogLine;

pub(crate) use follow::{Ended, Follower};
use lines::Lines;
pub(crate) use model::Model;
use tree::Tree;

/// Where progress is shown.
#[derive(Debug)]
pub(crate) enum Screen {
    Silent,
    Lines(Lines),
    Tree(Tree),
}

impl Screen {
    /// A tree where there is a terminal that can draw one, lines elsewhere.
    pub(crate) fn open(plan: &Arc<Plan>) -> Screen {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match std::io::stderr().is_terminal() && !dumb {
            true => Screen::Tree(Tree::new(plan)),
            false => Screen::Lines(Lines::default()),
        }
    }

    /// Something happened; the model knows of it already.
    fn event(&mut self, model: &Model, event: &Event) {
        match self {
            Screen::Silent | Screen::Tree(_) => {}
            Screen::Lines(lines) => lines.event(model, event),
        }
    }

    /// A line of a step's own.
    fn log(&mut self, line: &LogLine) {
        self.note(&format!("{} | {}", line.step_id, line.text));
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
