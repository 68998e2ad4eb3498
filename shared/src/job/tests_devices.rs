//! Which devices slots are.
#![allow(clippy::unwrap_used)]
use super::tests_commands::engines;
use super::*;

fn of(job: &Job, seen: &SeenDevices) -> SlotDevices {
    let node = &job.nodes[0];
    job.slot_devices(&node.name, &node.pools, seen).unwrap()
}

/// Of the bad job files those with devices.
pub(super) const BAD_DEVICES: &[(&str, &str)] = &[
    (
        "devices_of_no_pool",
        ":8:13: `node.0.devices.rolout` is [0, 1, 2]; node `a` has no pool `rolout`; did you mean `rollout`?",
    ),
    (
        "devices_of_two_pools",
        ":8:34: `node.0.devices.train` is [2, 3]; pool `rollout` has device 2, too; give each pool its own, or let roles share a device by sharing a pool",
    ),
    (
        "devices_too_few",
        ":8:13: `node.0.devices.rollout` is [0, 1]; pool `rollout` has 3 slots there, and 2 of them a device: name one for each slot, or none at all ([]) where its programs are to see none",
    ),
    (
        "devices_twice_for_one",
        ":16:13: `node.0.devices.rollout` is [0, 1, 1, 2]; a program of several slots would have a device twice; name each once",
    ),
];

const NODE: &str = "[[node]]\nname='a'\npools={agent=2,rollout=4,train=2}\n";

#[test]
fn pools_of_programs_of_the_users_lie_one_after_the_other_over_the_devices_by_name() {
    let job = engines(
        &format!(
            "slots=2\n[rollout]\nreplicas=2\n[service.judge]\nargv=['j']\npool='judges'\n{NODE}"
        )
        .replace("train=2", "train=2,judges=1"),
    );
    let devices = of(&job, &SeenDevices::Counted(8));
    assert_eq!(devices.of_slots("judges", 0..1).as_deref(), Some("0"));
    assert_eq!(devices.of_place("rollout", 0).as_deref(), Some("1,2"));
    assert_eq!(devices.of_place("rollout", 1).as_deref(), Some("3,4"));
    // The built-in roles compute on the CPU.
    assert_eq!(devices.of_place("train", 0), None);
    assert_eq!(devices.of_place("agent", 0), None);
}

#[test]
fn services_in_the_engines_pool_have_its_last_devices_and_hybrids_those_of_their_ranks() {
    let job = engines(&format!(
        "hybrid='pause'\n[service.judge]\nargv=['j']\npool='rollout'\n[job]\nmode='sync'\n[trainer]\nhybrid=true\n\
         {NODE}"
    ));
    let devices = of(&job, &SeenDevices::Counted(6));
    let judge = &job.service_places().unwrap()[0];
    let slots = judge.slot..judge.slot + judge.slots;
    assert_eq!(devices.of_slots("rollout", slots).as_deref(), Some("3"));
    assert_eq!(devices.of_place("train", 1).as_deref(), Some("5"));
}

#[test]
fn robustds_own_list_is_what_is_numbered() {
    let job = engines(&format!("slots=2\n[rollout]\nreplicas=2\n{NODE}"));
    let seen = SeenDevices::listed("7, GPU-5a,3,2");
    let devices = of(&job, &seen);
    assert_eq!(devices.of_place("rollout", 0).as_deref(), Some("7,GPU-5a"));
    assert_eq!(devices.of_place("rollout", 1).as_deref(), Some("3,2"));
    let listed = |text| match SeenDevices::listed(text) {
        SeenDevices::Listed(all) => all.len(),
        _ => 0,
    };
    assert_eq!((listed(""), listed("1,-1,2"), listed("0,")), (0, 1, 1));
}

#[test]
fn nobody_gets_devices_where_there_are_none_or_too_few() {
    let job = engines(NODE);
    for seen in [
        SeenDevices::Unknown,
        SeenDevices::Counted(0),
        SeenDevices::listed(""),
    ] {
        let devices = of(&job, &seen);
        assert!(
            devices.is_empty() && devices.unassigned.is_none(),
            "{seen:?}"
        );
    }
    let devices = of(&job, &SeenDevices::Counted(3));
    assert!(devices.is_empty());
    assert_eq!(
        devices.unassigned.unwrap(),
        "node `a` has 3 devices and 4 slots for your programs (rollout 4): no program is given \
         devices of its own; say with `devices` of the `[[node]]` which slot has which"
    );
}

#[test]
fn what_the_file_says_holds_whether_the_devices_were_counted_or_not() {
    let job = engines(&format!(
        "{NODE}devices={{rollout=[3,2,1,0],train=[5,4],agent=[]}}\n"
    ));
    for seen in [SeenDevices::Unknown, SeenDevices::Counted(6)] {
        let devices = of(&job, &seen);
        assert_eq!(devices.of_place("rollout", 0).as_deref(), Some("3"));
        assert_eq!(devices.of_place("train", 1).as_deref(), Some("4"));
        assert_eq!(
            devices.of_place("agent", 0).as_deref(),
            Some(""),
            "it sees none"
        );
    }
    let listed = of(&job, &SeenDevices::listed("10,11,12,13,14,15"));
    assert_eq!(listed.of_place("rollout", 0).as_deref(), Some("13"));
    let node = &job.nodes[0];
    let refused = |seen| {
        job.slot_devices("a", &node.pools, &seen)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(SeenDevices::Counted(4)),
        "node `a` is to have device 5 for pool `train`, and robustd sees 4 there; correct its \
         `devices`"
    );
    assert_eq!(
        refused(SeenDevices::listed("0")),
        "node `a` is to have device 3 for pool `rollout`, and robustd sees 1 there (its own \
         CUDA_VISIBLE_DEVICES); correct its `devices`"
    );
}

#[test]
fn devices_are_looked_for_only_where_somebody_takes_some() {
    let looked_for = |job: &Job| job.takes_devices_of("a", &job.nodes[0].pools);
    assert!(looked_for(&engines(NODE)));
    assert!(looked_for(&engines(&format!(
        "{NODE}devices={{rollout=[0,1,2,3]}}\n"
    ))));
    let built_in = engines(NODE);
    let built_in = Job {
        rollout: Rollout {
            command: None,
            ..built_in.rollout.clone()
        },
        ..built_in
    };
    assert!(!looked_for(&built_in));
    // One that is not in the file joins with pools of its own.
    let pools = BTreeMap::from([("rollout".to_owned(), 1)]);
    let job = engines(NODE);
    assert!(job.takes_devices_of("late", &pools));
    let seen = SeenDevices::Counted(2);
    let devices = job.slot_devices("late", &pools, &seen).unwrap();
    assert_eq!(devices.of_place("rollout", 0).as_deref(), Some("0"));
}
