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
    /// What it says of the version makes no plan.
    #[error("the manifest of {source_id}: {reason}")]
    NoPlan {
        /// Who.
        source_id: Incarnation,
        /// Why.
        reason: String,
    },
    /// Nobody was named.
    #[error("no source was named for {version}")]
    Nobody {
        /// What.
        version: WeightVersion,
    },
}

impl UnknownSource {
    /// Whom to blame; none where it is nobody's fault.
    pub fn source_id(&self) -> Option<Incarnation> {
        match self {
            Self::NotServing { source_id, .. }
            | Self::NoAddress { source_id }
            | Self::NoPlan { source_id, .. } => Some(*source_id),
            Self::Nobody { .. } => None,
        }
    }
}

/// What each process can be read from: versions that are whole, and pulls under way.
#[derive(Clone, Debug, Default)]
pub struct Served {
    by_process: HashMap<Incarnation, Holder>,
}

#[derive(Clone, Debug, Default)]
struct Holder {
    whole: BTreeMap<u64, v1::ServedVersion>,
    /// The order it was sent last: what its pull is checked against.
    ordered: Option<(u64, v1::Manifest)>,
    /// The version it pulls, readable as it comes.
    growing: Option<(u64, v1::Region)>,
}

/// Where a version can be read, and what it is checked by.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// The memory.
    pub region: Option<&'a v1::Region>,
    /// The content.
    pub manifest: Option<&'a v1::Manifest>,
}

impl Served {
    /// A process serves this now.
    pub fn add(&mut self, process: Incarnation, served: v1::ServedVersion) {
        let holder = self.by_process.entry(process).or_default();
        holder
            .growing
            .take_if(|(version, _)| *version <= served.version);
        holder.whole.insert(served.version, served);
        while holder.whole.len() > KEPT {
            holder.whole.pop_first();
        }
    }

    /// A process is told to pull a version of this content.
    pub fn ordered(&mut self, process: Incarnation, version: u64, manifest: v1::Manifest) {
        let holder = self.by_process.entry(process).or_default();
        // What it has of another content is not what readers would check it by.
        let other = |(of, before): &(u64, v1::Manifest)| *of == version && *before != manifest;
        if holder.ordered.as_ref().is_some_and(other) {
            holder.growing.take_if(|(of, _)| *of == version);
        }
        holder.ordered = Some((version, manifest));
    }

    /// A process pulls this version, into the buffer of the one before that it serves.
    pub fn growing(&mut self, process: Incarnation, started: v1::PullStarted) {
        let holder = self.by_process.entry(process).or_default();
        while holder.whole.len() > 1 {
            holder.whole.pop_first();
        }
        holder.growing = started.region.map(|region| (started.version, region));
    }

    /// A process is no more.
    pub fn forget(&mut self, process: Incarnation) {
        self.by_process.remove(&process);
    }

    /// The model's tensors in the trainer's flat buffer, which are the same in every version; empty while
    /// no version is known.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let holders = self.by_process.values();
        let mut known = holders.flat_map(|holder| holder.whole.values());
        let manifest = known.find_map(|served| served.manifest.as_ref());
        let tensors = manifest.map(robust_proto::manifest::tensors);
        tensors
            .unwrap_or_default()
            .into_iter()
            .map(in_state)
            .collect()
    }

    /// What a process has of a version.
    pub fn get(
        &self,
        process: Incarnation,
        version: WeightVersion,
    ) -> Result<Held<'_>, UnknownSource> {
        let source_id = process;
        let unknown = UnknownSource::NotServing { source_id, version };
        let holder = self.by_process.get(&process).ok_or(unknown.clone())?;
        if let Some(whole) = holder.whole.get(&version.0) {
            let (region, manifest) = (whole.region.as_ref(), whole.manifest.as_ref());
            return Ok(Held { region, manifest });
        }
        let growing = holder.growing.as_ref().filter(|(v, _)| *v == version.0);
        let (_, region) = growing.ok_or(unknown)?;
        let ordered = holder.ordered.as_ref().filter(|(v, _)| *v == version.0);
        Ok(Held {
            region: Some(region),
            // The order of an earlier life of this daemon is not known; others have the content.
            manifest: ordered.map(|(_, m)| m).or_else(|| self.manifest(version)),
        })
    }

    /// What names a version's content, hex.
    pub fn digest(&self, version: WeightVersion) -> Option<String> {
        let digest = &self.manifest(version)?.blake3;
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// What the version answers, as its trainer computed it; none where no trainer says so.
    fn canary(&self, version: WeightVersion) -> Option<&v1::Canary> {
        let mut holders = self.by_process.values();
        holders.find_map(|holder| holder.whole.get(&version.0)?.canary.as_ref())
    }

    fn manifest(&self, version: WeightVersion) -> Option<&v1::Manifest> {
        let mut holders = self.by_process.values();
        holders.find_map(|holder| holder.whole.get(&version.0)?.manifest.as_ref())
    }
}

/// What a source is to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Which of its bytes are which of the puller's.
    pub parts: Vec<v1::ByteRange>,
    /// Of a relay: where it gets its own bytes from on, see `PullSource.starts`.
    pub starts: Vec<u64>,
}

