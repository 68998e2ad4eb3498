//! The folder of a job on the shared file system: its script, the join token, logs, and what later commands need to know.
//!
//! ```text
//!  DIR/job.sh        the batch script               DIR/controllers  HOST ADDRESS STATE, by the script when it begins
//!  DIR/token         0600, makes nodes of machines  DIR/nodes        NAME HOST, likewise
//!  DIR/slurm.json    what was submitted             DIR/number       of the Slurm job, likewise
//!  DIR/*.log         what the scripts and daemons print   DIR/grown  ID NAME, by `grow`
//! ```
use crate::error::CliError;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Its name ends so.
const SUFFIX: &str = "slurm";

/// A machine as the script is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The node's name in the job.
    pub name: String,
    /// Its slots, where the job file does not say them.
    pub pools: String,
}

/// What was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// The job's name.
    pub name: String,
    /// The job file.
    pub job: PathBuf,
    /// The daemon on the machines.
    pub robustd: PathBuf,
    /// The folder on each machine's own disk.
    pub local: PathBuf,
    /// Options of the controllers.
    pub options: Vec<String>,
    /// Options of sbatch.
    pub sbatch: Vec<String>,
    /// Nodes, in the order of Slurm's machines.
    pub machines: Vec<Machine>,
    /// How many controllers, on the first machines.
    pub controllers: usize,
    /// Whether they are candidates of an `[ha]` table.
    pub candidates: bool,
    /// The log on other disks, where there is one.
    pub remote_log: String,
    /// The first controller's port; none: by the Slurm job's number.
    pub port: Option<u16>,
    /// How long a node may take to leave.
    pub drain_s: u64,
    /// Slurm's number of the job; empty until it has one.
    pub slurm_job: String,
}

/// A controller, as the script wrote where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Slurm's name of the machine.
    pub host: String,
    /// Its state directory there.
    pub state: String,
}

/// A node that `grow` asked Slurm for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Slurm's number of its job.
    pub slurm_job: String,
    /// The node's name.
    pub name: String,
}

