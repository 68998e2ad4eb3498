//! Every operation of a checkpoint fails once, in every way. Whatever happens, what was said to be on
//! disk is there, nothing torn is found, nothing is left over, and the next checkpoint works.
use super::*;
use robust_ckpt::disk::faulty::{Fault, FaultyDisk, Operation};
use robust_ckpt::{list, verify};

const KEEP: Retention = Retention {
    last: 2,
    every: 0,
    best: 0,
};

/// A job with two checkpoints on a disk that is about to fail.
struct Drill {
    bench: Bench,
    disk: FaultyDisk,
}

impl Drill {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let stash = dir.path().join("stash");
        std::fs::create_dir(&stash).unwrap();
        let disk = FaultyDisk::new(&stash);
        let mut drill = Self {
            bench: Bench::on(dir, KEEP, Arc::new(disk.clone())),
            disk,
        };
        for step in 1..=2 {
            assert!(matches!(drill.write(step), CkptEvent::Written { .. }));
        }
        drill
    }

    /// Writes a step; the last event, which is about it.
    fn write(&mut self, step: u64) -> CkptEvent {
        let request = sized(self.bench.dir.path(), step, 9_001);
        assert_eq!(self.bench.checkpointer.offer(request), Offer::Taken);
        loop {
            match self.bench.events.blocking_recv().unwrap() {
                CkptEvent::Untidy(_) | CkptEvent::Resumed { .. } => {}
                event => return event,
            }
        }
    }

    /// Nothing found is torn; the newest.
    fn newest(&self, when: &str) -> Step {
        for listed in list(&self.bench.ckpt()).unwrap() {
            let checkpoint = listed.manifest.unwrap_or_else(|e| panic!("{when}: {e}"));
            verify(&checkpoint, &mut |_| ()).unwrap_or_else(|e| panic!("{when}: {e}"));
        }
        let found = self.bench.newest();
        assert_eq!(found.rejected, [""; 0], "{when}");
        found
            .checkpoint
            .unwrap_or_else(|| panic!("{when}: none"))
            .step
    }

    fn leftovers(&self) -> Vec<String> {
        let is_whole = |name: &str| self.bench.ckpt().join(name).join(manifest::FILE).exists();
        let mut left: Vec<_> = self.bench.names();
        left.retain(|name| !is_whole(name));
        for listed in list(&self.bench.ckpt()).unwrap() {
            let files = std::fs::read_dir(listed.dir).unwrap();
            let names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
            left.extend(names.filter(|n| n.ends_with(".tmp")));
        }
        left
    }
}

/// The operations of a third checkpoint, with the removal of the first.
fn operations() -> Vec<Operation> {
    let mut drill = Drill::new();
    drill.disk.fail_at(u64::MAX, Fault::Io);
    drill.write(3);
    drill.disk.operations()
}

/// Calls it for every operation of the third checkpoint, once that operation failed.
fn at_every_operation(fault: Fault, check: impl Fn(&mut Drill, Step, &str)) {
    let operations = operations();
    assert!(operations.len() > 20, "{operations:?}");
    for (operation, at) in operations.iter().zip(1..) {
        let when = format!("{fault:?} at operation {at}, {operation:?}");
        let mut drill = Drill::new();
        drill.disk.fail_at(at, fault);
        let event = drill.write(3);
        let acknowledged = match event {
            CkptEvent::Written { .. } => Step(3),
            _ => Step(2),
        };
        check(&mut drill, acknowledged, &when);
        let newest = drill.newest(&when);
        assert!(newest >= acknowledged, "{when}: {newest} is the newest");
        let event = drill.write(4);
        assert!(
            matches!(event, CkptEvent::Written { .. }),
            "{when}: {event}"
        );
        assert_eq!(drill.newest(&when), Step(4), "{when}");
        assert_eq!(drill.leftovers(), [""; 0], "{when}");
    }
}

#[test]
fn an_operation_that_fails_costs_one_checkpoint_at_most() {
    at_every_operation(Fault::Io, |_, _, _| {});
}

#[test]
fn a_full_disk_is_left_as_it_was_and_used_again_when_there_is_room() {
    for fault in [Fault::Full, Fault::Short] {
        at_every_operation(fault, |drill, acknowledged, when| {
            // Partial files are gone before anybody makes room.
            assert_eq!(drill.leftovers(), [""; 0], "{when}");
            assert!(drill.newest(when) >= acknowledged, "{when}");
            let event = drill.write(3);
            let paused = matches!(event, CkptEvent::Paused { .. });
            assert!(paused || fault == Fault::Short, "{when}: {event}");
            drill.disk.heal();
        });
    }
}

#[test]
fn a_power_cut_at_any_operation_leaves_the_last_checkpoint_that_was_told() {
    at_every_operation(Fault::PowerCut, |drill, _, _| {
        drill.disk.power_cut().unwrap()
    });
}

#[test]
fn a_power_cut_after_a_checkpoint_was_told_takes_nothing_of_it_back() {
    let mut drill = Drill::new();
    for step in 3..=5 {
        assert!(matches!(drill.write(step), CkptEvent::Written { .. }));
        drill.disk.power_cut().unwrap();
        assert_eq!(drill.newest("after the cut"), Step(step));
    }
}

#[test]
fn a_disk_without_room_pauses_checkpoints_and_they_go_on_by_themselves() {
    let mut drill = Drill::new();
    drill.disk.fill();
    let event = drill.write(3);
    let said = event.to_string();
    assert!(matches!(event, CkptEvent::Paused { .. }), "{said}");
    assert!(
        said.starts_with("no room for the checkpoint of step 3 (0 MiB left, "),
        "{said}"
    );
    // Nothing was even begun.
    assert_eq!(drill.bench.names(), ["step-1", "step-2"]);
    drill.disk.heal();
    // Without another offer.
    let event = drill.bench.events.blocking_recv().unwrap();
    assert!(matches!(event, CkptEvent::Resumed { .. }), "{event}");
    assert!(matches!(drill.write(4), CkptEvent::Written { .. }));
}
