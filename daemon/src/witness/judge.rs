//! Whether a step's record and the own record of a trajectory that it lists say the same.
use crate::store::{OwnRecord, StoredTrajectory};
use robust_proto::v1::Span;
use robust_shared::core::{Past, Provenance, SetbackKind};
use robust_shared::ids::{Step, TrajectoryId};

/// A trajectory that a step's record lists.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Which.
    pub id: TrajectoryId,
    /// The step.
    pub step: Step,
    /// Whether the step's record says that it is not trained on; none: a former build wrote it.
    pub set_aside: Option<bool>,
    /// Whether its own record must be there still.
    pub is_kept: bool,
}

impl Listed {
    /// All that contradicts the step's record, in sentences.
    pub fn contradictions(&self, own: &OwnRecord) -> Vec<String> {
        let Self { id, step, .. } = *self;
        let mut found = Vec::new();
        if id.batch != step.0 {
            found.push(format!(
                "the record of step {step} lists {id}, which is of batch {}",
                id.batch
            ));
        }
        match own.consumed_by {
            Some(by) if by != step => found.push(format!(
                "the record of step {step} lists {id}, and its own record names step {by}"
            )),
            None if self.is_kept || own.stored.is_some() => found.push(format!(
                "the record of step {step} lists {id}, and its own record names no step"
            )),
            _ => {}
        }
        if own.is_waiting {
            found.push(format!(
                "step {step} consumed {id}, which is listed as finished and not consumed"
            ));
        }
        match &own.stored {
            Some(stored) => self.of_stored(stored, &mut found),
            None if self.is_kept && self.set_aside == Some(false) => found.push(format!(
                "step {step} trained on {id}, of which nothing is stored"
            )),
            None => {}
        }
        found
    }

    fn of_stored(&self, stored: &StoredTrajectory, found: &mut Vec<String>) {
        let Self { id, step, .. } = *self;
        match (&stored.finished, self.set_aside) {
            (None, Some(false)) => {
                found.push(format!(
                    "step {step} trained on {id}, which has no end on record"
                ));
            }
            (Some(_), Some(true)) => {
                found.push(format!("{id} was set aside, and has an end on record"));
            }
            _ => {}
        }
        let (oldest, newest) = versions(stored);
        if let Some(end) = &stored.finished {
            let turns = stored.turns.len();
            if end.turns as usize != turns {
                let told = end.turns;
                found.push(format!(
                    "the end of {id} names {told} turns, and {turns} are stored"
                ));
            }
            let (told, oldest) = (end.oldest_version, oldest.unwrap_or(0));
            if told != oldest {
                found.push(format!(
                    "the end of {id} names v{told} as its oldest weights, and its turns v{oldest}"
                ));
            }
        }
        if let Some(newest) = newest.filter(|newest| *newest >= step.0) {
            found.push(format!(
                "{id} has tokens of v{newest}, which was not made before step {step} was done"
            ));
        }
    }
}

/// The oldest and the newest weights that generated any of its tokens.
pub fn versions(stored: &StoredTrajectory) -> (Option<u64>, Option<u64>) {
    let all = || spans(stored).map(|span| span.version);
    (all().min(), all().max())
}

/// Of all its turns, and of the one under way.
pub fn spans(stored: &StoredTrajectory) -> impl Iterator<Item = &Span> {
    let whole = stored.turns.iter().flat_map(|turn| &turn.spans);
    whole.chain(&stored.running)
}

/// What is on record of how a trajectory came to its step; none: a former build did not count.
pub fn past_of(provenance: Option<&Provenance>, id: TrajectoryId) -> Option<Past> {
    let befell = provenance?.befell.iter().find(|(of, _)| *of == id);
    Some(befell.map_or_else(Past::once, |(_, past)| past.clone()))
}

/// Whether its step does without it.
pub fn is_set_aside(past: &Past) -> bool {
    past.setbacks()
        .iter()
        .any(|s| s.kind == SetbackKind::SetAside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Finish;
    use robust_proto::v1::Turn;

    const ID: TrajectoryId = TrajectoryId {
        batch: 5,
        group: 1,
        member: 0,
    };

    const LISTED: Listed = Listed {
        id: ID,
        step: Step(5),
        set_aside: Some(false),
        is_kept: true,
    };

    fn own() -> OwnRecord {
        let turn = |index, version| Turn {
            index,
            spans: vec![Span {
                version,
                ..Span::default()
            }],
            ..Turn::default()
        };
        let finished = Finish {
            oldest_version: 3,
            turns: 2,
            ..Finish::default()
        };
        OwnRecord {
            stored: Some(StoredTrajectory {
                turns: vec![turn(0, 3), turn(1, 4)],
                finished: Some(finished),
                consumed_by: Some(Step(5)),
                ..StoredTrajectory::default()
            }),
            consumed_by: Some(Step(5)),
            is_waiting: false,
        }
    }

    #[test]
    fn records_that_agree_contradict_nothing() {
        assert_eq!(LISTED.contradictions(&own()), [""; 0]);
        // A former build removed it, or wrote nothing of what was set aside.
        let former = Listed {
            set_aside: None,
            is_kept: false,
            ..LISTED
        };
        assert_eq!(former.contradictions(&OwnRecord::default()), [""; 0]);
        let begun_by_nobody = OwnRecord {
            consumed_by: Some(Step(5)),
            ..OwnRecord::default()
        };
        let aside = Listed {
            set_aside: Some(true),
            ..LISTED
        };
        assert_eq!(aside.contradictions(&begun_by_nobody), [""; 0]);
    }

    #[test]
    fn each_way_in_which_they_disagree_is_said() {
        type Harm = fn(&mut OwnRecord);
        let stored = |own: &mut OwnRecord, harm: fn(&mut StoredTrajectory)| {
            own.stored.as_mut().into_iter().for_each(harm);
        };
        let harms: [(Harm, &str); 8] = [
            (|own| own.consumed_by = Some(Step(6)), "names step 6"),
            (|own| own.consumed_by = None, "names no step"),
            (|own| own.is_waiting = true, "finished and not consumed"),
            (|own| own.stored = None, "nothing is stored"),
            (|_| (), "which has no end on record"),
            (|_| (), "names 2 turns, and 1 are stored"),
            (|_| (), "v3 as its oldest weights, and its turns v2"),
            (|_| (), "tokens of v5, which was not made before step 5"),
        ];
        let within: [fn(&mut StoredTrajectory); 8] = [
            |_| (),
            |_| (),
            |_| (),
            |_| (),
            |s| s.finished = None,
            |s| drop(s.turns.pop()),
            |s| s.turns[1].spans[0].version = 2,
            |s| s.turns[1].spans[0].version = 5,
        ];
        for ((harm, says), within) in harms.into_iter().zip(within) {
            let mut own = own();
            harm(&mut own);
            stored(&mut own, within);
            let said = LISTED.contradictions(&own);
            assert_eq!(said.len(), 1, "{says}: {said:?}");
            assert!(said[0].contains(says), "{says}: {said:?}");
        }
        let aside = Listed {
            set_aside: Some(true),
            ..LISTED
        };
        assert!(aside.contradictions(&own())[0].contains("has an end on record"));
        let other = Listed {
            id: TrajectoryId { batch: 4, ..ID },
            ..LISTED
        };
        assert!(other.contradictions(&own())[0].contains("which is of batch 4"));
    }
}
