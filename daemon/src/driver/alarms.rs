//! What an operator must act on: shown for as long as it holds, in the status, the metrics and the
//! console's header. Raising and lowering each make an event.
use super::Driver;
use crate::ckpt::CkptEvent;
use crate::store::Condition;
use robust_proto::v1;
use robust_shared::core::{Severity, View};
pub use robust_shared::wire::Alarm;
use robust_shared::wire::FollowerState;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a leader may be without anybody who follows it.
const ALONE: Duration = Duration::from_secs(10);

/// The alarms that hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Alarms(BTreeMap<Alarm, v1::Alarm>);

impl Alarms {
    /// Whether it is news.
    pub fn raise(&mut self, alarm: Alarm, text: String, now_ms: u64) -> bool {
        let news = !self.0.contains_key(&alarm);
        let entry = self.0.entry(alarm).or_insert_with(|| v1::Alarm {
            kind: alarm.word().to_owned(),
            since_ms: now_ms,
            ..Default::default()
        });
        entry.text = text;
        news
    }

    /// Whether it was there.
    pub fn lower(&mut self, alarm: Alarm) -> bool {
        self.0.remove(&alarm).is_some()
    }

    /// Whether it is there, with these words.
    pub fn says(&self, alarm: Alarm, text: &str) -> bool {
        self.0.get(&alarm).is_some_and(|raised| raised.text == text)
    }

    /// Whether it is there.
    pub fn holds(&self, alarm: Alarm) -> bool {
        self.0.contains_key(&alarm)
    }

    /// For the status.
    pub fn shown(&self) -> Vec<v1::Alarm> {
        self.0.values().cloned().collect()
    }
}

impl Driver {
    /// Says when no other controller would go on with the job.
    pub(super) fn look_for_followers(&mut self) {
        let feeds = &self.parts.feeds;
        let Some(controllers) = feeds.controllers() else {
            return;
        };
        let now = self.parts.clock.now();
        let mut followers = controllers.followers.iter();
        if followers.any(|follower| follower.state() == Some(FollowerState::Follows)) {
            let text = "another controller follows".to_owned();
            self.alone_since = None;
            feeds.lower(now, Alarm::NoFollower, "controllers", text);
            return;
        }
        let since = *self.alone_since.get_or_insert(now);
        if now.since(since) > ALONE && !feeds.has(Alarm::NoFollower) {
            let lacking = controllers.followers.iter();
            let lacking =
                lacking.filter(|follower| follower.state() == Some(FollowerState::LacksFiles));
            let lacking: Vec<String> = lacking
                .map(|f| format!("{}: {}", f.name, f.lacks))
                .collect();
            let text = match lacking.is_empty() {
                true => "no other controller follows, and the loss of this one stops the job: start another with \
                         `robustd --candidate NAME`"
                    .to_owned(),
                false => format!(
                    "no other controller could lead, and the loss of this one stops the job, as they lack files of it; {}",
                    lacking.join("; ")
                ),
            };
            let (alarm, severity) = (Alarm::NoFollower, Severity::Warn);
            feeds.raise(now, alarm, severity, "controllers", text);
        }
    }

    /// Says which nodes are cordoned for their faults, as long as they are. The core's own event says why.
    pub(super) fn look_for_lemons(&self, view: &View) {
        let out = view.nodes.iter().filter(|n| n.node.faults.cordoned());
        let names: Vec<&str> = out.map(|n| n.node.spec.name.as_str()).collect();
        let (now, feeds) = (self.parts.clock.now(), &self.parts.feeds);
        match names.first() {
            None => {
                let text = "no node is cordoned for its faults any more".to_owned();
                feeds.lower(now, Alarm::LemonNode, "lemon", text);
            }
            Some(first) => {
                let text = format!(
                    "cordoned for faults of its own: {}; see `robustctl nodes`, and when the machine is mended \
                     `robustctl uncordon {first}`",
                    names.join(", ")
                );
                if !feeds.says(Alarm::LemonNode, &text) {
                    feeds.raise(now, Alarm::LemonNode, Severity::Warn, "lemon", text);
                }
            }
        }
    }

    /// The database's condition changed.
    pub(super) fn show_condition(&self, condition: &Condition) {
        let now = self.parts.clock.now();
        let feeds = &self.parts.feeds;
        let text = condition.to_string();
        match condition {
            Condition::Full { .. } => {
                feeds.raise(now, Alarm::DatabaseFull, Severity::Fault, "store", text);
            }
            Condition::Damaged { .. } => {
                feeds.raise(now, Alarm::DatabaseDamaged, Severity::Fault, "store", text);
            }
            Condition::LogAway { .. } => {
                feeds.raise(now, Alarm::LogAway, Severity::Fault, "store", text);
            }
            Condition::Sound => {
                feeds.lower(now, Alarm::DatabaseFull, "store", text.clone());
                feeds.lower(now, Alarm::LogAway, "store", text);
            }
        }
    }

    /// Something happened to a checkpoint.
    pub(super) fn on_checkpoint(&mut self, event: &CkptEvent) {
        if let CkptEvent::Written {
            step, generation, ..
        } = event
        {
            self.written = Some((*step, *generation));
            self.say_what_is_safe();
            if let Some(uploader) = &self.parts.uploader {
                // One that is behind is counted, and the next one is another chance.
                let _ = uploader.offer(*step);
            }
        }
        if let CkptEvent::Put {
            step, generation, ..
        } = event
        {
            self.written = Some((*step, *generation));
        }
        let now = self.parts.clock.now();
        self.taped.checkpoint(now, event);
        let (feeds, text) = (&self.parts.feeds, event.to_string());
        let (alarm, severity) = (Alarm::CheckpointsPaused, event.severity());
        match event {
            CkptEvent::Paused { .. } => feeds.raise(now, alarm, severity, "checkpoint", text),
            CkptEvent::Resumed { .. } => feeds.lower(now, alarm, "checkpoint", text),
            CkptEvent::NotUploaded { .. } => {
                feeds.raise(now, Alarm::StoreAway, severity, "checkpoint", text);
            }
            CkptEvent::Uploaded { url, .. } | CkptEvent::Put { url, .. } => {
                feeds.note(now, severity, "checkpoint", text);
                let text = format!("{url} takes checkpoints again");
                feeds.lower(now, Alarm::StoreAway, "checkpoint", text);
            }
            _ => feeds.note(now, severity, "checkpoint", text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_news_once_and_keeps_the_time_when_it_began() {
        let mut alarms = Alarms::default();
        assert!(alarms.raise(Alarm::DatabaseFull, "1 MiB left".to_owned(), 5));
        assert!(!alarms.raise(Alarm::DatabaseFull, "0 MiB left".to_owned(), 9));
        let shown = alarms.shown();
        assert_eq!(shown.len(), 1);
        assert_eq!((shown[0].since_ms, &*shown[0].text), (5, "0 MiB left"));
        assert_eq!(shown[0].kind, "database full");
        assert!(alarms.lower(Alarm::DatabaseFull));
        assert!(!alarms.lower(Alarm::DatabaseFull));
        assert_eq!(alarms.shown(), []);
    }
}
