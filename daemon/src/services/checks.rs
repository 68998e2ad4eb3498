//! What of a job's services cannot be done, known before anything is started.
use robust_shared::ids::Role;
use robust_shared::job::{Job, Placeholder, Problem, Template};

/// Why a job with these services is refused.
#[derive(Debug, thiserror::Error)]
pub enum ServicesError {
    /// Its slots are on another node.
    #[error(
        "service.{name}.pool: process {index} would run on node `{node}`; services on other nodes are \
         not built yet: give `{leader}` the slots, or remove `pool`"
    )]
    OtherNode {
        /// The service.
        name: String,
        /// Which of its processes.
        index: u32,
        /// The node.
        node: String,
        /// This daemon's own.
        leader: String,
    },
    /// It wants the rollouts' addresses, and they have none before they run.
    #[error(
        "service.{name}: `{{rollouts}}` needs addresses that are known beforehand; set \
         `rollout.command.fixed`"
    )]
    NotFixed {
        /// The service.
        name: String,
    },
    /// It wants the addresses of rollouts that are elsewhere, or they want its own.
    #[error(
        "{who}: {placeholder} where a rollout runs on node `{node}` is not built yet: services and \
         rollouts find each other on one node only"
    )]
    Far {
        /// The table of the job file.
        who: String,
        /// What stands there.
        placeholder: String,
        /// The rollout's node.
        node: String,
    },
    /// The slots do not suffice; a checked job has them.
    #[error("{0}")]
    Slots(Box<Problem>),
}

/// Whether this daemon can host the job's services.
pub fn check(job: &Job) -> Result<(), ServicesError> {
    let leader = job.nodes.first().map_or("local", |node| &node.name);
    let slots = |problem| ServicesError::Slots(Box::new(problem));
    for place in job.service_places().map_err(slots)? {
        if place.node != leader {
            return Err(ServicesError::OtherNode {
                name: place.service,
                index: place.index,
                node: place.node,
                leader: leader.to_owned(),
            });
        }
    }
    let placed = job.placement().map_err(slots)?;
    let rollouts = placed.iter().filter(|p| p.id.role == Role::Rollout);
    let far = rollouts.map(|p| &p.node).find(|node| *node != leader);
    let far = |who: String, found: Option<Placeholder>| match (far, found) {
        (Some(node), Some(placeholder)) => Err(ServicesError::Far {
            who,
            placeholder: placeholder.to_string(),
            node: node.clone(),
        }),
        _ => Ok(()),
    };
    for (name, service) in &job.services {
        let texts = service.argv.iter().chain(service.env.values());
        let found = find(texts, |p| *p == Placeholder::Rollouts);
        let fixed = job.rollout.command.as_ref().and_then(|c| c.fixed);
        if found.is_some() && fixed.is_none() {
            return Err(ServicesError::NotFixed { name: name.clone() });
        }
        far(format!("service.{name}"), found)?;
    }
    if let Some(command) = &job.trainer.command {
        let texts = || command.argv.iter().chain(command.env.values());
        let name = "trainer.command".to_owned();
        let rollouts = find(texts(), |p| *p == Placeholder::Rollouts);
        let fixed = job.rollout.command.as_ref().and_then(|c| c.fixed);
        if rollouts.is_some() && fixed.is_none() {
            return Err(ServicesError::NotFixed { name });
        }
        far(name, rollouts)?;
    }
    if let Some(command) = &job.rollout.command {
        let texts = command.argv.iter().chain(command.env.values());
        let found = find(texts, |p| matches!(p, Placeholder::Service(_)));
        far("rollout.command".to_owned(), found)?;
    }
    Ok(())
}

fn find<'a>(
    texts: impl Iterator<Item = &'a String>,
    wanted: impl Fn(&Placeholder) -> bool,
) -> Option<Placeholder> {
    let mut templates = texts.filter_map(|text| Template::parse(text).ok());
    templates.find_map(|t| t.placeholders().find(|p| wanted(p)).cloned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    fn refused(more: &str) -> String {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{more}");
        let job = Job::parse(&text, Path::new("job.toml")).unwrap();
        check(&job).map_or_else(|error| error.to_string(), |()| "no".to_owned())
    }

    #[test]
    fn what_is_not_built_yet_is_refused_with_what_to_do() {
        let nodes = "[[node]]\nname='a'\npools={ train=2, rollout=1, agent=2 }\n\
                     [[node]]\nname='b'\npools={ rollout=8 }\n";
        assert_eq!(
            refused(&format!(
                "[service.judge]\nargv=['x']\npool='rollout'\nslots=2\n{nodes}"
            )),
            "service.judge.pool: process 0 would run on node `b`; services on other nodes are not \
             built yet: give `a` the slots, or remove `pool`"
        );
        assert_eq!(
            refused("[service.proxy]\nargv=['x', '{rollouts}']\n"),
            "service.proxy: `{rollouts}` needs addresses that are known beforehand; set \
             `rollout.command.fixed`"
        );
        let engine = "[rollout.command]\nkind='robust'\nargv=['e', '{port}', '{service.judge}']\n";
        let judge = "[service.judge]\nargv=['x']\n";
        let far = refused(&format!("{engine}{judge}{nodes}"));
        assert!(
            far.starts_with("rollout.command: {service.judge} where a rollout runs on node `b`"),
            "{far}"
        );
        assert_eq!(refused(&format!("{engine}{judge}")), "no");
    }
}
