//! A job under a daemon of its own that is watched, for programs that measure.
use super::daemon::{Daemon, Programs};
use super::facts;
use super::follow::Host as _;
use crate::ending::is_over;
use crate::endpoint::{ANSWER_WITHIN, Client, Endpoint};
use crate::error::CliError;
use robust_proto::v1;
use std::path::Path;
use tokio_stream::StreamExt as _;
use tonic::Streaming;

/// Statuses come this often: the grain of what is seen by them.
const LOOK_EVERY_MS: u32 = 20;

/// A running job in a folder of its own. Dropping it ends the daemon and the roles.
pub struct OwnJob {
    endpoint: Endpoint,
    client: Client,
    statuses: Streaming<v1::Status>,
    daemon: Daemon,
}

impl OwnJob {
    /// Starts `robustd` and `robust-worker` of the folder `programs` with the text of a job file, and waits until the
    /// daemon answers. With `keep` the job's folder stays.
    ///
    /// # Errors
    /// When a program is missing, or the daemon does not start or does not answer.
    pub async fn start(programs: &Path, job: &str, keep: bool) -> Result<Self, CliError> {
        let mut daemon = Daemon::start(&Programs::of(programs)?, job, &[], keep)?;
        let endpoint = daemon.endpoint();
        let mut client = daemon.connect().await?;
        let watch = v1::WatchRequest {
            interval_ms: LOOK_EVERY_MS,
        };
        let statuses = endpoint.ask(client.watch(watch)).await?;
        Ok(Self {
            endpoint,
            client,
            statuses,
            daemon,
        })
    }

    /// The daemon's state directory.
    pub fn state_dir(&self) -> &Path {
        self.daemon.state_dir()
    }

    /// The next status, of which there are fifty a second.
    ///
    /// # Errors
    /// When the job is over, or the daemon is gone or says nothing any more.
    pub async fn next_status(&mut self) -> Result<v1::Status, CliError> {
        let failed = |what: String| CliError::Failed(what);
        match tokio::time::timeout(ANSWER_WITHIN, self.statuses.next()).await {
            Ok(Some(Ok(status))) if is_over(&status.state) => Err(failed(format!(
                "the job {}: {}",
                status.state, status.reason
            ))),
            Ok(Some(Ok(status))) => Ok(status),
            Ok(Some(Err(error))) => Err(failed(format!("robustd is gone ({})", error.message()))),
            Ok(None) => Err(failed("robustd ended its stream".to_owned())),
            Err(_) => Err(failed("robustd says nothing any more".to_owned())),
        }
    }

    /// What the daemon finds wrong in the whole of its store.
    ///
    /// # Errors
    /// When the daemon does not answer, or ends its answer early.
    pub async fn store_problems(&mut self) -> Result<Vec<String>, CliError> {
        facts::store_problems(&self.endpoint, &mut self.client).await
    }

    /// Ends the job and its daemon in order. Its exit code says that the job did not complete, which is no error here.
    ///
    /// # Errors
    /// When the daemon does not end.
    pub async fn end(self) -> Result<(), CliError> {
        let Self {
            client,
            statuses,
            mut daemon,
            ..
        } = self;
        drop((client, statuses));
        daemon.finish(true).await
    }
}
