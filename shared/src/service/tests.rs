#![allow(clippy::unwrap_used)]
use super::*;
use crate::core::{Budget, Budgets};
use crate::job::{Job, Needed, ServiceTies};
use crate::time::Time;
use crate::wire::ServiceState;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn at(ms: u64) -> Time {
    Time(1_000_000_000_000) + Duration::from_millis(ms)
}

fn of_job(services: &str) -> Services {
    let text = format!(
        "[data]\nprompts='p'\ntokenizer='t'\n[restart]\nmax=2\nbackoff_ms=100\nwindow_s=600\n{services}"
    );
    let job = Job::parse(&text, Path::new("job.toml")).unwrap();
    Services::new(Plan::of(&job), 0)
}

/// Hands an event over; what is to be done, in short.
fn told(services: &mut Services, ms: u64, event: Event) -> Vec<String> {
    services.handle(at(ms), event);
    let mut said = Vec::new();
    while let Some(effect) = services.poll_effect() {
        said.push(match effect {
            Effect::Start { id, life } => format!("start {id} as {}", life.0),
            Effect::Kill { life, reason } => format!("kill {}: {reason}", life.0),
            Effect::Probe { life, path, .. } => {
                format!("ask {} {}", life.0, path.unwrap_or("port".to_owned()))
            }
            Effect::Say { kind, text, .. } => format!("{kind}: {text}"),
            Effect::Fail { reason } => format!("fail: {reason}"),
            Effect::Hold { reason } => format!("hold: {reason}"),
            Effect::Release => "release".to_owned(),
        });
    }
    said
}

fn exited(life: u64) -> Event {
    Event::Exited {
        life: Incarnation(life),
        how: "python3 (pid 7) ended: SIGKILL".to_owned(),
    }
}

fn probed(life: u64, ok: bool) -> Event {
    let life = Incarnation(life);
    Event::Probed { life, ok }
}

/// One service with a health route that is up as life 1.
fn up(more: &str) -> Services {
    let mut services = of_job(&format!(
        "[service.judge]\nargv=['x']\nready={{ path='/up' }}\n\
         health={{ path='/well', every_s=1, threshold=2 }}\n{more}"
    ));
    let said = told(&mut services, 0, Event::Begin);
    assert_eq!(
        said,
        [
            "start service.judge.0 as 1",
            "ask 1 /up",
            "hold: the job waits for service.judge.0 (starting)"
        ]
    );
    let said = told(&mut services, 1500, probed(1, true));
    assert_eq!(
        said,
        ["service: service.judge.0 is up after 1.5 s", "release"]
    );
    told(&mut services, 1500, Event::RolesStarted);
    services
}

#[test]
fn the_job_waits_until_its_service_answers() {
    up("");
}

#[test]
fn one_that_does_not_answer_yet_is_asked_again_and_killed_when_its_time_is_over() {
    let mut services = of_job("[service.judge]\nargv=['x']\nready={ timeout_s=10 }\n");
    told(&mut services, 0, Event::Begin);
    assert_eq!(told(&mut services, 5, probed(1, false)), [""; 0]);
    assert_eq!(services.next_timeout(), Some(at(205)));
    assert_eq!(told(&mut services, 205, Event::Timeout), ["ask 1 port"]);
    assert_eq!(services.next_timeout(), Some(at(10_000)));
    assert_eq!(
        told(&mut services, 10_000, Event::Timeout),
        ["kill 1: not up after 10 s (`ready.timeout_s`)"]
    );
    assert_eq!(told(&mut services, 10_001, probed(1, true)), [""; 0]);
    assert_eq!(
        told(&mut services, 10_002, exited(1)),
        [
            "service-restart: service.judge.0: not up after 10 s (`ready.timeout_s`); it is started again",
            "start service.judge.0 as 2",
            "ask 2 port",
        ]
    );
}

#[test]
fn one_without_a_port_is_up_when_it_runs() {
    let mut services = of_job("[service.tool]\nargv=['x']\nports=0\n");
    assert_eq!(
        told(&mut services, 0, Event::Begin),
        [
            "start service.tool.0 as 1",
            "service: service.tool.0 is up after 0.0 s"
        ]
    );
    assert_eq!(services.next_timeout(), None);
}

