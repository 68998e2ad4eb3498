//! What is kept beside incidents, and of the webhook.
use super::*;

#[test]
fn what_the_webhooks_receiver_was_told_is_known_after_a_restart() {
    let (dir, store) = fresh();
    assert_eq!(store.told().unwrap(), None);
    let told = Told {
        begun: 7,
        open: [3, 7].into(),
        alarms: [("no follower".to_owned(), 1_700_000_000_000)].into(),
    };
    store.put_told(Told::default());
    store.put_told(told.clone());
    store.sync().wait().unwrap();
    assert_eq!(store.told().unwrap(), Some(told.clone()));
    drop(store);
    let (store, note) = Store::open(dir.path()).unwrap();
    assert_eq!((store.told().unwrap(), note), (Some(told), None));
}

#[test]
fn notes_of_an_incident_that_is_not_on_record_are_not_kept() {
    let (_dir, store) = fresh();
    let note = StoredNote {
        at: Time(1),
        who: "uid 7".to_owned(),
        text: "x".to_owned(),
    };
    assert!(!store.put_notes(4, vec![note]).wait().unwrap());
    assert_eq!(store.notes().unwrap(), []);
}
