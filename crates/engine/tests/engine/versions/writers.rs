//! Many writers on one tag.

use std::collections::HashSet;

use super::*;

on! {
    embedded: [of_fifty_writers_none_is_lost_and_none_is_doubled, deploys_of_one_document_make_one_revision],
    postgres: [of_fifty_writers_none_is_lost_and_none_is_doubled, deploys_of_one_document_make_one_revision]
}

/// Half of them name the version that they saw; every third sends its request twice, as if the answer had been lost.
async fn of_fifty_writers_none_is_lost_and_none_is_doubled(home: Home) {
    let nodes = [Arc::new(definitions(&home).await), Arc::new(definitions(&home).await)];
    deployed(&nodes[0], "t", &saying(&[("a", "one")])).await;
    let mut writers = Vec::new();
    for writer in 0..50_usize {
        let all = nodes[writer % 2].clone();
        let other = nodes[(writer + 1) % 2].clone();
        writers.push(tokio::spawn(async move {
            let mut done = Vec::new();
            for round in 0..4 {
                let step = format!("w{writer}r{round}");
                let ops = saying_again(&step, "here");
                let expected = match writer % 2 {
                    0 => None,
                    _ => Some(all.tag(ORG, "t").await.unwrap().version),
                };
                let moving = Moving { expected, key: Some(step.clone()), ..by(&format!("w{writer}")) };
                let result = all.patch(ORG, "t", &ops, &moving).await;
                if writer % 3 == 0 {
                    let again = other.patch(ORG, "t", &ops, &moving).await;
                    match (&result, &again) {
                        (Ok(first), Ok(again)) => assert_eq!(first.moved, again.moved),
                        (Err(first), Err(again)) => assert_eq!(first.code(), again.code()),
                        other => panic!("one request, two answers: {other:?}"),
                    }
                }
                match result {
                    Ok(moved) => done.push((step, moved.moved.move_id)),
                    Err(error) => assert_eq!(error.code(), "tag_moved"),
                }
            }
            done
        }));
    }
    let mut done = Vec::new();
    for writer in writers {
        done.extend(writer.await.unwrap());
    }
    assert!(done.len() >= 100, "those who name no version all get through: {}", done.len());
    let moves = nodes[0].history(ORG, "t", None, 1000).await.unwrap();
    assert_eq!(moves.len(), done.len() + 1, "each that was told so has moved the tag, once");
    let ids: HashSet<u64> = done.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), done.len());
    let document = meant(&definitions(&home).await, "t").await.unwrap();
    let steps: HashSet<&str> = document["steps"].as_object().unwrap().keys().map(String::as_str).collect();
    let expected: HashSet<&str> = done.iter().map(|(step, _)| step.as_str()).chain(["a"]).collect();
    assert_eq!(steps, expected);
    // Moves are in the order of their times, so that a moment means one place.
    assert!(moves.windows(2).all(|pair| pair[0].moved_at > pair[1].moved_at));
}

async fn deploys_of_one_document_make_one_revision(home: Home) {
    let nodes = [Arc::new(definitions(&home).await), Arc::new(definitions(&home).await)];
    let mut writers = Vec::new();
    for writer in 0..20_usize {
        let all = nodes[writer % 2].clone();
        writers.push(tokio::spawn(async move {
            let document = saying(&[("a", "the same")]);
            deployed(&all, &format!("t{}", writer % 5), &document).await
        }));
    }
    let (mut revisions, mut new) = (HashSet::new(), 0);
    for writer in writers {
        let moved = writer.await.unwrap();
        revisions.insert(moved.tag.revision_id);
        new += usize::from(!moved.existing);
        assert_eq!(moved.tag.version, 1);
    }
    assert_eq!((revisions.len(), new), (1, 1));
    assert_eq!(nodes[0].tags(ORG, None, 10).await.unwrap().len(), 5);
}
