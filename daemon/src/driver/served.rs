//! Which process can serve which weight version, with the manifest to check it by.
use robust_proto::v1;
use robust_shared::ids::{Incarnation, WeightVersion};
use robust_shared::weights::TensorSpec;
use std::collections::{BTreeMap, HashMap};

/// A process serves from two buffers: the version it has and the one before.
const KEPT: usize = 2;

/// Why a pull cannot be assigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownSource {
    /// It never said that it serves the version.
    #[error("{source_id} is not known to serve {version}")]
    NotServing {
        /// Who.
        source_id: Incarnation,
        /// What.
        version: WeightVersion,
    },
    /// It serves it, and how to reach it is not known.
    #[error("{source_id} has no transport address")]
    NoAddress {
        /// Who.
        source_id: Incarnation,
    },
    /// Nobody was named.
    #[error("no source was named for {version}")]
    Nobody {
        /// What.
        version: WeightVersion,
    },
}

impl UnknownSource {
    /// Whom to blame; 0 where it is nobody's fault.
    pub fn source_id(&self) -> Incarnation {
        match self {
            Self::NotServing { source_id, .. } | Self::NoAddress { source_id } => *source_id,
            Self::Nobody { .. } => Incarnation(0),
        }
    }
}

/// The versions each process serves.
#[derive(Clone, Debug, Default)]
pub struct Served {
    by_process: HashMap<Incarnation, BTreeMap<u64, v1::ServedVersion>>,
}

impl Served {
    /// A process serves this now.
    pub fn add(&mut self, process: Incarnation, served: v1::ServedVersion) {
        let versions = self.by_process.entry(process).or_default();
        versions.insert(served.version, served);
        while versions.len() > KEPT {
            versions.pop_first();
        }
    }

    /// A process is no more.
    pub fn forget(&mut self, process: Incarnation) {
        self.by_process.remove(&process);
    }

    /// The model's tensors in the flat buffer, which are the same in every version; empty while no
    /// version is known.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut known = self.by_process.values().flat_map(BTreeMap::values);
        let manifest = known.find_map(|served| served.manifest.as_ref());
        let tensors = manifest.map(robust_proto::manifest::tensors);
        tensors.unwrap_or_default()
    }

    /// What a process serves of a version.
    pub fn get(
        &self,
        process: Incarnation,
        version: WeightVersion,
    ) -> Result<&v1::ServedVersion, UnknownSource> {
        self.by_process
            .get(&process)
            .and_then(|versions| versions.get(&version.0))
            .ok_or(UnknownSource::NotServing {
                source_id: process,
                version,
            })
    }
}

/// A source's share of the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The first of its chunks.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// The order to pull: sources in order, each with its share (`share(total chunks, source's place)`).
pub fn pull_order(
    served: &Served,
    version: WeightVersion,
    sources: &[(Incarnation, String)],
    share: impl Fn(u64, usize) -> Share,
) -> Result<v1::PullWeights, UnknownSource> {
    let (first, _) = sources.first().ok_or(UnknownSource::Nobody { version })?;
    let manifest = served
        .get(*first, version)?
        .manifest
        .clone()
        .unwrap_or_default();
    let total = manifest.chunk_xxh3.len() as u64;
    let sources = sources.iter().enumerate().map(|(place, (source, addr))| {
        if addr.is_empty() {
            return Err(UnknownSource::NoAddress { source_id: *source });
        }
        let Share { first, count } = share(total, place);
        Ok(v1::PullSource {
            incarnation: source.0,
            transport_addr: addr.clone(),
            region: served.get(*source, version)?.region.clone(),
            first_chunk: first,
            chunk_count: count,
        })
    });
    let sources = sources.collect::<Result<_, _>>()?;
    Ok(v1::PullWeights {
        version: version.0,
        manifest: Some(manifest),
        sources,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);
    const V: WeightVersion = WeightVersion(5);

    fn version(version: u64, chunks: usize) -> v1::ServedVersion {
        let manifest = v1::Manifest {
            chunk_xxh3: vec![0; chunks],
            ..Default::default()
        };
        v1::ServedVersion {
            version,
            manifest: Some(manifest),
            region: None,
        }
    }

    fn halves(total: u64, place: usize) -> Share {
        Share {
            first: total / 2 * place as u64,
            count: total / 2,
        }
    }

    #[test]
    fn each_source_gets_its_share() {
        let mut served = Served::default();
        served.add(A, version(5, 8));
        served.add(B, version(5, 8));
        let sources = [(A, "a:1".to_owned()), (B, "b:1".to_owned())];
        let order = pull_order(&served, V, &sources, halves).unwrap();
        let shares: Vec<_> = order
            .sources
            .iter()
            .map(|s| (s.incarnation, s.first_chunk, s.chunk_count))
            .collect();
        assert_eq!(shares, [(1, 0, 4), (2, 4, 4)]);
    }

    #[test]
    fn a_source_that_is_gone_or_has_moved_on_is_named() {
        let mut served = Served::default();
        for v in 3..=5 {
            served.add(A, version(v, 8));
        }
        assert!(served.get(A, WeightVersion(4)).is_ok());
        assert!(
            served.get(A, WeightVersion(3)).is_err(),
            "its buffer was used again"
        );
        served.forget(A);
        let sources = [(A, "a:1".to_owned())];
        let error = pull_order(&served, V, &sources, halves).unwrap_err();
        assert_eq!(error.to_string(), "#1 is not known to serve v5");
        assert_eq!(error.source_id(), A);
    }
}
