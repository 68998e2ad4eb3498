#![allow(clippy::unwrap_used)]
use super::*;
use crate::core::Labels;
use crate::ids::{Generation, Step};
use proptest::prelude::*;

fn place(name: &str, dc: &str, rack: &str) -> Place {
    let labels = Labels {
        dc: dc.to_owned(),
        rack: rack.to_owned(),
        accel: String::new(),
    };
    Place {
        name: name.to_owned(),
        labels,
    }
}

fn content(bytes: u64) -> Content {
    Content { bytes, xxh3: None }
}

fn key(step: u64, rank: u32) -> ShardKey {
    ShardKey {
        step: Step(step),
        generation: Generation(1),
        rank,
    }
}

/// A table led by `a` in rack 1 of data centre `x`, and of these.
fn table(nodes: &[Place]) -> Table {
    let mut table = Table::led_by(place("a", "x", "1"));
    for node in nodes {
        table.joined(node.clone(), []);
    }
    table
}

fn snapshot(table: &mut Table, step: u64, homes: &[&str]) {
    let shards = homes
        .iter()
        .map(|home| (vec![(*home).to_owned()], content(100)));
    table.snapshot(Step(step), Generation(1), shards);
}

/// Who is to hold what of which rank.
fn orders(table: &mut Table) -> Vec<(String, u64, u32)> {
    let orders = table.take_orders();
    orders
        .into_iter()
        .map(|o| (o.node, o.key.step.0, o.key.rank))
        .collect()
}

fn order(node: &str, step: u64, rank: u32) -> (String, u64, u32) {
    (node.to_owned(), step, rank)
}

#[test]
fn a_copy_goes_to_another_data_centre_before_another_rack_before_another_machine() {
    let near = place("near", "x", "1");
    let rack = place("rack", "x", "2");
    let centre = place("centre", "y", "1");
    let leader = place("a", "x", "1");
    let chosen = |nodes: &[Place]| choose(&[&leader], nodes, |_| 0).map(|n| n.name.clone());
    assert_eq!(chosen(&[]), None);
    assert_eq!(chosen(std::slice::from_ref(&near)).as_deref(), Some("near"));
    assert_eq!(
        chosen(&[near.clone(), rack.clone()]).as_deref(),
        Some("rack")
    );
    assert_eq!(chosen(&[near, centre, rack]).as_deref(), Some("centre"));
}

#[test]
fn labels_that_nobody_gave_are_no_difference() {
    let (a, b) = (place("a", "x", "1"), place("b", "", ""));
    assert_eq!(Spread::between(&a, &b), Spread::Machines);
    assert_eq!(Spread::between(&a, &place("b", "x", "2")), Spread::Racks);
    assert_eq!(Spread::between(&a, &place("b", "y", "1")), Spread::Centres);
    assert_eq!(Spread::between(&a, &a), Spread::Node);
}

#[test]
fn every_shard_is_copied_to_one_more_node_and_to_the_leaders_only_where_there_is_no_other() {
    let mut table = table(&[place("b", "x", "1"), place("c", "x", "1")]);
    snapshot(&mut table, 1, &["a", "b", "c"]);
    let all = [order("b", 1, 0), order("c", 1, 1), order("b", 1, 2)];
    assert_eq!(orders(&mut table), all);
    assert_eq!(table.safety(Step(1)), Safety::Copying);
    for (node, _, rank) in all {
        table.held(&node, key(1, rank), 7);
    }
    assert_eq!(orders(&mut table), []);
    assert_eq!(table.safety(Step(1)), Safety::Safe(Spread::Machines));
}

#[test]
fn one_that_is_in_two_memories_already_is_not_copied() {
    let mut table = table(&[place("b", "x", "1"), place("c", "x", "1")]);
    let homes = ["a", "b"].map(str::to_owned).to_vec();
    table.snapshot(Step(1), Generation(1), [(homes, content(100))]);
    assert_eq!(orders(&mut table), []);
    assert_eq!(table.safety(Step(1)), Safety::Safe(Spread::Machines));
}

