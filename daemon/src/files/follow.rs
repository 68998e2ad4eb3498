//! A controller that follows gets what its job is made of.
use super::holder::Holder;
use super::manifest::Manifest;
use super::size;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Between two looks, of one that has everything and of one that lacks something.
const LOOK: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);
/// The same of one to which nothing comes though it tries again and again, at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a controller has of its job's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Files that are not here.
    pub lacks: u32,
    /// Bytes of those that have not come.
    pub lacking_bytes: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Why it may not lead; empty: it has everything.
    pub why: String,
}

impl Standing {
    /// Whether it may lead.
    pub fn has_all(&self) -> bool {
        self.why.is_empty()
    }
}

/// A controller that looks for the files of its job, and fetches what it lacks, until this is dropped.
#[derive(Debug)]
pub struct Following {
    standing: watch::Receiver<Standing>,
    looking: JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

impl Following {
    /// Begins to look.
    pub fn start(holder: Holder) -> Self {
        let first = Standing {
            why: "the job's files were not looked for yet".to_owned(),
            ..Standing::default()
        };
        let (told, standing) = watch::channel(first);
        let looking = tokio::spawn(async move {
            let mut round = Round {
                holder,
                told,
                known: None,
                said: String::new(),
            };
            let mut pause = RETRY;
            loop {
                let before = round.told.borrow().clone();
                round.turn().await;
                let now = round.told.borrow().clone();
                // Each try costs the store requests, and the log lines.
                pause = match now.lacks > 0 && now == before && round.known.is_some() {
                    true => (pause * 2).min(PATIENCE),
                    false => RETRY,
                };
                sleep(if now.has_all() { LOOK } else { pause }).await;
            }
        });
        Self { standing, looking }
    }

    /// What it has by now.
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Waits for a change of that.
    pub async fn changed(&mut self) {
        if self.standing.changed().await.is_err() {
            // It looks for as long as this lives.
            std::future::pending::<()>().await;
        }
    }
}

struct Round {
    holder: Holder,
    told: watch::Sender<Standing>,
    /// The record that was looked at last.
    known: Option<Manifest>,
    /// Why it cannot lead, as that was said last.
    said: String,
}

impl Round {
    async fn turn(&mut self) {
        let manifest = match Manifest::read(&self.holder.state) {
            Ok(Some(manifest)) => manifest,
            Ok(None) => return self.without_record(),
            Err(error) => {
                return self.tell(Standing {
                    why: error.to_string(),
                    ..Standing::default()
                });
            }
        };
        let bytes = manifest.bytes();
        if self.known.as_ref() != Some(&manifest) {
            // It may take minutes, of a large model.
            self.show(Standing {
                lacks: u32::try_from(manifest.files.len()).unwrap_or(u32::MAX),
                lacking_bytes: bytes,
                bytes,
                why: "its files are being compared with the job's".to_owned(),
            });
        }
        let standing = self.with(&manifest).await;
        self.known = Some(manifest);
        self.tell(standing);
    }

    /// What it has of them, once all that can be fetched is here.
    async fn with(&self, manifest: &Manifest) -> Standing {
        let bytes = manifest.bytes();
        let failed = |why: String| Standing {
            lacks: u32::try_from(manifest.files.len()).unwrap_or(u32::MAX),
            lacking_bytes: bytes,
            bytes,
            why,
        };
        let look = match self.holder.look(manifest).await {
            Ok(look) => look,
            Err(error) => return failed(error.to_string()),
        };
        let mut lacking = look.lacking();
        let mut standing = Standing {
            bytes,
            ..Standing::default()
        };
        let count = |standing: &mut Standing, lacking: &[super::Needed]| {
            standing.lacks = u32::try_from(lacking.len()).unwrap_or(u32::MAX);
            standing.lacking_bytes = lacking.iter().map(|file| file.bytes).sum();
        };
        count(&mut standing, &lacking);
        if let Some(differs) = look.differs.first() {
            let others = look.differs.len();
            standing.lacks = standing
                .lacks
                .max(u32::try_from(others).unwrap_or(u32::MAX));
            standing.why = differs.to_string();
            return standing;
        }
        while let Some(file) = lacking.first() {
            standing.why = format!("it fetches {} of the job's files", file.name);
            self.show(standing.clone());
            let told = self.told.clone();
            let mut came = |bytes| {
                told.send_modify(|now| now.lacking_bytes = now.lacking_bytes.saturating_sub(bytes));
            };
            if let Err(error) = self.holder.fetch(manifest, file, &mut came).await {
                count(&mut standing, &lacking);
                standing.why = error.to_string();
                return standing;
            }
            lacking.remove(0);
            count(&mut standing, &lacking);
        }
        standing.why = String::new();
        standing
    }

    /// The log does not say what the job is made of: what its own job file names has to be there.
    fn without_record(&mut self) {
        self.known = None;
        let missing = self.holder.paths.missing();
        let why = match missing.first() {
            None => String::new(),
            Some((key, path)) => format!(
                "{} ({key}) is not there, and the job's log does not say yet what it is: put it there, or start a \
                 controller that has it first",
                path.display()
            ),
        };
        self.tell(Standing {
            lacks: u32::try_from(missing.len()).unwrap_or(u32::MAX),
            why,
            ..Standing::default()
        });
    }

    /// Says why it cannot lead, or that it can, where that is news.
    fn tell(&mut self, standing: Standing) {
        if self.said != standing.why {
            match standing.has_all() {
                true => tracing::info!("all files of the job are here: {}", size(standing.bytes)),
                false => tracing::warn!("this controller cannot lead: {}", standing.why),
            }
            self.said.clone_from(&standing.why);
        }
        self.show(standing);
    }

    fn show(&self, standing: Standing) {
        self.told.send_if_modified(|now| {
            let news = *now != standing;
            *now = standing;
            news
        });
    }
}
