//! Two texts, line by line: what is gone, what is new, what is the same in both.

/// Beyond this many comparisons a text counts as replaced.
const MOST: usize = 1_000_000;
/// So many lines around a change are shown.
const AROUND: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Gone(&'a str),
    New(&'a str),
    Same(&'a str),
    /// So many lines that are the same in both are left out.
    LeftOut(usize),
}

/// The shortest way from one to the other, with a few lines around what changes.
pub(super) fn compare<'a>(from: &[&'a str], to: &[&'a str]) -> Vec<Line<'a>> {
    let start = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let (from_rest, to_rest) = (&from[start..], &to[start..]);
    let end = from_rest.iter().rev().zip(to_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (from_mid, to_mid) = (&from_rest[..from_rest.len() - end], &to_rest[..to_rest.len() - end]);
    let mut all: Vec<Line<'a>> = from[..start].iter().map(|line| Line::Same(line)).collect();
    all.extend(middle(from_mid, to_mid));
    all.extend(from_rest[from_rest.len() - end..].iter().map(|line| Line::Same(line)));
    shortened(&all)
}

/// By the longest common subsequence.
fn middle<'a>(from: &[&'a str], to: &[&'a str]) -> Vec<Line<'a>> {
    if from.len().saturating_mul(to.len()) > MOST {
        return from.iter().map(|line| Line::Gone(line)).chain(to.iter().map(|line| Line::New(line))).collect();
    }
    let width = to.len() + 1;
    // How many lines are common from here to the end.
    let mut common = vec![0_u32; (from.len() + 1) * width];
    for i in (0..from.len()).rev() {
        for j in (0..to.len()).rev() {
            common[i * width + j] = match from[i] == to[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < from.len() || j < to.len() {
        if i < from.len() && j < to.len() && from[i] == to[j] {
            lines.push(Line::Same(from[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == to.len() || i < from.len() && common[(i + 1) * width + j] >= common[i * width + j + 1] {
            lines.push(Line::Gone(from[i]));
            i += 1;
        } else {
            lines.push(Line::New(to[j]));
            j += 1;
        }
    }
    lines
}

fn shortened<'a>(all: &[Line<'a>]) -> Vec<Line<'a>> {
    let near = |at: usize| {
        let from = at.saturating_sub(AROUND);
        all[from..(at + AROUND + 1).min(all.len())].iter().any(|line| !matches!(line, Line::Same(_)))
    };
    let mut lines = Vec::new();
    for (at, line) in all.iter().enumerate() {
        match (near(at), lines.last_mut()) {
            (true, _) => lines.push(*line),
            (false, Some(Line::LeftOut(count))) => *count += 1,
            (false, _) => lines.push(Line::LeftOut(1)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(from: &str, to: &str) -> String {
        let (from, to): (Vec<&str>, Vec<&str>) = (from.split(' ').collect(), to.split(' ').collect());
        let one = |line: &Line<'_>| match line {
            Line::Gone(text) => format!("-{text}"),
            Line::New(text) => format!("+{text}"),
            Line::Same(text) => (*text).to_owned(),
            Line::LeftOut(count) => format!("…{count}"),
        };
        compare(&from, &to).iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_what_changed_is_marked() {
        assert_eq!(shown("a b c", "a x c"), "a -b +x c");
        assert_eq!(shown("a b c d", "b c x d e"), "-a b c +x d +e");
        assert_eq!(shown("a", "b"), "-a +b");
    }

    #[test]
    fn what_is_far_from_a_change_is_left_out() {
        assert_eq!(shown("1 2 3 4 5 6 7 8 9", "1 2 3 4 x 6 7 8 9"), "…1 2 3 4 -5 +x 6 7 8 …1");
    }

    #[test]
    fn texts_without_end_count_as_replaced() {
        let many = |word: &str| vec![word.to_owned(); 1001].join(" ");
        let lines = shown(&many("a"), &many("b"));
        assert!(lines.starts_with("-a -a") && lines.ends_with("+b +b"));
    }
}
