//! "Did you mean …?": the known name nearest to an unknown one.

use crate::patience;

/// Names that are compared with an unknown one, at most.
const MOST_COMPARED: usize = 5000;

/// The nearest name, when it is near enough to be what was meant. Of very many names not all are looked at.
pub(crate) fn near_name<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.chars().flat_map(char::to_lowercase).take(64).collect();
    // A name of one letter is near to every other one: that says nothing.
    let allowed = if wanted.len() < 2 { 0 } else { (wanted.len() / 3).clamp(1, 3) };
    let near = known
        .filter(|name| may_be_near(wanted.len(), name, allowed))
        .take(MOST_COMPARED)
        .filter_map(|name| Some((distance(&wanted, name, allowed)?, name)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// By its length alone.
fn may_be_near(wanted: usize, name: &str, allowed: usize) -> bool {
    name.len() <= 4 * (wanted + allowed) && name.len() + allowed >= wanted
}

/// Edits between two names (a swap of neighbours is one), or `None` beyond `allowed`.
fn distance(wanted: &[char], name: &str, allowed: usize) -> Option<usize> {
    patience::look();
    let name: Vec<char> = name.chars().flat_map(char::to_lowercase).collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=name.len()).collect();
    let mut nearest = 0;
    for (i, a) in wanted.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in name.iter().enumerate() {
            let swapped = i > 0 && j > 0 && *a == name[j - 1] && wanted[i - 1] == *b;
            let swap = if swapped { before_last[j - 1] + 1 } else { usize::MAX };
            row.push((last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1).min(swap));
        }
        let nearest_before = std::mem::replace(&mut nearest, row.iter().copied().min().unwrap_or(0));
        if nearest.min(nearest_before) > allowed {
            return None;
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().filter(|distance| *distance <= allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let near = |wanted| near_name(wanted, ["brief", "bgm", "depends_on"].into_iter());
        assert_eq!(near("breif"), Some("brief"));
        assert_eq!(near("dependson"), Some("depends_on"));
        assert_eq!(near("Brief"), Some("brief"));
        assert_eq!(near("video"), None);
        assert_eq!(near(""), None);
    }
}
