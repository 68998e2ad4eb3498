//! Which programs are tried, in which order and with what.
use super::super::super::facts::Found;
use robust_shared::ids::Role;
use robust_shared::job::{Job, Placeholder, RolloutCommand, SlotDevices, Template};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

/// The table of the engines.
const ENGINE: &str = "rollout.command";

/// A program to try.
pub(super) struct Named<'a> {
    /// The table that names it.
    pub at: String,
    /// The service's name; none for an engine.
    pub service: Option<&'a str>,
    /// The services that it cannot do without.
    pub needs: BTreeSet<String>,
    pub limit: Duration,
    pub ports: Vec<u16>,
    /// Those of the first place that its instances have; none where they are not assigned.
    pub devices: Option<String>,
}

/// In the order in which they are started.
pub(super) fn programs<'a>(job: &'a Job, devices: &SlotDevices) -> Found<Vec<Named<'a>>> {
    let places = job.service_places().unwrap_or_default();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for name in job.service_order() {
        let Some(service) = job.services.get(name) else {
            continue;
        };
        let ties = job.service_ties(name);
        let place = places.iter().find(|p| p.service == name && p.index == 0);
        let named = Named {
            at: format!("service.{name}"),
            service: Some(name),
            needs: ties.after,
            limit: service.ready.timeout(),
            ports: free_ports(service.ports)?,
            devices: place.and_then(|p| devices.of_slots(&p.pool, p.slot..p.slot + p.slots)),
        };
        match ties.after_roles {
            true => last.push(named),
            false => first.push(named),
        }
    }
    let engine = job.rollout.command.as_ref();
    first.extend(engine.map(|command| Named {
        at: ENGINE.to_owned(),
        service: None,
        needs: needs(command),
        limit: command.ready.timeout(),
        // Its shim lends them.
        ports: Vec::new(),
        devices: devices.of_place(job.pool(Role::Rollout), 0),
    }));
    first.extend(last);
    Ok(first)
}

/// The services whose addresses it has.
fn needs(command: &RolloutCommand) -> BTreeSet<String> {
    let of = placeholders(command.argv.iter().chain(command.env.values()));
    let named = of.into_iter().filter_map(|placeholder| match placeholder {
        Placeholder::Service(name) => Some(name),
        _ => None,
    });
    named.collect()
}

fn placeholders<'a>(texts: impl Iterator<Item = &'a String>) -> BTreeSet<Placeholder> {
    let templates = texts.filter_map(|text| Template::parse(text).ok());
    let each = |template: Template| template.placeholders().cloned().collect::<Vec<_>>();
    templates.flat_map(each).collect()
}

/// Whether any command of it has the folder of the weights.
pub(super) fn names_model(job: &Job) -> bool {
    let engine = job.rollout.command.iter();
    let of_engine = engine.flat_map(|c| c.argv.iter().chain(c.env.values()));
    let services = job.services.values();
    let of_services = services.flat_map(|s| s.argv.iter().chain(s.env.values()));
    placeholders(of_engine.chain(of_services)).contains(&Placeholder::Model)
}

/// Free at this moment; nobody keeps them.
fn free_ports(count: u32) -> Found<Vec<u16>> {
    let free = || -> std::io::Result<Vec<u16>> {
        let held = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let held = held.collect::<std::io::Result<Vec<_>>>()?;
        held.iter()
            .map(|held| Ok(held.local_addr()?.port()))
            .collect()
    };
    free().map_err(|error| format!("there is no free port: {error}"))
}

/// What each service's address is, as roles are told.
pub(super) fn addresses(programs: &[Named<'_>]) -> String {
    let address = |program: &Named<'_>| {
        let port = program.ports.first()?;
        Some((
            program.service?.to_owned(),
            format!("{}:{port}", Ipv4Addr::LOCALHOST),
        ))
    };
    let all: BTreeMap<String, String> = programs.iter().filter_map(address).collect();
    serde_json::to_string(&all).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    fn job(more: &str) -> Job {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{more}");
        Job::parse(&text, Path::new("job.toml")).unwrap()
    }

    #[test]
    fn programs_are_tried_in_the_order_in_which_a_job_starts_them() {
        let job = job(
            "[rollout.command]\nkind='vllm'\nargv=['e','{port}','{service.judge}']\nfixed=31000\n\
             [service.judge]\nargv=['j']\n[service.base]\nargv=['b']\nports=0\n\
             before=['judge']\n[service.watcher]\nargv=['w','{rollouts}']\n",
        );
        let programs = programs(&job, &SlotDevices::default()).unwrap();
        let order: Vec<_> = programs.iter().map(|p| p.at.as_str()).collect();
        assert_eq!(
            order,
            [
                "service.base",
                "service.judge",
                "rollout.command",
                "service.watcher"
            ]
        );
        assert_eq!(programs[2].needs, BTreeSet::from(["judge".to_owned()]));
        assert_eq!(programs[1].needs, BTreeSet::from(["base".to_owned()]));
        let told: BTreeMap<String, String> = serde_json::from_str(&addresses(&programs)).unwrap();
        assert_eq!(told.keys().collect::<Vec<_>>(), ["judge", "watcher"]);
    }

    #[test]
    fn weights_are_made_only_where_a_command_has_the_model() {
        let engine = |argv| {
            let text = format!("[rollout.command]\nkind='vllm'\nargv=['e','{{port}}'{argv}]\n");
            names_model(&job(&text))
        };
        assert!(engine(",'--model={model}'"));
        assert!(!engine(""));
        assert!(names_model(&job(
            "[service.s]\nargv=['s']\nenv={M='{model}'}\n"
        )));
    }
}
