//! The ranks' gradients, summed.
//!
//! Each rank writes its gradient into a region that its peers can read, tells them, and fetches
//! theirs. Two regions by the step's parity suffice: a rank that writes step s+2 has seen every
//! peer's notice of s+1, which is sent only after that peer's fetches of s.
//!
//! A notice names the region to be fetched from, whose number nobody but the gang was told: another process of the
//! job cannot say in a rank's name that its gradient is there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use robust_proto::v1::Peer;
use robust_transport::{
    Address, Buffer, BufferError, Cancel, Exposed, FetchError, Part, RegionKey, Transport,
    TransportError,
};
use tch::Tensor;

use crate::model::flat::{tensor_bytes, tensor_bytes_mut};

/// Statistics that travel behind a gradient, each a little-endian float64.
pub(super) const STATISTICS: usize = 4;

/// How long a failing peer is tried again beyond the time that the daemon takes to see that a node
/// is lost. A dead peer is the daemon's to see, within 100 ms, a dead node too, and it then ends this
/// rank as well: reporting an error at once would let the echo of a death compete with the death
/// itself for the verdict. What is left are two ranks that cannot reach each other though the daemon
/// reaches both.
const ECHO_WINDOW: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(100);

/// How long a failing peer is tried again in a job whose nodes are lost after `node_lost`.
pub(super) fn patience(node_lost: Duration) -> Duration {
    node_lost + ECHO_WINDOW
}

/// Why the gradients could not be summed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Restore has not told the peers yet, or told nonsense.
    #[error("peers: {0}")]
    Peers(String),
    /// A peer could not be told.
    #[error("telling rank {rank} of the gradient: {source}")]
    Notify {
        /// The peer.
        rank: u32,
        /// What the transport said.
        source: TransportError,
    },
    /// A peer's gradient could not be fetched.
    #[error("fetching the gradient of rank {rank}: {source}")]
    Fetch {
        /// The peer.
        rank: u32,
        /// What the transport said.
        source: FetchError,
    },
    /// Memory.
    #[error(transparent)]
    Buffer(#[from] BufferError),
}

struct Remote {
    rank: u32,
    addr: Address,
    regions: Vec<RegionKey>,
    landing: Arc<Buffer>,
}

impl Remote {
    fn region_of(&self, step: u64) -> &RegionKey {
        &self.regions[(step % 2) as usize]
    }
}

/// Numbers of regions were counted from 1 in earlier builds, whose notices name none; drawn at random from 2^64 none is so
/// small.
const COUNTED: u64 = 1 << 32;

/// That a rank's gradient of a step can be fetched: four little-endian numbers of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Notice {
    generation: u64,
    step: u64,
    rank: u32,
    /// The number of the region that it is in; absent from a rank of an earlier build.
    region: Option<u64>,
}

impl Notice {
    fn to_bytes(self) -> Vec<u8> {
        let numbers = [self.generation, self.step, self.rank.into()];
        let numbers = numbers.into_iter().chain(self.region);
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
        let (&[generation, step, rank], region) = numbers.split_first_chunk()?;
        let region = match region {
            [] => None,
            [region] => Some(*region),
            _ => return None,
        };
        let rank = u32::try_from(rank).ok().filter(|_| rest.is_empty())?;
        Some(Self {
            generation,
            step,
            rank,
            region,
        })
    }

    /// Whether one of these said it, or somebody who was told of its regions.
    fn is_of(&self, remotes: &[Remote]) -> bool {
        let remote = remotes.iter().find(|remote| remote.rank == self.rank);
        let known = remote.map(|remote| remote.region_of(self.step).region);
        known.is_some_and(|known| self.region.map_or(known < COUNTED, |named| named == known))
    }
}

/// This rank's view of the gang.
pub(super) struct Exchange {
    transport: Transport,
    generation: u64,
    rank: u32,
    ranks: u32,
    /// How long a peer that fails is tried again.
    patience: Duration,
    remotes: Vec<Remote>,
    /// (step, rank) of gradients that can be fetched.
    ready: BTreeSet<(u64, u32)>,
}

