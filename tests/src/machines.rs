//! Machines with a controller, a member of etcd and a node each: their deaths, the loss of their disks, and the ways in
//! which they can be parted.
//!
//! ```text
//!  ┌ machine 0 ─────────────┐ ┌ machine 1 ─────────────┐ ┌ machine 2 ─────────────┐
//!  │ controller  etcd  node │ │ controller  etcd  node │ │ controller  etcd  node │
//!  └──eth0──────eth1────────┘ └──eth0──────eth1────────┘ └──eth0──────eth1────────┘
//!      │          └─ etcd's switch ──┼──────────┴─────────────┼──────────┘
//!      └──────────── the job's switch ────────────────────────┘
//! ```
//! The test itself asks at the controllers' sockets, which no cut cable parts from it.
use crate::{Controllers, Wires, forget_snapshots};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// The names of the machines' nodes.
const NODES: [&str; 3] = ["a", "b", "c"];

/// How machines are parted, seen from the one whose controller leads. The next machine is the one after it in number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// The leader, with its member of etcd and its node, from all others.
    LeaderAndItsMember,
    /// The leader from all other controllers and nodes; etcd hears it.
    LeaderFromOthers,
    /// The leader reaches nodes, and no other member of etcd than its own, which has no majority.
    LeaderFromEtcd,
    /// One machine whose controller follows, from all others.
    OneNode,
    /// What the leader's machine sends to the next one is lost; what that one sends is not.
    OneWay,
    /// The next machine from the leader's; both reach the third one, and its member of etcd.
    StandbyFromLeader,
    /// The members of etcd from each other: none has a majority.
    EtcdWithoutQuorum,
}

impl Partition {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::LeaderAndItsMember,
        Self::LeaderFromOthers,
        Self::LeaderFromEtcd,
        Self::OneNode,
        Self::OneWay,
        Self::StandbyFromLeader,
        Self::EtcdWithoutQuorum,
    ];

    /// Whether etcd still hears the leader, and nothing may come of it that the others do not: none of them may lead.
    /// None: either may be.
    pub fn keeps_the_leader(self) -> Option<bool> {
        match self {
            Self::LeaderAndItsMember | Self::LeaderFromEtcd => Some(false),
            Self::LeaderFromOthers | Self::OneNode | Self::StandbyFromLeader => Some(true),
            // Where a member of etcd hears no more of the one that leads, etcd has an election; without a majority of
            // etcd a leader ends, sooner or later.
            Self::OneWay | Self::EtcdWithoutQuorum => None,
        }
    }
}

impl Controllers {
    /// Starts a node on each machine, one after the other, so that it is known which roles are where.
    pub fn join_all(&mut self) {
        for (machine, node) in NODES.iter().enumerate().take(self.count()) {
            self.join_on(node, machine);
            self.until("the node to be here", |status| is_here(status, machine));
        }
    }

    /// The roles that run on other machines: (pid, command line).
    pub fn roles_elsewhere(&self, than: usize) -> Vec<(i32, String)> {
        let others = (0..self.count()).filter(|machine| *machine != than);
        others
            .flat_map(|machine| self.roles_of(NODES[machine]))
            .collect()
    }

    /// A machine's power is cut: its controller, its member of etcd, its node and all roles are gone at once, with what
    /// was in memory. Its disk is not.
    pub fn kill_machine(&mut self, machine: usize) {
        let node = NODES[machine];
        let roles = self.roles_of(node);
        let _ = kill(self.pid(machine), Signal::SIGKILL);
        self.etcd.kill(machine);
        self.strike_node(node, &roles);
        self.bury(machine);
        self.bury_node(node);
        // One that was being started meanwhile.
        while !self.roles_of(node).is_empty() {
            let roles = self.roles_of(node);
            self.strike_node(node, &roles);
        }
        forget_snapshots(&self.node_dir(node));
        forget_snapshots(&self.state_dir(machine));
    }

    fn strike_node(&self, node: &str, roles: &[(i32, String)]) {
        for (pid, _) in crate::processes_naming(&self.node_dir(node)) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        for (pid, _) in roles {
            // A role leads a group: what it started goes with it.
            let _ = killpg(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }

    /// The machine is back, with its disk.
    pub fn boot(&mut self, machine: usize) {
        self.etcd.restart(machine);
        self.launch(machine);
        self.join_on(NODES[machine], machine);
    }

    /// The disk of a controller that is dead is lost.
    pub fn lose_disk(&self, which: usize) {
        assert!(!self.runs(which), "its disk is in use");
        std::fs::remove_dir_all(self.state_dir(which)).expect("there is a state directory");
        forget_snapshots(&self.state_dir(which));
    }

    /// Parts the machines, or brings them together again.
    pub fn part(&self, how: Partition, leader: usize, is_parted: bool) {
        let net = self.net.as_ref().expect("there are machines");
        let next = (leader + 1) % self.count();
        let both = [Wires::Job, Wires::Etcd];
        match how {
            Partition::LeaderAndItsMember => {
                both.iter()
                    .for_each(|wires| net.cut_off(leader, *wires, is_parted));
            }
            Partition::LeaderFromOthers => net.cut_off(leader, Wires::Job, is_parted),
            Partition::LeaderFromEtcd => net.cut_off(leader, Wires::Etcd, is_parted),
            Partition::OneNode => {
                both.iter()
                    .for_each(|wires| net.cut_off(next, *wires, is_parted));
            }
            Partition::OneWay => {
                both.iter()
                    .for_each(|wires| net.mute(leader, next, *wires, is_parted));
            }
            Partition::StandbyFromLeader => {
                for wires in both {
                    net.mute(leader, next, wires, is_parted);
                    net.mute(next, leader, wires, is_parted);
                }
            }
            Partition::EtcdWithoutQuorum => {
                (0..self.count()).for_each(|side| net.cut_off(side, Wires::Etcd, is_parted));
            }
        }
    }

    /// The folder of the log is away, as a file server is, or back.
    pub fn log_is_away(&self, is_away: bool) {
        let (folder, aside) = (
            self.log_folder(),
            self.log_folder().with_extension("elsewhere"),
        );
        if is_away {
            std::fs::rename(&folder, &aside).expect("the folder is there");
            // A folder in its place would be made by the next write.
            std::fs::write(&folder, "").expect("a file in its place");
        } else {
            std::fs::remove_file(&folder).expect("the file in its place");
            std::fs::rename(&aside, &folder).expect("the folder is back");
        }
    }
}

fn is_here(status: &serde_json::Value, machine: usize) -> bool {
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    nodes
        .iter()
        .any(|n| n["name"] == NODES[machine] && n["state"] == "here")
}
