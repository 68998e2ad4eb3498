//! The table of rules and how a job file sets it.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::ids::Role;
use crate::job::Job;
use crate::phase::Phase;
use std::path::Path;

fn rules(detect: &str) -> RuleSet {
    let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{detect}\n");
    let job = Job::parse(&text, Path::new("job.toml")).unwrap();
    RuleSet::from_job(&job.detect).unwrap()
}

#[test]
fn every_rule_has_a_name_of_its_own_and_defaults_that_a_job_file_could_set() {
    for (at, (rule, settings)) in RuleSet::default().tables_mut().into_iter().enumerate() {
        assert_eq!(rule.key(), FIELDS[at]);
        assert_eq!(
            RULES.iter().position(|r| *r == rule),
            Some(at),
            "{}",
            rule.name
        );
        for s in settings.iter().map(|values| values.setting) {
            assert!((s.least..=s.most).contains(&s.default), "{}", s.key);
            let namesakes = settings.iter().filter(|other| other.setting.key == s.key);
            assert_eq!(namesakes.count(), 1, "{}.{}", rule.key(), s.key);
        }
        // `phases = { .. }` is of that one.
        let phased = settings.iter().filter(|values| values.setting.by_phase);
        assert!(phased.count() <= 1, "{}", rule.name);
    }
}

#[test]
fn what_a_rule_finds_is_an_incident_or_an_event_of_a_kind_of_its_own() {
    for rule in RULES {
        // Of a rule without a budget no verdict comes.
        assert_eq!(rule.event.is_some(), rule.kind.is_none(), "{}", rule.name);
        let kinds = RULES
            .iter()
            .filter(|r| r.event.is_some() && r.event == rule.event);
        assert!(kinds.count() <= 1, "{}", rule.name);
    }
}

#[test]
fn a_rule_is_switched_off_by_the_name_of_its_table_and_a_misspelt_one_is_refused() {
    let set = rules("[detect]\noff = ['exit', 'phase_overrun']");
    assert!(set.is_off(&exit::RULE) && set.is_off(&phase_overrun::RULE));
    assert_eq!(set.on().count(), RULES.len() - 2);
    let text = "[data]\nprompts='p'\ntokenizer='t'\n[detect]\noff = ['exitt']\n";
    let refused = Job::parse(text, Path::new("job.toml")).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("did you mean `exit`"), "{text}");
}

#[test]
fn the_least_patience_with_a_role_is_that_of_rules_which_find_fault_with_it_and_are_on() {
    let of = |detect: &str, role| rules(detect).least_patience(role).as_secs_f64();
    // A probe of an engine is waited for so long.
    assert_eq!(of("", Role::Rollout), 5.0);
    // A process that has not linked yet.
    assert_eq!(of("", Role::Agent), 60.0);
    assert_eq!(of("[detect]\noff = ['attach_overdue']", Role::Agent), 120.0);
    let short = "[detect.agent_silent]\nwindow_s = 2";
    assert_eq!(of(short, Role::Agent), 2.0);
    assert_eq!(of(short, Role::Rollout), 5.0);
    let in_a_phase = "[detect.agent_silent.phases]\ngenerating = 3";
    assert_eq!(of(in_a_phase, Role::Agent), 3.0);
    // No process that is stopped silences its node or breaks its link.
    for of_others in ["node_lost", "link_lost"] {
        let short = format!("[detect.{of_others}]\nwindow_s = 1");
        assert_eq!(of(&short, Role::Agent), 60.0, "{of_others}");
    }
}

#[test]
fn the_most_special_value_wins_phase_before_role_before_rule() {
    let set = rules(
        "[detect.attach_overdue]\nwindow_s = 90\ntrainer = { window_s = 120 }\n\
         [detect.trainer_idle]\nwindow_s = 200\nphases = { update = 400 }",
    );
    let attach = |role| set.attach_overdue.window.of(role).as_secs();
    assert_eq!((attach(Role::Trainer), attach(Role::Agent)), (120, 90));
    let idle = |phase| set.trainer_idle.window.at(Role::Trainer, phase).as_secs();
    assert_eq!((idle(Phase::Update), idle(Phase::RefLogprob)), (400, 200));
}

#[test]
fn every_value_says_where_it_came_from() {
    let set = rules("[detect.trainer_idle]\nphases = { update = 400 }");
    let lines = set.in_force();
    let of = |name: &str| -> Vec<_> {
        let of = lines.iter().filter(|l| l.rule.name == name);
        of.map(|l| (l.key, l.phase, l.value, l.source.to_string()))
            .collect()
    };
    let update = "job file: detect.trainer_idle.phases.update".to_owned();
    assert_eq!(
        of("trainer idle"),
        [
            ("window_s", None, 300.0, "default".to_owned()),
            ("window_s", Some(Phase::Update), 400.0, update)
        ]
    );
    assert_eq!(of("exit"), [("", None, 0.0, "default".to_owned())]);
}

#[test]
fn what_follows_from_another_key_gives_way_to_the_rules_own() {
    for (text, stall_s) in [("", 15), ("[detect.pull_stall]\nwindow_s = 60", 60)] {
        let weights = "[weights]\nstall_timeout_s = 3\n";
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{weights}{text}\n");
        let job = Job::parse(&text, Path::new("job.toml")).unwrap();
        let config = crate::core::CoreConfig::from(&job);
        let window = config.rules.pull_stall.window.of(Role::Rollout);
        assert_eq!(window.as_secs(), stall_s);
    }
}

#[test]
fn what_an_agents_program_may_take_to_start_gives_way_to_what_the_job_file_says_for_agents() {
    let command = "[agent.command]\nargv = ['x']\nready = { timeout_s = 40 }\n";
    for (text, agent_s) in [
        ("", 100),
        ("[detect.attach_overdue]\nwindow_s = 70", 110),
        ("[detect.attach_overdue]\nagent = { window_s = 30 }", 30),
    ] {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{command}{text}\n");
        let job = Job::parse(&text, Path::new("job.toml")).unwrap();
        let rules = crate::core::CoreConfig::from(&job).rules;
        let window = rules.attach_overdue.window.of(Role::Agent);
        assert_eq!(window.as_secs(), agent_s, "{text}");
    }
}

#[test]
fn how_many_engines_a_trajectory_may_take_along_their_command_says_and_without_one_it_is_any_number()
 {
    let command = "[rollout.command]\nkind = 'vllm'\nargv = ['vllm', '--port', '{port}']\n";
    let cases = [
        (String::new(), 0.0, "default"),
        (command.to_owned(), 2.0, "from rollout.command.poison"),
        (
            format!("{command}poison = 5"),
            5.0,
            "from rollout.command.poison",
        ),
        (
            format!("{command}[detect.poison]\nengines = 3"),
            3.0,
            "job file: detect.poison.engines",
        ),
    ];
    for (text, engines, from) in cases {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{text}\n");
        let job = Job::parse(&text, Path::new("job.toml")).unwrap();
        let rules = crate::core::CoreConfig::from(&job).rules;
        let lines = rules.in_force();
        let line = lines.iter().find(|l| *l.rule == poison::RULE).unwrap();
        assert_eq!(
            (line.value, line.source.to_string()),
            (engines, from.to_owned())
        );
    }
}
