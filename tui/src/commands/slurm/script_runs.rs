//! The script of a job as bash runs it, with commands in Slurm's place that take one machine for all, and a robustd that notes
//! with what it was started.
#![allow(clippy::unwrap_used)]
use super::tests::submitted;
use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A step runs here, by the name of its machine.
const SRUN: &str = r#"#!/bin/bash
while [ "${1#--}" != "$1" ]; do
  case $1 in --nodelist=*) export SLURMD_NODENAME=${1#*=} ;; esac
  shift
done
exec "$@"
"#;
const SCONTROL: &str = r#"#!/bin/bash
case "$1 $2" in
  "show hostnames") echo "$3" ;;
  "show node") echo "NodeAddr=127.0.0.1" ;;
esac
"#;
const SINFO: &str = "#!/bin/bash\necho idle\n";
/// It has a store from its first start on, and ends as a job that was over.
const ROBUSTD: &str = r#"#!/bin/bash
[ "$1" = --state-dir ] && mkdir -p "$2/db"
echo "$SLURMD_NODENAME ${*:3}" >> "$STARTS"
"#;

/// A cluster on which one job after the other runs, each on one machine.
struct Cluster(TempDir);

impl Cluster {
    fn new() -> Self {
        let cluster = Self(tempfile::tempdir().unwrap());
        fs::create_dir(cluster.path("bin")).unwrap();
        let programs = [
            ("srun", SRUN),
            ("scontrol", SCONTROL),
            ("sinfo", SINFO),
            ("robustd", ROBUSTD),
        ];
        for (name, text) in programs {
            let path = cluster.path("bin").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What is submitted: one machine, with its daemons' folder where the machine's own disk is.
    fn submitted(&self, is_ha: bool) -> Submitted {
        Submitted {
            robustd: self.path("bin/robustd"),
            local: self.path("local"),
            options: Vec::new(),
            candidates: is_ha,
            remote_log: "file:///log".to_owned(),
            port: Some(7071),
            ..submitted(&["a"])
        }
    }

    /// Slurm begins the job on this machine, whose disk is what it was when it ran there last.
    fn runs(&self, submitted: &Submitted, machine: &str) {
        let disk = self.path(&format!("disk-{machine}"));
        fs::create_dir_all(&disk).unwrap();
        let local = self.path("local");
        if local.is_symlink() {
            fs::remove_file(&local).unwrap();
        }
        symlink(&disk, &local).unwrap();
        let folder = Folder::of_job(Some(&self.path("job")), Path::new("x")).unwrap();
        folder.make().unwrap();
        let script = folder
            .write_script("job.sh", &of_job(&folder, submitted))
            .unwrap();
        let path = std::env::var("PATH").unwrap();
        let out: Output = Command::new("bash")
            .arg(script)
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("STARTS", self.path("starts"))
            .env("SLURM_JOB_ID", "7")
            .env("SLURM_JOB_NODELIST", machine)
            .output()
            .unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    }

    /// The state directories that were set aside on a machine.
    fn set_aside(&self, machine: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(&format!("disk-{machine}"))).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names
            .filter(|name| name.starts_with("control-0.before"))
            .collect();
        names.sort();
        names
    }

    /// The machine of each start of a controller, and whether it went on from the log.
    fn controllers(&self) -> Vec<(String, bool)> {
        let starts = fs::read_to_string(self.path("starts")).unwrap();
        let of = |line: &str| {
            let machine = line.split(' ').next().unwrap().to_owned();
            (machine, line.ends_with("--restore-from file:///log"))
        };
        let lines = starts.lines().filter(|line| line.contains(" --job "));
        lines.map(of).collect()
    }
}

#[test]
fn a_job_that_begins_again_goes_on_from_the_newest_state_wherever_that_is() {
    let cluster = Cluster::new();
    let submitted = cluster.submitted(false);
    for machine in ["n1", "n2", "n1", "n1", "n2", "n1"] {
        cluster.runs(&submitted, machine);
    }
    let starts = cluster.controllers();
    let expected = [
        // The job begins.
        ("n1", false),
        // Nothing of it is on that machine.
        ("n2", true),
        // What is there is older than what the log has.
        ("n1", true),
        // And now it is the newest.
        ("n1", false),
        ("n2", true),
        ("n1", true),
    ];
    let expected = expected.map(|(machine, restores)| (machine.to_owned(), restores));
    assert_eq!(starts, expected);
    let kept = cluster.set_aside("n1");
    assert_eq!(kept, ["control-0.before.1", "control-0.before.4"]);
    assert_eq!(cluster.set_aside("n2"), ["control-0.before.2"]);
    for folder in kept {
        let store = cluster.path("disk-n1").join(folder).join("db");
        assert!(store.exists(), "what was set aside is kept");
    }
}

#[test]
fn on_a_disk_that_all_machines_have_a_state_directory_is_never_set_aside() {
    let cluster = Cluster::new();
    let submitted = cluster.submitted(false);
    fs::create_dir(cluster.path("disk-n1")).unwrap();
    symlink(cluster.path("disk-n1"), cluster.path("disk-n2")).unwrap();
    for machine in ["n1", "n2", "n1"] {
        cluster.runs(&submitted, machine);
    }
    let restores = cluster.controllers().into_iter().map(|(_, it)| it);
    assert_eq!(restores.collect::<Vec<_>>(), [false; 3]);
    assert_eq!(cluster.set_aside("n1"), Vec::<String>::new());
}

#[test]
fn a_candidate_follows_the_log_by_itself_and_a_node_joins_beside_it() {
    let cluster = Cluster::new();
    let submitted = cluster.submitted(true);
    for machine in ["n1", "n2", "n1"] {
        cluster.runs(&submitted, machine);
    }
    let starts = fs::read_to_string(cluster.path("starts")).unwrap();
    assert!(!starts.contains("--restore-from"), "{starts}");
    assert_eq!(cluster.set_aside("n1"), Vec::<String>::new());
    let of = |what: &str| starts.lines().filter(|line| line.contains(what)).count();
    assert_eq!(of("--candidate c0"), 3, "{starts}");
    assert_eq!(of("--join 127.0.0.1:7071 --name a"), 3, "{starts}");
}
