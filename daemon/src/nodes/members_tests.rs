#![allow(clippy::unwrap_used)]
use super::*;
use crate::nodes::JobSecret;
use crate::state::StateDir;
use robust_identity::{LIFE_OF_NODE, NodeKey};

const HOUR: u64 = 3600;

struct Site {
    temp: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        Self { temp }
    }

    /// The leader's authorities, as they are after each of its starts.
    fn authorities(&self) -> Authorities {
        let state = StateDir::make(&self.temp.path().join("state")).unwrap();
        let secret = JobSecret::load_or_create(&state.authority_key(), None).unwrap();
        Authorities::open(&state, secret, "demo", false).unwrap()
    }

    /// The list as a leader has it that was started just now.
    fn open(&self) -> Members {
        let shared = JoinToken::of("a token that all may use");
        let path = self.temp.path().join("joins.json");
        Members::open(&path, &self.authorities(), Some(&shared), None).unwrap()
    }
}

fn key() -> Vec<u8> {
    NodeKey::new().unwrap().public().to_vec()
}

/// Which node a certificate is of.
fn node_of(members: &Members, certificate: &NodeCertificate) -> Proven {
    members.node_of(certificate.fingerprint, 1)
}

fn is_b() -> Proven {
    Proven::Node("b".to_owned())
}

fn single(created: &Created) -> TokenId {
    TokenId::Single(created.id.clone())
}

#[test]
fn a_token_makes_one_node_and_the_leader_remembers_it_over_its_own_death() {
    let site = Site::new();
    let created = site.open().create(None, HOUR, 0).unwrap();
    let token = single(&created);
    let name = created.token.holders().unwrap().name().to_owned();
    let answering = site.open().answering(&name, 1).unwrap();
    assert_eq!(answering.1, Proof::Token(token.clone()));
    let (b, other) = (key(), key());
    let pem = site.open().enroll(&token, ("b", &b), false, 1).unwrap();
    let members = site.open();
    assert_eq!(node_of(&members, &pem), is_b());
    // Another machine has read the token.
    let refused = members.enroll(&token, ("b", &other), false, 2);
    assert!(matches!(refused, Err(MembersError::Used)), "{refused:?}");
    let refused = members.enroll(&token, ("c", &b), false, 2);
    assert!(matches!(refused, Err(MembersError::Used)), "{refused:?}");
    assert_eq!(node_of(&members, &pem), is_b());
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    let members = Site::new();
    let members = (members.open(), members);
    let created = members.0.create(None, HOUR, 0).unwrap();
    let b = key();
    let enroll = |joined| members.0.enroll(&single(&created), ("b", &b), joined, 1);
    enroll(false).unwrap();
    let pem = enroll(true).unwrap();
    assert_eq!(node_of(&members.0, &pem), is_b());
}

#[test]
fn a_node_gets_another_certificate_and_both_count_until_it_calls_by_the_new_one() {
    let site = Site::new();
    let members = site.open();
    let first = members.enroll(&TokenId::Shared, ("b", &key()), false, 0);
    let (first, second_key) = (first.unwrap(), key());
    let ask = |now_ms| {
        let asked = ("b", second_key.as_slice());
        site.open().renew(first.fingerprint, asked, now_ms).unwrap()
    };
    // The first answer is lost, and the node asks again.
    let (lost, second) = (ask(5000), ask(6000));
    let members = site.open();
    assert_eq!(
        node_of(&members, &first),
        is_b(),
        "it may not have the new one"
    );
    assert_eq!(node_of(&members, &second), is_b());
    assert_eq!(node_of(&members, &lost), Proven::Former, "nobody has it");
    let until_ms = 6000 + LIFE_OF_NODE.as_millis() as u64;
    assert_eq!(members.list(7000).1[0].until_ms, until_ms);
    assert!(members.is_next(second.fingerprint) && !members.is_next(first.fingerprint));
    members.was_used(second.fingerprint, 8000).unwrap();
    // The word of it comes twice.
    members.was_used(second.fingerprint, 9000).unwrap();
    let members = site.open();
    assert_eq!(node_of(&members, &second), is_b());
    assert_eq!(node_of(&members, &first), Proven::Former);
    assert!(!members.is_next(second.fingerprint));
}

