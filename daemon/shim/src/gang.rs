//! The environment of a rank, as `torchrun` sets it (torch 2.11,
//! `torch/distributed/elastic/agent/server/local_elastic_agent.py`): a program that runs under it runs
//! under robustd unchanged.
//!
//! The group's port is another one in each generation, chosen by rank 0's shim on its own host: no member
//! of an earlier gang can meet the new one there (I-1).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::log;

use robust_proto::v1::Peer;
use robust_transport::Address;
use rustix::fs::OFlags;

/// More than any exception has to say.
const MOST_WRITTEN: u64 = 4 << 20;

/// A rank among its fellows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its rank.
    pub rank: u32,
    /// Ranks of the gang.
    pub world_size: u32,
    /// Its number among the ranks of its host, in rank order.
    pub local_rank: u32,
    /// Ranks of its host.
    pub local_world_size: u32,
    /// The number of its host, in the order of their first ranks.
    pub group_rank: u32,
    /// Hosts of the gang.
    pub group_world_size: u32,
    /// Where rank 0's process group listens.
    pub master: SocketAddr,
}

impl Member {
    /// As the daemon tells the gang; none where it tells of no such rank, or of nobody's port.
    pub fn of(rank: u32, peers: &[Peer]) -> Option<Self> {
        // Who is called on this machine only is on it.
        let ip = |at: Address| at.net().map_or(Ipv4Addr::LOCALHOST.into(), |net| net.ip());
        let host = |peer: &Peer| peer.transport_addr.parse().ok().map(ip);
        let hosts: Vec<IpAddr> = peers.iter().map(host).collect::<Option<_>>()?;
        let own = *hosts.get(rank as usize)?;
        let port = u16::try_from(peers.first()?.master_port)
            .ok()
            .filter(|p| *p > 0)?;
        let mut order: Vec<IpAddr> = Vec::new();
        for host in &hosts {
            if !order.contains(host) {
                order.push(*host);
            }
        }
        let of_own = |hosts: &[IpAddr]| hosts.iter().filter(|host| **host == own).count() as u32;
        Some(Self {
            rank,
            world_size: hosts.len() as u32,
            local_rank: of_own(&hosts[..rank as usize]),
            local_world_size: of_own(&hosts),
            group_rank: order.iter().position(|host| *host == own)? as u32,
            group_world_size: order.len() as u32,
            master: SocketAddr::new(hosts[0], port),
        })
    }

    /// The only rank that sees its devices is the first one of them.
    #[must_use]
    pub fn alone_on_its_devices(self) -> Self {
        Self {
            local_rank: 0,
            local_world_size: 1,
            ..self
        }
    }

    /// The variables of a program that is this rank.
    pub fn as_rank(&self, life: &Life<'_>) -> Variables {
        let number = |n: u32| n.to_string();
        let mut all = self.of_any(life);
        all.extend(named([
            ("RANK", number(self.rank)),
            ("WORLD_SIZE", number(self.world_size)),
            ("LOCAL_RANK", number(self.local_rank)),
            ("LOCAL_WORLD_SIZE", number(self.local_world_size)),
            ("GROUP_RANK", number(self.group_rank)),
            ("GROUP_WORLD_SIZE", number(self.group_world_size)),
            ("ROLE_RANK", number(self.rank)),
            ("ROLE_WORLD_SIZE", number(self.world_size)),
            ("ROLE_NAME", "trainer".to_owned()),
            ("TORCHELASTIC_RESTART_COUNT", life.restarts().to_string()),
            // Restarts are the controller's: its budgets say when there are no more.
            ("TORCHELASTIC_MAX_RESTARTS", "0".to_owned()),
            ("TORCHELASTIC_RUN_ID", life.job.to_owned()),
            ("TORCHELASTIC_USE_AGENT_STORE", "False".to_owned()),
        ]));
        all
    }

