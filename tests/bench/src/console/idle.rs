//! The CPU time of a real console that nobody touches.
use super::server;
use crate::programs;
use robustctl::measuring::CliError;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The first connection and the first whole frames are no idling.
const SETTLES_IN: Duration = Duration::from_secs(3);

/// What an idle console needed.
pub struct Idle {
    /// Of one core.
    pub percent: f64,
    /// To the terminal.
    pub bytes_per_s: f64,
}

/// Watches one for this long with the screen that it begins with, then with its timeline.
pub async fn percent(
    instances: u32,
    size: (u16, u16),
    watched: Duration,
) -> Result<[Idle; 2], CliError> {
    let failed = |what: &'static str| {
        move |e: std::io::Error| CliError::Failed(format!("the idle console: {what}: {e}"))
    };
    let dir = tempfile::tempdir().map_err(failed("no folder"))?;
    let served = server::serve(dir.path(), instances).map_err(failed("no socket"))?;
    let program = programs::path("robustctl")?;
    let console = Console::start(&program, dir.path(), size);
    let mut console = console.map_err(failed("not started"))?;
    let first = console.watched(watched).await?;
    console.keys.write_all(b"3").map_err(failed("no key"))?;
    let timeline = console.watched(watched).await?;
    served.abort();
    Ok([first, timeline])
}

/// A console in a pseudo-terminal of its own; ends with this.
struct Console {
    child: Child,
    keys: File,
    drawn: Arc<AtomicU64>,
}

impl Console {
    fn start(program: &Path, dir: &Path, (columns, rows): (u16, u16)) -> std::io::Result<Console> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let name = std::ffi::OsStr::from_bytes(name.as_bytes());
        let slave = File::options().read(true).write(true).open(name)?;
        tcsetwinsize(
            &slave,
            Winsize {
                ws_row: rows,
                ws_col: columns,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )?;
        let child = Command::new(program)
            .arg("--state-dir")
            .arg(dir)
            .args(["tui", "--read-only"])
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave)
            .spawn()?;
        let drawn = Arc::new(AtomicU64::new(0));
        let (count, mut screen) = (drawn.clone(), File::from(master));
        let keys = screen.try_clone()?;
        // Ends when the console, the last to hold the other side, is gone.
        std::thread::spawn(move || {
            let mut bytes = [0; 65_536];
            while let Ok(n) = screen.read(&mut bytes) {
                if n == 0 {
                    break;
                }
                count.fetch_add(n as u64, Ordering::Relaxed);
            }
        });
        Ok(Console { child, keys, drawn })
    }

    async fn watched(&self, watched: Duration) -> Result<Idle, CliError> {
        tokio::time::sleep(SETTLES_IN).await;
        let before = self.usage()?;
        let begin = Instant::now();
        tokio::time::sleep(watched).await;
        let after = self.usage()?;
        let took = begin.elapsed().as_secs_f64();
        if after.1 == before.1 {
            let text = "the idle console drew nothing: it does not see the statuses";
            return Err(CliError::Failed(text.to_owned()));
        }
        Ok(Idle {
            percent: (after.0 - before.0) / took * 100.0,
            bytes_per_s: (after.1 - before.1) as f64 / took,
        })
    }

    /// Seconds of CPU and bytes drawn so far.
    fn usage(&self) -> Result<(f64, u64), CliError> {
        let gone = || CliError::Failed("the idle console has ended by itself".to_owned());
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(path).map_err(|_| gone())?;
        // Behind the name, which may hold anything: state is field 3, utime 14, stime 15.
        let (_, fields) = text.rsplit_once(')').ok_or_else(gone)?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |n: usize| fields.get(n - 3).and_then(|t| t.parse::<f64>().ok());
        let (user, system) = ticks(14).zip(ticks(15)).ok_or_else(gone)?;
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        if fields.first() == Some(&"Z") {
            return Err(gone());
        }
        let drawn = self.drawn.load(Ordering::Relaxed);
        Ok(((user + system) / per_second, drawn))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
