//! Which incidents of a status are news.
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;
use std::collections::BTreeSet;

/// What is new about an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It was not there before.
    Opened,
    /// It is not recovering any more.
    Over,
}

/// Remembers which were seen; each piece of news is told once, however often the status comes.
#[derive(Debug, Default)]
pub struct IncidentBook {
    last: u64,
    open: BTreeSet<u64>,
}

impl IncidentBook {
    /// Tells what is new, in the incidents' order. A status holds all that are open.
    pub fn read<'a>(
        &mut self,
        incidents: &'a [v1::Incident],
        mut tell: impl FnMut(News, &'a v1::Incident),
    ) {
        for incident in incidents {
            if incident.id > self.last {
                self.last = incident.id;
                self.open.insert(incident.id);
                tell(News::Opened, incident);
            }
            if incident.outcome() != Some(IncidentOutcome::Recovering)
                && self.open.remove(&incident.id)
            {
                tell(News::Over, incident);
            }
        }
    }
}

/// What a plan restarts; its sentence names instances and steps, which are no labels.
pub fn scope(plan: &str) -> &'static str {
    let scopes = [
        ("restart the whole task", "task"),
        ("restart the trainer gang", "gang"),
        ("restart ", "instance"),
        ("fail the job", "fail"),
    ];
    let of = |(begin, _): &&(&str, &'static str)| plan.starts_with(*begin);
    scopes.iter().find(of).map_or("other", |(_, scope)| scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(id: u64, outcome: &str) -> v1::Incident {
        v1::Incident {
            id,
            outcome: outcome.to_owned(),
            ..Default::default()
        }
    }

    fn news(book: &mut IncidentBook, incidents: &[v1::Incident]) -> Vec<(News, u64)> {
        let mut all = Vec::new();
        book.read(incidents, |news, i| all.push((news, i.id)));
        all
    }

    #[test]
    fn each_piece_of_news_is_told_once() {
        let (mut book, open) = (IncidentBook::default(), incident(1, "recovering"));
        let shown = [open.clone(), incident(2, "failed")];
        let all = [(News::Opened, 1), (News::Opened, 2), (News::Over, 2)];
        assert_eq!(news(&mut book, &shown), all);
        assert_eq!(news(&mut book, &shown), []);
        let shown = [incident(1, "recovered"), incident(2, "failed")];
        assert_eq!(news(&mut book, &shown), [(News::Over, 1)]);
        assert_eq!(
            news(&mut book, &shown[1..]),
            [],
            "the status forgets old ones"
        );
        assert_eq!(news(&mut book, &shown), []);
    }

    #[test]
    fn a_plan_is_filed_under_what_it_restarts() {
        let plans = [
            ("restart the whole task from step 3", "task"),
            (
                "restart the trainer gang from step 7 and train step 8",
                "gang",
            ),
            ("restart rollout-1", "instance"),
            ("fail the job", "fail"),
            ("wait", "other"),
        ];
        for (plan, wanted) in plans {
            assert_eq!(scope(plan), wanted, "{plan}");
        }
    }
}