impl Exchange {
    pub fn new(transport: Transport, generation: u64, rank: u32, patience: Duration) -> Self {
        let (remotes, ready) = Default::default();
        Self {
            transport,
            generation,
            rank,
            ranks: 0,
            patience,
            remotes,
            ready,
        }
    }

    /// Learns who the peers are, this rank included.
    pub fn set_peers(&mut self, peers: &[Peer], bytes: usize) -> Result<(), ExchangeError> {
        let bad = |why: String| ExchangeError::Peers(why);
        let mut remotes = Vec::new();
        for (rank, peer) in (0u32..).zip(peers) {
            if peer.rank != rank {
                return Err(bad(format!("rank {} where rank {rank} was due", peer.rank)));
            }
            if rank == self.rank {
                continue;
            }
            let addr = peer.transport_addr.parse();
            let addr = addr.map_err(|error| bad(format!("{:?}: {error}", peer.transport_addr)))?;
            let key = |region: &robust_proto::v1::Region| RegionKey::from_bytes(&region.key);
            let regions: Result<Vec<_>, _> = peer.gradients.iter().map(key).collect();
            let regions = regions.map_err(|error| bad(format!("rank {rank}: {error}")))?;
            let fits = |region: &robust_proto::v1::Region| region.bytes == bytes as u64;
            if regions.len() != 2 || !peer.gradients.iter().all(fits) {
                return Err(bad(format!(
                    "rank {rank} has other gradient regions than this rank"
                )));
            }
            remotes.push(Remote {
                rank,
                addr,
                regions,
                landing: Buffer::new(bytes)?,
            });
        }
        if self.rank as usize >= peers.len() {
            return Err(bad(format!(
                "{} ranks, this is rank {}",
                peers.len(),
                self.rank
            )));
        }
        self.ranks = u32::try_from(peers.len()).unwrap_or(u32::MAX);
        self.remotes = remotes;
        Ok(())
    }

    /// Fills `own` with this rank's gradient and statistics, and returns the sums over all ranks,
    /// added up in rank order. A rank that is alone has the sums already.
    pub fn sum(
        &mut self,
        step: u64,
        own: &Exposed,
        mut gradient: Tensor,
        statistics: [f64; STATISTICS],
    ) -> Result<(Tensor, [f64; STATISTICS]), ExchangeError> {
        match self.ranks {
            0 => return Err(ExchangeError::Peers("not restored yet".into())),
            1 => return Ok((gradient, statistics)),
            _ => {}
        }
        let bytes = tensor_bytes(&gradient).len();
        if own.buffer().len() != bytes + STATISTICS * 8 {
            let why = format!("the job file has one rank, the gang {}", self.ranks);
            return Err(ExchangeError::Peers(why));
        }
        // A fetch of two steps before that stalled, and was made again, may hold the bytes a little longer.
        self.persist(|| {
            Ok(own.buffer().with_bytes_mut(|region| {
                let (head, tail) = region.split_at_mut(bytes);
                head.copy_from_slice(tensor_bytes(&gradient));
                for (slot, value) in tail.chunks_exact_mut(8).zip(statistics) {
                    slot.copy_from_slice(&value.to_le_bytes());
                }
            })?)
        })?;
        let region = own.key().region;
        for remote in &self.remotes {
            self.persist(|| self.notify(step, region, remote))?;
        }
        let mut waiting: BTreeSet<u32> = self.remotes.iter().map(|remote| remote.rank).collect();
        while !waiting.is_empty() {
            self.take_notices();
            let ready = waiting
                .iter()
                .find(|rank| self.ready.contains(&(step, **rank)))
                .copied();
            match ready {
                Some(rank) => {
                    self.fetch(step, rank, region)?;
                    waiting.remove(&rank);
                }
                // A peer may take as long as it likes: whether it hangs is not judged here.
                None => self.note(self.transport.recv_timeout(Duration::from_secs(1))),
            }
        }
        self.ready.retain(|(other, _)| *other >= step);
        let statistics = self.add_up(own, tensor_bytes_mut(&mut gradient))?;
        Ok((gradient, statistics))
    }

