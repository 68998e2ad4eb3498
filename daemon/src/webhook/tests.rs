//! What a receiver gets, and that nobody waits for one.
#![allow(clippy::unwrap_used)]
#[path = "../../tests/hook/mod.rs"]
mod hook;

use super::receiver::Patience;
use super::*;
use aws_lc_rs::hmac;
use axum::http::StatusCode;
use hook::{Posted, next, receiver};
use serde_json::Value;
use std::collections::BTreeSet;
use tempfile::TempDir;
use tokio::net::TcpListener;

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(60);

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// Tries often, and for so long.
fn patience(in_all: Duration) -> Patience {
    Patience {
        answer: Duration::from_millis(500),
        first_wait: Duration::from_millis(5),
        longest_wait: Duration::from_millis(20),
        in_all,
    }
}

struct Place {
    _dir: TempDir,
    store: Store,
    metrics: Arc<Metrics>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        Self {
            _dir: dir,
            store,
            metrics: Arc::new(Metrics::new("n0")),
        }
    }

    /// A life of the daemon that posts there, and does not give up.
    fn start(&self, url: &str) -> Webhook {
        self.start_with(url, patience(LONG))
    }

    fn start_with(&self, url: &str, patience: Patience) -> Webhook {
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
        let receiver = Receiver::new(url, Some(key), patience).unwrap();
        let about = Identity {
            job: "j".to_owned(),
            run: "r7".to_owned(),
            leader: "n0".to_owned(),
        };
        let none: &[v1::Incident] = &[];
        let known = (none, Arc::clone(&self.metrics));
        Webhook::start(receiver, about, &self.store, known).unwrap()
    }

    fn counted(&self, result: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let line = format!("robust_webhook_total{{result=\"{result}\"}} ");
        let value = text.lines().find_map(|l| l.strip_prefix(&line)).unwrap();
        value.parse().unwrap()
    }

    /// Waits until that is counted.
    async fn until_counted(&self, result: &str, least: u64) {
        let counting = async {
            while self.counted(result) < least {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, counting).await.unwrap();
    }
}

fn incident(id: u64, outcome: &str) -> v1::Incident {
    v1::Incident {
        id,
        role: "rollout".to_owned(),
        index: 1,
        rule: "exit".to_owned(),
        outcome: outcome.to_owned(),
        at_ms: 1_700_000_000_000,
        detect_ms: 4.0,
        ..Default::default()
    }
}

fn status(incidents: Vec<v1::Incident>) -> v1::Status {
    v1::Status {
        incidents,
        ..Default::default()
    }
}

fn ids(posted: &[Posted]) -> Vec<String> {
    let id = |(_, body): &Posted| {
        let document: Value = serde_json::from_slice(body).unwrap();
        document["id"].as_str().unwrap().to_owned()
    };
    posted.iter().map(id).collect()
}

#[tokio::test]
async fn the_receiver_gets_begin_and_end_each_once_signed_over_the_whole_body() {
    let (url, mut posted, _) = receiver(&[]).await;
    let place = Place::new();
    let webhook = place.start(&format!("{url}/hook?k=v"));
    webhook.status(&status(vec![incident(1, "recovering")]));
    for _ in 0..3 {
        webhook.status(&status(vec![incident(1, "recovered")]));
    }
    let alarm = v1::Alarm {
        kind: "log away".to_owned(),
        text: "the store does not answer".to_owned(),
        since_ms: 7,
    };
    let mut away = status(vec![]);
    away.alarms.push(alarm);
    webhook.status(&away);
    webhook.status(&status(vec![]));
    webhook.flush(LONG).await;
    let mut all = Vec::new();
    while let Ok(one) = posted.try_recv() {
        all.push(one);
    }
    let wanted = [
        "r7/incident/1/begins",
        "r7/incident/1/ends",
        "r7/alarm/log-away/7/raised",
        "r7/alarm/log-away/7/cleared",
    ];
    assert_eq!(ids(&all), wanted);
    assert_eq!((place.counted("sent"), place.counted("dropped")), (4, 0));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    for (head, body) in &all {
        assert_eq!(head["content-type"], "application/json");
        let signed = head["robust-signature"].to_str().unwrap();
        let hex = signed.strip_prefix("sha256=").unwrap();
        let tag: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        hmac::verify(&key, body, &tag).unwrap();
    }
}

