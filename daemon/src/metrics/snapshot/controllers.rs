//! Which controller leads, and which ones follow it.
use super::super::follower;
use super::{Labels, Sheet, Snapshot, labels};
use robust_proto::v1;
use robust_shared::wire::FollowerState;
use std::fmt;

impl Snapshot {
    pub(super) fn controllers(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let Some(of) = &self.status.controllers else {
            return Ok(());
        };
        follower::leads(sheet, &of.leader, true)?;
        let leader = labels([("name", &*of.leader)]);
        let help =
            "The number of the term of the controller that leads; it rises with each change.";
        sheet.gauges("controller_epoch", help, [(leader, of.epoch as f64)])?;
        let since = [(Labels::new(), of.since_ms as f64 / 1e3)];
        let help = "When the controller that leads was elected, as Unix time.";
        sheet.gauges("controller_elected_time_seconds", help, since)?;
        let row = |follower: &v1::Follower| labels([("name", &*follower.name)]);
        let follows = of.followers.iter().map(|follower| {
            let follows = follower.state() == Some(FollowerState::Follows);
            (row(follower), f64::from(u8::from(follows)))
        });
        let help = "1 for a controller that follows, and would go on with the job; 0 for one that gives no sign, or lacks files of the job.";
        sheet.gauges("controller_follows", help, follows)?;
        let behind = of.followers.iter();
        let behind = behind.map(|follower| (row(follower), follower.behind as f64));
        let help = "Groups of the job's log that a follower has yet to read. Normal: 0 to 5.";
        sheet.gauges("controller_behind_groups", help, behind)?;
        let lacks = of.followers.iter();
        let lacks = lacks.map(|follower| (row(follower), follower.lacks_bytes as f64));
        let help = "Bytes of the job's files (model, tokenizer, prompts) that have yet to come to a follower, which cannot lead before. Normal: 0.";
        sheet.gauges("controller_lacks_bytes", help, lacks)?;
        let takeover = of
            .takeover
            .iter()
            .filter(|takeover| !takeover.from.is_empty());
        let stages = takeover.flat_map(|takeover| &takeover.stages).map(|stage| {
            let stage_of = labels([("stage", &*stage.name)]);
            (stage_of, stage.ms / 1e3)
        });
        let help =
            "How long the stages of the last takeover took: silence, election, log, start, record.";
        sheet.gauges("controller_takeover_seconds", help, stages)
    }
}
