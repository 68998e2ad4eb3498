//! Pulls over the network: who has which chunks, who reads them from whom.
//!
//! ```text
//!  trainer ranks ══ each its bytes of the plan ══► rollout 0 ══► rollout 1 ══► ..
//!     one flow per pair of ranks                      rank to rank, chunk by chunk, as they come
//! ```
//! A puller has a few chunks asked for at a time in each flow. A relay sends what it has verified and
//! keeps what is asked beyond that until it is there.
use super::cut::{Cut, Order};
use super::net::{Link, Net};
use std::collections::VecDeque;
use std::time::Duration;

/// Where a rollout's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// All ranks of the trainer, each its part.
    Trainer,
    /// Another rollout, from rank to rank.
    Rollout(usize),
}

/// The links of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// It sends through.
    pub out: Link,
    /// It receives through.
    pub into: Link,
    /// Computes digests.
    pub digest: Link,
}

/// A chunk on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chunk {
    host: usize,
    rank: usize,
    chunk: usize,
    pull: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    /// Asked for; maybe its source has to get it first.
    Asked,
    Here,
}

/// A sequence of chunks from one source.
#[derive(Clone, Debug, Default)]
struct Flow {
    next: usize,
    under_way: usize,
}

#[derive(Clone, Debug)]
struct Rank {
    port: Port,
    state: Vec<State>,
    flows: Vec<Flow>,
    /// Chunks that others asked for before they were here.
    parked: Vec<Chunk>,
    missing: usize,
}

#[derive(Clone, Debug)]
struct Host {
    ranks: Vec<Rank>,
    source: Option<Source>,
    pull: u64,
    /// Bytes verified.
    bytes: u64,
    /// Bytes sent to others.
    sent: u64,
}

/// The trainer, the rollouts and what is under way between them.
#[derive(Clone, Debug)]
pub struct Fabric {
    net: Net<Chunk>,
    window: usize,
    trainer: Vec<Link>,
    cuts: Vec<Cut>,
    orders: Vec<Order>,
    hosts: Vec<Host>,
    pulls: u64,
    sent_by_trainer: u64,
    done: VecDeque<(Duration, usize)>,
}

impl Fabric {
    /// Rollouts that have nothing; each with a port for each of its ranks.
    pub fn new(
        net: Net<Chunk>,
        window: usize,
        trainer: Vec<Link>,
        cuts: Vec<Cut>,
        rollouts: Vec<Vec<Port>>,
    ) -> Self {
        let orders = cuts
            .iter()
            .map(|cut| Order::of(cut, trainer.len()))
            .collect();
        let rank = |(port, cut): (Port, &Cut)| Rank {
            port,
            state: vec![State::Missing; cut.bytes.len()],
            flows: Vec::new(),
            parked: Vec::new(),
            missing: cut.bytes.len(),
        };
        let host = |ports: Vec<Port>| Host {
            ranks: ports.into_iter().zip(&cuts).map(rank).collect(),
            source: None,
            pull: 0,
            bytes: 0,
            sent: 0,
        };
        let hosts = rollouts.into_iter().map(host).collect();
        Self {
            net,
            window,
            trainer,
            orders,
            hosts,
            cuts,
            pulls: 0,
            sent_by_trainer: 0,
            done: VecDeque::new(),
        }
    }

    /// A rollout begins to pull, or goes on from another source with what it lacks.
    pub fn pull(&mut self, now: Duration, host: usize, source: Source) {
        self.pulls += 1;
        self.hosts[host].pull = self.pulls;
        self.hosts[host].source = Some(source);
        for rank in 0..self.cuts.len() {
            let flows = match source {
                Source::Trainer => self.trainer.len(),
                Source::Rollout(_) => 1,
            };
            let puller = &mut self.hosts[host].ranks[rank];
            puller.flows = vec![Flow::default(); flows];
            for state in puller.state.iter_mut().filter(|s| **s == State::Asked) {
                *state = State::Missing;
            }
            for flow in 0..flows {
                self.ask(now, host, rank, flow);
            }
        }
    }

    /// Nobody sends to this rollout any more, and it to nobody.
    pub fn stop(&mut self, host: usize) {
        self.pulls += 1;
        self.hosts[host].source = None;
        self.hosts[host].pull = self.pulls;
        for rank in &mut self.hosts[host].ranks {
            rank.state.fill(State::Missing);
            rank.missing = rank.state.len();
            rank.parked.clear();
        }
        self.hosts[host].bytes = 0;
    }

    /// Rollouts that read from this one.
    pub fn readers(&self, host: usize) -> Vec<usize> {
        let reads = |(_, reader): &(usize, &Host)| {
            let missing = reader.ranks.iter().any(|rank| rank.missing > 0);
            reader.source == Some(Source::Rollout(host)) && missing
        };
        let hosts = self.hosts.iter().enumerate();
        hosts.filter(reads).map(|(at, _)| at).collect()
    }

