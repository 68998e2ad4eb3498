//! What to ask of the daemon about an act: what it would bring, before it is confirmed, and then that it is done.
use super::{Act, Whole};
use crate::steer::Steer;
use robust_proto::v1::{self, forecast_act::Act as Asked};

impl Act {
    /// The verbs that it comes to, in their order; none: it is asked for in a way of its own.
    pub fn steers(&self) -> Vec<Steer> {
        match self {
            Act::Restart(whole) => vec![restart(whole)],
            Act::Pause => vec![Steer::Pause],
            Act::Resume => vec![Steer::Resume],
            Act::Traffic { role, index, out } => {
                let (role, index) = (role.clone(), *index);
                let request = v1::QuarantineRequest { role, index };
                vec![match out {
                    true => Steer::Quarantine(request),
                    false => Steer::Readmit(request),
                }]
            }
            Act::Cordon { node, out } => vec![cordon(node, *out)],
            Act::Drain { node, whom } => {
                let first = [cordon(node, true)].into_iter();
                first.chain(whom.iter().map(restart)).collect()
            }
            Act::Restore(slot) => vec![Steer::RestoreSlot(v1::RestoreSlotRequest {
                node: slot.node.clone(),
                pool: slot.pool.clone(),
                index: slot.index,
            })],
            Act::Scale { role, to, .. } => vec![Steer::Scale(v1::ScaleRequest {
                role: role.clone(),
                count: *to,
            })],
            Act::Update { role, change } => vec![Steer::Update(v1::UpdateRequest {
                role: role.clone(),
                changes: vec![change.clone()],
            })],
            Act::Note { incident, text } => vec![Steer::Note(v1::NoteRequest {
                incident: *incident,
                text: text.clone(),
            })],
            Act::Strike(_) | Act::Disarm(_) | Act::Stop => Vec::new(),
        }
    }

    /// The request for a forecast; none: nothing that runs is changed by it, or nobody looks ahead of it.
    pub fn ahead(&self) -> Option<v1::ForecastRequest> {
        let asked: Vec<Asked> = match self {
            Act::Strike(strike) => vec![Asked::Inject(strike.request())],
            act => act.steers().into_iter().filter_map(Steer::ahead).collect(),
        };
        let act = |act| v1::ForecastAct { act: Some(act) };
        (!asked.is_empty()).then(|| v1::ForecastRequest {
            acts: asked.into_iter().map(act).collect(),
            leaves: String::new(),
        })
    }
}

fn restart(whole: &Whole) -> Steer {
    Steer::Restart(whole.request())
}

fn cordon(node: &str, out: bool) -> Steer {
    let node = node.to_owned();
    Steer::Cordon(v1::CordonRequest { node, out })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_drain_is_a_cordon_and_restarts_in_their_order() {
        let rollout = |index| Whole::Instance {
            role: "rollout".to_owned(),
            index,
        };
        let drain = Act::Drain {
            node: "node-a".to_owned(),
            whom: vec![rollout(0), rollout(1)],
        };
        let steers = [
            cordon("node-a", true),
            restart(&rollout(0)),
            restart(&rollout(1)),
        ];
        assert_eq!(drain.steers(), steers);
        let acts = drain.ahead().unwrap().acts;
        let asked: Vec<Asked> = acts.into_iter().filter_map(|act| act.act).collect();
        let expected: Vec<Asked> = steers.into_iter().filter_map(Steer::ahead).collect();
        assert_eq!((asked.len(), asked), (3, expected));
    }

    #[test]
    fn nobody_looks_ahead_of_the_end() {
        assert_eq!(Act::Stop.ahead(), None);
    }
}
