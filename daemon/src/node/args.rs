//! What a node is started with.
use clap::Args;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The part of the command line that is about being a node.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "As a node of another daemon's job")]
pub struct JoinArgs {
    /// Run no job: join the one whose leader listens for nodes there; of a job with several controllers (ADDR,ADDR,..) the
    /// one that leads
    #[arg(long, value_name = "ADDR", conflicts_with = "job")]
    pub join: Option<String>,
    /// This node's name in the job [default: that of --certificate, else the host's name]
    #[arg(long, requires = "join")]
    pub name: Option<String>,
    /// Where it is: dc=NAME,rack=NAME,accel=MODEL
    #[arg(long, requires = "join", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Slots by pool: train=2,rollout=1 [default: those the job file gives the node of this name]
    #[arg(long, requires = "join", value_delimiter = ',')]
    pub pools: Vec<String>,
    /// After SIGTERM, wait up to so long until this node's roles run elsewhere, where there are slots for them, and leave
    /// then; SIGINT and a second signal do not wait
    #[arg(long, requires = "join", value_name = "SECONDS", default_value_t = 0)]
    pub drain: u64,
}

/// How a node joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Where the leader is, or one of those who may lead: `host:port` each.
    pub leaders: Vec<String>,
    /// Unique in the job.
    pub name: String,
    /// Data centre.
    pub dc: String,
    /// Rack.
    pub rack: String,
    /// Accelerator model.
    pub accel: String,
    /// Slots by pool; empty: those of the job file.
    pub pools: BTreeMap<String, u32>,
    /// Where its roles can be reached; none: the address from which it reaches the leader.
    pub advertise: Option<IpAddr>,
    /// How long it waits for its roles to move before it leaves.
    pub drain: Duration,
}

/// What is wrong with the command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeConfigError {
    /// Not `key=value` of a known key.
    #[error("--labels {given}: a label is dc=NAME, rack=NAME or accel=MODEL")]
    Label {
        /// What was given.
        given: String,
    },
    /// Not `pool=slots`.
    #[error("--pools {given}: a pool is NAME=SLOTS, such as train=2")]
    Pool {
        /// What was given.
        given: String,
    },
    /// Not `host:port`.
    #[error("--join {given}: not a host:port address; for example 10.0.0.1:7071")]
    Leader {
        /// What was given.
        given: String,
    },
}

impl NodeConfig {
    /// Of the command line; `host` is this machine's name.
    pub fn new(
        args: &JoinArgs,
        leader: &str,
        host: String,
        advertise: Option<IpAddr>,
    ) -> Result<Self, NodeConfigError> {
        let leaders: Vec<String> = leader.split(',').map(str::to_owned).collect();
        for given in &leaders {
            let port = given.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(1..))) {
                let given = given.clone();
                return Err(NodeConfigError::Leader { given });
            }
        }
        let mut config = Self {
            leaders,
            name: args.name.clone().unwrap_or(host),
            dc: String::new(),
            rack: String::new(),
            accel: String::new(),
            pools: BTreeMap::new(),
            advertise,
            drain: Duration::from_secs(args.drain),
        };
        for given in &args.labels {
            let value = match given.split_once('=') {
                Some(("dc", value)) => (&mut config.dc, value),
                Some(("rack", value)) => (&mut config.rack, value),
                Some(("accel", value)) => (&mut config.accel, value),
                _ => {
                    let given = given.clone();
                    return Err(NodeConfigError::Label { given });
                }
            };
            *value.0 = value.1.to_owned();
        }
        for given in &args.pools {
            let pool = given.split_once('=').filter(|(name, _)| !name.is_empty());
            let slots = pool.and_then(|(name, slots)| Some((name, slots.parse().ok()?)));
            let Some((name, slots)) = slots else {
                let given = given.clone();
                return Err(NodeConfigError::Pool { given });
            };
            config.pools.insert(name.to_owned(), slots);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(labels: &[&str], pools: &[&str], leader: &str) -> Result<NodeConfig, NodeConfigError> {
        let owned = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect();
        let args = JoinArgs {
            labels: owned(labels),
            pools: owned(pools),
            ..JoinArgs::default()
        };
        NodeConfig::new(&args, leader, "host".to_owned(), None)
    }

    #[test]
    fn labels_and_pools_are_read_and_nonsense_is_named() {
        let labels = ["dc=a", "accel=h200"];
        let config = parse(&labels, &["train=2", "rollout=1"], "10.0.0.1:7071").unwrap();
        assert_eq!((config.dc.as_str(), config.rack.as_str()), ("a", ""));
        assert_eq!((config.name.as_str(), config.pools["train"]), ("host", 2));
        let several = parse(&[], &[], "10.0.0.1:7071,10.0.0.2:7071").unwrap();
        assert_eq!(several.leaders, ["10.0.0.1:7071", "10.0.0.2:7071"]);
        for (labels, pools, leader) in [
            (["color=red"].as_slice(), [].as_slice(), "a:1"),
            (&["dc"], &[], "a:1"),
            (&[], &["train"], "a:1"),
            (&[], &["=2"], "a:1"),
            (&[], &["train=-1"], "a:1"),
            (&[], &[], "a"),
            (&[], &[], "a:0"),
            (&[], &[], "a:x"),
            (&[], &[], "a:1,"),
            (&[], &[], "a:1,b"),
        ] {
            assert!(
                parse(labels, pools, leader).is_err(),
                "{labels:?} {pools:?}"
            );
        }
    }
}