#[tokio::test]
async fn one_that_answers_500_is_asked_again_until_it_takes_the_newest_of_each() {
    let answers = [StatusCode::INTERNAL_SERVER_ERROR; 3];
    let (url, mut posted, _) = receiver(&answers).await;
    let place = Place::new();
    let webhook = place.start(&url);
    webhook.status(&status(vec![
        incident(1, "recovered"),
        incident(2, "recovering"),
    ]));
    webhook.flush(LONG).await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(next(&mut posted).await);
    }
    let (ended, begun) = ("r7/incident/1/ends", "r7/incident/2/begins");
    let wanted = ["r7/incident/1/begins", begun, ended, begun, ended];
    assert_eq!(ids(&all), wanted, "a double has the same number");
    let counts = ["sent", "retried", "dropped"].map(|result| place.counted(result));
    assert_eq!(counts, [2, 3, 0]);
}

#[tokio::test]
async fn the_last_words_do_not_wait_until_it_is_time_for_the_next_try() {
    let (url, mut posted, _) = receiver(&[StatusCode::SERVICE_UNAVAILABLE]).await;
    let place = Place::new();
    let seldom = Patience {
        first_wait: 100 * LONG,
        longest_wait: 100 * LONG,
        ..patience(100 * LONG)
    };
    let webhook = place.start_with(&url, seldom);
    webhook.status(&status(vec![incident(1, "recovering")]));
    place.until_counted("retried", 1).await;
    webhook.end(LONG).await;
    assert_eq!((place.counted("sent"), place.counted("retried")), (1, 1));
    let both = [next(&mut posted).await, next(&mut posted).await];
    assert_eq!(ids(&both), ["r7/incident/1/begins"; 2]);
}

#[tokio::test]
async fn after_an_outage_the_receiver_hears_how_it_is_now_and_what_it_will_never_take_is_dropped() {
    let (url, mut posted, answers) = receiver(&[]).await;
    answers.always(StatusCode::SERVICE_UNAVAILABLE);
    let place = Place::new();
    let webhook = place.start_with(&url, patience(Duration::from_millis(50)));
    webhook.status(&status(vec![incident(1, "recovering")]));
    place.until_counted("retried", 1).await;
    // More than there is room for comes and goes meanwhile; two stand.
    let alarm = |since_ms: u64| v1::Alarm {
        kind: "log away".to_owned(),
        since_ms,
        ..Default::default()
    };
    for since_ms in 1..=QUEUED as u64 {
        let mut away = status(vec![incident(1, "recovering")]);
        away.alarms.push(alarm(since_ms));
        webhook.status(&away);
        webhook.status(&status(vec![incident(1, "recovering")]));
    }
    let mut now = status(vec![incident(1, "recovered"), incident(2, "recovering")]);
    now.alarms.push(alarm(7_000));
    webhook.status(&now);
    assert_eq!((place.counted("sent"), place.counted("dropped")), (0, 0));
    answers.always(StatusCode::NO_CONTENT);
    while posted.try_recv().is_ok() {}
    webhook.flush(LONG).await;
    // One that was on its way when it took them again may be beside those that follow.
    assert!((3..=4).contains(&place.counted("sent")), "one each");
    assert_eq!(place.counted("dropped"), 0);
    let mut all = Vec::new();
    while let Ok(one) = posted.try_recv() {
        all.push(one);
    }
    let heard: BTreeSet<String> = ids(&all).into_iter().collect();
    let wanted = [
        "r7/alarm/log-away/7000/raised",
        "r7/incident/1/ends",
        "r7/incident/2/begins",
    ];
    assert!(wanted.iter().all(|id| heard.contains(*id)), "{heard:?}");
    // A document that the receiver will never take is not tried again.
    answers.always(StatusCode::BAD_REQUEST);
    now.incidents.push(incident(3, "recovering"));
    webhook.status(&now);
    place.until_counted("dropped", 1).await;
    assert_eq!(ids(&[next(&mut posted).await]), ["r7/incident/3/begins"]);
    assert!(posted.try_recv().is_err());
}

