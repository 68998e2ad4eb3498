//! What to ask about an act before it is confirmed.
use super::{Act, Whole};
use robust_proto::v1::{self, forecast_act::Act as Asked};

impl Act {
    /// The request for a forecast; none: nothing that runs is changed by it, or nobody looks ahead of it.
    pub fn ahead(&self) -> Option<v1::ForecastRequest> {
        let asked = match self {
            Act::Strike(strike) => vec![Asked::Inject(strike.request())],
            Act::Restart(whole) => vec![restart(whole)],
            Act::Pause => vec![Asked::Pause(v1::PauseRequest {})],
            Act::Resume => vec![Asked::Resume(v1::ResumeRequest {})],
            Act::Traffic { role, index, out } => {
                let (role, index) = (role.clone(), *index);
                let request = v1::QuarantineRequest { role, index };
                vec![match out {
                    true => Asked::Quarantine(request),
                    false => Asked::Readmit(request),
                }]
            }
            Act::Cordon { node, out } => vec![cordon(node, *out)],
            Act::Drain { node, whom } => {
                let first = [cordon(node, true)].into_iter();
                first.chain(whom.iter().map(restart)).collect()
            }
            Act::Restore(slot) => vec![Asked::RestoreSlot(v1::RestoreSlotRequest {
                node: slot.node.clone(),
                pool: slot.pool.clone(),
                index: slot.index,
            })],
            Act::Scale { role, to, .. } => vec![Asked::Scale(v1::ScaleRequest {
                role: role.clone(),
                count: *to,
            })],
            // The daemon may refuse some of several, and others wait for those before them.
            Act::Several(_) => return None,
            Act::Disarm(_) | Act::Update { .. } | Act::Note { .. } | Act::Stop => return None,
        };
        let act = |act| v1::ForecastAct { act: Some(act) };
        Some(v1::ForecastRequest {
            acts: asked.into_iter().map(act).collect(),
            leaves: String::new(),
        })
    }
}

fn restart(whole: &Whole) -> Asked {
    Asked::Restart(whole.request())
}

fn cordon(node: &str, out: bool) -> Asked {
    let node = node.to_owned();
    Asked::Cordon(v1::CordonRequest { node, out })
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
        let acts = drain.ahead().unwrap().acts;
        let asked: Vec<Asked> = acts.into_iter().filter_map(|act| act.act).collect();
        let expected = [
            cordon("node-a", true),
            restart(&rollout(0)),
            restart(&rollout(1)),
        ];
        assert_eq!(asked, expected);
    }

    #[test]
    fn nobody_looks_ahead_of_the_end() {
        assert_eq!(Act::Stop.ahead(), None);
    }
}
