//! `robustctl export`: the series of a run as TensorBoard and MLflow read them, once or while the job runs.
//!
//! ```text
//!  GetReport, page by page ─► steps, incidents ─┐          ┌─► tensorboard: an event file
//!                                               ├─► Told ──┤
//!  GetHistory ─► curve, causes, job ────────────┘          └─► mlflow: a file for each series
//! ```
//! With `--follow` a look after the first one brings what is new. Where it does not go on from what was
//! written (steps were done again, a write failed, another job is there) everything is written anew.
mod files;
mod gather;
mod mlflow;
pub mod series;
mod tensorboard;
#[cfg(test)]
mod tests;

pub use gather::every_line;

use super::watch::reconnect;
use crate::cli::{ExportArgs, ExportCommand};
use crate::ending::is_over;
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use crate::output::{self, put, put_json};
use gather::{Known, Told};
use robust_proto::v1;
use robust_shared::wire::JobState;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a run is written to.
trait Board: Send {
    /// All of it, in place of what an earlier export of the run left; says where it is.
    fn whole(&mut self, told: &Told) -> io::Result<PathBuf>;
    /// What came since, behind what is there.
    fn more(&mut self, told: &Told) -> io::Result<()>;
}

/// Writes the run so far and, with --follow, what is to come.
pub async fn run(endpoint: &Endpoint, command: &ExportCommand, json: bool) -> Result<(), CliError> {
    let (args, board): (&ExportArgs, Box<dyn Board>) = match command {
        ExportCommand::Tensorboard(args) => (args, Box::new(tensorboard::Folder::new(&args.to))),
        ExportCommand::Mlflow(args) => (args, Box::new(mlflow::Store::new(&args.to))),
    };
    let mut export = Export {
        to: &args.to,
        board,
        known: None,
        json,
    };
    match args.follow {
        true => export.follow(endpoint, args.interval).await,
        false => {
            let mut client = endpoint.connect().await?;
            let told = gather::whole(endpoint, &mut client).await?;
            let written = export.board.whole(&told);
            export.say(&told, &written.map_err(|e| unwritable(&args.to, &e))?)
        }
    }
}

struct Export<'a> {
    to: &'a Path,
    board: Box<dyn Board>,
    /// The end of what is written; none where it has to be written anew.
    known: Option<Known>,
    json: bool,
}

impl Export<'_> {
    /// Look after look until the job is over.
    async fn follow(&mut self, endpoint: &Endpoint, interval: f64) -> Result<(), CliError> {
        let mut client = endpoint.reach().await?;
        let mut failing = false;
        loop {
            match self.look(endpoint, &mut client).await {
                Ok(Looked::Over) => return Ok(()),
                Ok(Looked::Written) => failing = false,
                Ok(Looked::Unwritable(why)) => {
                    // Once for as long as it lasts: a disk may be full for hours.
                    if !failing {
                        output::note(&format!("{why}; it is tried again"), self.json);
                    }
                    failing = true;
                }
                Err(e) if e.is_lost() => {
                    client = reconnect(endpoint, self.json).await?;
                    continue;
                }
                Err(e) => return Err(e),
            }
            tokio::time::sleep(Duration::from_secs_f64(interval)).await;
        }
    }

    /// Writes what is new; all of it at first, at the end of the job, and where it does not go on.
    async fn look(&mut self, endpoint: &Endpoint, client: &mut Client) -> Result<Looked, CliError> {
        let asked = client.get_status(v1::GetStatusRequest {});
        let status = endpoint.ask(asked).await?;
        if status.state() == Some(JobState::Starting) {
            // It says when the daemon began, which need not be when the job did; no step is new.
            return Ok(Looked::Written);
        }
        let over = is_over(&status.state);
        self.known = self.known.take().filter(|known| known.is_of(&status));
        // It stays known while the daemon is asked, which may be lost: what is written is still written.
        if let Some(known) = self.known.as_ref().filter(|_| !over) {
            if known.has_all(&status) {
                return Ok(Looked::Written);
            }
            if let Some(told) = gather::since(endpoint, client, known, &status).await? {
                return Ok(self.add(&told, &status));
            }
            self.known = None;
        }
        let told = gather::whole(endpoint, client).await?;
        match self.board.whole(&told) {
            Ok(folder) if over => {
                self.say(&told, &folder)?;
                Ok(Looked::Over)
            }
            Ok(_) => {
                self.known = Some(Known::of(&told).seen(&status));
                Ok(Looked::Written)
            }
            Err(e) if over => Err(unwritable(self.to, &e)),
            Err(e) => Ok(Looked::Unwritable(unwritable(self.to, &e))),
        }
    }

    /// Writes what came since. Where that fails, part of it may be there: it is known no more how far it goes.
    fn add(&mut self, told: &Told, status: &v1::Status) -> Looked {
        let known = self.known.take();
        match self.board.more(told) {
            Ok(()) => {
                self.known = known.map(|known| known.and(told).seen(status));
                Looked::Written
            }
            Err(e) => Looked::Unwritable(unwritable(self.to, &e)),
        }
    }

    fn say(&self, told: &Told, folder: &Path) -> Result<(), CliError> {
        let (steps, incidents) = (told.points.len(), told.incidents.len());
        match self.json {
            true => put_json(&serde_json::json!({
                "folder": folder.display().to_string(), "steps": steps, "incidents": incidents,
            })),
            false => put(&format!(
                "{}: steps {steps}, incidents {incidents}, written to {}\n",
                robust_shared::printable::one_line(&told.job),
                folder.display()
            )),
        }
    }
}

/// What came of a look.
enum Looked {
    /// All that is known is written.
    Written,
    /// The same, and nothing more will come.
    Over,
    /// Why it could not be written.
    Unwritable(CliError),
}

fn unwritable(to: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("{} cannot be written: {error}", to.display()))
}
