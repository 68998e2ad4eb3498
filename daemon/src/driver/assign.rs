//! From the core's choice of sources to the order that a puller gets.
use super::Driver;
use super::served::{Task, UnknownSource, pull_order};
use robust_proto::v1::{self, host_message};
use robust_shared::core::{Input, PullFailure, PullOrder, RoleEvent};
use robust_shared::ids::{Incarnation, WeightVersion};
use robust_shared::weights::{Layout, PlanCache, ReshardPlan};
use std::sync::Arc;

impl Driver {
    pub(super) fn assign_pull(
        &mut self,
        puller: Incarnation,
        PullOrder {
            version,
            order: number,
        }: PullOrder,
        sources: &[Incarnation],
        from_trainer: bool,
    ) {
        match self.order(version, sources, from_trainer) {
            Ok(mut order) => {
                order.order = number;
                let manifest = order.manifest.clone().unwrap_or_default();
                self.served.ordered(puller, version.0, manifest);
                let now = self.parts.clock.now();
                self.taped.ordered(now, puller, version, from_trainer);
                // Without an open link the core plans the pull anew when the rollout links again.
                self.links.send(puller, host_message::Body::Pull(order));
            }
            Err(unknown) => {
                let reason = unknown.to_string();
                let failure = match unknown.source_id() {
                    Some(source) => PullFailure::Source { source, reason },
                    None => PullFailure::Own { reason },
                };
                let result = Err(failure);
                self.inputs.push_back(Input::Role(
                    puller,
                    RoleEvent::Pulled {
                        version,
                        order: number,
                        result,
                    },
                ));
            }
        }
    }

    fn order(
        &mut self,
        version: WeightVersion,
        sources: &[Incarnation],
        from_trainer: bool,
    ) -> Result<v1::PullWeights, UnknownSource> {
        let addr = |s: Incarnation| self.links.hello(s).map(|h| h.transport_addr);
        let places: Vec<_> = sources
            .iter()
            .map(|&s| (s, addr(s).unwrap_or_default()))
            .collect();
        let (served, plans) = (&self.served, &mut self.plans);
        pull_order(served, version, &places, |manifest| {
            let plan = plan(plans, manifest)?;
            let ranks = manifest.shards.len();
            if from_trainer && places.len() != ranks {
                return Err(format!("{ranks} ranks published it, {} send", places.len()));
            }
            let whole = manifest.bytes;
            Ok(move |place| match from_trainer {
                true => from_rank(&plan, place),
                false => from_relay(&plan, whole),
            })
        })
    }
}

/// What moves from the ranks of the trainer, which hold what the manifest says, to a rollout, which
/// holds all weights. Of what several ranks hold each sends a share of the chunks.
fn plan(plans: &mut PlanCache, manifest: &v1::Manifest) -> Result<Arc<ReshardPlan>, String> {
    let known = robust_proto::manifest::from_proto(manifest).map_err(|e| e.to_string())?;
    let from = Layout::held(&known.tensors, &known.shards).map_err(|e| e.to_string())?;
    let to = Layout::replicated(&known.tensors, 1).map_err(|e| e.to_string())?;
    let to = to.cut_at(known.chunk_bytes);
    plans.plan(&from, &to).map_err(|e| e.to_string())
}

fn from_rank(plan: &ReshardPlan, rank: usize) -> Task {
    let range = |part: robust_shared::weights::reshard::Part| v1::ByteRange {
        src: part.src,
        dst: part.dst,
        bytes: part.len,
    };
    Task {
        parts: plan.parts(rank, 0).map(range).collect(),
        starts: Vec::new(),
    }
}

/// A relay has everything where the puller wants it.
fn from_relay(plan: &ReshardPlan, bytes: u64) -> Task {
    let (src, dst) = (0, 0);
    Task {
        parts: vec![v1::ByteRange { src, dst, bytes }],
        starts: plan.frontiers(0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::weights::{Manifest, TensorSpec};
    use std::ops::Range;

    fn manifest(elements: u64, chunk_bytes: u64, shards: &[Range<u64>]) -> v1::Manifest {
        let tensor = |name: &str, offset: u64| TensorSpec {
            name: name.to_owned(),
            dtype: "F32".to_owned(),
            shape: vec![elements],
            offset,
            bytes: elements * 4,
        };
        let tensors = vec![tensor("a", 0), tensor("b", elements * 4)];
        let bytes = vec![7; elements as usize * 8];
        let built = Manifest::build(WeightVersion(1), &bytes, chunk_bytes, tensors);
        let held = built.unwrap().held_by(shards.to_vec());
        robust_proto::manifest::to_proto(&held.unwrap())
    }

    #[test]
    fn the_ranks_together_send_every_byte_once_and_no_chunk_is_cut() {
        let mut plans = PlanCache::default();
        let whole = |ranks| vec![0..8000; ranks];
        // All hold all; each its own; the middle twice.
        for shards in [
            whole(1),
            whole(2),
            whole(3),
            whole(7),
            vec![0..2560, 2560..8000],
            vec![0..4096, 2048..8000],
        ] {
            let (manifest, ranks) = (manifest(1000, 512, &shards), shards.len());
            let plan = plan(&mut plans, &manifest).unwrap();
            let of = |rank: usize| {
                from_rank(&plan, rank)
                    .parts
                    .into_iter()
                    .map(move |p| (rank, p))
            };
            let mut sent: Vec<_> = (0..ranks).flat_map(of).collect();
            sent.sort_by_key(|(_, part)| part.dst);
            let mut next = 0;
            for (rank, part) in &sent {
                assert_eq!((part.dst, part.src + shards[*rank].start), (next, next));
                assert!(part.dst.is_multiple_of(512));
                next += part.bytes;
            }
            assert_eq!(next, manifest.bytes);
            let relay = from_relay(&plan, manifest.bytes);
            assert_eq!(relay.parts[0].bytes, manifest.bytes);
            assert_eq!(relay.starts.first(), Some(&0), "{:?}", relay.starts);
            assert!(relay.starts.len() <= ranks);
        }
    }

    #[test]
    fn a_manifest_that_is_none_makes_no_plan() {
        let mut bad = manifest(1000, 512, &vec![0..8000; 1]);
        bad.chunk_xxh3.pop();
        let error = plan(&mut PlanCache::default(), &bad).unwrap_err();
        assert!(error.contains("chunk"), "{error}");
    }
}
