//! The manifests of fixtures/ops/kubernetes on a real control plane: three controllers, the job's machines as pods, a real
//! model that is trained. A leader is deleted, a machine is lost, a node is drained.
//!
//! Changed for it, and nothing else: the job is a small one with a node more, buckets and volumes are the test's, and for API
//! 1.20, which knows no Indexed Jobs and no `policy/v1`, each number of the Job is a Job of its own and the budget is
//! `policy/v1beta1`. What else a Job says that came later that API leaves out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_kubernetes::{Api, Image, Kubernetes};
use robust_tests::{JobFile, bin, cache, fixture};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(180);
const NAMESPACE: &str = "robustrl";
const CONTROLLERS: [&str; 3] = ["robust-control-0", "robust-control-1", "robust-control-2"];
/// Two ranks, of which any may move to the third node; a rollout and an agent more than there is a need for.
const SLOTS: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
const NODES: usize = 3;

/// The cluster with what the manifests take for granted: an etcd, an object store, volumes, secrets.
struct Site {
    cluster: Kubernetes,
    _etcd: robust_etcd::Cluster,
    _store: robust_s3::Server,
    _usr: TempDir,
}

/// A copy of a file, by another name of it where that is possible.
fn lay(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).unwrap();
    }
}

/// What the Containerfile makes: the programs, and what is beside them in the package.
fn image(name: String) -> (Image, TempDir) {
    let usr = tempfile::tempdir().unwrap();
    let programs = [
        "robustd",
        "robustctl",
        "robust-worker",
        "robust-shim",
        "robust-calc",
        "robust-weights",
    ];
    for program in programs {
        lay(&bin(program), &usr.path().join("bin").join(program));
    }
    for file in ["datasets/arith.jsonl", "tokenizers/arith/tokenizer.json"] {
        let packed = usr.path().join("share/robustrl/fixtures").join(file);
        lay(&fixture(file), &packed);
    }
    // libtorch, which the package brings along, is where the programs of this build look for it.
    let out = Command::new("ldd").arg(bin("robust-worker")).output();
    let out = String::from_utf8(out.unwrap().stdout).unwrap();
    let libraries = out.lines().filter_map(|line| line.split(" => ").nth(1));
    let libraries = libraries.filter_map(|line| line.split(" (").next());
    let folders = libraries.filter_map(|file| Path::new(file).parent()?.canonicalize().ok());
    let own: BTreeSet<PathBuf> = folders
        .filter(|folder| !folder.starts_with("/usr"))
        .collect();
    let image = Image {
        name,
        usr: usr.path().to_owned(),
        folders: own.into_iter().collect(),
        user: "robustrl:x:10001:10001::/var/lib/robustrl:/usr/sbin/nologin".to_owned(),
        entrypoint: vec!["/usr/bin/robustd".to_owned()],
    };
    (image, usr)
}

fn documents(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(fixture("ops/kubernetes").join(name)).unwrap();
    let all = serde_norway::Deserializer::from_str(&text);
    all.map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// The manifests as kustomize makes them of the folder: of this namespace, with this image.
fn manifests() -> (Vec<Value>, String) {
    let kustomization = documents("kustomization.yaml").remove(0);
    assert_eq!(kustomization["namespace"], NAMESPACE);
    let image = &kustomization["images"][0];
    let name = |key: &str| image[key].as_str().unwrap();
    let tagged = format!("{}:{}", name("newName"), name("newTag"));
    let files = kustomization["resources"].as_array().unwrap().iter();
    let mut all: Vec<Value> = files
        .flat_map(|file| documents(file.as_str().unwrap()))
        .collect();
    for object in &mut all {
        if object["kind"] != "Namespace" {
            object["metadata"]["namespace"] = NAMESPACE.into();
        }
        let containers = object.pointer_mut("/spec/template/spec/containers");
        for container in containers
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            assert_eq!(container["image"], image["name"]);
            container["image"] = tagged.clone().into();
        }
    }
    (all, tagged)
}