#[test]
fn what_nobody_has_any_more_cannot_be_copied() {
    let mut table = Table::default();
    for node in ["a", "b", "c"] {
        table.joined(place(node, "", ""), []);
    }
    snapshot(&mut table, 1, &["a", "b"]);
    assert_eq!(orders(&mut table), [order("c", 1, 0), order("a", 1, 1)]);
    table.held("c", key(1, 0), 7);
    table.held("a", key(1, 1), 7);
    assert_eq!(table.safety(Step(1)), Safety::Safe(Spread::Machines));
    // The machine of a rank is gone: what it had is copied once more.
    table.left("a");
    assert_eq!(orders(&mut table), [order("b", 1, 0), order("c", 1, 1)]);
    table.left("b");
    table.left("c");
    assert_eq!(table.safety(Step(1)), Safety::Alone);
    for node in ["d", "e"] {
        table.joined(place(node, "", ""), []);
    }
    assert_eq!(orders(&mut table), []);
    assert_eq!(table.safety(Step(1)), Safety::Short);
    // One of them is back, with its memory.
    table.joined(place("c", "", ""), [key(1, 0), key(1, 1)]);
    assert_eq!(orders(&mut table), [order("d", 1, 0), order("e", 1, 1)]);
}

#[test]
fn two_nodes_of_one_rack_are_not_enough_where_there_is_another() {
    let mut table = table(&[place("b", "x", "1"), place("c", "x", "2")]);
    snapshot(&mut table, 1, &["b"]);
    assert_eq!(orders(&mut table), [order("c", 1, 0)]);
    table.not_held("c", key(1, 0));
    assert_eq!(orders(&mut table), [order("a", 1, 0)]);
    table.held("a", key(1, 0), 7);
    assert_eq!(orders(&mut table), [order("c", 1, 0)], "asked again");
}

#[test]
fn alone_nothing_is_ordered_and_whoever_comes_holds_what_there_is() {
    let mut table = table(&[]);
    assert_eq!(table.safety(Step(1)), Safety::Nothing);
    snapshot(&mut table, 1, &["a"]);
    assert_eq!(table.safety(Step(1)), Safety::Alone);
    table.joined(place("b", "", ""), []);
    assert_eq!(orders(&mut table), [order("b", 1, 0)]);
}

#[test]
fn a_lost_holder_is_replaced_and_one_that_was_only_asked_too() {
    let (b, c, d) = (place("b", "", ""), place("c", "", ""), place("d", "", ""));
    let mut table = table(&[b, c, d]);
    snapshot(&mut table, 1, &["a"]);
    assert_eq!(orders(&mut table), [order("b", 1, 0)]);
    table.left("b");
    assert_eq!(orders(&mut table), [order("c", 1, 0)]);
    // Its word comes late: it is no node of the job any more.
    table.held("b", key(1, 0), 7);
    assert_eq!(table.safety(Step(1)), Safety::Copying);
    table.held("c", key(1, 0), 7);
    assert!(matches!(table.safety(Step(1)), Safety::Safe(_)));
    table.left("c");
    assert_eq!(orders(&mut table), [order("d", 1, 0)]);
}

#[test]
fn a_node_that_is_back_counts_with_what_it_says_it_holds() {
    let mut table = table(&[place("b", "", "")]);
    snapshot(&mut table, 1, &["a"]);
    table.held("b", key(1, 0), 7);
    orders(&mut table);
    // Its daemon was restarted, its memory was not.
    table.joined(place("b", "", ""), [key(1, 0)]);
    assert_eq!(orders(&mut table), []);
    // Its machine was.
    table.joined(place("b", "", ""), []);
    assert_eq!(orders(&mut table), [order("b", 1, 0)]);
    // An order that was lost with the stream is given again.
    table.joined(place("b", "", ""), []);
    assert_eq!(orders(&mut table), [order("b", 1, 0)]);
}