#[test]
fn who_has_a_certificate_that_does_not_count_any_more_gets_no_other_for_it() {
    let site = Site::new();
    let members = site.open();
    let enroll = |name| {
        let enrolled = members.enroll(&TokenId::Shared, (name, &key()), false, 0);
        enrolled.unwrap().fingerprint
    };
    let (of_b, of_c) = (enroll("b"), enroll("c"));
    // Under another's name.
    assert!(members.renew(of_c, ("b", &key()), 1).is_err());
    members.renew(of_b, ("b", &key()), 1).unwrap();
    members.revoke_node("b", 2).unwrap();
    assert!(members.renew(of_b, ("b", &key()), 3).is_err());
    // Another machine is `b` now; the connection of the one before may still be open.
    enroll("b");
    let refused = members.renew(of_b, ("b", &key()), 4).unwrap_err();
    assert!(refused.to_string().contains("token list"), "{refused}");
}

#[test]
fn a_list_of_the_build_before_is_read_and_its_certificates_have_no_end() {
    let site = Site::new();
    let path = site.temp.path().join("joins.json");
    let fingerprint = "ab".repeat(32);
    let text = format!(
        "{{\"version\":1,\"tokens\":[],\"nodes\":{{\"b\":{{\"fingerprint\":\"{fingerprint}\",\"since_ms\":7}}}}}}"
    );
    write_private(&path, text.as_bytes()).unwrap();
    let nodes = site.open().list(8).1;
    assert_eq!((nodes[0].since_ms, nodes[0].until_ms), (7, 0));
}

#[test]
fn a_token_ends_with_its_time_and_when_it_is_taken_back() {
    let site = Site::new();
    let members = site.open();
    let (first, second) = (
        members.create(None, 10, 0).unwrap(),
        members.create(None, HOUR, 0).unwrap(),
    );
    let known = |created: &Created, now_ms| {
        let holders = created.token.holders().unwrap();
        members.answering(holders.name(), now_ms).unwrap().1 != Proof::Certificate
    };
    assert!(known(&first, 9_999) && !known(&first, 10_000));
    let refused = members.enroll(&single(&first), ("b", &key()), false, 10_000);
    assert!(matches!(refused, Err(MembersError::NoToken)), "{refused:?}");
    members.revoke_token(&second.id, 1).unwrap();
    assert!(!known(&second, 2));
    let refused = members.enroll(&single(&second), ("b", &key()), false, 2);
    assert!(matches!(refused, Err(MembersError::NoToken)), "{refused:?}");
    let unknown = members.revoke_token(&second.id, 3).unwrap_err();
    assert!(unknown.to_string().contains("token list"), "{unknown}");
    for ttl_s in [0, LONGEST_TTL_S + 1, u64::MAX] {
        assert!(members.create(None, ttl_s, 0).is_err());
    }
}

#[test]
fn there_are_no_more_join_tokens_than_their_bound_until_some_are_over() {
    let site = Site::new();
    let members = site.open();
    let token = |number: usize| Token {
        id: format!("{number:08x}"),
        text: format!("{number:064x}"),
        node: None,
        expires_ms: 10_000,
        used: None,
    };
    members.lock().tokens = (1..MOST_TOKENS).map(token).collect();
    members.create(None, HOUR, 0).unwrap();
    let refused = members.create(None, HOUR, 9_999).unwrap_err();
    assert!(
        refused.to_string().contains("take some back first"),
        "{refused}"
    );
    members.create(None, HOUR, 10_000).unwrap();
}

#[test]
fn a_token_for_a_node_makes_that_one_alone_also_anew() {
    let site = Site::new();
    let members = site.open();
    let first = members.enroll(&TokenId::Shared, ("b", &key()), false, 0);
    let first = first.unwrap();
    let created = members.create(Some("b".to_owned()), HOUR, 0).unwrap();
    let refused = members.enroll(&single(&created), ("c", &key()), false, 1);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("--name b"), "{refused}");
    // The operator wants another machine to be `b`, whatever is joined.
    let second = members.enroll(&single(&created), ("b", &key()), true, 1);
    assert_eq!(node_of(&members, &second.unwrap()), is_b());
    assert_eq!(node_of(&members, &first), Proven::Former);
}

