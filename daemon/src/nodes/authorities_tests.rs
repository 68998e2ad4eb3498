#![allow(clippy::unwrap_used)]
use super::*;

const HOUR_MS: u64 = 3_600_000;
const BEGUN_MS: u64 = 1_800_000_000_000;

struct Site {
    state: StateDir,
    _temp: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        Self { state, _temp: temp }
    }

    /// As a leader has them that was started just now.
    fn open(&self) -> Authorities {
        let secret = JobSecret::load_or_create(&self.state.authority_key(), None).unwrap();
        Authorities::open(&self.state, secret, "demo", false).unwrap()
    }
}

fn living(roles: &[u64]) -> BTreeMap<u64, String> {
    roles.iter().map(|i| (*i, format!("rollout-{i}"))).collect()
}

/// The certificates of a text in PEM.
fn certificates_in(pem: &str) -> usize {
    pem.matches("BEGIN CERTIFICATE").count()
}

/// Sends a role what it is due, and lets it say that it took that.
fn give(authorities: &Authorities, incarnation: u64, now_ms: u64) -> String {
    assert!(authorities.due(now_ms).contains(&incarnation));
    let pem = authorities.renew_role(incarnation, now_ms).unwrap();
    let took = Fingerprint::of_pem(&pem).unwrap().to_string();
    authorities.role_says(incarnation, &took);
    pem
}

#[test]
fn roles_believe_both_before_any_is_certified_by_the_new_one_and_then_the_old_one_is_dropped() {
    let site = Site::new();
    let authorities = site.open();
    let (before, token) = (authorities.name(), authorities.job_token());
    authorities.certify_role(1, "rollout-1", BEGUN_MS).unwrap();
    assert!(authorities.due(BEGUN_MS).is_empty());
    authorities.rotate().unwrap();
    assert_ne!(authorities.name(), before);
    let shown = |authorities: &Authorities| {
        let shows = authorities.show();
        let roles = shows
            .roles
            .into_iter()
            .map(|(i, held, waits)| (i, held.by, waits));
        (shows.stage, roles.collect::<Vec<_>>())
    };
    // One that begins now believes both at once.
    let pem = authorities.certify_role(2, "rollout-2", BEGUN_MS).unwrap();
    assert_eq!(certificates_in(&pem), 3);
    authorities.settle(&living(&[1, 2]), true).unwrap();
    let of_before = |i, waits| (i, before.clone(), waits);
    let all = vec![of_before(1, true), of_before(2, false)];
    assert_eq!(shown(&authorities), (Stage::Trusting, all));
    give(&authorities, 1, BEGUN_MS);
    authorities.settle(&living(&[1, 2]), true).unwrap();
    let all = vec![of_before(1, true), of_before(2, true)];
    assert_eq!(shown(&authorities), (Stage::Certifying, all));
    for role in [1, 2] {
        give(&authorities, role, BEGUN_MS);
    }
    authorities.settle(&living(&[1, 2]), true).unwrap();
    assert!(authorities.is_rotating(), "a node has the old one");
    authorities.settle(&living(&[1, 2]), false).unwrap();
    assert!(!authorities.is_rotating());
    assert!(!site.state.authority_before_key().exists());
    // The last thing: nobody believes the old one any more.
    for role in [1, 2] {
        assert_eq!(certificates_in(&give(&authorities, role, BEGUN_MS)), 2);
    }
    assert!(authorities.due(BEGUN_MS).is_empty());
    let again = site.open();
    assert_eq!(again.name(), authorities.name());
    assert_eq!(
        again.job_token().reveal(),
        token.reveal(),
        "roles that live have it"
    );
}

#[test]
fn a_leader_that_dies_within_a_rotation_goes_on_with_it_and_one_that_dies_before_has_not_begun() {
    let site = Site::new();
    let before = site.open().name();
    // It has written down what is in force, and nothing else.
    let key = std::fs::read(site.state.authority_key()).unwrap();
    write_private(&site.state.authority_before_key(), &key).unwrap();
    let authorities = site.open();
    assert_eq!(
        (authorities.name(), authorities.is_rotating()),
        (before.clone(), false)
    );
    assert!(!site.state.authority_before_key().exists());
    authorities.rotate().unwrap();
    let again = site.open();
    assert_eq!(again.name(), authorities.name());
    assert_eq!(again.show().before, Some(before));
    // A role of before that has not linked again yet is waited for.
    again.settle(&living(&[1]), false).unwrap();
    let shows = again.show();
    assert_eq!(shows.stage, Stage::Trusting);
    let (_, held, waits) = &shows.roles[0];
    assert_eq!((held.role.as_str(), *waits), ("rollout-1", true));
    again.role_says(1, &"ab".repeat(32));
    give(&again, 1, BEGUN_MS);
    again.settle(&living(&[1]), false).unwrap();
    assert_eq!(again.show().stage, Stage::Certifying);
    // It ends before it has another certificate.
    again.settle(&living(&[]), false).unwrap();
    assert!(!site.open().is_rotating());
}