/// The folder.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The one that is named, or the one of a job file.
    pub fn of_job(named: Option<&Path>, job: &Path) -> Result<Self, CliError> {
        let dir = named.map_or_else(|| job.with_extension(SUFFIX), Path::to_path_buf);
        let dir = std::path::absolute(&dir).map_err(|e| failed(&dir, &e))?;
        Ok(Self(dir))
    }

    /// The one that is named, or the only one of the working directory.
    pub fn find(named: Option<&Path>) -> Result<Self, CliError> {
        if let Some(dir) = named {
            let dir = std::path::absolute(dir).map_err(|e| failed(dir, &e))?;
            return Ok(Self(dir));
        }
        let here = std::env::current_dir().map_err(|e| failed(Path::new("."), &e))?;
        let entries = fs::read_dir(&here).map_err(|e| failed(&here, &e))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let mut found = paths.filter(|path| {
            let named = path.extension().is_some_and(|end| end == SUFFIX);
            named && path.join("slurm.json").is_file()
        });
        match (found.next(), found.next()) {
            (Some(dir), None) => Ok(Self(dir)),
            (None, _) => Err(CliError::Usage(format!(
                "{} has no folder *.slurm that `robustctl slurm submit` made; name the job's with --dir",
                here.display()
            ))),
            (Some(_), Some(_)) => Err(CliError::Usage(format!(
                "{} has several folders *.slurm; name the job's with --dir",
                here.display()
            ))),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it, and the join token in it, which nobody else may read.
    pub fn make(&self) -> Result<(), CliError> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&self.0);
        made.map_err(|e| failed(&self.0, &e))?;
        let path = self.0.join("token");
        let mut options = File::options();
        match options.write(true).create_new(true).mode(0o600).open(&path) {
            // The nodes of an earlier submission have it.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(failed(&path, &e)),
            Ok(mut file) => {
                let token = random_words().map_err(|e| failed(Path::new("/dev/urandom"), &e))?;
                let written = writeln!(file, "{token}").and_then(|()| file.sync_all());
                written.map_err(|e| failed(&path, &e))
            }
        }
    }

    /// Writes a script.
    pub fn write_script(&self, name: &str, text: &str) -> Result<PathBuf, CliError> {
        let path = self.0.join(name);
        self.replace(&path, text)?;
        Ok(path)
    }

    /// What was submitted.
    pub fn submitted(&self) -> Result<Submitted, CliError> {
        let path = self.0.join("slurm.json");
        let text = fs::read_to_string(&path).map_err(|e| {
            let what = "name the folder that `robustctl slurm submit` made with --dir";
            CliError::Usage(format!("{} cannot be read: {e}; {what}", path.display()))
        })?;
        let damaged = |e| CliError::Usage(format!("{} is damaged: {e}", path.display()));
        let mut submitted: Submitted = serde_json::from_str(&text).map_err(damaged)?;
        if let Some([number]) = self.lines("number").into_iter().next() {
            submitted.slurm_job = number;
        }
        Ok(submitted)
    }

    /// Before it is submitted: where it ran before says nothing any more.
    pub fn forget_where(&self) -> Result<(), CliError> {
        for name in ["controllers", "nodes", "number"] {
            let path = self.0.join(name);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&path, &e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes down what was submitted.
    pub fn note_submitted(&self, submitted: &Submitted) -> Result<(), CliError> {
        let path = self.0.join("slurm.json");
        let text = serde_json::to_string_pretty(submitted)
            .map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))?;
        self.replace(&path, &(text + "\n"))
    }

    /// Where the controllers are; none: the script has not begun.
    pub fn controllers(&self) -> Vec<Controller> {
        let each = |[host, _, state]: [String; 3]| Controller { host, state };
        self.lines("controllers").into_iter().map(each).collect()
    }

    /// The machine of a node that was submitted.
    pub fn host_of(&self, node: &str) -> Option<String> {
        let mut all = self.lines("nodes").into_iter();
        all.find(|[name, _]| name == node).map(|[_, host]| host)
    }

    /// Nodes that were asked for later.
    pub fn grown(&self) -> Vec<Grown> {
        let each = |[slurm_job, name]: [String; 2]| Grown { slurm_job, name };
        self.lines("grown").into_iter().map(each).collect()
    }

    /// One more of them.
    pub fn note_grown(&self, grown: &Grown) -> Result<(), CliError> {
        let path = self.0.join("grown");
        let mut options = File::options();
        let file = options.append(true).create(true).mode(0o600).open(&path);
        let line = format!("{} {}\n", grown.slurm_job, grown.name);
        // One write: the script may read it at any time.
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|e| failed(&path, &e))
    }

    /// The lines of a file that have so many words; of one that is not there none.
    fn lines<const N: usize>(&self, name: &str) -> Vec<[String; N]> {
        let text = fs::read_to_string(self.0.join(name)).unwrap_or_default();
        let words = |line: &str| -> Option<[String; N]> {
            let all: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            all.try_into().ok()
        };
        text.lines().filter_map(words).collect()
    }

    /// Whoever reads it meanwhile sees the one before, or all of it.
    fn replace(&self, path: &Path, text: &str) -> Result<(), CliError> {
        let written = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path).map_err(|e| e.error)?;
            Ok(())
        };
        written().map_err(|e: io::Error| failed(path, &e))
    }
}

fn failed(path: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("{}: {error}", path.display()))
}

/// 256 bits in hexadecimal digits.
fn random_words() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn nobody_else_may_read_the_token_and_a_second_submission_keeps_it() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::of_job(None, &temp.path().join("demo.toml")).unwrap();
        folder.make().unwrap();
        let token = folder.path().join("token");
        let first = fs::read_to_string(&token).unwrap();
        assert_eq!(first.trim().len(), 64);
        assert_eq!(
            token.metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
        folder.make().unwrap();
        assert_eq!(fs::read_to_string(&token).unwrap(), first);
    }

    #[test]
    fn what_the_script_and_grow_wrote_is_read_and_torn_lines_are_not() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::of_job(Some(temp.path()), Path::new("x")).unwrap();
        assert_eq!((folder.controllers(), folder.grown()), (vec![], vec![]));
        let text = "n1 10.0.0.1:7071 /tmp/s/control-0\nn2 10.0\n";
        fs::write(temp.path().join("controllers"), text).unwrap();
        fs::write(temp.path().join("nodes"), "a n1\nb n2\n").unwrap();
        let only = Controller {
            host: "n1".to_owned(),
            state: "/tmp/s/control-0".to_owned(),
        };
        assert_eq!(folder.controllers(), [only]);
        assert_eq!(folder.host_of("b").as_deref(), Some("n2"));
        assert_eq!(folder.host_of("c"), None);
        let grown = Grown {
            slurm_job: "12".to_owned(),
            name: "slurm-12".to_owned(),
        };
        folder.note_grown(&grown).unwrap();
        assert_eq!(folder.grown(), [grown]);
    }
}
