//! Spares of a trainer's program, before they are anybody: `robust-shim spare` with a program that waits as `attach()` of
//! the package has it wait, and this test in robustd's place.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use robust_proto::{
    ENGINES_KEY_VARIABLE, IDENTITY_VARIABLE, JOB_TOKEN_VARIABLE, ROUTER_KEY_VARIABLE,
    ROUTER_VARIABLE,
};
use robust_shared::job::Job;
use robust_shared::spare::{NEVER_READY, READY};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// Beyond anything that a sound machine needs.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a program does until it waits, without torch, which the package's own `attach()` imports.
const SAYS_WHO: &str =
    "import os, time\nfrom robustrl import _spare\nprint('here', os.getpid(), flush=True)\n";

const SHIM: &str = env!("CARGO_BIN_EXE_robust-shim");

struct Spare {
    shim: Child,
    /// The daemon's end of its standard input.
    daemon: Option<OwnedFd>,
    dir: TempDir,
}

impl Spare {
    /// A spare of a program that does this after it said who it is, and may take so long until it waits.
    fn of(program: &str, timeout_s: f64) -> Self {
        Self::by(Command::new(SHIM), program, timeout_s)
    }

    /// The same, started by a command that is given the shim's arguments.
    fn by(mut shim: Command, program: &str, timeout_s: f64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["state", "snapshots"] {
            fs::create_dir(at(folder)).unwrap();
        }
        fs::write(at("state").join("authority.key"), "a secret").unwrap();
        fs::write(at("train.py"), format!("{SAYS_WHO}{program}")).unwrap();
        fs::write(at("job.json"), job(dir.path(), timeout_s)).unwrap();
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (daemon, its) = pair.unwrap();
        set_socket_timeout(&daemon, Timeout::Recv, Some(DEADLINE)).unwrap();
        let log = File::create(at("log")).unwrap();
        let shim = shim
            .args(["spare", "trainer", "--job"])
            .arg(at("job.json"))
            .arg("--snapshot-dir")
            .arg(at("snapshots"))
            .arg("--state-dir")
            .arg(at("state"))
            .stdin(Stdio::from(its))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        Self {
            shim,
            daemon: Some(daemon),
            dir,
        }
    }