    /// When something happens next.
    pub fn next_at(&self) -> Option<Duration> {
        let done = self.done.front().map(|(at, _)| *at);
        done.or_else(|| self.net.next_at())
    }

    /// Lets the next thing happen. Returns a rollout that has everything by that.
    pub fn step(&mut self) -> Option<usize> {
        if let Some((_, host)) = self.done.pop_front() {
            return Some(host);
        }
        if let Some((now, Some(chunk))) = self.net.step() {
            self.verified(now, chunk);
        }
        self.done.pop_front().map(|(_, host)| host)
    }

    /// Bytes a rollout has verified.
    pub fn bytes(&self, host: usize) -> u64 {
        self.hosts[host].bytes
    }

    /// Bytes of a whole version, over all ranks of a rollout.
    pub fn total(&self) -> u64 {
        self.cuts.iter().flat_map(|cut| &cut.bytes).sum()
    }

    /// Bytes that a rollout has sent or begun to.
    pub fn sent_by(&self, host: usize) -> u64 {
        self.hosts[host].sent
    }

    /// Bytes that the trainer was asked for.
    pub fn sent_by_trainer(&self) -> u64 {
        self.sent_by_trainer
    }

    /// Asks for chunks in a flow until enough are under way.
    fn ask(&mut self, now: Duration, host: usize, rank: usize, flow: usize) {
        let Some(source) = self.hosts[host].source else {
            return;
        };
        loop {
            let Order { lanes, all } = &self.orders[rank];
            let order = match source {
                Source::Trainer => &lanes[flow],
                Source::Rollout(_) => all,
            };
            let puller = &mut self.hosts[host].ranks[rank];
            let state = &mut puller.flows[flow];
            if state.under_way >= self.window || state.next >= order.len() {
                return;
            }
            let chunk = order[state.next];
            state.next += 1;
            if puller.state[chunk] == State::Missing {
                puller.state[chunk] = State::Asked;
                state.under_way += 1;
                let pull = self.hosts[host].pull;
                let chunk = Chunk {
                    host,
                    rank,
                    chunk,
                    pull,
                };
                self.request(now, source, chunk);
            }
        }
    }

    fn request(&mut self, now: Duration, source: Source, chunk: Chunk) {
        let asked = now + self.net.latency();
        let Chunk {
            rank, chunk: at, ..
        } = chunk;
        match source {
            Source::Trainer => {
                let from = self.cuts[rank].from[at];
                self.sent_by_trainer += self.cuts[rank].bytes[at];
                self.send(now, asked, self.trainer[from], chunk);
            }
            Source::Rollout(relay) => {
                let ranks = &mut self.hosts[relay].ranks;
                match ranks[rank].state[at] {
                    State::Here => self.relay(now, asked, relay, chunk),
                    _ => ranks[rank].parked.push(chunk),
                }
            }
        }
    }

    /// A rollout sends what it has.
    fn relay(&mut self, now: Duration, asked: Duration, relay: usize, chunk: Chunk) {
        let out = self.hosts[relay].ranks[chunk.rank].port.out;
        self.hosts[relay].sent += self.cuts[chunk.rank].bytes[chunk.chunk];
        self.send(now, asked, out, chunk);
    }

    fn send(&mut self, now: Duration, asked: Duration, out: Link, chunk: Chunk) {
        let port = self.hosts[chunk.host].ranks[chunk.rank].port;
        let bytes = self.cuts[chunk.rank].bytes[chunk.chunk];
        let path = [out, port.into, port.digest];
        self.net.send(now, asked, path, bytes, chunk);
    }

    fn verified(&mut self, now: Duration, chunk: Chunk) {
        let Chunk {
            host,
            rank,
            chunk: at,
            pull,
        } = chunk;
        if self.hosts[host].pull != pull {
            return;
        }
        let flow = match self.hosts[host].source {
            Some(Source::Trainer) => self.cuts[rank].from[at],
            _ => 0,
        };
        self.hosts[host].bytes += self.cuts[rank].bytes[at];
        let here = &mut self.hosts[host].ranks[rank];
        here.state[at] = State::Here;
        here.missing -= 1;
        here.flows[flow].under_way -= 1;
        while let Some(place) = here_for(&self.hosts[host].ranks[rank].parked, at) {
            let reader = self.hosts[host].ranks[rank].parked.swap_remove(place);
            if self.hosts[reader.host].pull == reader.pull {
                self.relay(now, now, host, reader);
            }
        }
        self.ask(now, host, rank, flow);
        if self.hosts[host].ranks.iter().all(|rank| rank.missing == 0) {
            self.done.push_back((now, host));
        }
    }
}

/// A reader that waits for this chunk.
fn here_for(parked: &[Chunk], chunk: usize) -> Option<usize> {
    parked.iter().position(|reader| reader.chunk == chunk)
}
