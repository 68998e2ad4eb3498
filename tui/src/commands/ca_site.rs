//! `robustctl ca init` and `ca issue`: an authority of one's own, in a folder, for what robustd takes as certificates from
//! outside.
use crate::cli::{InitCaArgs, IssueCaArgs};
use crate::error::CliError;
use crate::format::moment_of;
use crate::output::{self, put, put_json};
use robust_identity::{DaemonName, SiteAuthority, Term};
use serde_json::json;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Names of the files, as cert-manager calls them.
const AUTHORITY: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Makes an authority.
pub fn init(args: &InitCaArgs, json: bool) -> Result<(), CliError> {
    let term = term(args.days);
    let failed = |source: io::Error| {
        let dir = args.dir.display();
        match source.kind() {
            io::ErrorKind::AlreadyExists => CliError::Usage(format!(
                "{dir} is there already: an authority is made in a folder of its own, and never over another one"
            )),
            _ => CliError::Failed(format!("{dir}: {source}")),
        }
    };
    let (authority, key) = SiteAuthority::new(term).map_err(not_made)?;
    DirBuilder::new()
        .mode(0o700)
        .create(&args.dir)
        .map_err(failed)?;
    put_file(&args.dir, AUTHORITY_KEY, 0o600, &key)?;
    put_file(&args.dir, AUTHORITY, 0o644, authority.certificate())?;
    if json {
        return put_json(&json!({"dir": args.dir, "until_ms": term.until_ms()}));
    }
    output::note(
        &format!(
            "{} certifies daemons until {}; keep its {AUTHORITY_KEY} where no daemon runs",
            args.dir.display(),
            moment_of(term.until_ms())
        ),
        json,
    );
    put(&format!("{}\n", args.dir.join(AUTHORITY).display()))
}

/// Certifies a daemon.
pub fn issue(args: &IssueCaArgs, json: bool) -> Result<(), CliError> {
    let uri = format!("robust://{}/{}", args.job, args.daemon);
    let daemon = DaemonName::of(&uri).ok_or_else(|| {
        CliError::Usage(format!(
            "`{}` of job `{}` is no daemon: it is node/NAME or control/NAME, and neither has /, ? or #",
            args.daemon, args.job
        ))
    })?;
    let term = term(args.days);
    let read = |name: &str| {
        let path = args.dir.join(name);
        fs::read_to_string(&path).map_err(|e| {
            CliError::Usage(format!(
                "{}: {e}; `robustctl ca init DIR` makes an authority",
                path.display()
            ))
        })
    };
    let authority = SiteAuthority::read(&read(AUTHORITY)?, &read(AUTHORITY_KEY)?);
    let authority =
        authority.map_err(|e| CliError::Usage(format!("{}: {e}", args.dir.display())))?;
    let (certificate, key) = authority.issue(&daemon, term).map_err(not_made)?;
    let mut folder = DirBuilder::new();
    let made = folder.recursive(true).mode(0o700).create(&args.out);
    made.map_err(|e| CliError::Failed(format!("{}: {e}", args.out.display())))?;
    put_file(&args.out, AUTHORITY, 0o644, authority.certificate())?;
    put_file(&args.out, KEY, 0o600, &key)?;
    // Last: a daemon that looks between the two finds a key that is not the certificate's, and looks again.
    put_file(&args.out, CERTIFICATE, 0o644, &certificate)?;
    let until_ms = term.until_ms();
    if json {
        return put_json(&json!({"uri": uri, "folder": args.out, "until_ms": until_ms}));
    }
    let out = args.out.display();
    put(&format!(
        "{uri} until {}: robustd --certificate {out}/{CERTIFICATE} --key {out}/{KEY} --authority {out}/{AUTHORITY}\n",
        moment_of(until_ms)
    ))
}

fn term(days: u32) -> Term {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
    Term::of(now_ms, Duration::from_secs(u64::from(days) * 24 * 3600))
}

fn not_made(error: robust_identity::IdentityError) -> CliError {
    CliError::Failed(error.to_string())
}

/// Puts a file in the place of one that may be there; whoever reads it has all of either.
fn put_file(folder: &Path, name: &str, mode: u32, text: &str) -> Result<(), CliError> {
    let (part, path) = (folder.join(format!(".{name}.part")), folder.join(name));
    let write = || -> io::Result<()> {
        match fs::remove_file(&part) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)
    };
    write().map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))
}