    /// The next word that the daemon is told.
    fn word(&self) -> Vec<u8> {
        let mut word = [0; 16];
        let daemon = self.daemon.as_ref().unwrap();
        let (_, read) = recv(daemon, &mut word, RecvFlags::empty()).unwrap();
        word[..read].to_vec()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// The program, once it runs.
    fn program(&self) -> u32 {
        let said = |log: &str| log.split_once("here ")?.1.lines().next()?.parse().ok();
        self.once(said)
    }

    /// What is found in the log, once it is there.
    fn once<T>(&self, find: impl Fn(&str) -> Option<T>) -> T {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(found) = find(&self.log()) {
                return found;
            }
            assert!(Instant::now() < until, "{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How the shim ends.
    fn code(&mut self) -> Option<i32> {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.shim.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "it runs on: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn last_line(&self) -> String {
        self.log()
            .lines()
            .next_back()
            .unwrap_or_default()
            .to_owned()
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.shim.id().cast_signed()) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.shim.wait();
    }
}

fn job(dir: &Path, timeout_s: f64) -> Vec<u8> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/src");
    let package: PathBuf = package.canonicalize().unwrap();
    let text = format!(
        "[data]\nprompts='p'\ntokenizer='t'\n[trainer.command]\nargv=['python3','train.py']\n\
         ready={{timeout_s={timeout_s:?}}}\nenv={{PYTHONPATH={package:?}}}\n"
    );
    let mut job = Job::parse(&text, Path::new("job.toml")).unwrap();
    job.resolve(dir);
    serde_json::to_vec(&job).unwrap()
}

fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

fn gone(pid: u32) {
    let until = Instant::now() + DEADLINE;
    while lives(pid) {
        assert!(Instant::now() < until, "process {pid} lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_program_waits_and_ends_with_the_daemon_whether_it_waits_or_still_imports() {
    let mut waits = Spare::of("_spare.wait()\n", 60.0);
    assert_eq!(waits.word(), READY, "{}", waits.log());
    let program = waits.program();
    assert!(lives(program));
    drop(waits.daemon.take());
    assert_eq!(waits.code(), Some(0), "{}", waits.log());
    gone(program);

    let mut imports = Spare::of("time.sleep(1000)\n", 60.0);
    let program = imports.program();
    drop(imports.daemon.take());
    assert_eq!(imports.code(), Some(0), "{}", imports.log());
    gone(program);
}

#[test]
fn its_program_ends_with_a_shim_that_is_killed() {
    let mut spare = Spare::of("_spare.wait()\n", 60.0);
    assert_eq!(spare.word(), READY, "{}", spare.log());
    let program = spare.program();
    spare.shim.kill().unwrap();
    gone(program);
}

#[test]
fn a_program_that_asks_for_its_rank_or_never_waits_says_that_none_like_it_will() {
    let never = Some(i32::from(NEVER_READY));
    let mut asks = Spare::of("int(os.environ['RANK'])\n_spare.wait()\n", 60.0);
    assert_eq!(asks.code(), never, "{}", asks.log());
    let said = asks.last_line();
    let why = "ended: code 1: ValueError: invalid literal for int() with base 10: 'unknown until robustrl.attach()'";
    assert!(
        said.starts_with("error: the program does not wait in robustrl.attach(): "),
        "{said}"
    );
    assert!(said.ends_with(why), "{said}");

    let mut through = Spare::of("", 60.0);
    assert_eq!(through.code(), never, "{}", through.log());

    // Enough for it to say who it is.
    let mut late = Spare::of("time.sleep(1000)\n", 5.0);
    assert_eq!(late.code(), never, "{}", late.log());
    let said = late.last_line();
    assert!(
        said.contains("did not call it within 5 s (trainer.command.ready.timeout_s)"),
        "{said}"
    );
    gone(late.program());
}

#[test]
fn a_program_that_is_killed_while_it_waits_says_nothing_of_others() {
    let mut spare = Spare::of("_spare.wait()\n", 60.0);
    assert_eq!(spare.word(), READY, "{}", spare.log());
    let program = i32::try_from(spare.program()).unwrap();
    kill_process(Pid::from_raw(program).unwrap(), Signal::KILL).unwrap();
    assert_eq!(spare.code(), Some(6), "{}", spare.log());
    assert!(
        spare
            .last_line()
            .contains("the program that waited ended: "),
        "{}",
        spare.log()
    );
}

/// The next one may do better: it got as far as it should.
#[test]
fn a_program_that_ends_by_itself_while_it_waits_says_nothing_of_others() {
    let ends = "import threading\ndef ends():\n    while not os.path.exists('end'):\n        time.sleep(0.005)\n    os._exit(3)\n\
                threading.Thread(target=ends).start()\n_spare.wait()\n";
    let mut spare = Spare::of(ends, 60.0);
    assert_eq!(spare.word(), READY, "{}", spare.log());
    fs::write(spare.dir.path().join("end"), "").unwrap();
    assert_eq!(spare.code(), Some(6), "{}", spare.log());
    let said = spare.last_line();
    assert!(
        said.contains("the program that waited ended: ") && said.contains("code 3"),
        "{said}"
    );
}

/// Its death may be known later, and is waited for.
#[test]
fn the_end_of_the_daemon_is_seen_while_a_program_that_let_go_lives_on() {
    let lets_go = "os.close(int(os.environ['ROBUST_SPARE']))\nprint('let go', flush=True)\ntime.sleep(1000)\n";
    let mut spare = Spare::of(lets_go, 60.0);
    spare.once(|log| log.contains("let go").then_some(()));
    drop(spare.daemon.take());
    assert_eq!(spare.code(), Some(0), "{}", spare.log());
    gone(spare.program());
}

#[test]
fn a_program_whose_file_was_changed_since_is_ended_for_one_that_reads_it_anew() {
    let mut spare = Spare::of("_spare.wait()\n", 60.0);
    assert_eq!(spare.word(), READY, "{}", spare.log());
    let program = spare.program();
    fs::write(spare.dir.path().join("train.py"), "another one").unwrap();
    assert_eq!(spare.code(), Some(0), "{}", spare.log());
    assert!(
        spare.log().contains("train.py was changed"),
        "{}",
        spare.log()
    );
    gone(program);
}

#[test]
fn who_waits_has_no_token_no_key_and_no_socket_of_the_jobs() {
    const SECRET: &str = "nobody-is-to-have-this";
    let mut shim = Command::new(SHIM);
    for name in [
        ENGINES_KEY_VARIABLE,
        ROUTER_VARIABLE,
        ROUTER_KEY_VARIABLE,
        JOB_TOKEN_VARIABLE,
        IDENTITY_VARIABLE,
    ] {
        shim.env(name, SECRET);
    }
    let spare = Spare::by(shim, "_spare.wait()\n", 60.0);
    assert_eq!(spare.word(), READY, "{}", spare.log());
    let program = spare.program();
    let environment = fs::read(format!("/proc/{program}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains(SECRET), "{environment:?}");
    let own = environment
        .split('\0')
        .filter(|one| one.starts_with("ROBUST_"));
    let own: Vec<_> = own.filter_map(|one| one.split_once('=')).collect();
    // They are there, so that a program that asks for one of them early does not take another way.
    let (later, known): (Vec<_>, Vec<_>) = own
        .into_iter()
        .partition(|(_, value)| *value == "unknown until robustrl.attach()");
    for name in [
        ENGINES_KEY_VARIABLE,
        ROUTER_VARIABLE,
        ROUTER_KEY_VARIABLE,
        "ROBUST_SHM",
    ] {
        assert!(later.iter().any(|(of, _)| *of == name), "{name}: {later:?}");
    }
    let value = |name: &str| {
        known
            .iter()
            .find(|(of, _)| *of == name)
            .map(|(_, value)| *value)
    };
    assert_eq!(known.len(), 2, "{known:?}");
    assert!(value("ROBUST_ENGINE_OF").is_some(), "{known:?}");
    // Nor does it hold anything that it could ask with, but what it waits on.
    let waits_on: u32 = value("ROBUST_SPARE").unwrap().parse().unwrap();
    let numbers = fs::read_dir(format!("/proc/{program}/fd")).unwrap();
    let numbers = numbers.map(|entry| entry.unwrap().file_name());
    let mut numbers: Vec<u32> = numbers
        .map(|n| n.to_str().unwrap().parse().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, waits_on]);
}

/// Root sees everything: it plays a user who is not root.
#[test]
fn a_program_that_waits_sees_of_the_state_directory_the_folders_of_ranks_alone() {
    let shim = match rustix::process::geteuid().is_root() {
        false => Command::new(SHIM),
        true => {
            if robust_needs::program("unshare").is_none() {
                return;
            }
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-user=1000", "--map-group=1000", SHIM]);
            command
        }
    };
    let looks = "print('sees', os.listdir('state'), sorted(os.listdir('state/own')), flush=True)";
    let spare = Spare::by(shim, &format!("{looks}\n_spare.wait()\n"), 60.0);
    assert_eq!(spare.word(), READY, "{}", spare.log());
    let log = spare.log();
    if log.contains("the state directory is not hidden from the program") {
        return robust_needs::skip(log, "run the tests where user namespaces are permitted");
    }
    assert!(
        log.contains("sees ['own'] ['trainer-0', 'trainer-1']"),
        "{log}"
    );
}
