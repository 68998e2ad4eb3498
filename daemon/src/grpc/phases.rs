//! Phases for operators, as they end.
use super::words::role;
use crate::driver::{Clock, RecentPhases, span};
use robust_proto::v1;
use robust_shared::ids::{InstanceId, Role};
use robust_shared::time::Time;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tonic::Status;

/// Spans of one part: what is copied while the driver waits.
const PAGE: usize = 2_048;
/// Between two parts, where the client does not say.
const EVERY: Duration = Duration::from_millis(250);

/// What a client wants to hear of.
#[derive(Clone, Debug)]
pub struct Wanted {
    after: Time,
    follow: bool,
    every: Duration,
    role: Option<Role>,
    index: Option<u32>,
}

/// Some of the spans.
struct Page {
    spans: Vec<v1::PhaseSpan>,
    next: u64,
    more: bool,
}

impl Wanted {
    /// As it was asked for.
    pub fn from_wire(request: &v1::PhasesRequest) -> Result<Self, Status> {
        let named = Some(request.role.as_str()).filter(|name| !name.is_empty());
        let every = match request.interval_ms {
            0 => EVERY,
            ms => Duration::from_millis(u64::from(ms.clamp(50, 60_000))),
        };
        Ok(Self {
            // The last ones of that millisecond may come again: better than not at all.
            after: Time(request.after_ms.saturating_mul(1_000)),
            follow: request.follow,
            every,
            role: named.map(role).transpose()?,
            index: request.index,
        })
    }

    fn has(&self, id: InstanceId) -> bool {
        self.role.is_none_or(|role| role == id.role)
            && self.index.is_none_or(|index| index == id.index)
    }

    /// Of at most so many spans from this number on those that are wanted, and the number after them.
    /// With a time the page is the last one if all are in it, and ends with what goes on then.
    fn page(&self, recent: &RecentPhases, from: u64, now: Option<Time>) -> Page {
        let recent = recent.lock();
        let left = recent.from(from);
        let more = left.len() > PAGE;
        let next = recent.next() - left.len().saturating_sub(PAGE) as u64;
        let over = left.take(PAGE).filter(|over| self.has(over.id));
        let goes_on = now.filter(|_| !more).into_iter();
        let present = goes_on.flat_map(|now| recent.present(now));
        let present = present.filter(|present| self.has(present.id));
        let told = over.map(|over| span(over, false));
        Page {
            spans: told
                .chain(present.map(|present| span(&present, true)))
                .collect(),
            next,
            more,
        }
    }
}

/// Sends those that are kept, then new ones; ends when the client leaves.
pub async fn send(
    recent: RecentPhases,
    clock: Clock,
    wanted: Wanted,
    to: Sender<Result<v1::PhasesPart, Status>>,
) -> Option<()> {
    let mut ticks = tokio::time::interval(wanted.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut next = recent.lock().after(wanted.after);
    loop {
        tokio::select! {
            () = to.closed() => return None,
            _ = ticks.tick() => {}
        }
        loop {
            let once = (!wanted.follow).then(|| clock.now());
            let Page {
                spans,
                next: n,
                more,
            } = wanted.page(&recent, next, once);
            next = n;
            if !spans.is_empty() {
                to.send(Ok(v1::PhasesPart { spans })).await.ok()?;
            }
            if !more {
                break;
            }
        }
        if !wanted.follow {
            return Some(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::ids::{Incarnation, Step};
    use robust_shared::phase::Phase;
    use tokio::sync::mpsc::{Receiver, channel};

    fn at(ms: u64) -> Time {
        Time((1_000_000 + ms) * 1_000)
    }

    fn enter(recent: &RecentPhases, ms: u64, index: u32, phase: Phase) {
        let id = InstanceId {
            role: Role::Rollout,
            index,
        };
        let entered = (phase, Step(1));
        recent.lock().enter(at(ms), id, Incarnation(3), entered);
    }

    fn asked(
        recent: &RecentPhases,
        request: v1::PhasesRequest,
    ) -> Receiver<Result<v1::PhasesPart, Status>> {
        let (to, parts) = channel(1);
        let wanted = Wanted::from_wire(&request).unwrap();
        let clock = Clock::starting_after(at(900));
        tokio::spawn(send(recent.clone(), clock, wanted, to));
        parts
    }

    async fn next(parts: &mut Receiver<Result<v1::PhasesPart, Status>>) -> Vec<(u32, String, u64)> {
        let part = parts.recv().await.unwrap().unwrap();
        let line = |s: v1::PhaseSpan| (s.index, s.phase, s.ms);
        part.spans.into_iter().map(line).collect()
    }

    #[tokio::test]
    async fn who_asks_once_gets_what_is_over_and_what_goes_on() {
        let recent = RecentPhases::default();
        enter(&recent, 0, 0, Phase::Idle);
        enter(&recent, 10, 1, Phase::Idle);
        enter(&recent, 30, 0, Phase::Generating);
        enter(&recent, 40, 1, Phase::Generating);
        let only = v1::PhasesRequest {
            role: "rollout".into(),
            index: Some(1),
            ..Default::default()
        };
        let mut parts = asked(&recent, only);
        let spans = next(&mut parts).await;
        assert_eq!(spans.len(), 2);
        let (idle, generating) = (&spans[0], &spans[1]);
        assert_eq!(*idle, (1, "idle".to_owned(), 30));
        assert!(generating.1 == "generating" && generating.2 >= 860);
        assert!(parts.recv().await.is_none(), "that was all");
    }

    #[tokio::test]
    async fn who_follows_gets_each_once_also_when_it_comes_back_with_the_last_end() {
        let recent = RecentPhases::default();
        enter(&recent, 0, 0, Phase::Idle);
        enter(&recent, 30, 0, Phase::Generating);
        let request = v1::PhasesRequest {
            follow: true,
            ..Default::default()
        };
        let mut parts = asked(&recent, request.clone());
        assert_eq!(next(&mut parts).await, [(0, "idle".to_owned(), 30)]);
        enter(&recent, 70, 0, Phase::Idle);
        assert_eq!(next(&mut parts).await, [(0, "generating".to_owned(), 40)]);
        drop(parts);
        enter(&recent, 90, 0, Phase::Generating);
        let after_ms = at(70).millis();
        let mut parts = asked(
            &recent,
            v1::PhasesRequest {
                after_ms,
                ..request
            },
        );
        assert_eq!(next(&mut parts).await, [(0, "idle".to_owned(), 20)]);
    }

    #[tokio::test]
    async fn very_many_come_in_parts_and_none_is_left_out() {
        let recent = RecentPhases::default();
        let all = 2 * PAGE + 10;
        for n in 0..=all as u64 {
            let phase = [Phase::Idle, Phase::Generating][n as usize % 2];
            enter(&recent, n, 0, phase);
        }
        let mut parts = asked(&recent, v1::PhasesRequest::default());
        let mut told = 0;
        while let Some(part) = parts.recv().await {
            let spans = part.unwrap().spans;
            assert!(spans.len() <= PAGE + 1);
            told += spans.len();
        }
        assert_eq!(told, all + 1, "and the one that goes on");
    }
}
