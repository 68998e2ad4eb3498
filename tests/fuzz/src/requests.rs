//! What operators may ask for.

use robust_shared::core::{CoreConfig, Request, RestartTarget};
use robust_shared::fault::Spec;
use robust_shared::ids::Incarnation;

use crate::Bytes;
use crate::known::instance;

/// Faults as an operator writes them.
const FAULTS: [&str; 14] = [
    "kill",
    "exit 3",
    "hang",
    "slow 20% 10s",
    "oom",
    "exception",
    "nan",
    "corrupt-weights",
    "stall-network rollout-0 5s",
    "cut-network trainer-0",
    "hang-tool 5s",
    "lose-slot",
    "kill-tool 3s",
    "pause-engine 2s",
];
/// Those that strike no instance.
const AFFLICTIONS: [&str; 4] = [
    "lose-node node-1",
    "disk-full 3s",
    "no-processes 3s",
    "leader-crash",
];
/// Moments.
const MOMENTS: [&str; 6] = [
    "update",
    "generating",
    "pull:50%",
    "init",
    "load_checkpoint",
    "paused",
];

/// A request, of whatever the bytes say.
pub fn request(bytes: &mut Bytes<'_>, config: &CoreConfig, life: Incarnation) -> Request {
    let of = instance(bytes);
    let (role, index) = (of.role, of.index);
    let node = (*bytes
        .one_of(&["local", "node-0", "node-1", "node-2", "new-0"])
        .unwrap_or(&""))
    .to_owned();
    // In the order of the kinds. One that is added there and not made here fails the first run.
    match bytes.below(Request::KINDS.len()) {
        0 | 1 => Request::Inject {
            fault: fault(bytes, &FAULTS),
            role,
            index: bytes.flag().then_some(index),
            incarnation: bytes.flag().then_some(life),
            at: bytes.flag().then(|| {
                MOMENTS[bytes.below(MOMENTS.len())]
                    .parse()
                    .expect("a moment")
            }),
        },
        2 => Request::Afflict {
            fault: fault(bytes, &AFFLICTIONS),
        },
        3 => Request::Disarm {
            number: bytes.flag().then(|| bytes.number()),
        },
        4 => {
            let pool = (*bytes
                .one_of(&["train", "rollout", "agent", "none"])
                .unwrap_or(&""))
            .to_owned();
            Request::RestoreSlot { node, pool, index }
        }
        5 => Request::Scale {
            role,
            count: bytes.below(6) as u32,
            revision: bytes.below(4) as u32,
        },
        6 => {
            let mut config = config.clone();
            config.agent_concurrency = 1 + bytes.below(8) as u32;
            config.max_task_restarts = bytes.below(5) as u32;
            let (config, revision) = (Box::new(config), 1 + bytes.below(9) as u32);
            let changes = vec!["agent.concurrency = 1".to_owned()];
            Request::Update {
                role,
                config,
                revision,
                changes,
            }
        }
        7 => Request::Quarantine { role, index },
        8 => Request::Readmit { role, index },
        9 => Request::Cordon { node },
        10 => Request::Uncordon { node },
        11 => Request::Pause,
        12 => Request::Resume,
        13 => Request::Restart {
            target: match bytes.below(3) {
                0 => RestartTarget::One(of),
                1 => RestartTarget::Role(role),
                _ => RestartTarget::Task,
            },
        },
        other => panic!("nothing makes a request `{}` here", Request::KINDS[other]),
    }
}

fn fault(bytes: &mut Bytes<'_>, of: &[&str]) -> robust_shared::fault::Fault {
    let text = of[bytes.below(of.len())];
    let fault = Spec::parse(text).and_then(|spec| spec.fault());
    fault.unwrap_or_else(|e| panic!("{text}: {e}"))
}
