//! Two users do whatever comes to their minds, and a plain model says what must be there.

use std::collections::BTreeMap;

use milepost_core::document::Merged;
use milepost_engine::definitions::{DefinitionError, Restore};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Deed {
    Edit(u8, u8),
    Remove(u8),
    Deploy(u8, u8),
    Undo,
    Redo,
    Restore(u8),
    /// Points the tag at what the other one points at.
    Follow,
    Merge,
    Collect,
}

fn deed() -> impl Strategy<Value = (bool, bool, Deed)> {
    let small = || 0..5_u8;
    let deed = prop_oneof![
        6 => (small(), small()).prop_map(|(step, word)| Deed::Edit(step, word)),
        1 => small().prop_map(Deed::Remove),
        2 => (small(), small()).prop_map(|(step, word)| Deed::Deploy(step, word)),
        4 => Just(Deed::Undo),
        3 => Just(Deed::Redo),
        2 => any::<u8>().prop_map(Deed::Restore),
        1 => Just(Deed::Follow),
        2 => Just(Deed::Merge),
        1 => Just(Deed::Collect),
    ];
    (any::<bool>(), any::<bool>(), deed)
}

type Document = BTreeMap<u8, u8>;

/// A tag as an editor has it.
#[derive(Clone, Debug)]
struct Line {
    now: Document,
    undo: Vec<Document>,
    redo: Vec<Document>,
    /// What each move made.
    moves: Vec<Document>,
    last_by: bool,
}

impl Line {
    fn go(&mut self, to: Document) {
        self.undo.push(std::mem::replace(&mut self.now, to.clone()));
        self.redo.clear();
        self.moves.push(to);
    }
}

fn value(document: &Document) -> Value {
    let words: Vec<(String, String)> =
        document.iter().map(|(step, word)| (format!("s{step}"), format!("w{word}"))).collect();
    let words: Vec<(&str, &str)> = words.iter().map(|(step, word)| (step.as_str(), word.as_str())).collect();
    saying(&words)
}

fn model_of(value: &Value) -> Document {
    let number = |text: &str| text[1..].parse().unwrap();
    let steps = value["steps"].as_object().unwrap().iter();
    steps.map(|(step, rest)| (number(step), number(rest["input"]["say"].as_str().unwrap()))).collect()
}

const TAGS: [&str; 2] = ["left", "right"];