    /// Says that the gradient can be fetched from this region. Harmless if it was said before.
    fn notify(&self, step: u64, region: u64, remote: &Remote) -> Result<(), ExchangeError> {
        let notice = Notice {
            generation: self.generation,
            step,
            rank: self.rank,
            region: Some(region),
        };
        let notice = notice.to_bytes();
        let (rank, told) = (remote.rank, self.transport.notify(remote.addr, &notice));
        told.map_err(|source| ExchangeError::Notify { rank, source })
    }

    fn take_notices(&mut self) {
        while let Some(notice) = self.transport.try_recv() {
            self.note(Some(notice));
        }
    }

    fn note(&mut self, notice: Option<Vec<u8>>) {
        let Some(notice) = notice else { return };
        match Notice::from_bytes(&notice) {
            Some(notice) if notice.generation != self.generation => {
                tracing::warn!(?notice, "a notice of another gang was dropped");
            }
            Some(notice) if notice.is_of(&self.remotes) => {
                self.ready.insert((notice.step, notice.rank));
            }
            _ => {
                tracing::warn!("a notice of a gradient that no rank of this gang sent was dropped")
            }
        }
    }

    fn fetch(&self, step: u64, rank: u32, own: u64) -> Result<(), ExchangeError> {
        let Some(remote) = self.remotes.iter().find(|remote| remote.rank == rank) else {
            return Err(ExchangeError::Peers(format!("there is no rank {rank}")));
        };
        let region = remote.region_of(step);
        let all = [Part {
            src: 0,
            dst: 0,
            len: region.len,
        }];
        let mut told = true;
        self.persist(|| {
            // A fetch that stalls takes the connection down, and with it a notice that the kernel had
            // taken: the peer would wait for it for ever.
            if !told {
                self.notify(step, own, remote)?;
            }
            let landing = &remote.landing;
            let fetched =
                self.transport
                    .fetch(remote.addr, region, &all, landing, &Cancel::new(), |_| ());
            told = fetched.is_ok();
            fetched.map_err(|source| ExchangeError::Fetch { rank, source })?;
            Ok(())
        })
    }

    /// Tries again what a peer lets fail.
    fn persist(
        &self,
        mut attempt: impl FnMut() -> Result<(), ExchangeError>,
    ) -> Result<(), ExchangeError> {
        let deadline = Instant::now() + self.patience;
        loop {
            match attempt() {
                Err(error) if Instant::now() < deadline => {
                    tracing::warn!(%error, "trying the peer again");
                    std::thread::sleep(RETRY);
                }
                result => return result,
            }
        }
    }

    /// Adds up what all ranks' regions have, into the memory of this rank's gradient, which was copied.
    fn add_up(&self, own: &Exposed, total: &mut [u8]) -> Result<[f64; STATISTICS], ExchangeError> {
        let mut statistics = [0.0; STATISTICS];
        for rank in 0..self.ranks {
            let remote = self.remotes.iter().find(|remote| remote.rank == rank);
            let buffer = remote.map_or(own.buffer(), |remote| &remote.landing);
            buffer.with_bytes(|region| {
                let (gradient, tail) = region.split_at(total.len());
                add(total, gradient, rank == 0);
                for (sum, value) in statistics.iter_mut().zip(tail.as_chunks::<8>().0) {
                    *sum += f64::from_le_bytes(*value);
                }
            })?;
        }
        Ok(statistics)
    }
}

