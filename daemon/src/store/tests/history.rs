//! The history of the run: every second of it, in few pages.
use super::*;
use robust_shared::history::{Overview, PAGES, Page, Sent, Tape, Transfer, TransferKind};
use robust_shared::phase::Phase;

const SEC: u64 = 1_000_000;

fn rollout() -> InstanceId {
    InstanceId {
        role: Role::Rollout,
        index: 0,
    }
}

fn pages(store: &Store) -> Vec<Page> {
    let mut all = Vec::new();
    store.pages(&mut |page| all.push(page.clone())).unwrap();
    all
}

/// A page every ten seconds, each with a phase and a pull.
fn write(store: &Store, tape: &mut Tape, from: u64, count: u64) {
    for n in from..from + count {
        let now = Time((1_000 + n * 10) * SEC);
        tape.phase(now, rollout(), Some(Phase::Generating));
        let pull = Transfer {
            kind: TransferKind::PullFromRelay,
            at: now,
            number: n,
            who: Some(rollout()),
            bytes: 7,
            took_ms: n,
            sent: Sent::default(),
        };
        tape.moved(now, pull);
        let page = tape.cut(Time(now.0 + 10 * SEC)).unwrap();
        drop(store.append_page(page));
    }
    store.sync().wait().unwrap();
}

#[test]
fn pages_are_merged_as_they_grow_old_and_nothing_of_the_run_is_lost_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut tape = Tape::default();
    let (store, _) = Store::open(dir.path()).unwrap();
    write(&store, &mut tape, 0, 200);
    drop(store);
    let (store, note) = Store::open(dir.path()).unwrap();
    assert_eq!(note, None);
    write(&store, &mut tape, 200, 100);
    let all = pages(&store);
    assert!(all.len() <= 3 * PAGES, "{}", all.len());
    assert!(all.windows(2).all(|w| w[0].to == w[1].from), "a gap");
    assert_eq!(all[0].from, Time(1_000 * SEC));
    assert_eq!(all.last().unwrap().to, Time(4_000 * SEC));
    assert!(all[0].level > 0 && all.last().unwrap().level == 0);
    let mut overview = Overview::new(all[0].from, all.last().unwrap().to, 100);
    all.iter().for_each(|page| overview.add(page));
    let (_, tally) = overview.transfers().tallies().next().unwrap();
    assert_eq!((tally.done, tally.bytes), (300, 2_100));
    let row = overview.rows().next().unwrap();
    assert_eq!(row.spans.len(), 1, "{:?}", row.spans);
    assert_eq!(row.spent[&Phase::Generating], 3_000_000);
    let checked = store.check(&mut |_| ()).unwrap();
    assert_eq!(checked.problems, [] as [String; 0]);
}