#[test]
fn one_that_ended_is_started_again_and_the_job_waits_meanwhile() {
    let mut services = up("");
    let died = "service.judge.0: python3 (pid 7) ended: SIGKILL";
    assert_eq!(
        told(&mut services, 2000, exited(1)),
        [
            &*format!("service-restart: {died}; it is started again"),
            "start service.judge.0 as 2",
            "ask 2 /up",
            "hold: the job waits for service.judge.0 (starting)"
        ]
    );
    // Of the life before it.
    assert_eq!(told(&mut services, 2001, exited(1)), [""; 0]);
    assert_eq!(told(&mut services, 2001, probed(1, true)), [""; 0]);
    assert_eq!(
        told(&mut services, 2500, probed(2, true)),
        ["service: service.judge.0 is up after 0.5 s", "release"]
    );
    assert_eq!(
        told(&mut services, 2600, exited(2)),
        [
            format!("service-restart: {died}; it is started again in 0.1 s"),
            "hold: the job waits for service.judge.0 (restarting)".to_owned()
        ]
    );
    assert_eq!(services.next_timeout(), Some(at(2700)));
}

#[test]
fn one_that_does_not_answer_well_is_suspect_and_then_killed() {
    let mut services = up("");
    assert_eq!(told(&mut services, 2500, Event::Timeout), ["ask 1 /well"]);
    let doubt = "service: service.judge.0 does not answer well at /well";
    assert_eq!(told(&mut services, 3000, probed(1, false)), [doubt]);
    assert_eq!(services.view()[0].state, ServiceState::Suspect);
    told(&mut services, 4000, Event::Timeout);
    let again = told(&mut services, 4000, probed(1, true));
    assert_eq!(again, ["service: service.judge.0 answers again"]);
    told(&mut services, 5000, Event::Timeout);
    told(&mut services, 5000, probed(1, false));
    told(&mut services, 6000, Event::Timeout);
    assert_eq!(
        told(&mut services, 6000, probed(1, false)),
        [
            "kill 1: no good answer at /well, 2 times in a row",
            "hold: the job waits for service.judge.0 (ending)"
        ]
    );
    // Not before the end of the life before it was seen.
    assert_eq!(told(&mut services, 9000, Event::Timeout), [""; 0]);
    let said = told(&mut services, 9000, exited(1));
    assert_eq!(said[1], "start service.judge.0 as 2");
}

/// Its lives end at once, one after the other, until nothing is started within a minute.
fn dies_again_and_again(services: &mut Services) -> Vec<String> {
    let (mut said, mut ms) = (Vec::new(), 2000);
    loop {
        let view = services.view().remove(0);
        if view.state == ServiceState::Restarting {
            let next = services.next_timeout().unwrap();
            if next > at(ms + 60_000) {
                return said;
            }
            ms = u64::try_from(next.since(at(0)).as_millis()).unwrap();
            said.extend(told(services, ms, Event::Timeout));
        } else if view.state == ServiceState::Down {
            return said;
        } else {
            said.extend(told(services, ms, exited(view.life.0)));
        }
    }
}

#[test]
fn beyond_its_budget_one_fails_the_job_or_is_done_without_as_the_job_says() {
    let mut services = up("needed='fail'\n");
    let said = dies_again_and_again(&mut services);
    let given_up =
        "service.judge.0 is given up after 2 restarts in a row: python3 (pid 7) ended: SIGKILL";
    assert_eq!(said.last().unwrap(), &format!("fail: {given_up}"));
    assert!(
        !said.iter().any(|said| said.starts_with("hold")),
        "{said:?}"
    );
    assert_eq!(services.view()[0].state, ServiceState::Down);

    let mut services = up("needed='degrade'\nbefore=['agent']\n");
    let said = dies_again_and_again(&mut services);
    assert_eq!(
        said.last().unwrap(),
        &format!("service: {given_up}; the job goes on without it")
    );
    // Once as one that had been up, twice as one that had not.
    assert_eq!(services.view()[0].restarts, 3);
}