/// One that takes connections and never answers.
#[tokio::test]
async fn nobody_waits_for_a_receiver_that_hangs_and_what_is_too_much_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = Place::new();
    let webhook = place.start(&format!("http://{}", listener.local_addr().unwrap()));
    let many = 3 * QUEUED as u64;
    let begun = Instant::now();
    webhook.status(&status(
        (1..=many).map(|id| incident(id, "recovering")).collect(),
    ));
    assert!(begun.elapsed() < LONG / 10, "{:?}", begun.elapsed());
    // One may be on its way, the others in the queue.
    let dropped = place.counted("dropped");
    assert!(dropped >= many - QUEUED as u64 - 1, "{dropped}");
    place.until_counted("retried", 1).await;
    webhook.flush(Duration::from_millis(50)).await;
    assert_eq!(place.counted("sent"), 0);
}

#[tokio::test]
async fn who_goes_on_with_the_job_tells_what_was_not_heard_and_nothing_twice() {
    let place = Place::new();
    let (url, mut posted, _) = receiver(&[]).await;
    let first = place.start(&url);
    first.status(&status(vec![incident(1, "recovered")]));
    first.flush(LONG).await;
    drop(first);
    place.store.sync().await.unwrap();
    // Nobody listens there any more: the port was this listener's.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let second = place.start(&gone);
    let open = vec![incident(1, "recovered"), incident(2, "recovering")];
    second.status(&status(open));
    place.until_counted("retried", 1).await;
    drop(second);
    let third = place.start(&url);
    let over = vec![incident(1, "recovered"), incident(2, "recovered")];
    third.status(&status(over));
    third.flush(LONG).await;
    let mut all = Vec::new();
    while let Ok(one) = posted.try_recv() {
        all.push(one);
    }
    let wanted = [
        "r7/incident/1/begins",
        "r7/incident/1/ends",
        "r7/incident/2/begins",
        "r7/incident/2/ends",
    ];
    assert_eq!(ids(&all), wanted);
}

#[tokio::test]
async fn one_that_was_passed_by_others_is_told_by_who_goes_on_with_the_job() {
    let first = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::NO_CONTENT];
    let (url, mut posted, answers) = receiver(&first).await;
    answers.always(StatusCode::SERVICE_UNAVAILABLE);
    let place = Place::new();
    let webhook = place.start(&url);
    let open = status(vec![incident(1, "recovering"), incident(2, "recovering")]);
    webhook.status(&open);
    place.until_counted("sent", 1).await;
    drop(webhook);
    place.store.sync().await.unwrap();
    let heard = [next(&mut posted).await, next(&mut posted).await];
    let (one, two) = ("r7/incident/1/begins", "r7/incident/2/begins");
    assert_eq!(ids(&heard), [one, two], "the second was taken");
    while posted.try_recv().is_ok() {}
    answers.always(StatusCode::NO_CONTENT);
    let next_life = place.start(&url);
    next_life.status(&open);
    next_life.flush(LONG).await;
    assert_eq!(ids(&[next(&mut posted).await]), [one]);
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let (elsewhere, mut heard, _) = receiver(&[]).await;
    let (url, mut posted, answers) = receiver(&[]).await;
    answers.leads_to(&elsewhere);
    answers.always(StatusCode::TEMPORARY_REDIRECT);
    let place = Place::new();
    let webhook = place.start(&url);
    webhook.status(&status(vec![incident(1, "recovering")]));
    place.until_counted("retried", 2).await;
    next(&mut posted).await;
    assert!(heard.try_recv().is_err());
    assert_eq!(place.counted("sent"), 0);
}
