//! The problems of a document: with its line and a caret for a person, one line each for everything else.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use console::{Style, measure_text_width};
use milepost_core::document::Problem;

/// A document that cannot be used, with its text, so that problems can be shown where they are.
#[derive(Debug, thiserror::Error)]
#[error("{name} has {}, the first: {}", counted(.problems.len()), .problems.first().map(ToString::to_string).unwrap_or_default())]
pub(crate) struct BadDocument {
    name: String,
    source_text: String,
    problems: Vec<Problem>,
}

impl BadDocument {
    pub(crate) fn new(name: &str, source_text: &str, problems: Vec<Problem>) -> BadDocument {
        BadDocument { name: name.to_owned(), source_text: source_text.to_owned(), problems }
    }

    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub(crate) fn shown_on_stderr(&self) -> String {
        self.shown(std::io::stderr().is_terminal(), console::colors_enabled_stderr())
    }

    pub(crate) fn shown_on_stdout(&self) -> String {
        self.shown(std::io::stdout().is_terminal(), console::colors_enabled())
    }

    fn shown(&self, for_people: bool, colours: bool) -> String {
        let mut text = String::new();
        let lines: Vec<&str> = self.source_text.lines().collect();
        for problem in &self.problems {
            match for_people {
                true => self.spread_out(&mut text, problem, &lines, colours),
                false => self.on_one_line(&mut text, problem),
            }
        }
        let style = Style::new().red().bold().force_styling(colours);
        let _ = writeln!(text, "{} {} has {}", style.apply_to("error:"), self.name, counted(self.problems.len()));
        text
    }

    fn on_one_line(&self, text: &mut String, problem: &Problem) {
        let _ = writeln!(text, "{}: {}: {}{}", self.place(problem), problem.code, problem.message, after(problem));
    }

    fn place(&self, problem: &Problem) -> String {
        match (problem.line, problem.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}", self.name),
            _ => self.name.clone(),
        }
    }

    fn spread_out(&self, text: &mut String, problem: &Problem, lines: &[&str], colours: bool) {
        let style = |style: Style| style.force_styling(colours);
        let (red, blue, cyan) =
            (style(Style::new().red().bold()), style(Style::new().blue().bold()), style(Style::new().cyan().bold()));
        let code = format!("error[{}]:", problem.code);
        let _ = writeln!(text, "{} {}", red.apply_to(code), problem.message);
        let _ = writeln!(text, "  {} {}  {}", blue.apply_to("-->"), self.place(problem), problem.path);
        if let (Some(line), Some(column)) = (problem.line, problem.column)
            && let Some(source) = lines.get(line as usize - 1)
        {
            let number = line.to_string();
            let margin = " ".repeat(number.len());
            let before: String = source.chars().take(column as usize - 1).collect();
            let indent = " ".repeat(measure_text_width(&before));
            let _ = writeln!(text, " {} {} {source}", blue.apply_to(&number), blue.apply_to("|"));
            let _ = writeln!(text, " {margin} {} {indent}{}", blue.apply_to("|"), red.apply_to("^"));
        }
        if let Some(suggestion) = &problem.suggestion {
            let _ = writeln!(text, "  {} {suggestion}", cyan.apply_to("help:"));
        }
        text.push('\n');
    }
}

fn after(problem: &Problem) -> String {
    let path = if problem.path.is_empty() { String::new() } else { format!(" [{}]", problem.path) };
    let suggestion = problem.suggestion.as_ref().map(|suggestion| format!(" ({suggestion})")).unwrap_or_default();
    format!("{path}{suggestion}")
}

fn counted(problems: usize) -> String {
    if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") }
}

#[cfg(test)]
mod tests {
    use milepost_core::document;
    use milepost_core::limits::Limits;

    use super::*;

    fn bad() -> BadDocument {
        let source = "name: a\nsteps:\n  one:\n    skil: noop\n    skill: noop\n";
        let problems = document::load_all(source, &Limits::default()).expect_err("it has an unknown key");
        BadDocument::new("a.yaml", source, problems)
    }

    #[test]
    fn a_person_sees_the_line_and_a_caret() {
        let text = bad().shown(true, false);
        assert!(text.contains(" 4 |     skil: noop\n"), "{text}");
        assert!(text.contains("   |     ^\n"), "{text}");
        assert!(text.contains("did you mean `skill`?"), "{text}");
    }

    #[test]
    fn a_program_gets_one_line_each() {
        let text = bad().shown(false, false);
        assert!(text.starts_with("a.yaml:4:5: unknown_key: "), "{text}");
        assert!(text.ends_with("error: a.yaml has 1 problem\n"), "{text}");
    }
}
