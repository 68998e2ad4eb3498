//! The verbs that operators have are the calls of the control API that change something, with all that these take.
#![allow(clippy::unwrap_used)]
use robust_shared::verbs::{self, Verb};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Each call of the control API with the names of its request's fields.
fn calls() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("robust/v1/control.proto");
    let descriptors = protox::compile([file], [root]).unwrap();
    let messages = || descriptors.file.iter().flat_map(|file| &file.message_type);
    let services = descriptors.file.iter().flat_map(|file| &file.service);
    let control = services.filter(|service| service.name() == "Control");
    let methods = control.flat_map(|service| &service.method);
    let fields = |takes: &str| -> BTreeSet<String> {
        let name = takes.rsplit('.').next().unwrap();
        let message = messages().find(|message| message.name() == name).unwrap();
        let names = message.field.iter().map(|field| field.name().to_owned());
        names.collect()
    };
    let calls = methods.map(|method| (method.name().to_owned(), fields(method.input_type())));
    calls.collect()
}

#[test]
fn every_call_is_a_verbs_or_only_looks_and_no_other_is_known() {
    let calls: BTreeSet<String> = calls().into_keys().collect();
    let changes = verbs::ALL.iter().map(|verb| verb.call);
    let known = verbs::LOOKS.iter().copied().chain(changes);
    let known: BTreeSet<String> = known.map(str::to_owned).collect();
    assert!(calls.len() > 12, "{calls:?}");
    assert_eq!(
        known, calls,
        "a call that changes something is a verb, the others are in LOOKS"
    );
}

#[test]
fn a_verb_takes_or_sets_every_field_of_its_request() {
    let calls = calls();
    let fills = |verb: &'static Verb| {
        let takes = verb.takes.iter().flat_map(|argument| argument.fields);
        takes.chain(verb.sets).copied()
    };
    for verb in verbs::ALL {
        let filled: Vec<&str> = fills(verb).collect();
        let distinct: BTreeSet<String> = fills(verb).map(str::to_owned).collect();
        assert_eq!(
            distinct.len(),
            filled.len(),
            "{}: a field is filled twice",
            verb.command
        );
        assert_eq!(distinct, calls[verb.call], "{}", verb.command);
    }
}
