//! In which order services and roles start: a service before those that its `before` names, and
//! before everything that has its address.
use super::super::error::{Problem, suggest};
use super::super::validate::bad;
use super::super::{Job, Service};
use super::placeholder::Placeholder;
use super::template::Template;
use std::collections::{BTreeMap, BTreeSet};

/// The roles that a service may be started before.
const ROLES: [&str; 3] = ["trainer", "rollout", "agent"];
const ROLLOUT: &str = "rollout";

/// What a service's start depends on, and what depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceTies {
    /// The services that are up before it starts.
    pub after: BTreeSet<String>,
    /// It, or one before it, has the rollouts' addresses: it starts after the job's roles.
    pub after_roles: bool,
    /// A role starts after it, directly or by way of other services.
    pub before_roles: bool,
}

/// Who starts before whom.
type After<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

impl Job {
    /// The services in an order in which each starts before those that need it. Equal ones are in the
    /// order of their names.
    pub fn service_order(&self) -> Vec<&str> {
        let (after, mut order) = (self.starts_after(), Vec::new());
        for name in self.services.keys().rev() {
            let mut path = Vec::new();
            // Of a validated job there is no circle.
            let _ = walk(name, &after, &mut path, &mut order);
        }
        order.retain(|name| self.services.contains_key(*name));
        order.reverse();
        order
    }

    /// What a service's start depends on, and what depends on it.
    pub fn service_ties(&self, name: &str) -> ServiceTies {
        let starts_after = self.starts_after();
        let names_it = |(_, then): &(&&str, &BTreeSet<&str>)| then.contains(name);
        let after = starts_after.iter().filter(names_it);
        let after = after.filter(|(first, _)| self.services.contains_key(**first));
        ServiceTies {
            after: after.map(|(first, _)| (*first).to_owned()).collect(),
            after_roles: reaches(ROLLOUT, &starts_after).contains(name),
            before_roles: ROLES
                .iter()
                .any(|role| reaches(name, &starts_after).contains(role)),
        }
    }

    pub(super) fn check_order(&self) -> Result<(), Problem> {
        for (name, service) in &self.services {
            self.check_before(name, service)?;
        }
        let (after, mut done) = (self.starts_after(), Vec::new());
        for name in self.services.keys() {
            if let Err(circle) = walk(name, &after, &mut Vec::new(), &mut done) {
                return Err(in_a_circle(&circle));
            }
        }
        Ok(())
    }

    fn check_before(&self, name: &str, service: &Service) -> Result<(), Problem> {
        let services = self.services.keys().map(String::as_str);
        let known: Vec<&str> = ROLES
            .into_iter()
            .chain(services.filter(|s| *s != name))
            .collect();
        for (at, other) in service.before.iter().enumerate() {
            if !known.contains(&other.as_str()) {
                let key = format!("service.{name}.before.{at}");
                let must = match suggest(other, &known) {
                    near if near.starts_with("did") => near,
                    _ => format!("name others of the job: {}", known.join(", ")),
                };
                return Err(bad(&key, format!("{other:?}"), must));
            }
        }
        Ok(())
    }

    fn starts_after(&self) -> After<'_> {
        let mut after = After::new();
        for (name, service) in &self.services {
            let others = service.before.iter().map(String::as_str);
            after.entry(name).or_default().extend(others);
            for placeholder in placeholders(&service.argv, &service.env) {
                match placeholder {
                    Placeholder::Service(other) => self.add(&mut after, &other, name),
                    Placeholder::Rollouts => {
                        after.entry(ROLLOUT).or_default().insert(name);
                    }
                    _ => {}
                }
            }
        }
        if let Some(command) = &self.rollout.command {
            for placeholder in placeholders(&command.argv, &command.env) {
                if let Placeholder::Service(other) = placeholder {
                    self.add(&mut after, &other, ROLLOUT);
                }
            }
        }
        after
    }

    fn add<'a>(&'a self, after: &mut After<'a>, first: &str, then: &'a str) {
        if let Some((first, _)) = self.services.get_key_value(first) {
            after.entry(first).or_default().insert(then);
        }
    }
}