#[test]
fn a_node_that_cannot_hold_it_is_passed_over_and_asked_so_often_only() {
    let mut table = table(&[place("b", "", ""), place("c", "", "")]);
    snapshot(&mut table, 1, &["a"]);
    let mut asked = Vec::new();
    while let [(node, ..)] = orders(&mut table).as_slice() {
        asked.push(node.clone());
        table.not_held(node, key(1, 0));
        // Said twice, it counts once.
        table.not_held(node, key(1, 0));
        assert!(asked.len() < 10);
    }
    assert_eq!(asked, ["b", "c", "b"]);
    assert_eq!(table.safety(Step(1)), Safety::Short);
}

#[test]
fn only_the_last_two_steps_are_held_and_a_gang_that_went_back_forgets_the_later_ones() {
    let mut table = table(&[place("b", "", "")]);
    for step in 1..=4 {
        snapshot(&mut table, step, &["a"]);
        table.held("b", key(step, 0), step);
    }
    assert_eq!(
        (table.oldest(), table.newest()),
        (Some(Step(3)), Some(Step(4)))
    );
    orders(&mut table);
    table.snapshot(Step(3), Generation(2), [(vec!["a".to_owned()], content(1))]);
    assert_eq!(table.newest(), Some(Step(3)));
    assert_eq!(
        orders(&mut table),
        [order("b", 3, 0)],
        "the older gang's copy is none"
    );
    // The older gang's word comes late.
    table.held("b", key(3, 0), 3);
    assert_eq!(table.safety(Step(3)), Safety::Copying);
}

#[test]
fn what_nobody_can_give_at_the_moment_is_no_try_and_is_ordered_again_when_a_node_joins() {
    let mut table = table(&[place("b", "", ""), place("c", "", "")]);
    snapshot(&mut table, 1, &["b"]);
    assert_eq!(orders(&mut table), [order("c", 1, 0)]);
    assert!(table.was_asked("c", key(1, 0)) && !table.was_asked("a", key(1, 0)));
    table.postponed("c", key(1, 0));
    assert!(!table.is_on_its_way(key(1, 0)));
    assert_eq!(orders(&mut table), []);
    table.joined(place("b", "", ""), [key(1, 0)]);
    assert_eq!(orders(&mut table), [order("c", 1, 0)]);
}

#[test]
fn tries_that_are_used_up_are_given_back_when_it_is_asked_for_again() {
    let mut table = table(&[place("b", "", "")]);
    snapshot(&mut table, 1, &["a"]);
    while let [(node, ..)] = orders(&mut table).as_slice() {
        table.not_held(node, key(1, 0));
    }
    assert_eq!(table.safety(Step(1)), Safety::Short);
    table.again(Step(1));
    assert_eq!(orders(&mut table), [order("b", 1, 0)]);
}

#[test]
fn nodes_that_nobody_can_give_anything_cost_no_try_while_there_is_another() {
    let names = ["b", "c", "d", "e"];
    let mut table = table(&names.map(|name| place(name, "", "")));
    table.snapshot(Step(1), Generation(1), [(vec!["a".to_owned()], content(1))]);
    for old in ["b", "c", "d"] {
        assert_eq!(orders(&mut table), [order(old, 1, 0)]);
        table.cannot(old, key(1, 0));
    }
    assert_eq!(orders(&mut table), [order("e", 1, 0)]);
    table.not_held("e", key(1, 0));
    // With nobody else they are asked again, so often only.
    for _ in 0..2 {
        let [(again, ..)] = orders(&mut table).try_into().unwrap();
        table.cannot(&again, key(1, 0));
    }
    assert_eq!(orders(&mut table), []);
}

