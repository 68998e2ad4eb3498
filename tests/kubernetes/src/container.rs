//! A container as a process: with a root of its own that is put together from an image and this machine's programs, volumes
//! where the pod wants them, the pod's network, and numbers of processes that begin with it at 1, as in every container.
//!
//! ```text
//! ip netns exec ─► unshare ─► sh ─► unshare ─► sh enter.sh, process 1 of the container ─exec─► setpriv ─exec─► the program
//!                  (our child)                  mounts, pivot_root                     user, rights
//! ```
//! When process 1 ends, the kernel ends whatever else runs in the container. Around its numbers are those of another space,
//! which ends with our child, and so with the test: one that becomes another user no longer ends with its parent.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::programs::spawn;

/// What a container's `image` stands for: this machine's Debian with some programs more.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its name, with the tag.
    pub name: String,
    /// What is laid over this machine's `/usr`.
    pub usr: PathBuf,
    /// Folders of this machine that it has at the same paths.
    pub folders: Vec<PathBuf>,
    /// A line of `/etc/passwd`.
    pub user: String,
    /// What is started where the pod names no command.
    pub entrypoint: Vec<String>,
}

/// A folder or file of the pod, at a path of the container.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    pub from: PathBuf,
    pub at: String,
    pub read_only: bool,
}

/// As whom the program runs.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    pub user: u64,
    pub group: u64,
    pub groups: Vec<u64>,
    pub read_only_root: bool,
    pub drops_all: bool,
    pub may_gain: bool,
}

/// All that a container is made of.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// A folder of its own.
    pub folder: PathBuf,
    pub hostname: String,
    pub network: String,
    pub mounts: Vec<Mount>,
    pub rights: Rights,
    pub env: Vec<(String, String)>,
    pub words: Vec<String>,
}

/// One that was started; killed with this value.
#[derive(Debug)]
pub(crate) struct Container {
    child: Child,
    rights: Rights,
    env: Vec<(String, String)>,
}

impl Plan {
    /// Starts it; what it writes goes to this log.
    pub fn start(&self, image: &Image, log: &Path) -> Container {
        let script = self.folder.join("enter.sh");
        fs::write(&script, self.script(image)).unwrap();
        let log = fs::File::options().create(true).append(true).open(log);
        let log = log.unwrap();
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.network, "unshare"])
            .args(["--pid", "--fork", "--kill-child", "sh", "-c", INSIDE])
            .arg(&script)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Container {
            child: spawn(&mut command),
            rights: self.rights.clone(),
            env: self.env.clone(),
        }
    }

    /// What process 1 does before it is the program.
    fn script(&self, image: &Image) -> String {
        let own = self.folder.join("own");
        let root = self.folder.join("root");
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(own.join("etc")).unwrap();
        fs::create_dir_all(own.join("usr")).unwrap();
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        fs::write(own.join("etc/passwd"), format!("{passwd}{}\n", image.user)).unwrap();
        let mut lines = vec![
            "set -eu".to_owned(),
            format!("cd {}", quoted(&root.display().to_string())),
            "mount -t tmpfs -o mode=755 root .".to_owned(),
            "cd \"$PWD\"".to_owned(),
            "mkdir -p usr etc proc sys dev tmp run var old".to_owned(),
            "for name in bin sbin lib lib64; do ln -s usr/$name $name; done".to_owned(),
        ];
        let overlay = |at: &str, layers: &[PathBuf]| {
            let layers: Vec<String> = layers.iter().map(|l| l.display().to_string()).collect();
            let layers = quoted(&format!("lowerdir={}", layers.join(":")));
            format!("mount -t overlay -o {layers} overlay {at}")
        };
        // A runtime makes the folders that volumes are laid on; what is laid over a file is laid over an empty one.
        let (mut after, mut made) = (Vec::new(), Vec::new());
        let mut mounts = self.mounts.clone();
        mounts.extend(image.folders.iter().map(|folder| Mount {
            from: folder.clone(),
            at: folder.display().to_string(),
            read_only: true,
        }));
        for mount in &mounts {
            let at = mount.at.trim_start_matches('/');
            if at.starts_with("etc/") || at.starts_with("usr/") {
                make_place(&own.join(at), &mount.from);
            } else {
                made.push(format!("mkdir -p {}", quoted(at)));
            }
            let from = quoted(&mount.from.display().to_string());
            after.push(format!("mount --bind {from} {}", quoted(at)));
            if mount.read_only {
                after.push(format!("mount -o remount,ro,bind {}", quoted(at)));
            }
        }
        lines.push(overlay(
            "usr",
            &[own.join("usr"), image.usr.clone(), "/usr".into()],
        ));
        lines.push(overlay("etc", &[own.join("etc"), "/etc".into()]));
        lines.extend(DEVICES.map(str::to_owned));
        lines.extend(made);
        lines.extend(after);
        lines.push(format!("hostname {}", quoted(&self.hostname)));
        if self.rights.read_only_root {
            lines.push("mount -o remount,ro .".to_owned());
        }
        lines.push("pivot_root . old".to_owned());
        lines.push("umount -l /old".to_owned());
        lines.push("cd /".to_owned());
        let words = started(&self.rights, &self.env, &self.words);
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        lines.push(format!("exec {}", words.join(" ")));
        lines.join("\n") + "\n"
    }
}

