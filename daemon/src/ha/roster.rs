//! What operators see of the controllers: who leads, who follows and how far, and how the term began.
use super::lead::Lead;
use super::site::{Keys, Member, read};
use robust_arbiter::{Arbiter, Entry, Etcd, Revision, Write};
use robust_proto::v1;
use robust_shared::wire::FollowerState;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// A follower that gave no sign for so long does not follow.
const SILENT: Duration = Duration::from_secs(3);
/// One that gave none for so long is forgotten, until it gives one again.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The signs that were seen of followers.
struct Roster {
    arbiter: Etcd,
    keys: Keys,
    name: String,
    /// The change of each one's last sign, when that was first seen, and whether it is known to have come since the first look.
    seen: BTreeMap<String, (Revision, Instant, bool)>,
}

/// Looks once a second, for as long as the term lasts.
pub(super) fn watch(
    lead: &Arc<Lead>,
    (arbiter, keys, name): (Etcd, Keys, String),
) -> watch::Receiver<v1::Controllers> {
    let lead: Weak<Lead> = Arc::downgrade(lead);
    let mut first = v1::Controllers {
        leader: name.clone(),
        since_ms: unix_ms(),
        ..v1::Controllers::default()
    };
    if let Some(lead) = lead.upgrade() {
        first.epoch = lead.epoch();
    }
    let (shown, seen) = watch::channel(first);
    tokio::spawn(async move {
        let mut roster = Roster {
            arbiter,
            keys,
            name,
            seen: BTreeMap::new(),
        };
        let began = Instant::now();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let members = roster.arbiter.read_prefix(&roster.keys.members()).await;
            let Some(lead) = lead.upgrade() else { return };
            let group = lead.head().map_or(0, |head| head.at.number);
            let takeover = lead.takeover().shown();
            let followers = match members {
                Ok((members, _)) => Some(roster.followers(members, group).await),
                // etcd is away: what was known stays, and its ages stand still.
                Err(_) => None,
            };
            let sent = shown.send_if_modified(|shown| {
                shown.group = group;
                shown.led_ms = millis(began.elapsed());
                shown.takeover = Some(takeover);
                if let Some(followers) = followers {
                    shown.followers = followers;
                }
                true
            });
            if !sent || shown.is_closed() {
                return;
            }
        }
    });
    seen
}

impl Roster {
    async fn followers(&mut self, members: Vec<Entry>, group: u64) -> Vec<v1::Follower> {
        let now = Instant::now();
        let prefix = self.keys.members();
        let mut followers = Vec::new();
        for entry in members {
            let name = entry.key.strip_prefix(&prefix).unwrap_or_default();
            if name == self.name || name.is_empty() {
                continue;
            }
            let seen = self
                .seen
                .entry(name.to_owned())
                .or_insert((entry.modified, now, false));
            if seen.0 != entry.modified {
                *seen = (entry.modified, now, true);
            }
            let (_, since, is_new) = *seen;
            let silent = now.duration_since(since);
            if !is_new && silent <= SILENT {
                // Of a candidate that ended long ago there is such a key, too.
                continue;
            }
            if silent > FORGOTTEN {
                let forgotten = Write::Delete {
                    key: entry.key.clone(),
                };
                // It is tried again with the next look.
                drop(self.arbiter.transact(Vec::new(), vec![forgotten]).await);
                self.seen.remove(name);
                continue;
            }
            let Member { applied, lacks, .. } = read(&entry.value).unwrap_or_default();
            let state = match (silent > SILENT, &lacks) {
                (true, _) => FollowerState::Silent,
                (false, Some(_)) => FollowerState::LacksFiles,
                (false, None) => FollowerState::Follows,
            };
            let lacks = lacks.unwrap_or_default();
            followers.push(v1::Follower {
                name: name.to_owned(),
                group: applied,
                behind: group.saturating_sub(applied),
                silent_ms: millis(silent),
                state: state.word().to_owned(),
                lacks_files: lacks.files,
                lacks_bytes: lacks.bytes,
                files_bytes: lacks.of,
                lacks: lacks.why,
            });
        }
        followers
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