    /// The variables of a program that starts the ranks of its node itself, one for each of its slots:
    /// `torchrun` takes what its arguments do not say from them (torch 2.11,
    /// `torch/distributed/argparse_util.py`).
    pub fn as_launcher(&self, life: &Life<'_>, slots: u32) -> Variables {
        let mut all = self.of_any(life);
        all.extend(named([
            ("PET_NNODES", self.world_size.to_string()),
            ("PET_NODE_RANK", self.rank.to_string()),
            ("PET_NPROC_PER_NODE", slots.to_string()),
            ("PET_MASTER_ADDR", self.master.ip().to_string()),
            ("PET_MASTER_PORT", self.master.port().to_string()),
            // Two who restart fight.
            ("PET_MAX_RESTARTS", "0".to_owned()),
            ("PET_RDZV_ID", life.job.to_owned()),
        ]));
        all
    }

    fn of_any(&self, life: &Life<'_>) -> Variables {
        named([
            ("MASTER_ADDR", self.master.ip().to_string()),
            ("MASTER_PORT", self.master.port().to_string()),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1".to_owned()),
            (
                "TORCHELASTIC_ERROR_FILE",
                life.error_file.display().to_string(),
            ),
        ])
    }
}

/// What a program that waits to become a rank finds where its place will be told: no number and no address, so that one
/// that asks for it before `attach()` ends with these words, and does not take itself for another rank.
pub const UNTIL_ATTACHED: &str = "unknown until robustrl.attach()";

/// The variables of a program that waits to become a rank of this job.
pub fn of_waiting(job: &str) -> Variables {
    let its = |text: &str| text.to_owned();
    let mut all = named([
        ("OMP_NUM_THREADS", its("1")),
        ("PYTHONUNBUFFERED", its("1")),
        ("ROLE_NAME", its("trainer")),
        ("TORCHELASTIC_MAX_RESTARTS", its("0")),
        ("TORCHELASTIC_RUN_ID", its(job)),
        ("TORCHELASTIC_USE_AGENT_STORE", its("False")),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", its("1")),
    ]);
    let unknown = [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT",
        "ROBUST_SOCKET",
        "ROBUST_SHM",
        "ROBUST_INDEX",
        "ROBUST_INCARNATION",
        "ROBUST_GENERATION",
    ];
    all.extend(named(unknown.map(|name| (name, its(UNTIL_ATTACHED)))));
    all
}

/// A life of a gang, as its programs are told.
#[derive(Debug, Clone, Copy)]
pub struct Life<'a> {
    /// The job's name.
    pub job: &'a str,
    /// Which gang, from 1.
    pub generation: u64,
    /// Where a program writes why it ended.
    pub error_file: &'a Path,
}

impl Life<'_> {
    fn restarts(&self) -> u64 {
        self.generation.saturating_sub(1)
    }
}

fn named<const N: usize>(texts: [(&str, String); N]) -> Variables {
    let each = texts.into_iter();
    each.map(|(key, text)| (key.into(), text.into())).collect()
}

/// Variables of an environment by name.
pub type Variables = BTreeMap<OsString, OsString>;

/// What a program that ended with an exception wrote about it, as `torch.distributed.elastic` and
/// `robustrl` write it: the exception in a line.
pub fn exception_in(error_file: &Path) -> Option<String> {
    let text = written(error_file).ok()?;
    let told: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let message = &told["message"];
    let said = message["message"].as_str().or_else(|| message.as_str())?;
    log::exception_of(said).map(str::to_owned)
}

