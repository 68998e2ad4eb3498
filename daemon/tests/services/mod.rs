//! Services of a job: real programs, hosted by the real `robust-shim`.
use super::site::{Site, assert_ended_cleanly, said, steps_printed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_proto::v1;
use std::fs;
use std::path::PathBuf;

/// A service that answers at `/`, with a mark in the environment of its processes.
const SERVER: &str = "argv = ['python3', '-m', 'http.server', '{port}', '--bind', '{bind}', \
                      '--directory', '{state}']\n\
                      env = { SERVICE_MARK = '{state}' }\nready = { path = '/' }\n";

/// A site whose job has these services, and the shim beside its worker.
fn site(steps: u64, services: &str) -> Site {
    let site = Site::new(steps);
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap().join("robust-shim");
    assert!(
        built.exists(),
        "{} is not built: run `make test`",
        built.display()
    );
    std::os::unix::fs::symlink(built, site.file("robust-shim")).unwrap();
    let job = fs::read_to_string(site.file("job.toml")).unwrap();
    fs::write(site.file("job.toml"), job + services).unwrap();
    site
}

fn assert_nothing_left(site: &Site) {
    assert_ended_cleanly(site);
    assert_eq!(site.services(), [0; 0], "{}", site.log());
}

fn service(status: &v1::Status) -> &v1::ServiceStatus {
    &status.services[0]
}

/// The program itself, which is its shim's child.
fn program(status: &v1::Status) -> i32 {
    let tasks = format!("/proc/{}/task", service(status).pid);
    let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    let all: String = fs::read_dir(tasks)
        .unwrap()
        .flatten()
        .filter_map(children)
        .collect();
    let child = all.split_whitespace().next().expect("the shim has a child");
    child.parse().unwrap()
}

fn strike(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

fn log_of(site: &Site, name: &str) -> String {
    let path: PathBuf = site.state().join("logs").join(name);
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_job_begins_when_its_service_answers_and_ends_it_with_itself() {
    let site = site(3, &format!("[service.judge]\n{SERVER}"));
    let output = site.run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let log = said(&output);
    let up = log.find("service.judge.0 is up").expect(&log);
    let waits = log.find("the job waits for service.judge.0 (starting)");
    assert!(waits.expect(&log) < up, "{log}");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(steps_printed(&out), [1, 2, 3]);
    assert_nothing_left(&site);
}

#[tokio::test]
async fn a_killed_service_is_started_again_at_its_address_and_the_job_waits_for_it() {
    let site = site(1000, &format!("[service.judge]\n{SERVER}"));
    let daemon = site.start();
    let before = site.wait_for("first step", |s| s.step >= 1).await;
    let addr = service(&before).addr.clone();
    let environ = site.roles().into_iter().map(|pid| {
        let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    });
    let told = format!("ROBUST_SERVICES={{\"judge\":\"{addr}\"}}");
    let environ: Vec<String> = environ.collect();
    assert!(environ.iter().all(|e| e.contains(&told)), "{environ:?}");
    let struck = program(&before);
    strike(struck);
    let after = site
        .wait_for("the next life", |s| {
            service(s).incarnation == 2 && service(s).state == "up"
        })
        .await;
    let now = service(&after);
    assert_eq!((now.addr.as_str(), now.restarts), (addr.as_str(), 1));
    let ended = format!("(pid {struck}) ended: SIGKILL");
    assert!(now.reason.ends_with(&ended), "{now:?}");
    let step = after.step;
    let goes_on = |s: &v1::Status| s.step > step + 2 && s.pause.is_none() && s.alarms.is_empty();
    site.wait_for("the job to go on", goes_on).await;
    let log = site.log();
    assert!(log.contains("the job is to pause"), "{log}");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
    assert_nothing_left(&site);
}

#[test]
fn a_job_fails_when_a_service_is_given_up_that_it_cannot_do_without() {
    let more = "[service.broken]\nargv = ['sh', '-c', 'echo no model >&2; exit 3']\n\
                needed = 'fail'\n[restart]\nmax = 1\n";
    let site = site(3, more);
    let output = site.run(&[]);
    let log = said(&output);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(
        log.contains(
            "service.broken.0 is given up after 1 restarts in a row: the service never came up: "
        ),
        "{log}"
    );
    assert!(log.contains("ended: code 3"), "{log}");
    assert!(log_of(&site, "service-broken-0.log").contains("no model"));
    assert_nothing_left(&site);
}

#[test]
fn a_job_goes_on_without_a_service_that_it_can_do_without() {
    let more = "[service.broken]\nargv = ['/no/such/program']\nneeded = 'degrade'\n\
                before = ['agent']\n[restart]\nmax = 1\n";
    let site = site(3, more);
    let output = site.run(&[]);
    let log = said(&output);
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(log.contains("cannot start /no/such/program"), "{log}");
    assert!(log.contains("the job goes on without it"), "{log}");
    assert_nothing_left(&site);
}

#[tokio::test]
async fn a_killed_daemon_takes_its_living_services_over() {
    let site = site(1000, &format!("[service.judge]\nreplicas = 2\n{SERVER}"));
    let daemon = site.start();
    let before = site.wait_for("first step", |s| s.step >= 1).await;
    let all = site.services();
    assert_eq!(all.len(), 4, "two shims with a program each");
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let daemon = site.start();
    let after = site
        .wait_for("another step", |s| s.step > before.step + 1)
        .await;
    let lives = |s: &v1::Status| {
        let of = |s: &v1::ServiceStatus| (s.incarnation, s.pid, s.addr.clone(), s.state.clone());
        s.services.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(lives(&before), lives(&after), "{}", site.log());
    assert_eq!(site.services(), all, "the very same processes");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
    assert_nothing_left(&site);
}

#[tokio::test]
async fn a_service_that_died_with_its_daemon_is_started_again_at_its_address() {
    let site = site(1000, &format!("[service.judge]\n{SERVER}"));
    let daemon = site.start();
    let before = site.wait_for("first step", |s| s.step >= 1).await;
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    strike(i32::try_from(service(&before).pid).unwrap());
    let daemon = site.start();
    let after = site
        .wait_for("the next life and a step", |s| {
            s.services
                .iter()
                .any(|s| s.state == "up" && s.incarnation == 2)
                && s.step > before.step
                && s.pause.is_none()
        })
        .await;
    assert_eq!(service(&after).addr, service(&before).addr);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
    assert_nothing_left(&site);
}

#[tokio::test]
async fn what_leaves_a_services_process_group_is_ended_with_it() {
    let script = "setsid sleep 600 & exec python3 -m http.server $0 --bind 127.0.0.1";
    let site = site(
        1000,
        &format!(
            "[service.judge]\nargv = ['sh', '-c', '{script}', '{{port}}']\n\
             env = {{ SERVICE_MARK = '{{state}}' }}\nready = {{ path = '/' }}\n"
        ),
    );
    let daemon = site.start();
    let before = site.wait_for("first step", |s| s.step >= 1).await;
    assert_eq!(site.services().len(), 3);
    // Its shim can end nobody any more.
    strike(i32::try_from(service(&before).pid).unwrap());
    let next = |s: &v1::Status| service(s).incarnation == 2 && service(s).state == "up";
    site.wait_for("the next life", next).await;
    assert_eq!(site.services().len(), 3, "{}", site.log());
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "{}", site.log());
    assert_nothing_left(&site);
}

#[tokio::test]
async fn a_discarded_jobs_services_are_ended() {
    let site = site(1000, &format!("[service.judge]\n{SERVER}"));
    let daemon = site.start();
    site.wait_for("first step", |s| s.step >= 1).await;
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let old = site.services();
    site.write_job(2);
    let output = site.run(&["--fresh"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!old.is_empty());
    assert_nothing_left(&site);
}

#[test]
fn what_cannot_be_hosted_is_refused_before_anything_starts() {
    let site = site(1, "[service.proxy]\nargv = ['x', '{rollouts}']\n");
    let output = site.run(&[]);
    assert_eq!(output.status.code(), Some(2));
    let log = said(&output);
    assert!(log.contains("set `rollout.command.fixed`"), "{log}");
    assert!(!site.state().exists());
}
