#![allow(clippy::unwrap_used)]
use super::*;
use crate::ids::Role;
use crate::phase::Phase;
use std::collections::BTreeSet;

fn samples() -> Vec<Fault> {
    let peer = InstanceId {
        role: Role::Rollout,
        index: 12,
    };
    let lasts = Duration::from_millis(2_500);
    vec![
        Fault::Kill,
        Fault::Exit { code: 3 },
        Fault::Hang,
        Fault::Slow { percent: 20, lasts },
        Fault::Oom,
        Fault::Exception,
        Fault::Nan,
        Fault::CorruptWeights,
        Fault::StallNetwork { peer, lasts },
        Fault::CutNetwork { peer },
        Fault::HangTool { lasts },
        Fault::KillTool { lasts },
        Fault::KillEngineChild,
        Fault::KillEngineLeader,
        Fault::HangEngine,
        Fault::PauseEngine { lasts },
        Fault::CorruptCheckpoint,
        Fault::LoseSlot,
        Fault::LoseNode {
            node: "b".to_owned(),
        },
        Fault::DiskFull { lasts },
        Fault::NoProcesses { lasts },
        Fault::Hardware {
            event: HardwareEvent::Xid(48),
        },
        Fault::LeaderCrash,
    ]
}

#[test]
fn every_fault_survives_being_written_down_in_each_form() {
    for fault in samples() {
        assert_eq!(fault.to_string().parse::<Fault>().unwrap(), fault);
        assert_eq!(Spec::from(&fault).fault().unwrap(), fault);
        let json = serde_json::to_string(&fault).unwrap();
        assert_eq!(serde_json::from_str::<Fault>(&json).unwrap(), fault);
    }
    let kinds: BTreeSet<Kind> = samples().iter().map(Fault::kind).collect();
    assert_eq!(kinds, Kind::ALL.into_iter().collect());
}

#[test]
fn the_words_of_older_recordings_mean_the_same_faults() {
    let old = r#"["kill", "hang", "lose_slot"]"#;
    let faults: Vec<Fault> = serde_json::from_str(old).unwrap();
    assert_eq!(faults, [Fault::Kill, Fault::Hang, Fault::LoseSlot]);
}

#[test]
fn a_fault_that_cannot_be_is_refused_with_what_would_do() {
    let refused = [
        ("kil", "unknown fault `kil`; did you mean `kill`?"),
        ("exit 256", "`exit`: the code must be 0 to 255, not 256"),
        ("exit three", "`exit`: nothing is known of `three`"),
        (
            "slow 0%",
            "`slow`: the percentage must be 5 to 95 (for 0, use `hang`), not 0",
        ),
        (
            "slow 50% 0s",
            "`slow`: the time in seconds must be above 0 and at most 3600, not 0",
        ),
        (
            "stall-network 5s",
            "`stall-network` needs a peer, such as `rollout-1`",
        ),
        (
            "cut-network somebody",
            "`somebody` is no instance; write role and number, as in `rollout-1`",
        ),
        ("kill 5s", "`kill` takes no `seconds`; remove it"),
        ("lose-node", "`lose-node` needs the node's name"),
        (
            "hardware devise-lost",
            "unknown hardware event `devise-lost`; did you mean `device-lost`?",
        ),
    ];
    for (text, why) in refused {
        assert_eq!(text.parse::<Fault>().unwrap_err().to_string(), why);
    }
    let all = "".parse::<Fault>().unwrap_err().to_string();
    assert!(all.contains("faults are kill, exit, hang"), "{all}");
}

#[test]
fn a_moment_is_a_phase_of_the_role_and_only_a_pull_has_a_percentage() {
    let pull: At = "pull:50%".parse().unwrap();
    assert_eq!((pull.phase, pull.percent), (Phase::PullWeights, 50));
    assert_eq!("pull_weights".parse::<At>().unwrap().percent, 0);
    assert_eq!(
        "awaiting-tool".parse::<At>().unwrap().to_string(),
        "awaiting_tool"
    );
    assert_eq!(serde_json::to_string(&pull).unwrap(), "\"pull:50%\"");
    let refused = [
        ("updat", "unknown phase `updat`; did you mean `update`?"),
        (
            "update:10%",
            "`update` does not tell how far it is; only `pull` does: leave the percentage out",
        ),
        (
            "pull:100%",
            "`pull:100%`: after the phase comes `:` and a percentage from 0% to 99%, as in `pull:50%`",
        ),
    ];
    for (text, why) in refused {
        assert_eq!(text.parse::<At>().unwrap_err().to_string(), why);
    }
    let update: At = "update".parse().unwrap();
    update.check(Role::Trainer).unwrap();
    assert_eq!(
        update.check(Role::Agent).unwrap_err().to_string(),
        "no agent comes into phase `update`; it comes into init, idle, generating, awaiting_tool"
    );
}

#[test]
fn a_moment_in_a_pull_is_reached_when_so_much_has_come() {
    let half: At = "pull:50%".parse().unwrap();
    let pulling = |bytes| half.reached(Phase::Generating, Some((bytes, 1_000)));
    assert_eq!(
        [pulling(0), pulling(499), pulling(500)],
        [false, false, true]
    );
    assert!(
        !half.reached(Phase::PullWeights, Some((0, 0))),
        "nothing is known of it yet"
    );
    assert!(!half.reached(Phase::PullWeights, None));
    let entered: At = "pull".parse().unwrap();
    assert!(entered.reached(Phase::PullWeights, None));
    assert!(
        entered.reached(Phase::Generating, Some((0, 1_000))),
        "it generates meanwhile"
    );
    assert!(!entered.reached(Phase::Generating, None));
}
