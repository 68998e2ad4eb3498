//! What a role, a viewer or another user of the machine tries, and does not get.
use super::fake;
use super::site::{Daemon, Site, said};
use nix::sys::signal::Signal;
use robust_proto::v1;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What it started with, by the kernel's word.
fn environment(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split('\0').map(str::to_owned).collect()
}

fn end(daemon: Daemon) {
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}

#[tokio::test]
async fn a_role_finds_no_credential_of_the_daemons_in_its_environment() {
    let site = Site::new(1000);
    let secrets = [
        ("AWS_SECRET_ACCESS_KEY", "store-secret"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=trace-secret"),
        ("HF_TOKEN", "hub-secret"),
        ("MY_DEPLOY_NOTES", "shell-secret"),
    ];
    let used = [
        ("NCCL_DEBUG", "WARN"),
        ("HF_HOME", "/models"),
        (fake::UPDATE_MS, "50"),
    ];
    let daemon = site.start_env(&[secrets.as_slice(), &used].concat());
    site.wait_for("first step", |s| s.step >= 1).await;
    let roles = site.roles();
    assert_eq!(roles.len(), 7);
    for pid in roles {
        let has = environment(pid);
        let leaked = has.iter().find(|entry| entry.contains("-secret"));
        assert_eq!(leaked, None, "{pid} may read what only the daemon needs");
        for (name, value) in used {
            assert!(has.contains(&format!("{name}={value}")), "{name}: {has:?}");
        }
        assert!(has.iter().any(|entry| entry.starts_with("PATH=")));
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }
    let log = site.log();
    for (name, value) in secrets {
        assert!(log.contains(name) && !log.contains(value), "{log}");
    }
    end(daemon);
}

/// Makes a folder before the daemon does, as another user would: theirs where root can give it away, and open to
/// them where not.
fn plant(path: &Path) -> &'static str {
    fs::create_dir_all(path).unwrap();
    if nix::unistd::geteuid().is_root() {
        chown(path, Some(65_534), None).unwrap();
        return "belongs to uid 65534, not to uid 0";
    }
    fs::write(path.join("planted"), "").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    "is open to other users (mode 777)"
}

#[test]
fn a_folder_that_another_user_made_first_is_not_trusted() {
    let site = Site::new(3);
    let why = plant(&site.state());
    let output = site.run(&[]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains(why), "{}", said(&output));
    assert!(!site.state().join("job.json").exists());
    fs::remove_dir_all(site.state()).unwrap();

    fs::create_dir(site.state()).unwrap();
    let memory = robustd::state::snapshot_dir(&site.state().canonicalize().unwrap());
    let why = plant(&memory);
    let output = site.run(&[]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains(why), "{}", said(&output));
    fs::remove_dir_all(&memory).unwrap();
}

#[test]
fn a_token_that_others_may_read_is_no_secret_and_one_that_is_a_link_no_file() {
    let site = Site::new(3);
    fs::create_dir(site.state()).unwrap();
    let token = site.state().join("token");
    fs::write(&token, "f".repeat(64)).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = |why: &str| {
        let output = site.run(&["--listen", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(4), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    };
    refused(&format!(
        "chmod 600 {}",
        token.canonicalize().unwrap().display()
    ));
    fs::rename(&token, site.file("elsewhere")).unwrap();
    std::os::unix::fs::symlink(site.file("elsewhere"), &token).unwrap();
    refused("is a link");
}

/// Where the attacker finds the daemon's socket; where it writes down what came of it.
const ATTACKED: &str = "ATTACKED";

/// Not a test: what a role's program tries.
#[tokio::test]
#[ignore = "runs as what a role started only"]
async fn attacker() {
    let Some(state) = std::env::var_os(ATTACKED) else {
        return;
    };
    let state = Path::new(&state);
    let mut control = super::site::control_at(&state.join("control.sock")).await;
    let look = control.get_status(v1::GetStatusRequest {}).await;
    let stop = control.stop(v1::StopRequest {}).await;
    let heard = format!("{:?} {:?}", look.unwrap_err(), stop.unwrap_err().code());
    fs::write(state.with_file_name("heard.part"), heard).unwrap();
    fs::rename(
        state.with_file_name("heard.part"),
        state.with_file_name("heard"),
    )
    .unwrap();
}

#[tokio::test]
async fn what_a_role_started_is_no_operator_also_when_it_left_parents_session_and_environment() {
    no_operator_of(|command| command).await;
}

#[tokio::test]
async fn nor_where_the_daemon_itself_can_gain_no_rights_as_in_a_container() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    if !status.contains("Seccomp_filters:") {
        return robust_needs::elsewhere(
            "the kernel does not say how many filters a process has",
            "Linux 5.9 or newer",
        );
    }
    if robust_needs::program("setpriv").is_none() {
        return;
    }
    no_operator_of(|command| {
        let mut confined = Command::new("setpriv");
        confined
            .arg("--no-new-privs")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            confined.env(name, value.unwrap());
        }
        confined
    })
    .await;
}

/// A role's orphan asks a daemon that is started so, and is refused.
async fn no_operator_of(start: impl Fn(Command) -> Command) {
    let site = Site::new(1000);
    let worker = fs::read_to_string(site.file("worker")).unwrap();
    let exe = std::env::current_exe().unwrap();
    // Of each role one, in a session of its own, with nothing of the role's in its environment, and an orphan.
    let attack = format!(
        "#!/bin/sh\n( env -i {ATTACKED}={} setsid {} --exact trust::attacker --ignored >/dev/null 2>&1 & )\n",
        site.state().display(),
        exe.display()
    );
    fs::write(
        site.file("worker"),
        worker.replacen("#!/bin/sh\n", &attack, 1),
    )
    .unwrap();
    let daemon = site.start_command(start(site.command(&[])));
    site.wait_for("first step", |s| s.step >= 1).await;
    let until = Instant::now() + Duration::from_secs(20);
    while !site.file("heard").exists() {
        assert!(Instant::now() < until, "{}", site.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let heard = fs::read_to_string(site.file("heard")).unwrap();
    assert!(heard.contains("looks like a process of the job"), "{heard}");
    assert!(heard.ends_with("PermissionDenied"), "{heard}");
    let status = site.wait_for("a status", |_| true).await;
    assert_eq!(status.state, "running");
    end(daemon);
}