async fn play(home: &Home, deeds: &[(bool, bool, Deed)]) {
    let all = definitions(home).await;
    let first: Document = [(0, 0)].into();
    deployed(&all, TAGS[0], &value(&first)).await;
    all.set(ORG, TAGS[1], TAGS[0], &Moving::default()).await.unwrap();
    let line = Line { now: first.clone(), undo: Vec::new(), redo: Vec::new(), moves: vec![first], last_by: false };
    let mut lines = [line.clone(), line];
    let mut anonymous = [true, true];
    for (on_right, user, deed) in deeds {
        let (index, tag) = (usize::from(*on_right), TAGS[usize::from(*on_right)]);
        let moving = by(if *user { "ann" } else { "bob" });
        let other = lines[1 - index].clone();
        let line = &mut lines[index];
        let others = !anonymous[index] && line.last_by != *user;
        let moves = line.moves.len();
        let result = match deed {
            Deed::Edit(step, word) => {
                let mut to = line.now.clone();
                to.insert(*step, *word);
                let ops = saying_again(&format!("s{step}"), &format!("w{word}"));
                let result = all.patch(ORG, tag, &ops, &moving).await.map(drop);
                if to != line.now {
                    line.go(to);
                }
                result
            }
            Deed::Remove(step) => {
                let ops = json!([{"op": "remove", "path": format!("/steps/s{step}")}]);
                let result = all.patch(ORG, tag, &ops, &moving).await.map(drop);
                match (line.now.contains_key(step), line.now.len()) {
                    (false, _) => assert_eq!(result.unwrap_err().code(), "patch_failed"),
                    (true, 1) => assert_eq!(result.unwrap_err().code(), "invalid_document"),
                    (true, _) => {
                        result.unwrap();
                        let mut to = line.now.clone();
                        to.remove(step);
                        line.go(to);
                    }
                }
                Ok(())
            }
            Deed::Deploy(step, word) => {
                let to: Document = [(*step, *word), (step + 1, *word)].into();
                let result = all.deploy(ORG, tag, loaded(&value(&to)), &moving).await.map(drop);
                if to != line.now {
                    line.go(to);
                }
                result
            }
            Deed::Undo => match (all.undo(ORG, tag, &moving).await, line.undo.last().cloned()) {
                (result, None) => {
                    assert_eq!(result.unwrap_err().code(), "nothing_to_undo");
                    Ok(())
                }
                (result, Some(_)) if others => {
                    assert_eq!(result.unwrap_err().code(), "moved_by_another");
                    Ok(())
                }
                (result, Some(to)) => {
                    line.undo.pop();
                    line.redo.push(std::mem::replace(&mut line.now, to.clone()));
                    line.moves.push(to);
                    result.map(drop)
                }
            },
            Deed::Redo => match (all.redo(ORG, tag, &moving).await, line.redo.last().cloned()) {
                (result, None) => {
                    assert_eq!(result.unwrap_err().code(), "nothing_to_redo");
                    Ok(())
                }
                (result, Some(_)) if others => {
                    assert_eq!(result.unwrap_err().code(), "moved_by_another");
                    Ok(())
                }
                (result, Some(to)) => {
                    line.redo.pop();
                    line.undo.push(std::mem::replace(&mut line.now, to.clone()));
                    line.moves.push(to);
                    result.map(drop)
                }
            },
            Deed::Restore(which) => {
                let which = usize::from(*which) % line.moves.len();
                let history = all.history(ORG, tag, None, 1000).await.unwrap();
                let moved = &history[history.len() - 1 - which];
                let to = line.moves[which].clone();
                let here = all.tag(ORG, tag).await.unwrap().revision_id == moved.to_revision_id;
                let result = all.restore(ORG, tag, &Restore::At(moved.moved_at), &moving).await;
                match result {
                    Err(error) if others => {
                        assert_eq!(error.code(), "moved_by_another");
                        Ok(())
                    }
                    result => {
                        assert!(!others);
                        if !here {
                            line.go(to);
                        }
                        result.map(drop)
                    }
                }
            }
            Deed::Follow => {
                let target = all.tag(ORG, TAGS[1 - index]).await.unwrap().revision_id;
                let here = all.tag(ORG, tag).await.unwrap().revision_id == target;
                let result = all.set(ORG, tag, &target.to_string(), &moving).await.map(drop);
                if !here {
                    line.go(other.now.clone());
                }
                result
            }
            Deed::Merge => {
                match all.merge(ORG, tag, TAGS[1 - index], &moving).await {
                    Ok(merging) => {
                        let to = model_of(&meant(&all, tag).await.unwrap());
                        if let Some(base) = merging.base {
                            let base = meant(&all, &base.to_string()).await.unwrap();
                            let (ours, theirs) = (value(&line.now), value(&other.now));
                            match document::merge(&base, &ours, &theirs, &Limits::default()) {
                                Merged::Clean(merged) => assert_eq!(loaded(&value(&to)).hash, merged.hash),
                                Merged::Conflicts(conflicts) => panic!("{conflicts:?}"),
                            }
                        }
                        let before = line.moves.len() as u64;
                        if all.tag(ORG, tag).await.unwrap().version > before {
                            line.go(to);
                        }
                    }
                    Err(EngineError::Definition(DefinitionError::MergeConflict(conflicts))) => {
                        assert!(!conflicts.list.is_empty());
                    }
                    Err(error) => panic!("{error}"),
                }
                Ok(())
            }
            Deed::Collect => all.collect(ORG, None, false).await.map(drop),
        };
        result.unwrap();
        if line.moves.len() > moves {
            (line.last_by, anonymous[index]) = (*user, false);
        }
        let fresh = definitions(home).await;
        for (tag, line) in TAGS.iter().zip(&lines) {
            assert_eq!(model_of(&meant(&fresh, tag).await.unwrap()), line.now, "{tag} after {deed:?}");
        }
    }
    // Nothing of the history was lost: every move is there and means what it meant.
    let fresh = definitions(home).await;
    for (tag, line) in TAGS.iter().zip(&lines) {
        let mut history = fresh.history(ORG, tag, None, 1000).await.unwrap();
        history.reverse();
        assert_eq!(history.len(), line.moves.len());
        for (moved, document) in history.iter().zip(&line.moves) {
            assert_eq!(model_of(&meant(&fresh, &moved.to_revision_id.to_string()).await.unwrap()), *document);
        }
        let steps = u32::try_from(line.undo.len()).unwrap();
        for (back, document) in (0..=steps).zip([&line.now].into_iter().chain(line.undo.iter().rev())) {
            assert_eq!(model_of(&meant(&fresh, &format!("{tag}~{back}")).await.unwrap()), *document);
        }
        assert!(meant(&fresh, &format!("{tag}~{}", steps + 1)).await.is_err());
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_two_users_do_is_what_a_plain_model_says(deeds in prop::collection::vec(deed(), 1..60)) {
        runtime().block_on(play(&Home::memory(), &deeds));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn the_same_on_a_file(deeds in prop::collection::vec(deed(), 1..60)) {
        runtime().block_on(play(&Home::sqlite(), &deeds));
    }

    #[test]
    fn the_same_on_a_server(deeds in prop::collection::vec(deed(), 1..40)) {
        let runtime = runtime();
        let home = runtime.block_on(Home::postgres());
        runtime.block_on(play(&home, &deeds));
    }
}