#[test]
fn a_certificate_of_a_role_is_made_anew_at_half_of_its_life() {
    let site = Site::new();
    let authorities = site.open();
    authorities.certify_role(1, "rollout-1", BEGUN_MS).unwrap();
    let half_ms = BEGUN_MS + 12 * HOUR_MS;
    assert!(authorities.due(half_ms - 1).is_empty());
    give(&authorities, 1, half_ms);
    assert!(authorities.due(half_ms + 12 * HOUR_MS - 1).is_empty());
    assert_eq!(authorities.due(half_ms + 12 * HOUR_MS), [1]);
}

#[test]
fn what_a_role_does_not_say_it_took_is_sent_again_and_an_old_word_counts_for_nothing() {
    let site = Site::new();
    let authorities = site.open();
    authorities.role_says(1, &"ab".repeat(32));
    let lost = authorities.renew_role(1, BEGUN_MS).unwrap();
    assert!(authorities.due(BEGUN_MS + 9_999).is_empty());
    assert_eq!(authorities.due(BEGUN_MS + 10_000), [1]);
    let pem = authorities.renew_role(1, BEGUN_MS + 10_000).unwrap();
    let says = |pem: &str| {
        let fingerprint = Fingerprint::of_pem(pem).unwrap().to_string();
        authorities.role_says(1, &fingerprint);
    };
    let by = || authorities.show().roles[0].1.by.clone();
    says(&lost);
    assert_eq!(by(), "", "it is not what was sent last");
    says(&pem);
    assert_eq!(by(), authorities.name());
    // The same word again, with its next link.
    says(&pem);
    assert_eq!(by(), authorities.name());
}

#[test]
fn a_role_that_can_take_no_other_certificate_is_waited_for_and_can_be_left_behind() {
    let site = Site::new();
    let authorities = site.open();
    authorities.role_says(1, "");
    assert!(authorities.due(BEGUN_MS).is_empty());
    let none = authorities.drop_before().unwrap_err().to_string();
    assert!(none.contains("begin with `robustctl ca rotate`"), "{none}");
    authorities.rotate().unwrap();
    authorities.settle(&living(&[1]), false).unwrap();
    assert_eq!(authorities.show().stage, Stage::Trusting);
    let again = authorities.rotate().unwrap_err().to_string();
    assert!(again.contains("ca rotate --now"), "{again}");
    authorities.drop_before().unwrap();
    assert_eq!(authorities.show().stage, Stage::Alone);
}

#[test]
fn nodes_are_answered_by_the_authority_that_they_call_and_those_of_an_earlier_build_by_the_oldest()
{
    let site = Site::new();
    let authorities = site.open();
    let name = |authorities: &Authorities| authorities.lock().current.nodes.name().to_owned();
    let answers = |name: &str| authorities.answering(name, BEGUN_MS).is_some();
    let first = name(&authorities);
    authorities.rotate().unwrap();
    let second = name(&authorities);
    assert!(answers(&first) && answers(&second) && answers(MEMBER));
    authorities.drop_before().unwrap();
    assert!(!answers(&first) && answers(&second) && answers(MEMBER));
    assert!(!answers("x"));
}

#[test]
fn a_new_life_of_the_job_has_a_token_of_the_secret_in_force() {
    let site = Site::new();
    let authorities = site.open();
    authorities.rotate().unwrap();
    let secret = JobSecret::load_or_create(&site.state.authority_key(), None).unwrap();
    let own = secret.job_token();
    assert_ne!(site.open().job_token().reveal(), own.reveal());
    let anew = Authorities::open(&site.state, secret, "demo", true).unwrap();
    assert_eq!(anew.job_token().reveal(), own.reveal());
    assert_eq!(site.open().job_token().reveal(), own.reveal());
}
