//! The tests' kubelet with a real control plane: what a pod is given, how it ends, and what becomes of a lost machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_kubernetes::{Image, Kubernetes};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(90);
const PODS: &str = "/api/v1/namespaces/default/pods";

fn start(machines: &[&str]) -> Option<(Kubernetes, tempfile::TempDir)> {
    let usr = tempfile::tempdir().unwrap();
    let image = Image {
        name: "plain:1".to_owned(),
        usr: usr.path().to_owned(),
        folders: Vec::new(),
        user: "plain:x:10001:10001::/home/plain:/bin/sh".to_owned(),
        entrypoint: ["sh", "-c"].map(str::to_owned).into(),
    };
    Some((Kubernetes::start(machines, image)?, usr))
}

fn until<T>(cluster: &Kubernetes, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "waited {PATIENCE:?} for {what}\n{}",
            cluster.logs()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A pod is refused until its namespace has an account.
fn create(cluster: &Kubernetes, pod: &Value) {
    until(cluster, "the pod to be taken", || {
        cluster.api().create(PODS, pod).ok()
    });
}

fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": {"of/index": "7"}},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 3,
            "containers": [{"name": "a", "image": "plain:1", "args": [script]}],
        },
    })
}

fn phase(cluster: &Kubernetes, name: &str) -> Option<String> {
    let pod = cluster.api().get(&format!("{PODS}/{name}")).ok()?;
    Some(pod["status"]["phase"].as_str()?.to_owned())
}

fn until_phase(cluster: &Kubernetes, name: &str, wanted: &str) {
    until(cluster, &format!("{name} to be {wanted}"), || {
        (phase(cluster, name)? == wanted).then_some(())
    });
}

#[test]
fn a_pod_has_the_rights_volumes_and_names_that_its_manifest_says() {
    let Some((cluster, _usr)) = start(&["m1", "m2"]) else {
        return;
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "stringData": {"word": "hidden", "LETTER": "a"},
    });
    let secrets = "/api/v1/namespaces/default/secrets";
    cluster.api().create(secrets, &secret).unwrap();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "all"},
        "spec": {"clusterIP": "None", "selector": {"app": "first"}, "ports": [{"port": 80}]},
    });
    let services = "/api/v1/namespaces/default/services";
    cluster.api().create(services, &service).unwrap();

    let script = "set -e; id -u; id -G; echo $INDEX $LETTER $0; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; \
        cat /run/own/word; echo; stat -Lc %a.%u.%g /run/own/word; touch /x 2>/dev/null || echo 'read only'; \
        echo kept > /dev/shm/a; echo kept > /data/a; hostname; echo $$; ls /sys/class/net; sleep 1000";
    let mut wanted = pod("first", script);
    let spec = &mut wanted["spec"];
    spec["hostname"] = "h".into();
    spec["subdomain"] = "all".into();
    spec["securityContext"] = json!({
        "runAsNonRoot": true, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10002,
    });
    spec["volumes"] = json!([
        {"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "data", "emptyDir": {}},
        {"name": "own", "secret": {"secretName": "s", "defaultMode": 0o440,
            "items": [{"key": "word", "path": "word"}]}},
    ]);
    let container = &mut spec["containers"][0];
    container["args"] = json!([script, "--index=$(INDEX)"]);
    container["envFrom"] = json!([{"secretRef": {"name": "s"}}]);
    container["env"] = json!([{"name": "INDEX", "valueFrom": {"fieldRef": {
        "fieldPath": "metadata.annotations['of/index']"}}}]);
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    container["volumeMounts"] = json!([
        {"name": "shm", "mountPath": "/dev/shm"}, {"name": "data", "mountPath": "/data"},
        {"name": "own", "mountPath": "/run/own"},
    ]);
    create(&cluster, &wanted);
    let log = until(&cluster, "the pod to write", || {
        let log = cluster.log("first");
        log.contains("eth0").then_some(log)
    });
    let none = "0000000000000000";
    let expected = format!(
        "10001\n10001 10002\n7 a --index=7\nCapEff:\t{none}\nCapBnd:\t{none}\nNoNewPrivs:\t1\n\
         hidden\n440.0.10002\nread only\nh\n1\neth0\nlo\n"
    );
    assert_eq!(log, expected);
    assert_eq!(cluster.processes("first").len(), 2);
    // The endpoints' controller has seen the address that the kubelet gave it.
    until(&cluster, "the name of the pod", || {
        let said = cluster.exec("first", &["getent", "hosts", "h.all.default.svc"])?;
        said.status.success().then_some(())
    });
    let said = cluster
        .exec("first", &["cat", "/dev/shm/a", "/data/a"])
        .unwrap();
    assert_eq!(said.stdout, b"kept\nkept\n");
}

#[test]
fn a_pod_that_is_deleted_has_its_grace_and_one_of_a_lost_machine_is_replaced_elsewhere() {
    let Some((cluster, _usr)) = start(&["m1", "m2"]) else {
        return;
    };
    let orderly = "trap 'echo told; exit 0' TERM; while :; do sleep 0.1; done";
    create(&cluster, &pod("orderly", orderly));
    create(&cluster, &pod("deaf", "trap '' TERM; echo up; sleep 1000"));
    create(&cluster, &pod("short", "exit 3"));
    until_phase(&cluster, "orderly", "Running");
    until_phase(&cluster, "deaf", "Running");
    until_phase(&cluster, "short", "Failed");
    until(&cluster, "deaf to be deaf", || {
        cluster.log("deaf").contains("up").then_some(())
    });
    let begun = Instant::now();
    for name in ["orderly", "deaf"] {
        cluster
            .api()
            .delete(&format!("{PODS}/{name}"), None)
            .unwrap();
    }
    for name in ["orderly", "deaf"] {
        until(&cluster, &format!("{name} to be gone"), || {
            phase(&cluster, name).is_none().then_some(())
        });
    }
    assert!(
        begun.elapsed() >= Duration::from_secs(3),
        "deaf had its grace"
    );
    assert_eq!(cluster.log("orderly"), "told\n");

    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
        "spec": {"completions": 1, "template": {"spec": pod("work", "echo up; sleep 1000")["spec"]}},
    });
    let not_ready = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists",
        "effect": "NoExecute", "tolerationSeconds": 1});
    job["spec"]["template"]["spec"]["tolerations"] = json!([not_ready]);
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    cluster.api().create(jobs, &job).unwrap();
    let work = |other: Option<&str>| {
        let all = cluster.api().list(PODS).unwrap_or_default();
        let runs = |pod: &&Value| {
            let is_work = pod["metadata"]["labels"]["job-name"] == "work";
            is_work
                && pod["status"]["phase"] == "Running"
                && pod["metadata"]["name"].as_str() != other
        };
        let name = all.iter().find(runs)?["metadata"]["name"].as_str()?;
        Some(name.to_owned())
    };
    let first = until(&cluster, "the job's pod", || work(None));
    let machine = cluster.machine_of(&first).unwrap();
    let processes = cluster.processes(&first);
    assert!(!processes.is_empty());
    cluster.lose(&machine);
    let is_there = |pid: i32| std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(!processes.iter().any(|(pid, _)| is_there(*pid)));
    let second = until(&cluster, "its successor", || work(Some(&first)));
    assert_ne!(cluster.machine_of(&second), Some(machine));
}