/// What a program wrote to a file in a folder of its own. This process may be another user, who could read more: no
/// link is followed, and no pipe is waited for.
fn written(path: &Path) -> io::Result<Vec<u8>> {
    let nothing_else = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(nothing_else.bits() as i32)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.nlink() != 1 {
        return Err(io::Error::other("it is no file of the program's own"));
    }
    let mut text = Vec::new();
    file.take(MOST_WRITTEN).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn third_life() -> Life<'static> {
        Life {
            job: "j",
            generation: 3,
            error_file: Path::new("/e"),
        }
    }

    fn peer(rank: u32, addr: &str, master_port: u32) -> Peer {
        Peer {
            rank,
            transport_addr: addr.to_owned(),
            master_port,
            ..Peer::default()
        }
    }

    #[test]
    fn a_rank_knows_its_place_among_the_ranks_and_hosts_of_its_gang() {
        let peers = [
            peer(0, "10.0.0.1:7", 4000),
            peer(1, "10.0.0.2:7", 0),
            peer(2, "10.0.0.1:8", 0),
            peer(3, "10.0.0.2:9", 0),
        ];
        let third = Member::of(3, &peers).unwrap();
        let numbers = (third.local_rank, third.local_world_size, third.group_rank);
        assert_eq!(numbers, (1, 2, 1));
        assert_eq!((third.world_size, third.group_world_size), (4, 2));
        let environment = third.as_rank(&third_life());
        let text = |key: &str| environment[&OsString::from(key)].to_str().unwrap();
        assert_eq!(text("MASTER_ADDR"), "10.0.0.1");
        assert_eq!(text("MASTER_PORT"), "4000");
        assert_eq!(text("TORCHELASTIC_RESTART_COUNT"), "2");
        let alone = third.alone_on_its_devices();
        assert_eq!((alone.local_rank, alone.local_world_size), (0, 1));
        assert_eq!(Member::of(4, &peers), None);
        assert_eq!(Member::of(0, &peers[1..]), None, "nobody listens");
    }

    #[test]
    fn what_starts_the_ranks_of_its_node_is_told_its_node_and_is_no_rank_itself() {
        let peers = [peer(0, "10.0.0.1:7", 4000), peer(1, "10.0.0.2:7", 0)];
        let environment = Member::of(1, &peers).unwrap().as_launcher(&third_life(), 8);
        let text = |key: &str| Some(environment.get(&OsString::from(key))?.to_str().unwrap());
        assert_eq!(text("PET_NNODES"), Some("2"));
        assert_eq!(text("PET_NODE_RANK"), Some("1"));
        assert_eq!(text("PET_NPROC_PER_NODE"), Some("8"));
        assert_eq!(text("PET_MASTER_ADDR"), Some("10.0.0.1"));
        assert_eq!(text("PET_MASTER_PORT"), Some("4000"));
        assert_eq!(text("PET_MAX_RESTARTS"), Some("0"));
        assert_eq!(text("MASTER_PORT"), Some("4000"));
        assert_eq!((text("RANK"), text("WORLD_SIZE")), (None, None));
    }

    #[test]
    fn a_program_that_waits_has_the_variables_of_a_rank_and_none_that_says_which_it_is() {
        let peers = [peer(0, "10.0.0.1:7", 4000)];
        let rank = Member::of(0, &peers).unwrap().as_rank(&third_life());
        let mut waiting = of_waiting("j");
        for (name, value) in rank {
            let found = waiting.remove(&name);
            // A program would write a file of that name.
            if name == "TORCHELASTIC_ERROR_FILE" {
                assert_eq!(found, None);
                continue;
            }
            let found = found.unwrap_or_default();
            assert!(found == value || found == UNTIL_ATTACHED, "{name:?}");
        }
        let own = waiting.keys().filter(|name| {
            let name = name.to_string_lossy();
            !name.starts_with("ROBUST_")
        });
        let own: Vec<_> = own.collect();
        assert_eq!(own, ["OMP_NUM_THREADS", "PYTHONUNBUFFERED"]);
        assert!(UNTIL_ATTACHED.parse::<u32>().is_err());
    }

    #[test]
    fn the_line_that_names_an_exception_is_what_is_told_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("error.json");
        assert_eq!(exception_in(&path), None);
        let text = r#"{"message": {"message": "RuntimeError: a\nValueError: no such layer\n", "extraInfo": {}}}"#;
        std::fs::write(&path, text).unwrap();
        assert_eq!(exception_in(&path).unwrap(), "ValueError: no such layer");
        let of_a_device = "AcceleratorError: CUDA error: device-side assert triggered\\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\\n\\n";
        std::fs::write(
            &path,
            format!(r#"{{"message": {{"message": "{of_a_device}"}}}}"#),
        )
        .unwrap();
        assert_eq!(
            exception_in(&path).unwrap(),
            "AcceleratorError: CUDA error: device-side assert triggered"
        );
        std::fs::write(&path, r#"{"message": "SignalException: x"}"#).unwrap();
        assert_eq!(exception_in(&path).unwrap(), "SignalException: x");
        // A program of another user may want to read with this process's rights.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(exception_in(&link), None);
        std::fs::hard_link(&path, dir.path().join("other-name")).unwrap();
        assert_eq!(exception_in(&path), None);
    }
}