/// Adds little-endian floats. The first addend is copied: 0 + -0 would lose the sign.
fn add(total: &mut [u8], bytes: &[u8], first: bool) {
    if first {
        return total.copy_from_slice(bytes);
    }
    let values = bytes.as_chunks::<4>().0.iter();
    for (sum, value) in total.as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *sum = (f32::from_le_bytes(*sum) + f32::from_le_bytes(*value)).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_proto::v1::Region;
    use robust_transport::{Config, JobToken};

    const GRADIENT: usize = 4 * 3;
    const BYTES: usize = GRADIENT + STATISTICS * 8;

    fn transport() -> Transport {
        Transport::start(Config::new(JobToken::new(b"tests"))).unwrap()
    }

    /// A rank's transport and the two regions of its gradients.
    struct Rank {
        transport: Transport,
        regions: [Exposed; 2],
    }

    impl Rank {
        fn new() -> Self {
            let transport = transport();
            let exposed = || transport.expose(Buffer::new(BYTES).unwrap()).unwrap();
            let regions = [exposed(), exposed()];
            Self { transport, regions }
        }

        fn as_peer(&self, rank: u32) -> Peer {
            let region = |exposed: &Exposed| Region {
                key: exposed.key().to_bytes(),
                bytes: BYTES as u64,
                ..Region::default()
            };
            Peer {
                rank,
                transport_addr: self.transport.addr().to_string(),
                gradients: self.regions.iter().map(region).collect(),
                ..Peer::default()
            }
        }
    }

    #[test]
    fn a_notice_in_a_ranks_name_counts_only_from_who_was_told_of_its_regions() {
        let (one, other, stranger) = (Rank::new(), Rank::new(), transport());
        let patience = Duration::from_secs(5);
        let mut exchange = Exchange::new(one.transport.clone(), 7, 0, patience);
        let peers = [one.as_peer(0), other.as_peer(1)];
        exchange.set_peers(&peers, BYTES).unwrap();
        let notice = |step, region| Notice {
            generation: 7,
            step,
            rank: 1,
            region: Some(region),
        };
        let real = |step: usize| other.regions[step % 2].key().region;
        let hears = |exchange: &mut Exchange, bytes: &[u8]| {
            stranger.notify(one.transport.addr(), bytes).unwrap();
            let heard = one.transport.recv_timeout(patience);
            assert!(heard.is_some());
            exchange.note(heard);
            std::mem::take(&mut exchange.ready)
        };
        // Numbers that a role of the same job may guess, the other step's region, and words of another length.
        let own = one.regions[0].key().region;
        for region in [0, 1, 2, own, real(4)] {
            let forged = notice(3, region).to_bytes();
            assert_eq!(hears(&mut exchange, &forged), BTreeSet::new(), "{region}");
        }
        let known = notice(3, real(3)).to_bytes();
        assert_eq!(hears(&mut exchange, &known[..24]), BTreeSet::new());
        let earlier = Notice {
            generation: 6,
            ..notice(3, real(3))
        };
        assert_eq!(hears(&mut exchange, &earlier.to_bytes()), BTreeSet::new());
        assert_eq!(hears(&mut exchange, &known), BTreeSet::from([(3, 1)]));
    }

    #[test]
    fn a_rank_of_an_earlier_build_whose_regions_are_counted_names_none() {
        let (one, other) = (Rank::new(), Rank::new());
        let mut exchange = Exchange::new(one.transport.clone(), 7, 0, Duration::from_secs(5));
        let counted = |exposed: &Exposed, region| RegionKey {
            region,
            ..*exposed.key()
        };
        let mut former = other.as_peer(1);
        for (at, region) in former.gradients.iter_mut().enumerate() {
            region.key = counted(&other.regions[at], 4 + at as u64).to_bytes();
        }
        let notice = Notice {
            generation: 7,
            step: 3,
            rank: 1,
            region: None,
        };
        for (peer, heard) in [(other.as_peer(1), false), (former, true)] {
            exchange.set_peers(&[one.as_peer(0), peer], BYTES).unwrap();
            exchange.note(Some(notice.to_bytes()));
            assert_eq!(exchange.ready.contains(&(3, 1)), heard);
        }
    }
}
