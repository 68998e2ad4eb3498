//! The manifests of fixtures/ops/kubernetes: what is named is there, selectors and ports fit, `robustd` takes the arguments,
//! the job file is one, and the pods have what a job needs of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use clap::Parser as _;
use robust_shared::job::Job;
use robust_tests::fixture;
use robustd::cli::Args;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    fixture("ops/kubernetes")
}

fn read(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn documents(name: &str) -> Vec<Value> {
    let text = read(name);
    let all = serde_norway::Deserializer::from_str(&text);
    all.map(|document| Value::deserialize(document).unwrap_or_else(|e| panic!("{name}: {e}")))
        .collect()
}

/// All manifests, and the file that lists them.
struct Manifests {
    all: Vec<Value>,
    kustomization: Value,
}

fn manifests() -> Manifests {
    let kustomization = documents("kustomization.yaml").remove(0);
    let listed = kustomization["resources"].as_array().unwrap().iter();
    let listed: Vec<&str> = listed.map(|name| name.as_str().unwrap()).collect();
    let entries = std::fs::read_dir(folder()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let mut there: Vec<String> = names.filter(|name| name.ends_with(".yaml")).collect();
    there.retain(|name| name != "kustomization.yaml");
    let set = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(
        set(listed.clone()),
        there.into_iter().collect(),
        "each is listed once"
    );
    Manifests {
        all: listed.into_iter().flat_map(documents).collect(),
        kustomization,
    }
}

impl Manifests {
    fn of(&self, kind: &str) -> Vec<&Value> {
        self.all
            .iter()
            .filter(|document| document["kind"] == kind)
            .collect()
    }

    fn one(&self, kind: &str) -> &Value {
        let all = self.of(kind);
        assert_eq!(all.len(), 1, "{kind}");
        all[0]
    }

    /// The pods that are made: those of the controllers, and the nodes'.
    fn pods(&self) -> [&Value; 2] {
        ["StatefulSet", "Job"].map(|kind| &self.one(kind)["spec"]["template"])
    }
}

fn robustd(pod: &Value) -> &Value {
    let all = pod["spec"]["containers"].as_array().unwrap();
    assert_eq!(all.len(), 1);
    &all[0]
}

/// What robustd is started with, its variables as Kubernetes would fill them in.
fn arguments(pod: &Value) -> Args {
    let container = robustd(pod);
    let values = [
        ("POD_NAME", "robust-control-1"),
        ("POD_IP", "10.0.0.7"),
        ("JOB_COMPLETION_INDEX", "1"),
    ];
    let env = container["env"].as_array().unwrap();
    let known: BTreeSet<&str> = env.iter().map(|v| v["name"].as_str().unwrap()).collect();
    let filled = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|argument| {
            let mut text = argument.as_str().unwrap().to_owned();
            for (name, value) in values.iter().filter(|(name, _)| known.contains(name)) {
                text = text.replace(&format!("$({name})"), value);
            }
            assert!(
                !text.contains("$("),
                "{text} names a variable that is not set"
            );
            text
        });
    let words = ["robustd".to_owned()].into_iter().chain(filled);
    Args::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"))
}

fn job() -> Job {
    Job::parse(&read("job.toml"), Path::new("job.toml")).unwrap_or_else(|e| panic!("{e}"))
}

/// The secrets that the page of the documentation makes, with their keys; none for one whose keys are not named.
fn made_by_hand(name: &str) -> Option<BTreeSet<String>> {
    let page = std::fs::read_to_string(fixture("../docs/operate/kubernetes.md")).unwrap();
    let page = page.replace("\\\n", " ");
    let line = page
        .lines()
        .find(|line| line.contains(&format!("create secret generic {name} ")))?;
    let key = |word: &str| {
        let rest = word
            .strip_prefix("--from-literal=")
            .or(word.strip_prefix("--from-file="))?;
        Some(rest.split('=').next()?.to_owned())
    };
    Some(line.split_whitespace().filter_map(key).collect())
}

#[test]
fn whatever_the_manifests_name_is_there() {
    let all = manifests();
    let generated = all.kustomization["configMapGenerator"].as_array().unwrap();
    for pod in all.pods() {
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let mut names: BTreeSet<&str> = volumes
            .iter()
            .map(|v| v["name"].as_str().unwrap())
            .collect();
        for volume in volumes {
            if let Some(name) = volume["configMap"]["name"].as_str() {
                let map = generated
                    .iter()
                    .find(|map| map["name"] == name)
                    .expect(name);
                assert_eq!(map["files"], serde_json::json!(["job.toml"]));
            }
            if let Some(name) = volume["secret"]["secretName"].as_str() {
                let keys = made_by_hand(name).expect(name);
                let items = volume["secret"]["items"].as_array().into_iter().flatten();
                for item in items {
                    assert!(keys.contains(item["key"].as_str().unwrap()), "{item}");
                }
            }
        }
        let claims = all.one("StatefulSet")["spec"]["volumeClaimTemplates"]
            .as_array()
            .unwrap();
        names.extend(
            claims
                .iter()
                .map(|claim| claim["metadata"]["name"].as_str().unwrap()),
        );
        let container = robustd(pod);
        for mount in container["volumeMounts"].as_array().unwrap() {
            assert!(names.contains(mount["name"].as_str().unwrap()), "{mount}");
        }
        for from in container["envFrom"].as_array().into_iter().flatten() {
            let name = from["secretRef"]["name"].as_str().unwrap();
            assert!(made_by_hand(name).is_some(), "{name}");
        }
        let image = container["image"].as_str().unwrap();
        let images = all.kustomization["images"].as_array().unwrap();
        assert!(images.iter().any(|i| i["name"] == image), "{image}");
    }
    let stateful = all.one("StatefulSet");
    assert_eq!(
        stateful["spec"]["serviceName"],
        all.one("Service")["metadata"]["name"]
    );
}

#[test]
fn every_selector_finds_the_pods_that_are_meant() {
    let all = manifests();
    let [control, node] = all.pods().map(|pod| &pod["metadata"]["labels"]);
    let finds = |selector: &Value, labels: &Value| {
        let wanted = selector.as_object().unwrap();
        assert!(!wanted.is_empty());
        wanted.iter().all(|(key, value)| labels[key] == *value)
    };
    let by = |value: &Value| value["matchLabels"].clone();
    let only_control = [
        all.one("Service")["spec"]["selector"].clone(),
        by(&all.one("PodDisruptionBudget")["spec"]["selector"]),
        by(&all.one("StatefulSet")["spec"]["selector"]),
    ];
    for selector in only_control {
        assert!(
            finds(&selector, control) && !finds(&selector, node),
            "{selector}"
        );
    }
    let policy = &all.one("NetworkPolicy")["spec"];
    let callers = &policy["ingress"][0]["from"][0]["podSelector"];
    for selector in [by(&policy["podSelector"]), by(callers)] {
        assert!(
            finds(&selector, control) && finds(&selector, node),
            "{selector}"
        );
    }
    for (pod, labels) in all.pods().into_iter().zip([control, node]) {
        let apart = "requiredDuringSchedulingIgnoredDuringExecution";
        let apart = &pod["spec"]["affinity"]["podAntiAffinity"][apart][0];
        assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
        assert!(
            finds(&by(&apart["labelSelector"]), labels),
            "two on one machine"
        );
    }
    let budget = &all.one("PodDisruptionBudget")["spec"]["minAvailable"];
    let replicas = &all.one("StatefulSet")["spec"]["replicas"];
    assert_eq!((budget.as_u64(), replicas.as_u64()), (Some(2), Some(3)));
}

#[test]
fn robustd_takes_the_arguments_and_its_ports_and_names_are_those_of_the_manifests() {
    let all = manifests();
    let [control, node] = all.pods();
    let (leads, joins) = (arguments(control), arguments(node));
    let port = leads
        .listen_nodes
        .as_deref()
        .unwrap()
        .rsplit_once(':')
        .unwrap()
        .1;
    let declared = &robustd(control)["ports"][0];
    assert_eq!(declared["containerPort"].to_string(), port);
    let service = &all.one("Service")["spec"]["ports"][0];
    assert_eq!(
        (&service["targetPort"], &service["name"]),
        (&declared["name"], &declared["name"])
    );
    assert_eq!(service["port"].to_string(), port);
    let (name, service) = (
        &all.one("StatefulSet")["metadata"]["name"],
        &all.one("Service")["metadata"]["name"],
    );
    let (name, service) = (name.as_str().unwrap(), service.as_str().unwrap());
    let each = (0..3).map(|n| format!("{name}-{n}.{service}:{port}"));
    assert_eq!(
        joins.join.join.as_deref(),
        Some(each.collect::<Vec<_>>().join(",").as_str())
    );
    assert_eq!(leads.candidate.as_deref(), Some("robust-control-1"));
    assert_eq!(
        leads.job.as_deref(),
        Some(Path::new("/etc/robustrl/job.toml"))
    );
    for (args, pod) in [(leads, control), (joins, node)] {
        let mounts = robustd(pod)["volumeMounts"].as_array().unwrap();
        let below = |path: &Path| {
            let mut mounts = mounts.iter().map(|m| m["mountPath"].as_str().unwrap());
            mounts.any(|mount| path.starts_with(mount) && path != Path::new(mount))
        };
        // A volume's own folder belongs to root, and robustd wants one of its user's.
        assert!(below(args.state_dir.as_deref().unwrap()));
        assert!(below(args.token_file.as_deref().unwrap()));
    }
}

#[test]
fn the_job_file_is_one_and_has_a_node_for_each_pod() {
    let all = manifests();
    let job = job();
    let spec = &all.one("Job")["spec"];
    assert_eq!(spec["completionMode"], "Indexed");
    assert_eq!(
        spec["completions"], spec["parallelism"],
        "all of them at once"
    );
    let pods = 0..spec["completions"].as_u64().unwrap();
    let names: Vec<String> = job
        .nodes
        .iter()
        .skip(1)
        .map(|node| node.name.clone())
        .collect();
    assert_eq!(names, pods.map(|n| format!("node-{n}")).collect::<Vec<_>>());
    assert_eq!(
        arguments(all.pods()[1]).join.name.as_deref(),
        Some("node-1")
    );
    let ha = job.ha.as_ref().expect("several controllers");
    let secrets = made_by_hand("robust-secrets").unwrap();
    let files = [
        &job.store.secret_file,
        &ha.etcd_certificate,
        &ha.etcd_key,
        &ha.etcd_authority,
    ];
    for file in files {
        let file = file.as_deref().unwrap();
        let key = file
            .strip_prefix("/run/robustrl")
            .unwrap()
            .to_str()
            .unwrap();
        assert!(secrets.contains(key), "{key}");
    }
    for file in [&job.data.prompts, &job.data.tokenizer] {
        let packed = file.strip_prefix("/usr/share/robustrl/fixtures").unwrap();
        assert!(
            fixture(packed.to_str().unwrap()).exists(),
            "{}",
            file.display()
        );
    }
}

#[test]
fn pods_have_no_more_rights_than_they_need_memory_to_share_and_time_to_leave_and_are_replaced() {
    let all = manifests();
    let enforced = &all.one("Namespace")["metadata"]["labels"];
    assert_eq!(enforced["pod-security.kubernetes.io/enforce"], "restricted");
    for pod in all.pods() {
        let spec = &pod["spec"];
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            spec["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        assert_eq!(
            spec["securityContext"]["runAsUser"],
            spec["securityContext"]["fsGroup"]
        );
        let container = robustd(pod);
        let rights = &container["securityContext"];
        assert_eq!(rights["allowPrivilegeEscalation"], false);
        assert_eq!(rights["capabilities"]["drop"], serde_json::json!(["ALL"]));
        let mounts = container["volumeMounts"].as_array().unwrap();
        let shm = mounts
            .iter()
            .find(|m| m["mountPath"] == "/dev/shm")
            .unwrap();
        let volumes = spec["volumes"].as_array().unwrap();
        for secret in volumes.iter().filter_map(|v| v.get("secret")) {
            // A decimal number, whatever version of YAML is read: nobody but root and the pod's group.
            assert_eq!(secret["defaultMode"].as_u64(), Some(0o440), "{secret}");
        }
        let shm = volumes.iter().find(|v| v["name"] == shm["name"]).unwrap();
        assert_eq!(shm["emptyDir"]["medium"], "Memory");
        assert!(shm["emptyDir"]["sizeLimit"].is_string());
        for key in ["unreachable", "not-ready"] {
            let key = format!("node.kubernetes.io/{key}");
            let tolerations = spec["tolerations"].as_array().unwrap();
            let toleration = tolerations.iter().find(|t| t["key"] == key).unwrap();
            assert_eq!(toleration["tolerationSeconds"], 5);
        }
    }
    // A policy of failures has the Job wait until a pod has ended, which one on a lost machine never does.
    let spec = &all.one("Job")["spec"];
    assert_eq!(spec["podReplacementPolicy"], "TerminatingOrFailed");
    assert!(spec["podFailurePolicy"].is_null());
    let node = all.pods()[1];
    let grace = node["spec"]["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap();
    let drain = arguments(node).join.drain;
    assert!(
        drain > 0 && grace >= drain + 10,
        "the node leaves after it was drained"
    );
}

/// What the objects of this kind may have at this place, by the API's reference of 1.29: the server that the manifests are
/// applied to in the tests knows older ones, and drops in silence what it does not know.
const KNOWN: &[(&str, &str, &str, &[&str])] = &[
    (
        "Job",
        "batch/v1",
        "/spec",
        &[
            "activeDeadlineSeconds",
            "backoffLimit",
            "backoffLimitPerIndex",
            "completionMode",
            "completions",
            "manualSelector",
            "maxFailedIndexes",
            "parallelism",
            "podFailurePolicy",
            "podReplacementPolicy",
            "selector",
            "suspend",
            "template",
            "ttlSecondsAfterFinished",
        ],
    ),
    (
        "PodDisruptionBudget",
        "policy/v1",
        "/spec",
        &[
            "maxUnavailable",
            "minAvailable",
            "selector",
            "unhealthyPodEvictionPolicy",
        ],
    ),
    (
        "NetworkPolicy",
        "networking.k8s.io/v1",
        "/spec",
        &["egress", "ingress", "podSelector", "policyTypes"],
    ),
    (
        "NetworkPolicy",
        "networking.k8s.io/v1",
        "/spec/ingress/0",
        &["from", "ports"],
    ),
    (
        "NetworkPolicy",
        "networking.k8s.io/v1",
        "/spec/ingress/0/from/0",
        &["ipBlock", "namespaceSelector", "podSelector"],
    ),
];

#[test]
fn kinds_that_the_tests_server_does_not_know_have_fields_of_their_version_that_go_together() {
    let all = manifests();
    for (kind, version, place, known) in KNOWN {
        for object in all.of(kind) {
            assert_eq!(object["apiVersion"], *version, "{kind}");
            let there = object.pointer(place).unwrap().as_object().unwrap();
            for field in there.keys() {
                assert!(
                    known.contains(&field.as_str()),
                    "{kind} {version} has no field {field} at {place}"
                );
            }
        }
    }
    let spec = &all.one("Job")["spec"];
    // A number's own limit is for indexed jobs whose pods are not started again in place.
    assert!(spec["backoffLimitPerIndex"].is_u64());
    assert_eq!(spec["completionMode"], "Indexed");
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Never");
    let budget = &all.one("PodDisruptionBudget")["spec"];
    assert!(
        budget["minAvailable"].is_null() || budget["maxUnavailable"].is_null(),
        "one of both: {budget}"
    );
    let policy = &all.one("NetworkPolicy")["spec"];
    for kind in policy["policyTypes"].as_array().unwrap() {
        let rules = kind.as_str().unwrap().to_lowercase();
        assert!(policy[&rules].is_array(), "no rules of {kind}");
    }
    let image = read("Containerfile");
    let entry = image.lines().find_map(|line| line.strip_prefix("USER "));
    let user = entry.and_then(|user| user.split(':').next()).unwrap();
    for pod in all.pods() {
        let runs_as = pod["spec"]["securityContext"]["runAsUser"].to_string();
        assert_eq!(runs_as, user, "the image has that user");
    }
}
