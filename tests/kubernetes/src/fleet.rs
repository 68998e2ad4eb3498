//! The machines, and the kubelet of each: they say that they live, run the pods that were bound to them, and tell how those
//! are. One that is lost says nothing more, and nothing of it runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Api, Refused};
use crate::container::Image;
use crate::pod::Pod;
use crate::switch::Switch;
use crate::text::now_exactly;

/// Between two signs of life: a Node is NotReady 6 s after the last one.
const BEAT: Duration = Duration::from_secs(1);
/// What is left to a pod where nothing says how long.
const GRACE_S: u64 = 30;

/// All machines of a cluster.
#[derive(Debug)]
pub(crate) struct Fleet {
    api: Api,
    image: Image,
    folder: PathBuf,
    memory: PathBuf,
    machines: BTreeMap<String, Machine>,
    pods: BTreeMap<String, Pod>,
    /// Names that the cluster's services give.
    names: String,
    /// Before the switch that it is plugged into.
    pub switch: Switch,
}

#[derive(Debug)]
struct Machine {
    beat: Option<Instant>,
    is_lost: bool,
}

/// The fleet, which a thread of its own goes round in while the test looks at it.
pub(crate) type Shared = Arc<Mutex<Fleet>>;

pub(crate) fn locked(fleet: &Shared) -> MutexGuard<'_, Fleet> {
    fleet.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    pub fn new(api: Api, image: Image, folder: &Path, memory: &Path, switch: Switch) -> Self {
        std::fs::create_dir_all(folder.join("pods")).unwrap();
        Self {
            api,
            image,
            folder: folder.to_owned(),
            memory: memory.to_owned(),
            machines: BTreeMap::new(),
            pods: BTreeMap::new(),
            names: String::new(),
            switch,
        }
    }

    /// A machine more.
    ///
    /// # Errors
    /// Where the API server refuses it.
    pub fn add(&mut self, name: &str) -> Result<(), Refused> {
        let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
        });
        self.api.create("/api/v1/nodes", &node)?;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": LEASES},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 6, "renewTime": now_exactly()},
        });
        self.api.create(&leases(""), &lease)?;
        // More than this machine has: nothing of it is used up.
        let has = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
        let ready = json!([{
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "lastHeartbeatTime": crate::text::now(), "lastTransitionTime": crate::text::now(),
        }]);
        let status = json!({"capacity": has, "allocatable": has, "conditions": ready});
        let path = format!("/api/v1/nodes/{name}/status");
        self.api.patch(&path, &json!({ "status": status }))?;
        self.machines.insert(
            name.to_owned(),
            Machine {
                beat: None,
                is_lost: false,
            },
        );
        Ok(())
    }

    /// A machine's power is cut: nobody is told.
    pub fn lose(&mut self, machine: &str) {
        self.machines.get_mut(machine).unwrap().is_lost = true;
        let here = |pod: &Pod| pod.machine() == machine;
        self.pods
            .values()
            .filter(|pod| here(pod))
            .for_each(|pod| pod.place.pull());
        self.pods.retain(|_, pod| !here(pod));
    }

    /// All machines are lost.
    pub fn end(&mut self) {
        for machine in self.machines.values_mut() {
            machine.is_lost = true;
        }
        self.pods.clear();
    }

    /// A pod that runs on a machine that lives.
    pub fn pod(&self, name: &str) -> Option<&Pod> {
        self.pods.values().find(|pod| pod.name() == name)
    }

    /// One look at everything.
    ///
    /// # Errors
    /// Where the API server does not answer: the next look is soon.
    pub fn go_round(&mut self) -> Result<(), Refused> {
        self.beat()?;
        let bound = self.api.list("/api/v1/pods")?;
        self.take(&bound);
        self.names = names(&self.api.list("/api/v1/endpoints")?);
        self.write_names();
        let logs = self.folder.clone();
        for pod in self.pods.values_mut() {
            pod.go_on(&self.api, &self.image, &logs);
            pod.post(&self.api);
        }
        let gone: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.is_gone())
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in gone {
            if let Some(pod) = self.pods.remove(&uid) {
                // It may have been deleted for good meanwhile.
                let _ = self.api.delete(&pod.path(), Some(0));
            }
        }
        Ok(())
    }

    fn beat(&mut self) -> Result<(), Refused> {
        for (name, machine) in &mut self.machines {
            let is_due = machine.beat.is_none_or(|last| last.elapsed() >= BEAT);
            if is_due && !machine.is_lost {
                let renewed = json!({"spec": {"renewTime": now_exactly()}});
                self.api.patch(&leases(name), &renewed)?;
                machine.beat = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Takes in what was bound to a machine that lives, and sees what was deleted.
    fn take(&mut self, bound: &[Value]) {
        let lives = |machine: &Value| {
            let machine = self.machines.get(machine.as_str().unwrap_or_default());
            machine.is_some_and(|machine| !machine.is_lost)
        };
        let here: BTreeMap<String, &Value> = bound
            .iter()
            .filter(|pod| lives(&pod["spec"]["nodeName"]))
            .map(|pod| (uid(pod), pod))
            .collect();
        // Deleted for good, whatever ran.
        self.pods.retain(|uid, _| here.contains_key(uid));
        for (uid, object) in here {
            let is_deleted = object["metadata"]["deletionTimestamp"].is_string();
            if let Some(pod) = self.pods.get_mut(&uid) {
                let grace = object["metadata"]["deletionGracePeriodSeconds"].as_u64();
                if is_deleted {
                    pod.leave(Duration::from_secs(grace.unwrap_or(GRACE_S)));
                }
                continue;
            }
            let phase = object["status"]["phase"].as_str();
            if is_deleted {
                let (namespace, name) = (
                    &object["metadata"]["namespace"],
                    &object["metadata"]["name"],
                );
                let (namespace, name) = (namespace.as_str().unwrap(), name.as_str().unwrap());
                let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
                let _ = self.api.delete(&path, Some(0));
            } else if !matches!(phase, Some("Succeeded" | "Failed")) {
                let place = self.switch.plug_in();
                let place = place.unwrap_or_else(|why| panic!("a pod's network: {why}"));
                let folder = self.folder.join("pods").join(&uid);
                let pod = Pod::new(object, place, folder, self.memory.join(&uid));
                self.pods.insert(uid, pod);
            }
        }
    }

    /// A pod's processes look a name up in its file of hosts each time. It stays the same file, and has all names at any moment.
    fn write_names(&self) {
        for pod in self.pods.values() {
            let (path, text) = (pod.hosts_file(), pod.hosts() + &self.names);
            if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
                continue;
            }
            let mut file = File::options()
                .create(true)
                .write(true)
                .truncate(false)
                .open(path)
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.set_len(text.len() as u64).unwrap();
        }
    }
}

const LEASES: &str = "kube-node-lease";

fn leases(name: &str) -> String {
    let all = format!("/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases");
    match name {
        "" => all,
        name => format!("{all}/{name}"),
    }
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The names of a headless service's pods, as the cluster's DNS has them: below the service, with and without what a pod's
/// search list would add.
fn names(endpoints: &[Value]) -> String {
    let mut lines = String::new();
    for of in endpoints {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = text(&of["metadata"]["name"]);
        let namespace = text(&of["metadata"]["namespace"]);
        for subset in of["subsets"].as_array().into_iter().flatten() {
            for address in subset["addresses"].as_array().into_iter().flatten() {
                let ip = text(&address["ip"]);
                let own = match address["hostname"].as_str() {
                    Some(host) => format!("{host}.{service}"),
                    None => service.clone(),
                };
                lines += &format!(
                    "{ip} {own} {own}.{namespace} {own}.{namespace}.svc {own}.{namespace}.svc.cluster.local\n"
                );
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_of_a_headless_service_has_a_name_below_it() {
        let ready = json!([{"ip": "10.0.0.1", "hostname": "c-0"}, {"ip": "10.0.0.2"}]);
        let waiting = json!([{"ip": "10.0.0.3", "hostname": "c-1"}]);
        let of = json!({
            "metadata": {"name": "c", "namespace": "n"},
            "subsets": [{"addresses": ready, "notReadyAddresses": waiting}],
        });
        assert_eq!(
            names(&[of]),
            "10.0.0.1 c-0.c c-0.c.n c-0.c.n.svc c-0.c.n.svc.cluster.local\n\
             10.0.0.2 c c.n c.n.svc c.n.svc.cluster.local\n"
        );
    }
}
