//! The road that the processes of the program take.
use std::path::PathBuf;
use std::str::FromStr;

use robust_identity::{Authority, Term};
use robust_transport::{Config, Identity, Net};

/// As it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RoadArg {
    /// Shared memory of those who meet in a folder.
    Shm(PathBuf),
    /// TCP with TLS 1.3.
    Tls,
    /// UCX, as its environment says.
    Ucx,
}

impl FromStr for RoadArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("shm:")) {
            ("tls", _) => Ok(Self::Tls),
            ("ucx", _) => Ok(Self::Ucx),
            (_, Some(folder)) if !folder.is_empty() => Ok(Self::Shm(folder.into())),
            _ => Err("it must be `shm:FOLDER`, `tls` or `ucx`".into()),
        }
    }
}

impl RoadArg {
    /// Settings that take this road; who has the same secret is a member of the same job.
    pub fn settings(&self, secret: &str, config: Config) -> anyhow::Result<Config> {
        let (local, net) = match self {
            Self::Shm(folder) => (Some(folder.clone()), None),
            Self::Ucx => (None, Some(Net::Ucx)),
            Self::Tls => {
                let authority = Authority::of(secret.as_bytes(), "robust-weights")?;
                let pem = authority.issue(
                    &format!("process/{}", std::process::id()),
                    Term::unbounded(),
                )?;
                (None, Some(Net::Tls(Identity::from_pem(&pem)?)))
            }
        };
        Ok(Config {
            local,
            net,
            ..config
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_road_is_named_as_it_is_told() {
        let road = |text: &str| text.parse::<RoadArg>();
        assert_eq!(
            road("shm:/dev/shm/a"),
            Ok(RoadArg::Shm("/dev/shm/a".into()))
        );
        assert_eq!(road("tls"), Ok(RoadArg::Tls));
        assert_eq!(road("ucx"), Ok(RoadArg::Ucx));
        assert!(road("shm:").is_err() && road("rdma").is_err());
    }
}
