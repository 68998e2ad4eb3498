//! Where a run is found, and how it is read there.
use super::shown::Shown;
use super::{Side, file};
use crate::cli::Global;
use crate::commands::drill::unless_interrupted;
use crate::commands::export::every_line;
use crate::commands::report::history;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use robust_proto::v1;
use std::path::{Path, PathBuf};

/// Points of curves and stretches of lanes that are asked for: none of them is compared, and this is the least.
const CELLS: u32 = 10;
/// How a job that is shown without running says that it is not over: it would begin again.
const BEGINS: &str = "starting";
/// What is said of it here.
const NOT_RUNNING: &str = "not running";

/// A run that can be read.
pub struct Source {
    name: String,
    place: Place,
}

enum Place {
    /// A state directory, with a daemon or without.
    Folder(PathBuf),
    /// A report that was written down.
    File(PathBuf),
    /// A daemon of another machine.
    Daemon(Endpoint),
}

impl Source {
    /// By what the operator wrote: what lies there under that name, else an address, else a context.
    pub fn of(text: &str, global: &Global) -> Result<Self, CliError> {
        Ok(Self {
            name: text.to_owned(),
            place: place(text, global)?,
        })
    }

    /// All that it tells.
    pub async fn read(self) -> Result<Side, CliError> {
        let report = match &self.place {
            Place::File(path) => file::read(path),
            Place::Daemon(endpoint) => ask(endpoint).await,
            Place::Folder(folder) => of_folder(folder).await,
        };
        Ok(Side {
            name: self.name,
            report: report?,
        })
    }
}

fn place(text: &str, global: &Global) -> Result<Place, CliError> {
    let path = Path::new(text);
    if path.is_dir() {
        return Ok(Place::Folder(path.to_owned()));
    }
    if path.exists() {
        return Ok(Place::File(path.to_owned()));
    }
    if text.contains('/') {
        let why = format!("{text}: there is no such state directory, and no such file");
        return Err(CliError::Usage(why));
    }
    let endpoint = match text.contains(':') {
        true => Endpoint::resolve(global.state_dir.as_deref(), Some(text), None)?,
        false => in_context(text, global)?,
    };
    let folder = endpoint.state_dir().map(Path::to_owned);
    Ok(folder.map_or(Place::Daemon(endpoint), Place::Folder))
}

fn in_context(name: &str, global: &Global) -> Result<Endpoint, CliError> {
    let named = Global {
        state_dir: None,
        connect: None,
        token_file: None,
        context: Some(name.to_owned()),
        json: global.json,
    };
    let named = named.in_context().map_err(|e| {
        CliError::Usage(format!(
            "{name}: it is no state directory, no file and no address HOST:PORT, and as a context it is not known: {e}"
        ))
    })?;
    Endpoint::resolve(
        named.state_dir.as_deref(),
        named.connect.as_deref(),
        named.token_file.as_deref(),
    )
}

/// Of the daemon there, or of one that shows the run for so long.
async fn of_folder(folder: &Path) -> Result<v1::Report, CliError> {
    let endpoint = Endpoint::Unix {
        state_dir: folder.to_owned(),
    };
    match endpoint.connect().await {
        Ok(_) => ask(&endpoint).await,
        // Leaving it ends what was started for it.
        Err(e) if e.is_lost() => unless_interrupted(shown(folder, &endpoint)).await,
        Err(e) => Err(e),
    }
}

async fn shown(folder: &Path, endpoint: &Endpoint) -> Result<v1::Report, CliError> {
    let mut shown = Shown::start(folder)?;
    shown.answers(endpoint).await?;
    let mut report = ask(endpoint).await?;
    if report.state == BEGINS {
        NOT_RUNNING.clone_into(&mut report.state);
    }
    Ok(report)
}

async fn ask(endpoint: &Endpoint) -> Result<v1::Report, CliError> {
    let mut client = endpoint.connect().await?;
    let asked = client.get_report(v1::GetReportRequest {});
    let mut report = endpoint.ask(asked).await?;
    let newest = std::mem::take(&mut report.step_lines);
    report.step_lines = every_line(endpoint, &mut client, newest).await?;
    report.history = Some(history(&mut client, endpoint, CELLS).await?);
    Ok(report)
}