/// Says how the container ended. It is not replaced by what it runs, or a signal would be one to process 1 of its space.
const INSIDE: &str =
    "unshare --mount --propagation private --ipc --uts --pid --fork sh \"$0\"; exit $?";

/// What every container has besides: of devices those that harm nobody.
const DEVICES: [&str; 6] = [
    "mount -t proc proc proc",
    "mount -t sysfs -o ro sysfs sys",
    "mount -t tmpfs -o mode=755,nosuid dev dev",
    "for name in null zero full random urandom; do : > dev/$name; mount --bind /dev/$name dev/$name; done",
    "ln -s /proc/self/fd dev/fd",
    "mkdir dev/shm && mount -t tmpfs -o mode=1777,size=64m shm dev/shm",
];

fn make_place(at: &Path, from: &Path) {
    if from.is_dir() {
        fs::create_dir_all(at).unwrap();
    } else {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, "").unwrap();
    }
}

/// A command line with that environment and these rights, from root's.
fn started(rights: &Rights, env: &[(String, String)], words: &[String]) -> Vec<String> {
    let mut all: Vec<String> = ["env", "-i"].map(str::to_owned).into();
    all.extend(env.iter().map(|(name, value)| format!("{name}={value}")));
    all.push("setpriv".to_owned());
    all.push(format!("--reuid={}", rights.user));
    all.push(format!("--regid={}", rights.group));
    let groups: Vec<String> = rights.groups.iter().map(u64::to_string).collect();
    all.push(if groups.is_empty() {
        "--clear-groups".to_owned()
    } else {
        format!("--groups={}", groups.join(","))
    });
    if rights.drops_all {
        all.extend(["--bounding-set=-all", "--inh-caps=-all"].map(str::to_owned));
    }
    if !rights.may_gain {
        all.push("--no-new-privs".to_owned());
    }
    all.extend_from_slice(words);
    all
}

impl Container {
    /// Its end, if it has ended: 128 and the number of the signal, or what it said.
    pub fn ended(&mut self) -> Option<i32> {
        let code = |status: ExitStatus| {
            let signal = status.signal().map(|signal| 128 + signal);
            status.code().or(signal).unwrap_or(-1)
        };
        self.child.try_wait().unwrap().map(code)
    }

    /// The number that its process 1 has on this machine.
    pub fn first(&self) -> Option<Pid> {
        // The shell, the second unshare, and what that started.
        let mut pid = self.child.id();
        for _ in 0..3 {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
            pid = children.split_whitespace().next()?.parse().ok()?;
        }
        Pid::from_raw(i32::try_from(pid).ok()?)
    }

    /// A signal to process 1.
    pub fn signal(&self, signal: Signal) {
        if let Some(first) = self.first() {
            let _ = kill_process(first, signal);
        }
    }

    /// A program in it, as the container's user.
    pub fn command(&self, words: &[&str]) -> Option<Command> {
        let first = self.first()?.as_raw_nonzero().to_string();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &first, "--mount", "--net", "--pid"])
            .args(["--ipc", "--uts", "--root", "--wd=/", "--"])
            .args(started(&self.rights, &self.env, &words))
            .stdin(Stdio::null());
        Some(command)
    }

    /// All that runs in it: numbers on this machine, and command lines.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let space = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let Some(own) = self
            .first()
            .and_then(|first| space(first.as_raw_nonzero().get()))
        else {
            return Vec::new();
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let inside = pids.filter(|pid| space(*pid).as_ref() == Some(&own));
        let line = |pid: i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            // One that has ended and is not waited for has none.
            (!line.is_empty()).then(|| (pid, line.trim_end().to_owned()))
        };
        inside.filter_map(line).collect()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Our child ends once all that is in the container has ended.
        match self.first() {
            Some(_) => self.signal(Signal::KILL),
            None => drop(self.child.kill()),
        }
        let _ = self.child.wait();
    }
}

/// One word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
