//! `robustctl report`: the run as text, as JSON, and as one HTML page that needs nothing else.
//!
//! ```text
//!  GetReport ──► figures, incidents, steps ─┐         ┌─► text (80 columns)
//!                                           ├─► Run ──┼─► html ◄── charts (SVG), page.css
//!  GetHistory ─► curve, lanes, transfers ───┘         └─► JSON: the report, `history` in it
//! ```
mod charts;
mod colours;
mod escape;
mod gantt;
mod html;
mod incident;
mod incidents;
mod run;
mod sections;
mod step;
#[cfg(test)]
mod tests;
mod text;

pub use sections::keys;

use crate::cli::ReportArgs;
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use crate::format;
use crate::output::{put, put_json};
use crate::paint::Paint;
use robust_proto::v1;
use run::Run;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tokio_stream::StreamExt as _;

/// Prints the summary of the run so far, or writes it as a page.
pub async fn run(endpoint: &Endpoint, args: &ReportArgs, json: bool) -> Result<(), CliError> {
    if let Some(step) = args.step {
        return step::run(endpoint, step, json).await;
    }
    if let Some(id) = args.incident {
        return incident::run(endpoint, id, json).await;
    }
    let mut client = endpoint.connect().await?;
    let mut report = endpoint
        .ask(client.get_report(v1::GetReportRequest {}))
        .await?;
    report.history = Some(history(&mut client, endpoint, args.points).await?);
    if let Some(path) = &args.html {
        write(path, &html::page(&Run::of(&report))?)?;
    }
    match (json, &args.html) {
        (true, _) => put_json(&report),
        (false, Some(path)) => put(&format!("the report is in {}\n", path.display())),
        (false, None) => {
            let ascii = args.ascii || !format::locale_is_utf8();
            let text = text::report(&Run::of(&report), Paint::stdout(), ascii);
            put(&match args.steps {
                true => text + &text::steps(&report, columns()).render(Paint::stdout()),
                false => text,
            })
        }
    }
}

/// Columns of the terminal that stdout is; none: it is none.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col))
}

/// All parts as one; reading a long run takes the daemon its time.
pub async fn history(
    client: &mut Client,
    endpoint: &Endpoint,
    cells: u32,
) -> Result<v1::History, CliError> {
    let place = endpoint.place();
    let wrong = |status: tonic::Status| CliError::from_status(&status, &place);
    let request = v1::GetHistoryRequest { cells };
    let mut parts = client
        .get_history(request)
        .await
        .map_err(wrong)?
        .into_inner();
    let mut whole = v1::History::default();
    while let Some(part) = parts.next().await {
        join(&mut whole, part.map_err(wrong)?);
    }
    Ok(whole)
}

/// Lists follow each other; what is said once is said in one part.
fn join(whole: &mut v1::History, part: v1::History) {
    let said = |known: f64, new: f64| if new == 0.0 { known } else { new };
    whole.from_ms = whole.from_ms.max(part.from_ms);
    whole.to_ms = whole.to_ms.max(part.to_ms);
    whole.revision = whole.revision.max(part.revision);
    if !part.config.is_empty() {
        whole.config = part.config;
    }
    whole.curve_resolution_s = said(whole.curve_resolution_s, part.curve_resolution_s);
    whole.lane_resolution_s = said(whole.lane_resolution_s, part.lane_resolution_s);
    whole.curve.extend(part.curve);
    whole.causes.extend(part.causes);
    whole.lanes.extend(part.lanes);
    whole.transfers.extend(part.transfers);
    whole.slowest.extend(part.slowest);
    whole.steps.extend(part.steps);
}

/// Whole or not at all: a page that somebody has open is replaced by the next one.
fn write(path: &Path, page: &str) -> Result<(), CliError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let cannot =
        |e: std::io::Error| CliError::Failed(format!("{} cannot be written: {e}", path.display()));
    // Readable for whom the umask lets: a report is passed on.
    let readable = std::fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .permissions(readable)
        .tempfile_in(folder)
        .map_err(cannot)?;
    std::io::Write::write_all(&mut file, page.as_bytes()).map_err(cannot)?;
    file.persist(path).map_err(|e| cannot(e.error))?;
    Ok(())
}
