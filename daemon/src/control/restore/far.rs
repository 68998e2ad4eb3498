//! Checkpoints in the object store, brought back to disk.
use super::Source;
use super::sources::shards_of;
use futures::FutureExt;
use futures::future::BoxFuture;
use robust_remote::{Kept, Remote};
use robust_shared::dispatch::calls::Shard;
use robust_shared::ids::Step;
use std::path::PathBuf;

/// The object store: the checkpoints that this life of the job put there.
pub struct Far {
    remote: Remote,
    run: String,
    /// Where they are brought to: the folder of checkpoints.
    dir: PathBuf,
}

impl Far {
    /// Of a run; `dir` is the folder of checkpoints on disk.
    pub fn new(remote: Remote, run: String, dir: PathBuf) -> Self {
        Self { remote, run, dir }
    }

    async fn history(&self) -> Result<Vec<Kept>, String> {
        let all = self.remote.list(&self.run).await;
        let mut all = all.map_err(|e| e.to_string())?;
        let mut passed_over = Vec::new();
        for kept in &all {
            if let Err(why) = &kept.manifest {
                tracing::warn!("{} in {} is not used: {why}", kept.place, self.remote.url());
                passed_over.push(format!("{} is not used: {why}", kept.place));
            }
        }
        all.retain(|kept| kept.manifest.is_ok());
        // Damaged, or not signed by the job's key: with nothing else there, that is why.
        if let Some(why) = passed_over.pop().filter(|_| all.is_empty()) {
            return Err(why);
        }
        // What a later gang did again did not happen.
        let undone = |kept: &Kept| {
            all.iter()
                .any(|other| kept.place.is_undone_by(&other.place))
        };
        Ok(all.iter().filter(|kept| !undone(kept)).cloned().collect())
    }

    async fn fetch(&self, step: Step) -> Result<Vec<Shard>, String> {
        let history = self.history().await?;
        let kept = history.iter().rev().find(|kept| kept.place.step == step);
        let kept = kept.ok_or("it is not there any more")?;
        let fetched = self.remote.fetch(kept, &self.dir, &mut |_| ()).await;
        Ok(shards_of(&fetched.map_err(|e| e.to_string())?))
    }
}

impl Source for Far {
    fn name(&self) -> &'static str {
        "object store"
    }

    fn steps(&self, limit: Step) -> BoxFuture<'_, Result<Vec<Step>, String>> {
        async move {
            let history = self.history().await?;
            let steps = history.iter().map(|kept| kept.place.step);
            Ok(steps.filter(|step| *step <= limit).collect())
        }
        .boxed()
    }

    fn shards(&self, step: Step) -> BoxFuture<'_, Result<Vec<Shard>, String>> {
        self.fetch(step).boxed()
    }
}