/// What API 1.20 knows of an object: of an Indexed Job as many Jobs, each for one number.
fn known_to_1_20(mut object: Value) -> Vec<Value> {
    match object["kind"].as_str().unwrap() {
        "PodDisruptionBudget" => {
            object["apiVersion"] = "policy/v1beta1".into();
            vec![object]
        }
        "Job" => (0..NODES)
            .map(|number| of_number(&object, number))
            .collect(),
        _ => vec![object],
    }
}

fn of_number(job: &Value, number: usize) -> Value {
    let mut job = job.clone();
    job["metadata"]["name"] = format!("robust-node-{number}").into();
    let spec = job["spec"].as_object_mut().unwrap();
    assert_eq!(spec.remove("completionMode").unwrap(), "Indexed");
    spec.insert("completions".to_owned(), 1.into());
    spec.insert("parallelism".to_owned(), 1.into());
    let metadata = &mut spec["template"]["metadata"];
    metadata["annotations"] =
        json!({"batch.kubernetes.io/job-completion-index": number.to_string()});
    job
}

/// Where objects of a kind are made.
fn made_at(object: &Value) -> String {
    let (version, kind) = (&object["apiVersion"], object["kind"].as_str().unwrap());
    let root = match version.as_str().unwrap() {
        "v1" => "/api/v1".to_owned(),
        group => format!("/apis/{group}"),
    };
    let all = match kind {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        "Endpoints" => "endpoints".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{all}"),
        None => format!("{root}/{all}"),
    }
}

fn create(api: &Api, object: &Value) {
    let made = api.create(&made_at(object), object);
    made.unwrap_or_else(|refused| panic!("{refused}\n{object}"));
}