#[test]
fn of_many_ranks_each_node_holds_as_much_as_the_others() {
    let names: Vec<String> = (0..50).map(|n| format!("n{n:02}")).collect();
    let nodes: Vec<Place> = names.iter().map(|name| place(name, "x", "1")).collect();
    let mut table = table(&nodes);
    let homes: Vec<&str> = names.iter().map(String::as_str).collect();
    for step in 1..=3 {
        snapshot(&mut table, step, &homes);
        let orders = orders(&mut table);
        let mut holders: Vec<&str> = orders.iter().map(|(node, ..)| node.as_str()).collect();
        holders.sort_unstable();
        assert_eq!(holders, homes);
        for (node, step, rank) in &orders {
            table.held(node, key(*step, *rank), 7);
        }
        assert_eq!(table.safety(Step(step)), Safety::Safe(Spread::Machines));
    }
    let steps: Vec<u64> = table.held_by("n00").map(|key| key.step.0).collect();
    assert_eq!(
        steps,
        [2, 2, 3, 3],
        "its own and another one's of the last two"
    );
}

#[derive(Clone, Debug)]
enum Op {
    Join(usize),
    Leave(usize),
    Snapshot(Vec<usize>),
    Answer(usize, bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1_usize..6).prop_map(Op::Join),
        (1_usize..6).prop_map(Op::Leave),
        prop::collection::vec(0_usize..6, 1..5).prop_map(Op::Snapshot),
        (0_usize..8, any::<bool>()).prop_map(|(n, ok)| Op::Answer(n, ok)),
    ]
}

fn node(n: usize) -> Place {
    place(
        ["a", "b", "c", "d", "e", "f"][n],
        ["x", "y"][n % 2],
        ["1", "2", "3"][n % 3],
    )
}

/// Runs the operations and then answers every order; returns all orders, and whether something of the last snapshot may
/// have gone with a node that left, or was with none that was there.
fn run(ops: &[Op]) -> (Table, Vec<Order>, bool) {
    let mut table = Table::led_by(node(0));
    let (mut there, mut waiting, mut all) = (vec![false; 6], Vec::<Order>::new(), Vec::new());
    there[0] = true;
    let (mut step, mut lost) = (0, false);
    let mut ops = ops.iter();
    loop {
        match ops.next() {
            Some(Op::Join(n)) => {
                there[*n] = true;
                table.joined(node(*n), []);
            }
            Some(Op::Leave(n)) => {
                there[*n] = false;
                lost = true;
                table.left(&node(*n).name);
            }
            Some(Op::Snapshot(homes)) => {
                step += 1;
                lost = homes.iter().any(|n| !there[*n]);
                let homes = homes.iter().map(|n| (vec![node(*n).name], content(10)));
                table.snapshot(Step(step), Generation(1), homes);
            }
            Some(Op::Answer(n, ok)) if *n < waiting.len() => {
                let order = waiting.remove(*n);
                match ok {
                    true => table.held(&order.node, order.key, 1),
                    false => table.not_held(&order.node, order.key),
                }
            }
            Some(Op::Answer(..)) => {}
            None if waiting.is_empty() => return (table, all, lost),
            None => {
                let order = waiting.remove(0);
                table.held(&order.node, order.key, 1);
            }
        }
        for order in table.take_orders() {
            let n = (0..6).find(|n| node(*n).name == order.node).unwrap();
            assert!(there[n], "{} is not there", order.node);
            assert!(!table.holders(order.key).any(|h| h == order.node));
            all.push(order.clone());
            waiting.push(order);
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_shards_end_as_far_apart_as_nodes_are(
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let (table, all, lost) = run(&ops);
        let (_, again, _) = run(&ops);
        prop_assert_eq!(&all, &again, "the same happening gives the same orders");
        if let Some(newest) = table.newest() {
            prop_assert!(newest.0 - table.oldest().unwrap().0 < 2);
            let safety = table.safety(newest);
            let refused = ops.iter().any(|op| matches!(op, Op::Answer(_, false)));
            match safety {
                Safety::Safe(spread) => prop_assert!(spread > Spread::Node),
                Safety::Alone => {}
                Safety::Short => prop_assert!(refused || lost),
                Safety::Nothing | Safety::Copying => prop_assert!(false, "{safety:?}"),
            }
        }
    }
}