fn placeholders(argv: &[String], env: &BTreeMap<String, String>) -> BTreeSet<Placeholder> {
    let texts = argv.iter().chain(env.values());
    let templates = texts.filter_map(|text| Template::parse(text).ok());
    templates
        .flat_map(|t| t.placeholders().cloned().collect::<Vec<_>>())
        .collect()
}

/// All that start after `from`, directly or not.
fn reaches<'a>(from: &str, after: &After<'a>) -> BTreeSet<&'a str> {
    let (mut found, mut to_do) = (BTreeSet::new(), vec![from]);
    while let Some(next) = to_do.pop() {
        for then in after.get(next).into_iter().flatten() {
            if found.insert(*then) {
                to_do.push(then);
            }
        }
    }
    found
}

/// Puts all that start after `name`, then `name`, at the end of `done`; the names of a circle that it
/// is part of are the error.
fn walk<'a>(
    name: &'a str,
    after: &After<'a>,
    path: &mut Vec<&'a str>,
    done: &mut Vec<&'a str>,
) -> Result<(), Vec<String>> {
    if done.contains(&name) {
        return Ok(());
    }
    if let Some(at) = path.iter().position(|on| *on == name) {
        return Err(path[at..].iter().map(|n| (*n).to_owned()).collect());
    }
    path.push(name);
    for next in after.get(name).into_iter().flatten() {
        walk(next, after, path, done)?;
    }
    path.pop();
    done.push(name);
    Ok(())
}

fn in_a_circle(circle: &[String]) -> Problem {
    let first = circle.iter().find(|name| *name != ROLLOUT);
    let first = first.map_or(ROLLOUT, String::as_str);
    let at = circle.iter().position(|name| name == first).unwrap_or(0);
    let around = circle[at..].iter().chain(&circle[..=at]);
    let around: Vec<String> = around.map(|name| format!("`{name}`")).collect();
    let must = "each would wait for the next one's start (a `{service.NAME}` or `{rollouts}` waits, \
                too); take one out";
    let key = format!("service.{first}");
    bad(
        &key,
        format!("in a circle: {}", around.join(" before ")),
        must,
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    fn order(services: &str) -> Vec<String> {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{services}");
        let job = Job::parse(&text, Path::new("job.toml")).unwrap();
        job.service_order().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_service_starts_before_those_that_have_its_address_or_that_it_names() {
        let found = order(
            "[service.a]\nargv=['x', '{service.c}']\n[service.b]\nargv=['x']\nbefore=['c', 'agent']\n\
             [service.c]\nargv=['x']\n",
        );
        assert_eq!(found, ["b", "c", "a"]);
        assert_eq!(
            order("[service.b]\nargv=['x']\n[service.a]\nargv=['x']\n"),
            ["a", "b"]
        );
    }

    #[test]
    fn what_a_service_waits_for_and_what_waits_for_it_is_known() {
        let text = "[data]\nprompts='p'\ntokenizer='t'\n\
                    [rollout.command]\nkind='robust'\nargv=['e', '{port}']\nfixed=31000\n\
                    [service.a]\nargv=['x']\nbefore=['b']\n\
                    [service.b]\nargv=['x']\nbefore=['agent']\n\
                    [service.c]\nargv=['x', '{rollouts}']\nbefore=['d']\n\
                    [service.d]\nargv=['x']\n";
        let job = Job::parse(text, Path::new("job.toml")).unwrap();
        let ties = |name| {
            let ties = job.service_ties(name);
            let after: Vec<String> = ties.after.into_iter().collect();
            (after.join(" "), ties.after_roles, ties.before_roles)
        };
        assert_eq!(ties("a"), (String::new(), false, true));
        assert_eq!(ties("b"), ("a".to_owned(), false, true));
        assert_eq!(ties("c"), (String::new(), true, false));
        assert_eq!(ties("d"), ("c".to_owned(), true, false));
    }
}
