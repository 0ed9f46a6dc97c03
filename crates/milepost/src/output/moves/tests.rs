use super::*;

/// Moves in the order they were made: `m` a move, `u2` an undo back to 2, `r3` a redo, `s1` a restore, `g` a merge.
fn moves(words: &str) -> Vec<Move> {
    let one = |(id, word): (u64, &str)| {
        let (kind, restores) = word.split_at(1);
        let kind = match kind {
            "u" => MoveKind::Undo,
            "r" => MoveKind::Redo,
            "s" => MoveKind::Restore,
            "g" => MoveKind::Merge,
            _ => MoveKind::Move,
        };
        Move {
            move_id: id,
            kind,
            to_version_hash: format!("sha256:{:064x}", id << 40),
            restores_move_id: restores.parse().ok(),
            merged_revision_id: (kind == MoveKind::Merge).then(|| "01a1defb-2230-7772-a9d6-506d39a96b23".to_owned()),
            moved_by: Some("alice".to_owned()),
            moved_at: Some(Timestamp(0)),
            message: None,
        }
    };
    let mut all: Vec<Move> = (1..).zip(words.split(' ')).map(one).collect();
    all.reverse();
    all
}

/// The graph alone.
#[track_caller]
fn check(words: &str, expected: &str) {
    let moves = moves(words);
    let line = |row: &graph::Row| match row.of {
        Some((number, _)) => format!("{} {}", row.graph, moves[number].move_id),
        None => row.graph.clone(),
    };
    let graph: Vec<String> = History::new(&moves).rows().iter().map(line).collect();
    assert_eq!(graph.join("\n"), expected.trim_matches('\n'));
}

#[test]
fn moves_are_one_line_up_to_the_tag() {
    check("m m s1 g", "@ 4\n● 3\n● 2\n● 1");
    check("m", "@ 1");
}

#[test]
fn what_was_undone_stands_above_the_tag() {
    check("m m m u2 u1", "  ↶ 5\n  ↶ 4\n○ 3\n○ 2\n@ 1");
    check("m m m u2 u1 r2", "  ↷ 6\n  ↶ 5\n  ↶ 4\n○ 3\n@ 2\n● 1");
    check("m m m u2 u1 r2 r3", "  ↷ 7\n  ↷ 6\n  ↶ 5\n  ↶ 4\n@ 3\n● 2\n● 1");
}

#[test]
fn what_was_given_up_branches_off_where_it_began() {
    check(
        "m m m u2 m u2",
        "
  ↶ 6
○ 5
│ ↶ 4
│ × 3
├─╯
@ 2
● 1",
    );
}

#[test]
fn branches_of_branches_have_their_own_columns() {
    // 3 and 5 come after 2, which is given up itself; 8 comes after 1, as do 10 and 12.
    check(
        "m m m u2 m u2 u1 m u1 m u1 m",
        "
@ 12
│ ↶ 11
│ × 10
│ │ ↶ 9
│ │ × 8
│ │ │ ↶ 7
│ │ │ ↶ 6
│ │ │ × 5
│ │ │ │ ↶ 4
│ │ │ │ × 3
│ │ │ ├─╯
│ │ │ × 2
├─┴─┴─╯
● 1",
    );
}

#[test]
fn a_page_of_a_long_history_is_drawn_as_far_as_it_goes() {
    let mut page = moves("m m m u2 m");
    page.truncate(3);
    let rows: Vec<String> = History::new(&page).rows().into_iter().map(|row| row.graph).collect();
    assert_eq!(rows, ["@", "│ ↶", "│ ×"]);
}

#[test]
fn a_line_says_what_who_and_when() {
    let mut all = moves("m m u1");
    all[0].message = Some("too long".to_owned());
    all[1].message = Some("longer videos\nand more".to_owned());
    all[2].message = Some("first".to_owned());
    assert_eq!(
        shown("main", &all, Timestamp(185_000_000), false),
        "
  ↶ 3  undo, back to 1  sha256:000000000000  alice, 3 min ago
       too long
○   2  move             sha256:000000000000  alice, 3 min ago  (undone)
│      longer videos
@   1  move             sha256:000000000000  alice, 3 min ago  ← main
       first
"
        .trim_start_matches('\n')
    );
    let hint = hint("main", &all).unwrap();
    assert_eq!(hint, "main is at move 1; `milepost tags redo main` brings move 2 back");
    assert_eq!(super::hint("main", &moves("m m")), None);
}

#[test]
fn every_kind_has_its_words() {
    let all: Vec<String> = moves("m u1 r2 s1 s g").iter().rev().map(what).collect();
    let words = ["move", "undo, back to 1", "redo, forward to 2", "restore of 1", "restore", "merge of 01a1defb-2230"];
    assert_eq!(all, words);
}