/// The job file of the manifests, as small as a test needs it.
fn job_file(steps: i64) -> String {
    let folder = tempfile::tempdir().unwrap();
    let small: toml::Table = std::fs::read_to_string(fixture("jobs/test.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let mut job = JobFile::read(&fixture("ops/kubernetes/job.toml"))
        .set("job", "steps", steps)
        .set(
            "store",
            "remote_log",
            format!("s3://{}/log", robust_s3::BUCKET),
        )
        .set(
            "checkpoint",
            "remote",
            format!("s3://{}/ckpt", robust_s3::BUCKET),
        )
        .set("checkpoint", "every", 3)
        .set("trainer", "ranks", 2)
        .set("rollout", "replicas", 2);
    for section in ["model", "batch", "weights"] {
        for (key, value) in small[section].as_table().unwrap() {
            job = job.set(section, key, value.clone());
        }
    }
    let nodes: Vec<String> = (0..NODES).map(|number| format!("node-{number}")).collect();
    let nodes: Vec<_> = nodes.iter().map(|name| (name.as_str(), SLOTS)).collect();
    let path = job.nodes(&nodes).write(folder.path());
    std::fs::read_to_string(path).unwrap()
}

impl Site {
    /// Starts the cluster, and applies the manifests with a job of so many steps.
    fn start(steps: i64) -> Option<Self> {
        let (manifests, tagged) = manifests();
        let (image, usr) = image(tagged);
        let cluster = Kubernetes::start(&["m0", "m1", "m2"], image)?;
        let beside = cluster.beside();
        let members = [2, 3, 4].map(|last| robust_etcd::Machine {
            address: Kubernetes::address(last).to_string(),
            command: beside.clone(),
        });
        let names: Vec<String> = (0..3).map(|n| format!("etcd-{n}.etcd")).collect();
        let etcd = robust_etcd::Cluster::start_certified_on(&members, &names)?;
        let store = robust_s3::Server::start_on(&beside, &Kubernetes::address(5).to_string())?;
        let site = Self {
            cluster,
            _etcd: etcd,
            _store: store,
            _usr: usr,
        };
        site.prepare(&members);
        let mut manifests = manifests;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "robust-job", "namespace": NAMESPACE},
            "data": {"job.toml": job_file(steps)},
        });
        manifests.push(map);
        for object in manifests.into_iter().flat_map(known_to_1_20) {
            if object["kind"] != "Namespace" {
                create(site.api(), &object);
            }
        }
        Some(site)
    }

    fn api(&self) -> &Api {
        self.cluster.api()
    }

    /// What the page of the documentation has made by hand, and the site.
    fn prepare(&self, members: &[robust_etcd::Machine]) {
        let space = documents("namespace.yaml").remove(0);
        create(self.api(), &space);
        let named = |kind: &str, name: &str| {
            json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"name": name, "namespace": NAMESPACE}})
        };
        let papers = self._etcd.papers().unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let mut secrets = named("Secret", "robust-secrets");
        secrets["stringData"] = json!({
            "token": "d1a9f60b7c3e4825961f0ab47ce8d2530e6b91c8f74a2d63b05e8197c4fa3d62",
            "log-secret": "5c0e7ab92d1f4863a7b0c95e3f814d267f9ab03c6e5d18247a1bc9f05e36d84f",
            "etcd.crt": read(&papers.certificate),
            "etcd.key": read(&papers.key),
            "etcd-ca.crt": read(&papers.authority),
        });
        create(self.api(), &secrets);
        let mut store = named("Secret", "robust-object-store");
        store["stringData"] = self._store.environment().into_iter().collect();
        create(self.api(), &store);
        let mut service = named("Service", "etcd");
        service["spec"] = json!({"clusterIP": "None", "ports": [{"port": 2379}]});
        create(self.api(), &service);
        let addresses = members.iter().enumerate();
        let addresses = addresses
            .map(|(n, member)| json!({"ip": member.address, "hostname": format!("etcd-{n}")}));
        let mut endpoints = named("Endpoints", "etcd");
        endpoints["subsets"] =
            json!([{"addresses": addresses.collect::<Vec<_>>(), "ports": [{"port": 2379}]}]);
        create(self.api(), &endpoints);
        for number in 0..CONTROLLERS.len() {
            let folder = self.cluster.folder().join(format!("volume-{number}"));
            copy(&cache().join("warmup"), &folder.join("cache/warmup"));
            let volume = json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": format!("volume-{number}")},
                "spec": {
                    "capacity": {"storage": "50Gi"}, "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": folder},
                },
            });
            create(self.api(), &volume);
        }
    }

    /// What a controller that leads says of the job.
    fn status(&self) -> Option<(String, Value)> {
        CONTROLLERS.iter().find_map(|pod| {
            let words = [
                "robustctl",
                "--state-dir",
                "/var/lib/robustrl/state",
                "status",
                "--json",
            ];
            let out = self.cluster.exec(pod, &words)?;
            let status: Value = serde_json::from_slice(&out.stdout).ok()?;
            out.status.success().then_some(())?;
            let leader = status["controllers"]["leader"].as_str()?.to_owned();
            Some((leader, status))
        })
    }

    fn until(&self, what: &str, mut done: impl FnMut(&str, &Value) -> bool) -> (String, Value) {
        self.wait(what, || {
            let (leader, status) = self.status()?;
            done(&leader, &status).then_some((leader, status))
        })
    }

    fn wait<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = found() {
                println!("{:?} until {what}", begun.elapsed());
                return found;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "waited {PATIENCE:?} for {what}\n{}\n{:?}\n{}",
                self.pods_said(),
                self.status(),
                self.cluster.logs()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn pods(&self) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        self.api().list(&path).unwrap_or_default()
    }

    /// The pods and how they are, for a failing test.
    fn pods_said(&self) -> String {
        let line = |pod: &Value| {
            let (metadata, status) = (&pod["metadata"], &pod["status"]);
            format!(
                "{} on {}: {} {} {}\n",
                metadata["name"],
                pod["spec"]["nodeName"],
                status["phase"],
                metadata["deletionTimestamp"],
                status["containerStatuses"][0]["state"]
            )
        };
        self.pods().iter().map(line).collect()
    }

    /// The pod of a node that runs, other than this one.
    fn node_pod(&self, number: usize, but: Option<&str>) -> Option<String> {
        let job = format!("robust-node-{number}");
        let all = self.pods();
        let mut all = all
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["job-name"] == job);
        let runs = |pod: &&Value| {
            pod["status"]["phase"] == "Running"
                && pod["metadata"]["deletionTimestamp"].is_null()
                && pod["metadata"]["name"].as_str() != but
        };
        Some(all.find(runs)?["metadata"]["name"].as_str()?.to_owned())
    }

    fn delete(&self, pod: &str) {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}");
        self.api().delete(&path, None).unwrap();
    }

    /// The roles that run in a node's pod: numbers of processes, and what they run.
    fn roles(&self, pod: &str) -> BTreeSet<(i32, String)> {
        let all = self.cluster.processes(pod).into_iter();
        all.filter(|(_, line)| line.contains("robust-worker") || line.contains("agent"))
            .collect()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap_or(0)
}

