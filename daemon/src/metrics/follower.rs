//! What a controller that follows shows: whom it follows, how far it is behind, and whether it could lead.
use super::labels;
use super::process::ProcessCollector;
use super::sheet::{Labels, Sheet};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use std::fmt;
use std::time::Duration;

/// A controller that follows, at the moment of a scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Follower {
    /// Its name.
    pub name: String,
    /// Whom it follows; none: nobody leads, as far as is known there.
    pub leader: Option<Followed>,
    /// The number of the last group of the job's log that its store has.
    pub group: u64,
    /// Groups that its store lacks.
    pub behind: u64,
    /// Whether it could lead: it has all files of the job.
    pub may_lead: bool,
    /// Bytes of the job's files that have not come.
    pub lacks_bytes: u64,
}

/// The controller that is followed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Followed {
    /// Its name.
    pub name: String,
    /// The number of its term.
    pub epoch: u64,
    /// When it was first seen to lead, as Unix time in seconds.
    pub since: f64,
    /// Since its last sign of life.
    pub silent: Duration,
}

/// All metrics of a controller that follows.
pub struct FollowerMetrics {
    registry: Registry,
}

impl FollowerMetrics {
    /// Of the controller that `now` describes.
    pub fn new(now: impl Fn() -> Follower + Send + Sync + 'static) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessCollector));
        let ours = registry.sub_registry_with_prefix("robust");
        ours.register_collector(Box::new(FollowerCollector(Box::new(now))));
        Self { registry }
    }

    /// The text of a scrape (OpenMetrics).
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        prometheus_client::encoding::text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

struct FollowerCollector(Box<dyn Fn() -> Follower + Send + Sync>);

impl fmt::Debug for FollowerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FollowerCollector(..)")
    }
}

impl Collector for FollowerCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)().write(&mut Sheet(encoder))
    }
}

/// Whether the controller of this name, which is the one that is scraped, leads.
pub(super) fn leads(sheet: &mut Sheet<'_>, name: &str, leads: bool) -> fmt::Result {
    let help = "1 where the controller that is scraped leads, 0 where it follows.";
    let row = (labels([("name", name)]), f64::from(u8::from(leads)));
    sheet.gauges("candidate_leads", help, [row])
}

impl Follower {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        leads(sheet, &self.name, false)?;
        let mut own = |name: &str, help: &str, value: f64| {
            let row = (labels([("name", &*self.name)]), value);
            sheet.gauges(name, help, [row])
        };
        let help =
            "The last group of the job's log that the store of a controller that follows has.";
        own("candidate_group", help, self.group as f64)?;
        let help = "Groups of the job's log that a controller that follows has yet to read, by itself. Normal: 0 to 5.";
        own("candidate_behind_groups", help, self.behind as f64)?;
        let help =
            "1 where a controller that follows has all files of the job, so that it may lead.";
        let may_lead = f64::from(u8::from(self.may_lead));
        own("candidate_may_lead", help, may_lead)?;
        let help = "Bytes of the job's files that have yet to come to a controller that follows. Normal: 0.";
        own("candidate_lacks_bytes", help, self.lacks_bytes as f64)?;
        self.followed(sheet)
    }

    fn followed(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let row =
            |of: &Followed| -> Labels { labels([("name", &*self.name), ("leader", &*of.name)]) };
        let leader = || self.leader.iter();
        let epoch = leader().map(|of| (row(of), of.epoch as f64));
        let help = "The number of the term of the leader that a controller follows. No series: it knows of none. While etcd cannot be reached, the last one that it knew of.";
        sheet.gauges("candidate_epoch", help, epoch)?;
        let since = leader().map(|of| (row(of), of.since));
        let help = "When a controller that follows first saw the leader of now to lead, as Unix time: the last takeover.";
        sheet.gauges("candidate_leader_seen_time_seconds", help, since)?;
        let silent = leader().map(|of| (row(of), of.silent.as_secs_f64()));
        let help = "How long the leader has given no sign of life to a controller that follows. Normal: below 0.7.";
        sheet.gauges("candidate_leader_silent_seconds", help, silent)
    }
}