#[test]
fn one_that_the_job_waits_for_is_tried_ever_more_seldom() {
    let mut services = up("");
    let said = dies_again_and_again(&mut services);
    let waits: Vec<&str> = said
        .iter()
        .filter_map(|said| said.strip_prefix("service-restart: ")?.split("; ").nth(1))
        .collect();
    assert_eq!(
        waits,
        [
            "it is started again",
            // It had not been up before these.
            "it is started again",
            "it is started again in 0.1 s",
            "it is started again in 10.0 s",
            "it is started again in 20.0 s",
            "it is started again in 40.0 s",
            "it is started again in 80.0 s",
        ]
    );
    assert!(services.holds());
}

#[test]
fn services_start_one_after_the_other_where_one_needs_the_other() {
    let mut services = of_job(
        "[service.base]\nargv=['x']\nreplicas=2\n[service.judge]\nargv=['x', '{service.base}']\n",
    );
    assert_eq!(
        told(&mut services, 0, Event::Begin),
        [
            "start service.base.0 as 1",
            "ask 1 port",
            "start service.base.1 as 2",
            "ask 2 port",
            "hold: the job waits for service.base.0 (starting)"
        ]
    );
    told(&mut services, 1, probed(1, true));
    let said = told(&mut services, 2, probed(2, true));
    assert!(
        said.contains(&"start service.judge.0 as 3".to_owned()),
        "{said:?}"
    );
    let said = told(&mut services, 3, probed(3, true));
    assert_eq!(said.last().unwrap(), "release");
}

#[test]
fn one_with_the_rollouts_addresses_starts_after_the_roles_and_holds_nobody_up_before() {
    let mut services = of_job(
        "[rollout.command]\nkind='robust'\nargv=['e', '{port}']\nfixed=31000\n\
         [service.proxy]\nargv=['x', '{rollouts}']\n",
    );
    assert_eq!(told(&mut services, 0, Event::Begin), [""; 0]);
    let said = told(&mut services, 1, Event::RolesStarted);
    assert_eq!(said, ["start service.proxy.0 as 1", "ask 1 port"]);
    told(&mut services, 2, probed(1, true));
    let said = told(&mut services, 3, exited(1));
    assert_eq!(
        said.last().unwrap(),
        "hold: the job waits for service.proxy.0 (starting)"
    );
}

#[test]
fn the_roles_wait_for_one_attempt_of_a_service_that_they_can_do_without() {
    let text = "[service.judge]\nargv=['x']\nneeded='degrade'\n";
    let mut services = of_job(text);
    let said = told(&mut services, 0, Event::Begin);
    assert_eq!(said, ["start service.judge.0 as 1", "ask 1 port"]);
    let mut services = of_job(&format!("{text}before=['agent']\n"));
    told(&mut services, 0, Event::Begin);
    assert!(services.holds());
    let said = told(&mut services, 1, exited(1));
    assert_eq!(said.last().unwrap(), "release");
}

#[test]
fn one_that_an_earlier_daemon_started_goes_on_under_its_number() {
    let mut services = of_job(
        "[service.judge]\nargv=['x']\nhealth={ path='/well' }\n[service.other]\nargv=['x']\n",
    );
    let adopted = |name: &str, life, up| Event::Adopted {
        id: ServiceId {
            name: name.to_owned(),
            index: 0,
        },
        life: Incarnation(life),
        up,
    };
    assert_eq!(told(&mut services, 0, adopted("judge", 8, true)), [""; 0]);
    assert_eq!(told(&mut services, 0, adopted("other", 9, false)), [""; 0]);
    assert_eq!(
        told(&mut services, 0, Event::Begin),
        [
            "ask 8 /well",
            "ask 9 port",
            "hold: the job waits for service.other.0 (starting)"
        ]
    );
    let said = told(&mut services, 1, exited(8));
    assert_eq!(said[1], "start service.judge.0 as 10");
}

#[test]
fn after_the_end_nothing_is_started() {
    let mut services = up("");
    told(&mut services, 2000, Event::End);
    assert_eq!(told(&mut services, 2001, exited(1)), [""; 0]);
    assert_eq!(told(&mut services, 900_000, Event::Timeout), [""; 0]);
    assert_eq!(services.next_timeout(), None);
}

#[derive(Clone, Debug)]
enum Do {
    Begin,
    Pass(u64),
    Exit(u64),
    NotStarted(u64),
    Answer(u64, bool),
    RolesStarted,
}

