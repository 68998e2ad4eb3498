//! Fields that say one word of a closed set: the comment of each in the .proto files lists what its enum has.
#![allow(clippy::unwrap_used, clippy::panic)]
use robust_proto::v1;
use robust_proto::words::fields;
use robust_shared::core::{IncidentOutcome, NodeState};
use robust_shared::ids::Role;
use robust_shared::job::{Mode, Policy};
use robust_shared::phase::Phase;
use robust_shared::wire::{InstanceState, JobState, PauseState, ReplicaState, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Fields with a list in their comment that is no closed set, and why.
const OPEN: &[(&str, &str)] = &[
    ("Rules.same_cause_source", "it names a key of the job file"),
    ("RuleValue.source", "it names a key of the job file"),
    ("RestartBudget.source", "it names a key of the job file"),
    ("Incident.rule", "rules are a table of their own"),
    ("JobFile.name", "weights have the names of their files"),
    ("InspectedProcess.state", "the letters are the kernel's"),
];

/// Fields that say only some of the words of their enum.
const SOME: &[&str] = &[
    "StepTrajectory.state",
    "QuarantineRequest.role",
    "ReplicaStatus.spread",
];

/// The number of strings among the types of fields.
const STRING: i32 = 9;

/// Every field that is a string, with its comment.
fn comments() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["control", "node", "role"].map(|f| root.join(format!("robust/v1/{f}.proto")));
    let descriptors = protox::compile(files, [root]).unwrap();
    let mut found = BTreeMap::new();
    for file in &descriptors.file {
        let places = file.source_code_info.as_ref().unwrap();
        let said: BTreeMap<&[i32], String> = places
            .location
            .iter()
            .map(|at| {
                let text = format!("{} {}", at.leading_comments(), at.trailing_comments());
                (at.path.as_slice(), text)
            })
            .collect();
        for (m, message) in (0..).zip(&file.message_type) {
            for (f, field) in (0..).zip(&message.field) {
                if field.r#type != Some(STRING) {
                    continue;
                }
                let place: [i32; 4] = [4, m, 2, f];
                let comment = said.get(place.as_slice()).cloned().unwrap_or_default();
                found.insert(format!("{}.{}", message.name(), field.name()), comment);
            }
        }
    }
    found
}

/// The words of a comment such as `of a rotation: trusting | certifying (all get one); empty: none is under way`.
fn listed(comment: &str) -> Option<BTreeSet<String>> {
    let (mut plain, mut depth) = (String::new(), 0_u32);
    for letter in comment.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    let plain = words.join(" ");
    let clause = plain.split(';').find(|clause| clause.contains(" | "))?;
    let list = clause.rsplit_once(": ").map_or(clause, |(_, list)| list);
    Some(list.split('|').map(|word| word.trim().to_owned()).collect())
}

#[test]
fn a_comment_lists_its_words_without_what_is_said_about_them() {
    let words = |text: &str| listed(text).map(|words| words.into_iter().collect::<Vec<_>>());
    let of = |words: &[&str]| Some(words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
    assert_eq!(words(" why it failed, or empty\n"), None);
    assert_eq!(
        words("a | b (it, that is | so); empty: all"),
        of(&["a", "b"])
    );
    assert_eq!(words("of a turn: to b |\n c d\n"), of(&["c d", "to b"]));
}

#[test]
fn every_list_in_a_comment_is_that_of_the_fields_enum() {
    let comments = comments();
    assert!(comments.len() > 150, "{}", comments.len());
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for field in fields() {
        let name = format!("{}.{}", field.message, field.name);
        assert!(
            comments.contains_key(&name),
            "{name} is no string of a message"
        );
        let distinct: BTreeSet<String> = field.words.iter().map(|w| (*w).to_owned()).collect();
        assert_eq!(
            distinct.len(),
            field.words.len(),
            "{name}: two variants have one word"
        );
        assert!(
            known.insert(name.clone(), distinct).is_none(),
            "{name} is there twice"
        );
    }
    let mut checked = 0;
    for (name, comment) in &comments {
        let Some(list) = listed(comment) else {
            continue;
        };
        if OPEN.iter().any(|(open, _)| open == name) {
            assert!(!known.contains_key(name), "{name} is no closed set");
            continue;
        }
        let words = known.get(name);
        let words =
            words.unwrap_or_else(|| panic!("{name} lists words and has no enum in `words.rs`"));
        match SOME.contains(&name.as_str()) {
            true => assert!(list.is_subset(words) && list != *words, "{name}: {list:?}"),
            false => assert_eq!(list, *words, "{name}"),
        }
        checked += 1;
    }
    assert!(checked > 35, "{checked} lists were found");
    let exceptions = OPEN
        .iter()
        .map(|(name, _)| *name)
        .chain(SOME.iter().copied());
    for name in exceptions {
        let comment = comments.get(name).map_or("", String::as_str);
        assert!(listed(comment).is_some(), "{name} lists nothing any more");
    }
}

#[test]
fn a_word_of_another_build_is_kept_as_it_is_and_read_as_none() {
    let newer = v1::Status {
        state: "hibernating".to_owned(),
        mode: "sync".to_owned(),
        ..Default::default()
    };
    assert_eq!((newer.state(), newer.mode()), (None, Some(Mode::Sync)));
    assert_eq!(newer.policy(), None, "an older build does not say it");
    assert_eq!(newer.state, "hibernating");
}

#[test]
fn a_status_is_the_json_that_it_always_was() {
    let word = |word: &str| word.to_owned();
    let status = v1::Status {
        job: word("j"),
        mode: word(Mode::SemiSync.name()),
        policy: word(Policy::Role.name()),
        state: word(JobState::Recovering.word()),
        ..Default::default()
    };
    let role = v1::RoleStatus {
        role: word(Role::Rollout.name()),
        state: word(InstanceState::Stale.word()),
        phase: word(Phase::PullWeights.name()),
        ..Default::default()
    };
    let incident = v1::Incident {
        role: word(Role::Trainer.name()),
        outcome: word(IncidentOutcome::Recovered.word()),
        ..Default::default()
    };
    let node = v1::NodeStatus {
        state: word(NodeState::Awaited.word()),
        ..Default::default()
    };
    let pause = v1::Pause {
        state: word(PauseState::Pausing.word()),
        ..Default::default()
    };
    let replicas = v1::ReplicaStatus {
        state: word(ReplicaState::NoneYet.word()),
        ..Default::default()
    };
    let window = v1::TimeWindow {
        name: word(Window::HalfHour.word()),
        ..Default::default()
    };
    let has = |json: Result<String, serde_json::Error>, parts: &[&str]| {
        let json = json.unwrap();
        for part in parts {
            assert!(json.contains(part), "{part}: {json}");
        }
    };
    let parts = [
        r#""mode":"semi-sync""#,
        r#""policy":"role""#,
        r#""state":"recovering""#,
    ];
    has(serde_json::to_string(&status), &parts);
    let parts = [
        r#""role":"rollout""#,
        r#""state":"stale""#,
        r#""phase":"pull_weights""#,
    ];
    has(serde_json::to_string(&role), &parts);
    let parts = [r#""role":"trainer""#, r#""outcome":"recovered""#];
    has(serde_json::to_string(&incident), &parts);
    has(serde_json::to_string(&node), &[r#""state":"awaited""#]);
    has(serde_json::to_string(&pause), &[r#""state":"pausing""#]);
    has(serde_json::to_string(&replicas), &[r#""state":"none yet""#]);
    has(serde_json::to_string(&window), &[r#""name":"30m""#]);
}
