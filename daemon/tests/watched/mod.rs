//! What a running daemon sees of its devices, and what Prometheus sees of the daemon.
use super::*;
use nix::sys::signal::Signal;
use std::io::Read as _;
use std::io::Write;
use std::net::TcpStream;

/// A library that plays the scenario, in a folder of the site.
pub fn stage(site: &Site, scenario: &str) -> String {
    let built = std::env::current_exe()
        .unwrap()
        .with_file_name("libnvml_fake.so");
    let library = site.file("libnvidia-ml.so.1");
    fs::copy(built, &library).unwrap();
    fs::write(site.file("scenario.toml"), fixture(scenario)).unwrap();
    library.display().to_string()
}

fn fixture(scenario: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/nvml");
    fs::read_to_string(fixtures.join(scenario).with_extension("toml")).unwrap()
}

/// A scrape of the daemon, found by the address it says in its log.
fn scrape(site: &Site) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    let addr = loop {
        let log = site.log();
        if let Some(rest) = log.split("metrics on http://").nth(1) {
            break rest.split('/').next().unwrap().to_owned();
        }
        assert!(Instant::now() < deadline, "{log}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    reply.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Scrapes until every line is there.
fn scrape_until(site: &Site, lines: &[&str]) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let text = scrape(site);
        let missing = lines.iter().find(|l| !text.lines().any(|t| t == **l));
        let Some(missing) = missing else { return text };
        assert!(
            Instant::now() < deadline,
            "no {missing} in\n{text}\n{}",
            site.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|l| l.strip_prefix(series));
    line.unwrap_or_else(|| panic!("{series} in\n{text}"))
        .trim()
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_lost_is_an_event_and_a_scrape_agrees_with_the_status() {
    let site = Site::new(1000);
    let library = stage(&site, "gpu_lost");
    let daemon = site.start_with(&["--metrics", "127.0.0.1:0", "--nvml-lib", &library]);
    let before = site.wait_for("two steps", |s| s.step >= 2).await;
    let text = scrape_until(
        &site,
        &[
            r#"robust_device_up{node="local",device="0"} 1.0"#,
            r#"robust_device_up{node="local",device="1"} 0.0"#,
            r#"robust_device_busy_ratio{node="local",device="0",unit="tensor"} 0.4425"#,
            r#"robust_hardware_findings_total{device="1",kind="device_lost",advice="fault"} 1"#,
            r#"robust_instance_up{role="trainer",index="0"} 1.0"#,
            r#"robust_job_state{state="running"} 1.0"#,
        ],
    );
    let after = site.wait_for("a status", |_| true).await;
    let step = value(&text, "robust_step");
    assert!(
        step >= before.step as f64 && step <= after.step as f64,
        "{step}"
    );
    let pulled = r#"robust_pull_bytes_total{role="rollout",index="0"}"#;
    assert!(
        value(&text, pulled) >= 8.0,
        "a version of eight bytes or more"
    );
    assert!(value(&text, r#"robust_node_disk_free_bytes{node="local"}"#) > 0.0);
    let trainer = after.roles.iter().find(|r| r.role == "trainer").unwrap();
    assert!(trainer.rss_bytes > 0);
    assert!(
        site.log().contains("device 1: device lost"),
        "{}",
        site.log()
    );
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_hangs_is_told_and_the_job_goes_on() {
    let site = Site::new(1000);
    let library = stage(&site, "driver_hang");
    let daemon = site.start_with(&[
        "--metrics",
        "127.0.0.1:0",
        "--nvml-lib",
        &library,
        "--nvml-stuck-after",
        "0.2",
    ]);
    scrape_until(
        &site,
        &[
            "robust_driver_stuck 1.0",
            r#"robust_hardware_findings_total{device="0",kind="driver_stuck",advice="drain"} 1"#,
        ],
    );
    let stuck = site.wait_for("a status", |_| true).await;
    let later = site
        .wait_for("two more steps", |s| s.step >= stuck.step + 2)
        .await;
    assert_eq!(later.state, "running");
    assert!(later.incidents.is_empty(), "{:?}", later.incidents);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143, "nobody waits for the stuck thread");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_about_to_fail_is_left_by_the_rollout_that_computes_on_it() {
    let site = Site::new(1000);
    let job = fs::read_to_string(site.file("job.toml")).unwrap();
    fs::write(site.file("job.toml"), job + "[rollout]\nmax = 4\n").unwrap();
    let daemon = site.start();
    let rollout = |s: &v1::Status| s.roles.iter().find(|r| r.role == "rollout").cloned();
    let before = site.wait_for("a step", |s| s.step >= 1).await;
    let old = rollout(&before).unwrap();
    daemon.signal(Signal::SIGKILL);
    daemon.output();
    // The role lives on; the next daemon finds it on a device with a row that waits for its reset.
    let library = stage(&site, "hopper_idle");
    let of = format!("remap_pending = true\nprocesses = [{}]", old.pid);
    let scenario = fixture("hopper_idle").replace("remap_pending = false", &of);
    fs::write(site.file("scenario.toml"), scenario).unwrap();
    let daemon = site.start_with(&["--nvml-lib", &library]);
    let moved = site
        .wait_for("another life in another slot", |s| {
            rollout(s).is_some_and(|r| r.incarnation > old.incarnation && r.admitted)
        })
        .await;
    let new = rollout(&moved).unwrap();
    assert_ne!((&new.slot, new.pid), (&old.slot, old.pid), "{}", site.log());
    assert!(site.log().contains("row remap pending"), "{}", site.log());
    assert!(
        moved.incidents.is_empty(),
        "nothing failed: {:?}",
        moved.incidents
    );
    let node = moved.nodes.iter().find(|n| n.name == "local").unwrap();
    assert_eq!(node.draining.len(), 1, "{node:?}");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, 143);
}
