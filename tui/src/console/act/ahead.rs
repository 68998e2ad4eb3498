//! What to ask about an act before it is confirmed.
use super::Act;
use crate::steer::Steer;
use robust_proto::v1::{self, forecast_act::Act as Asked};

impl Act {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Whole, cordon, restart};
    use super::*;

    #[test]
    fn a_drain_is_a_cordon_and_restarts_in_their_order() {
        let rollout = |index| Whole::Instance {
            role: "rollout".to_owned(),
            index,
        };
        let drain = Act::Drain {
            node: "node-a".to_owned(),
            cordoned: false,
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
