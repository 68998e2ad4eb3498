//! Does what faults on request ask of this process: to its engine, its weights or its network.

use std::sync::{Arc, OnceLock};

use robust_role::{Deed, network, pull};
use robust_shared::fault::At;
use robust_transport::Transport;
use robust_tree::{Signal, Tree};
use robust_weights::Slots;

/// Why there is nothing to strike.
const GONE: &str = "its engine has no such process";

/// An engine of the user's is paused by whoever can reach it.
const PAUSE: &str =
    "an engine of yours is paused as its clients do it: POST /pause_generation at its address";

/// The hands of an instance with an engine of the user's.
pub fn hands(
    tree: Arc<Tree>,
    slots: Arc<OnceLock<Arc<Slots>>>,
    transport: Transport,
) -> impl Fn(Deed, Option<At>) -> Result<(), String> + Send + Sync + 'static {
    move |deed, at| match deed {
        Deed::KillEngineChild | Deed::KillEngineLeader | Deed::HangEngine => engine(&tree, deed),
        Deed::PauseEngine { .. } => Err(PAUSE.to_owned()),
        other => match slots.get() {
            Some(slots) => pull::hands(Arc::clone(slots), transport.clone())(other, at),
            None if other == Deed::CorruptWeights => Err("it has no weights yet".to_owned()),
            None => network(transport.clone())(other, at),
        },
    }
}

/// What only who watches an engine can do to it. Its processes may share a group with this one, so
/// that each is signalled by itself.
pub(crate) fn engine(tree: &Tree, deed: Deed) -> Result<(), String> {
    let struck = match deed {
        Deed::KillEngineChild => tree.signal_busiest(Signal::KILL),
        Deed::KillEngineLeader => tree.signal_leader(Signal::KILL),
        _ => {
            tree.signal(Signal::STOP);
            tracing::warn!("the engine is stopped on request");
            return Ok(());
        }
    };
    let struck = struck.ok_or_else(|| GONE.to_owned())?;
    tracing::warn!(pid = struck.pid, name = struck.name, "killed on request");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, Instant};

    use robust_tree::{Child, ChildSpec, Died, Policy};
    use tempfile::TempDir;

    use super::*;

    /// A leader with a child that computes and one that does not.
    const ENGINE: &str = "sleep 1000 & sh -c 'while :; do :; done' & exec sleep 1001";

    fn engine_of(dir: &TempDir, died: impl FnMut(Died) + Send + 'static) -> Tree {
        let output = || std::fs::File::create(dir.path().join("out")).unwrap();
        let child = Child::start(ChildSpec {
            argv: ["bash", "-c", ENGINE].map(str::to_owned).to_vec(),
            env: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
            cwd: dir.path().to_owned(),
            stdout: output().into(),
            stderr: output().into(),
            network: None,
            hidden: None,
            beside: None,
        });
        Tree::watch(child.unwrap(), Policy::default(), died).unwrap()
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn state(pid: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        after_name.chars().next().unwrap_or('X')
    }

    // One test: a process watches one tree.
    #[test]
    fn the_busiest_child_the_leader_or_all_of_an_engine_are_struck_and_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let (sender, deaths) = std::sync::mpsc::channel();
        let tree = engine_of(&dir, move |died| sender.send(died).unwrap());
        until("the busy child computes", || {
            tree.cpu_time() > Duration::from_millis(200) && tree.members().len() == 3
        });
        tree.ready();
        engine(&tree, Deed::KillEngineChild).unwrap();
        let died = deaths.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!((died.leader, died.name.as_str()), (false, "sh"));
        engine(&tree, Deed::HangEngine).unwrap();
        let members = tree.members();
        until("all are stopped", || {
            members.iter().all(|member| state(member.pid) == 'T')
        });
        engine(&tree, Deed::KillEngineLeader).unwrap();
        let died = deaths.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(died.leader, "{died}");
        assert!(!tree.members().is_empty(), "the leader left orphans");
        assert_eq!(engine(&tree, Deed::KillEngineLeader), Err(GONE.to_owned()));
    }
}