#[test]
fn who_has_the_shared_token_takes_no_name_over_that_is_joined() {
    let site = Site::new();
    let members = site.open();
    members
        .enroll(&TokenId::Shared, ("b", &key()), false, 0)
        .unwrap();
    let refused = members.enroll(&TokenId::Shared, ("b", &key()), true, 1);
    assert!(
        matches!(refused, Err(MembersError::Taken { .. })),
        "{refused:?}"
    );
    // One that lost its disk comes again once it is gone.
    members
        .enroll(&TokenId::Shared, ("b", &key()), false, 2)
        .unwrap();
    let any = members.create(None, HOUR, 0).unwrap();
    let refused = members.enroll(&single(&any), ("b", &key()), true, 1);
    assert!(
        matches!(refused, Err(MembersError::Taken { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_certificate_that_is_over_counts_on_no_open_connection_and_gets_no_other() {
    let site = Site::new();
    let members = site.open();
    let made = members.enroll(&TokenId::Shared, ("b", &key()), false, 1);
    let made = made.unwrap();
    let (last, over) = (made.until_ms, made.until_ms + 1);
    assert_eq!(members.node_of(made.fingerprint, last), is_b());
    assert_eq!(members.node_of(made.fingerprint, over), Proven::Former);
    assert!(
        members
            .renew(made.fingerprint, ("b", &key()), over)
            .is_err()
    );
    // One that was made in time counts by its own end.
    let next = members
        .renew(made.fingerprint, ("b", &key()), last)
        .unwrap();
    assert_eq!(members.node_of(next.fingerprint, over), is_b());
    assert_eq!(members.node_of(made.fingerprint, over), Proven::Former);
}

#[test]
fn a_certificate_that_was_taken_back_opens_nothing_and_its_token_gives_no_other() {
    let site = Site::new();
    let members = site.open();
    let created = members.create(None, HOUR, 0).unwrap();
    let b = key();
    let pem = members.enroll(&single(&created), ("b", &b), false, 1);
    members.revoke_node("b", 2).unwrap();
    assert_eq!(node_of(&site.open(), &pem.unwrap()), Proven::Former);
    let again = members.enroll(&single(&created), ("b", &b), false, 3);
    assert!(matches!(again, Err(MembersError::NoToken)), "{again:?}");
    assert!(members.revoke_node("b", 4).is_err());
    assert_eq!(members.list(4), (Vec::new(), Vec::new()));
}

#[test]
fn a_list_of_a_newer_program_and_one_that_is_none_are_refused() {
    let site = Site::new();
    let path = site.temp.path().join("joins.json");
    for text in ["{\"version\":2,\"tokens\":[],\"nodes\":{}}", "{", "[]"] {
        write_private(&path, text.as_bytes()).unwrap();
        let refused = Members::open(&path, &site.authorities(), None, None).unwrap_err();
        assert!(refused.to_string().contains("enroll anew"), "{refused}");
    }
}

#[test]
fn a_rotation_waits_for_nodes_that_may_come_and_the_rest_can_be_left_behind() {
    let site = Site::new();
    let authorities = site.authorities();
    let path = site.temp.path().join("joins.json");
    let members = Members::open(&path, &authorities, None, None).unwrap();
    let enroll = |name: &str, at_ms| {
        let enrolled = members.enroll(&TokenId::Shared, (name, &key()), false, at_ms);
        enrolled.unwrap()
    };
    let now_ms = 100 * LIFE_OF_NODE.as_millis() as u64;
    let (b, c) = (enroll("b", now_ms), enroll("c", now_ms));
    enroll("d", now_ms);
    // Its certificate is over: it needs a token whatever happens.
    enroll("gone", now_ms - 2 * LIFE_OF_NODE.as_millis() as u64);
    assert!(!members.wait_for(&authorities.name(), now_ms));
    authorities.rotate().unwrap();
    let name = authorities.name();
    assert!(members.wait_for(&name, now_ms));
    let renew = |of: &NodeCertificate, name: &str| {
        members
            .renew(of.fingerprint, (name, &key()), now_ms)
            .unwrap()
    };
    // `b` has used the new one, `c` may have it, and `d` was never there.
    let new_b = renew(&b, "b");
    members.was_used(new_b.fingerprint, now_ms).unwrap();
    let new_c = renew(&c, "c");
    assert!(members.wait_for(&name, now_ms));
    let out = members.keep_only(&name, now_ms).unwrap();
    assert_eq!(out, ["d", "gone"]);
    assert!(!members.wait_for(&name, now_ms));
    for (old, new) in [(&b, &new_b), (&c, &new_c)] {
        assert_eq!(node_of(&members, old), Proven::Former);
        assert!(matches!(node_of(&members, new), Proven::Node(_)));
    }
}