/// Every role has a slot and serves, and so many nodes are there.
fn is_whole(status: &Value) -> bool {
    let all = status["roles"].as_array().cloned().unwrap_or_default();
    all.len() >= 6 && all.iter().all(|role| role["state"] == "running")
}

fn incidents(status: &Value) -> Vec<String> {
    let all = status["incidents"].as_array().cloned().unwrap_or_default();
    let rules = all
        .iter()
        .map(|incident| incident["rule"].as_str().unwrap_or_default().to_owned());
    rules.collect()
}

fn on(status: &Value, node: &str) -> usize {
    let all = status["roles"].as_array().cloned().unwrap_or_default();
    all.iter().filter(|role| role["node"] == node).count()
}

fn is_here(status: &Value, node: &str) -> bool {
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    nodes
        .iter()
        .any(|n| n["name"] == node && n["state"] == "here")
}

#[test]
fn a_job_of_the_manifests_outlives_its_leader_a_machine_and_a_drain() {
    let Some(site) = Site::start(100_000) else {
        return;
    };
    let (first, before) = site.until("the job to be at work", |_, s| step(s) >= 2 && is_whole(s));
    let pods: Vec<String> = (0..NODES)
        .map(|n| site.node_pod(n, None).unwrap())
        .collect();
    let roles = |pods: &[String]| {
        pods.iter()
            .flat_map(|pod| site.roles(pod))
            .collect::<BTreeSet<_>>()
    };
    let working = roles(&pods);
    assert_eq!(working.len(), 6, "{working:?}");

    // The leader's pod is deleted: another one leads, and the stateful set's new pod of the same name follows. Again, until
    // the leader is on a machine that has roles.
    let on_machine_of = |leader: &str| {
        let machine = site.cluster.machine_of(leader);
        let there = |pod: &String| site.cluster.machine_of(pod) == machine;
        pods.iter().position(there).expect("a node on each machine")
    };
    let (mut leader, mut status) = (first, before);
    for handover in 0.. {
        let roles_there = on(&status, &format!("node-{}", on_machine_of(&leader)));
        if handover > 0 && roles_there > 0 {
            break;
        }
        let former = leader.clone();
        site.delete(&former);
        let before = step(&status);
        (leader, status) = site.until("another controller to go on", |leader, s| {
            leader != former && step(s) > before
        });
        site.wait("the deleted one to follow", || {
            let log = site.cluster.log(&former);
            let follows = log.rsplit("follows; ").next()?;
            follows
                .starts_with(&format!("{leader} leads it"))
                .then_some(())
        });
    }
    let (second, after) = (leader, status);
    assert_eq!(incidents(&after), [""; 0], "{}", site.cluster.logs());
    assert_eq!(roles(&pods), working, "{}", site.cluster.logs());

    // The machine of the leader is lost, with a node on it; there is another machine.
    site.cluster.add("m3");
    let machine = site.cluster.machine_of(&second).unwrap();
    let lost = on_machine_of(&second);
    let others = pods.iter().enumerate().filter(|(n, _)| *n != lost);
    let others: Vec<String> = others.map(|(_, pod)| pod.clone()).collect();
    let mut working = roles(&others);
    // Ranks are one gang, which begins again where one of it was lost.
    working.retain(|(_, line)| !line.contains(" trainer "));
    assert!(!working.is_empty());
    let node = format!("node-{lost}");
    site.cluster.lose(&machine);
    let (third, moved) = site.until(
        "a third controller to go on, and all roles to run",
        |leader, s| {
            leader != second && on(s, &node) == 0 && is_whole(s) && step(s) > step(&after) + 1
        },
    );
    let kept = roles(&others);
    assert!(
        kept.is_superset(&working),
        "{working:?} {kept:?}\n{}",
        site.cluster.logs()
    );
    let known = incidents(&moved);
    let is_of_node = |rule: &String| rule == "node lost";
    assert!(!known.is_empty() && known.iter().all(is_of_node), "{moved}");
    // The job's controller asks for another pod of the number, which is that node again.
    let replaced = site.wait("another pod of the node", || {
        site.node_pod(lost, Some(&pods[lost]))
    });
    assert_eq!(site.cluster.machine_of(&replaced).as_deref(), Some("m3"));
    let (_, back) = site.until("the node to be back", |_, s| is_here(s, &node));
    // That of the stateful set is not replaced, as its machine may live.
    let stuck = site.pods();
    let stuck = stuck
        .iter()
        .find(|pod| pod["metadata"]["name"] == *second)
        .unwrap();
    assert!(
        stuck["metadata"]["deletionTimestamp"].is_string(),
        "{stuck}"
    );
    // Until somebody says that the machine is gone.
    let gone = site.api().delete(&format!("/api/v1/nodes/{machine}"), None);
    gone.unwrap();

    // A node is drained: its roles move before it leaves, and nothing is lost with it. There is room for its successor at
    // once, which has to wait for its name.
    site.cluster.add("m4");
    let drained = (0..NODES)
        .find(|n| *n != lost && on(&back, &format!("node-{n}")) > 0)
        .unwrap();
    let name = format!("node-{drained}");
    site.delete(&pods[drained]);
    site.wait("the drained pod to be gone", || {
        let all = site.pods();
        let is_it = |pod: &Value| pod["metadata"]["name"] == *pods[drained];
        (!all.iter().any(is_it)).then_some(())
    });
    let (_, left) = site.until("all roles to run, and the node to be back", |leader, s| {
        leader == third && is_here(s, &name) && is_whole(s) && step(s) > step(&back) + 1
    });
    assert_eq!(incidents(&left), known, "{left}\n{}", site.cluster.logs());
    let successor = site.node_pod(drained, Some(&pods[drained])).unwrap();
    assert_eq!(site.cluster.machine_of(&successor).as_deref(), Some("m4"));
    site.until("the job to go on", |_, s| step(s) > step(&left));
    let follows = format!("follows; {third} leads it");
    site.wait(
        "the lost machine's controller to follow from another one",
        || {
            let machine = site.cluster.machine_of(&second)?;
            let log = site.cluster.log(&second);
            let last = log.rsplit(" leads, in epoch ").next()?;
            (last.contains(&follows)).then_some(machine)
        },
    );
}

#[test]
fn a_job_of_the_manifests_ends_with_its_jobs_complete() {
    let Some(site) = Site::start(3) else {
        return;
    };
    let jobs = format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs");
    site.wait("all Jobs to be complete", || {
        let all = site.api().list(&jobs).ok()?;
        let is_over = |job: &Value| job["status"]["succeeded"] == 1;
        (all.len() == NODES && all.iter().all(is_over)).then_some(())
    });
    let completed = |pod: &str| site.cluster.log(pod).contains("completed");
    assert!(
        CONTROLLERS.iter().any(|pod| completed(pod)),
        "{}",
        site.cluster.logs()
    );
}