/// The order to pull: sources in order, each with its task. `tasks` makes, of the version's content,
/// what says the task of the source at a place.
pub fn pull_order<T: Fn(usize) -> Task>(
    served: &Served,
    version: WeightVersion,
    sources: &[(Incarnation, String)],
    tasks: impl FnOnce(&v1::Manifest) -> Result<T, String>,
) -> Result<v1::PullWeights, UnknownSource> {
    let (first, _) = sources.first().ok_or(UnknownSource::Nobody { version })?;
    let manifest = served.get(*first, version)?.manifest;
    let source_id = *first;
    let manifest = manifest.ok_or(UnknownSource::NotServing { source_id, version })?;
    let task = tasks(manifest).map_err(|reason| UnknownSource::NoPlan { source_id, reason })?;
    let sources = sources.iter().enumerate().map(|(place, (source, addr))| {
        if addr.is_empty() {
            return Err(UnknownSource::NoAddress { source_id: *source });
        }
        let Task { parts, starts } = task(place);
        Ok(v1::PullSource {
            incarnation: source.0,
            transport_addr: addr.clone(),
            region: served.get(*source, version)?.region.cloned(),
            parts,
            starts,
        })
    });
    Ok(v1::PullWeights {
        version: version.0,
        sources: sources.collect::<Result<_, _>>()?,
        manifest: Some(manifest.clone()),
        canary: served.canary(version).cloned(),
        order: 0,
    })
}

/// A published tensor as the trainer's state has it: in float32 also where versions are bfloat16.
fn in_state(tensor: TensorSpec) -> TensorSpec {
    match tensor.dtype.as_str() {
        "BF16" => TensorSpec {
            dtype: "F32".to_owned(),
            offset: tensor.offset * 2,
            bytes: tensor.bytes * 2,
            ..tensor
        },
        _ => tensor,
    }
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
            canary: None,
        }
    }

    fn halves(manifest: &v1::Manifest) -> Result<impl Fn(usize) -> Task + use<>, String> {
        let bytes = manifest.chunk_xxh3.len() as u64 / 2;
        Ok(move |place| {
            let at = bytes * place as u64;
            let (src, dst) = (at, at);
            let (parts, starts) = (vec![v1::ByteRange { src, dst, bytes }], Vec::new());
            Task { parts, starts }
        })
    }

    fn started(version: u64) -> v1::PullStarted {
        let (key, bytes) = (vec![version as u8], 8);
        v1::PullStarted {
            version,
            order: 1,
            region: Some(v1::Region {
                key,
                bytes,
                patches: Vec::new(),
            }),
        }
    }

    fn region(served: &Served, process: Incarnation, version: u64) -> Option<u8> {
        let held = served.get(process, WeightVersion(version)).ok()?;
        Some(held.region?.key[0])
    }

    #[test]
    fn a_pull_under_way_is_a_source_with_what_it_was_ordered() {
        let mut served = Served::default();
        served.add(A, version(4, 8));
        let ordered = version(5, 3).manifest.unwrap_or_default();
        served.ordered(A, 5, ordered.clone());
        assert_eq!(region(&served, A, 5), None, "it has not begun");
        served.growing(A, started(5));
        assert_eq!(region(&served, A, 5), Some(5));
        assert_eq!(served.get(A, V).unwrap().manifest, Some(&ordered));
        assert!(served.get(A, WeightVersion(4)).is_ok(), "it serves that");
        served.ordered(A, 5, ordered);
        assert_eq!(region(&served, A, 5), Some(5), "the same once more");
        let other = version(5, 4).manifest.unwrap_or_default();
        served.ordered(A, 5, other.clone());
        assert_eq!(region(&served, A, 5), None, "there is other content in it");
        served.growing(A, started(5));
        assert_eq!(served.get(A, V).unwrap().manifest, Some(&other));
        // A newer one takes its buffer; what is served stays.
        served.growing(A, started(6));
        assert_eq!(
            (region(&served, A, 5), region(&served, A, 6)),
            (None, Some(6))
        );
        assert!(served.get(A, WeightVersion(4)).is_ok());
        served.add(A, version(6, 8));
        served.growing(A, started(7));
        assert!(
            served.get(A, WeightVersion(4)).is_err(),
            "its buffer is filled with v7"
        );
        assert!(served.get(A, WeightVersion(6)).is_ok());
    }

    #[test]
    fn after_a_restart_the_content_of_a_pull_is_known_from_others() {
        let mut served = Served::default();
        served.growing(A, started(5));
        let sources = [(A, "a:1".to_owned())];
        assert!(pull_order(&served, V, &sources, halves).is_err());
        served.add(B, version(5, 8));
        let order = pull_order(&served, V, &sources, halves).unwrap();
        assert_eq!(order.manifest, version(5, 8).manifest);
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
            .map(|s| (s.incarnation, s.parts[0].src, s.parts[0].bytes))
            .collect();
        assert_eq!(shares, [(1, 0, 4), (2, 4, 4)]);
    }

    #[test]
    fn a_relays_puller_gets_the_canary_of_the_trainer() {
        let mut served = Served::default();
        let canary = v1::Canary {
            ids: vec![7],
            ..Default::default()
        };
        let of_trainer = v1::ServedVersion {
            canary: Some(canary.clone()),
            ..version(5, 8)
        };
        served.add(A, of_trainer);
        served.add(B, version(5, 8));
        let sources = [(B, "b:1".to_owned())];
        let order = pull_order(&served, V, &sources, halves).unwrap();
        assert_eq!(order.canary, Some(canary));
    }

    #[test]
    fn tensors_of_a_bfloat16_version_are_those_of_the_trainers_float32() {
        let published = TensorSpec {
            name: "w".to_owned(),
            dtype: "BF16".to_owned(),
            shape: vec![2, 3],
            offset: 8,
            bytes: 12,
        };
        let of_state = in_state(published.clone());
        assert_eq!((of_state.offset, of_state.bytes), (16, 24));
        assert_eq!(
            (of_state.dtype.as_str(), of_state.shape),
            ("F32", published.shape)
        );
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
        assert_eq!(error.source_id(), Some(A));
    }
}
