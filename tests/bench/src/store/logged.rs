//! A store of several controllers: each group is put into the log, and counts once etcd has its place, as under `[ha]`.
use super::{BenchError, StoreArgs};
use futures::future::BoxFuture;
use robust_arbiter::{Arbiter, Compare, Etcd, Options as EtcdOptions, Revision, Transacted, Write};
use robust_grouplog::{GroupLog, Position};
use robust_remote::Remote;
use robustd::grouplog::{Attached, Carried, Fate, Logging, Register, put_base};
use robustd::state::StateDir;
use robustd::store::{Options, Store};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

/// The term of the only controller that there is.
const EPOCH: u64 = 1;

/// Where the log is, and who decides what of it counts.
pub(super) struct Site {
    remote: Remote,
    etcd: Etcd,
    runtime: Runtime,
}

impl Site {
    /// As the arguments name them; none where they name none.
    pub fn of(args: &StoreArgs) -> Result<Option<Self>, BenchError> {
        let Some(log) = &args.ha_log else {
            return Ok(None);
        };
        let endpoints = args.ha_etcd.iter().map(|url| url.parse().map_err(other));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        Ok(Some(Self {
            remote: Remote::open(log).map_err(other)?,
            etcd: Etcd::new(EtcdOptions::new(endpoints)).map_err(other)?,
            runtime: tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()?,
        }))
    }

    /// A store in that folder whose groups go into a log of their own.
    pub fn store(&self, dir: &Path, name: &str) -> Result<Store, BenchError> {
        let state = StateDir::make(dir).map_err(other)?;
        let logging = Logging::default();
        let around = |commit| logging.around(commit);
        let (store, _) = Store::open_with(state.root(), Options::default(), around)?;
        // In containers process numbers come again.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let run = format!("{}-{name}", since.unwrap_or_default().as_micros());
        let log = GroupLog::new(&self.remote, "bench", &run);
        let mut carried = Carried::new(&state, None, store.files()?);
        self.runtime.block_on(async {
            let begun = put_base((&log, EPOCH), &store, &mut carried).await;
            let (epoch, at) = begun.map_err(other)?;
            let head = Head::begin(self.etcd.clone(), &run).await?;
            let dumper = store.dumper();
            let place = (log, epoch, at);
            let register: Arc<dyn Register> = Arc::new(head);
            logging.attach(Attached::new(
                place,
                at.number,
                Some(register),
                carried,
                dumper,
            ));
            store.sync().await?;
            Ok(store)
        })
    }
}

/// The log's head in etcd, moved by the transaction that a leader moves it by.
struct Head {
    etcd: Etcd,
    /// The key of whoever leads, and the change that made it.
    leader: (String, Revision),
    key: String,
    /// The change that moved it last.
    moved: Mutex<Option<Revision>>,
}

impl Head {
    async fn begin(etcd: Etcd, run: &str) -> Result<Self, BenchError> {
        let [key, leader] = ["head", "leader"].map(|key| format!("robust-bench/{run}/{key}"));
        let absent = Compare::Absent {
            key: leader.clone(),
        };
        let write = put(&leader, run);
        let made = etcd.transact(vec![absent], vec![write]).await;
        match made.map_err(other)? {
            Transacted::Done(revision) => Ok(Self {
                etcd,
                leader: (leader, revision),
                key,
                moved: Mutex::new(None),
            }),
            Transacted::Refused { .. } => Err(BenchError::Else(format!(
                "etcd has the key {leader} already"
            ))),
        }
    }
}

impl Register for Head {
    fn register<'a>(&'a self, _from: &'a Position, to: &'a Position) -> BoxFuture<'a, Fate> {
        Box::pin(async move {
            let mut moved = self.moved.lock().await;
            let (leader, revision) = self.leader.clone();
            let leads = Compare::Created {
                key: leader,
                revision,
            };
            let key = self.key.clone();
            let last = match *moved {
                Some(revision) => Compare::Modified { key, revision },
                None => Compare::Absent { key },
            };
            let write = put(&self.key, to);
            match self.etcd.transact(vec![leads, last], vec![write]).await {
                Ok(Transacted::Done(revision)) => {
                    *moved = Some(revision);
                    Fate::Registered
                }
                Ok(Transacted::Refused { .. }) => {
                    Fate::Deposed("etcd's keys of this measurement were changed".to_owned())
                }
                Err(error) => Fate::Away(error.to_string()),
            }
        })
    }

    /// The store refuses everything from then on, which ends the measurement.
    fn step_down(&self, why: &str) {
        tracing::error!("the log is not written any more: {why}");
    }
}

fn put(key: &str, value: impl Display) -> Write {
    Write::Put {
        key: key.to_owned(),
        value: value.to_string().into_bytes(),
        lease: None,
    }
}

fn other(error: impl Display) -> BenchError {
    BenchError::Else(error.to_string())
}