fn any_deed() -> impl Strategy<Value = Do> {
    prop_oneof![
        (0u64..20_000).prop_map(Do::Pass),
        (0u64..4).prop_map(Do::Exit),
        (0u64..4).prop_map(Do::NotStarted),
        (0u64..4, any::<bool>()).prop_map(|(back, ok)| Do::Answer(back, ok)),
        Just(Do::RolesStarted),
    ]
}

fn any_plan() -> impl Strategy<Value = (Plan, Needed)> {
    let needed = prop_oneof![
        Just(Needed::Fail),
        Just(Needed::Wait),
        Just(Needed::Degrade)
    ];
    (needed, 1u32..3, 0u32..4, any::<[bool; 3]>()).prop_map(|(needed, replicas, max, has)| {
        let asked = |yes: bool| {
            yes.then(|| Asked {
                path: None,
                every: Duration::from_secs(1),
                timeout: Duration::from_secs(1),
                threshold: 2,
            })
        };
        let spec = |name: &str, after: BTreeSet<String>| Spec {
            name: name.to_owned(),
            replicas,
            ready: asked(has[0]),
            ready_within: Duration::from_secs(5),
            health: asked(has[1]),
            needed,
            ties: ServiceTies {
                after,
                after_roles: has[2],
                before_roles: false,
            },
        };
        let services = vec![
            spec("a", BTreeSet::new()),
            spec("b", BTreeSet::from(["a".to_owned()])),
        ];
        let general = Budget {
            max,
            ..Budget::default()
        };
        let budgets = Budgets {
            general,
            ..Budgets::default()
        };
        (Plan { services, budgets }, needed)
    })
}

proptest! {
    /// V-1 and V-2, whatever happens in whatever order.
    #[test]
    fn no_life_is_started_twice_and_restarts_have_an_end(
        (plan, needed) in any_plan(),
        deeds in prop::collection::vec(any_deed(), 1..200),
    ) {
        let max = u64::from(plan.budgets.general.max);
        let mut services = Services::new(plan, 0);
        let (mut now, mut last, mut failed) = (at(0), 0, false);
        let mut living: BTreeMap<ServiceId, Incarnation> = BTreeMap::new();
        let mut starts: BTreeMap<ServiceId, Vec<Time>> = BTreeMap::new();
        for deed in std::iter::once(Do::Begin).chain(deeds) {
            let event = match deed {
                Do::Begin => Event::Begin,
                Do::Pass(ms) => {
                    now = now + Duration::from_millis(ms);
                    Event::Timeout
                }
                Do::Exit(back) => exited(last - back.min(last)),
                Do::NotStarted(back) => Event::NotStarted {
                    life: Incarnation(last - back.min(last)),
                    reason: "no such file".to_owned(),
                },
                Do::Answer(back, ok) => probed(last - back.min(last), ok),
                Do::RolesStarted => Event::RolesStarted,
            };
            if let Event::Exited { life, .. } | Event::NotStarted { life, .. } = &event {
                living.retain(|_, lives| lives != life);
            }
            services.handle(now, event);
            while let Some(effect) = services.poll_effect() {
                match effect {
                    Effect::Start { id, life } => {
                        prop_assert!(life.0 > last, "{life:?} was there before");
                        last = life.0;
                        prop_assert_eq!(living.insert(id.clone(), life), None, "two lives");
                        starts.entry(id).or_default().push(now);
                    }
                    Effect::Kill { life, .. } | Effect::Probe { life, .. } => {
                        prop_assert!(living.values().any(|lives| *lives == life));
                    }
                    Effect::Fail { .. } => failed = true,
                    Effect::Hold { .. } => prop_assert!(services.holds()),
                    Effect::Release => prop_assert!(!services.holds()),
                    Effect::Say { .. } => {}
                }
            }
        }
        // Exit, start and health have a budget each.
        let most = usize::try_from(3 * max + 1).unwrap();
        for times in starts.values() {
            let window = match needed {
                Needed::Wait => Duration::from_secs(10),
                _ => Duration::from_secs(600),
            };
            for (at, first) in times.iter().enumerate() {
                let within = times[at..].iter().take_while(|t| t.since(*first) < window);
                let beyond = if needed == Needed::Wait { 3 } else { 0 };
                prop_assert!(within.count() <= most + beyond);
            }
        }
        prop_assert!(!failed || needed == Needed::Fail);
    }
}
