#![allow(clippy::unwrap_used)]
use super::*;
use robust_shared::ids::Generation;

#[test]
fn a_node_that_claims_another_digest_for_its_copy_does_not_hold_the_shard() {
    let place = |name: &str| Place {
        name: name.to_owned(),
        labels: Default::default(),
    };
    let mut table = Table::led_by(place("leader"));
    table.joined(place("b"), []);
    let content = Content {
        bytes: 5,
        xxh3: None,
    };
    table.snapshot(
        Step(3),
        Generation(1),
        [(vec!["leader".to_owned()], content)],
    );
    let key = table.take_orders().pop().unwrap().key;
    let mut replicas = Replicas {
        table: Some(table),
        ..Replicas::default()
    };
    let held = |replicas: &Replicas| {
        let table = replicas.table.as_ref().unwrap();
        (table.held_by("b").count(), replicas.digests.len())
    };
    let sent = 9;
    assert!(!replicas.holds("b", key, 8, sent));
    assert_eq!(held(&replicas), (0, 0));
    assert!(!matches!(replicas.safety(Step(3)), Safety::Safe(_)));
    assert!(replicas.holds("b", key, 9, sent));
    assert_eq!(held(&replicas), (1, 1));
    // It said the right one, and says another one now.
    assert!(!replicas.holds("b", key, 8, sent));
    assert_eq!(held(&replicas), (0, 0));
}
