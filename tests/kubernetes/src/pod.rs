//! One pod on a machine: from the object to a process, and from the process to the object's status.
//!
//! ```text
//! bound ─► Pending ─ volumes, environment ─► Running ─┬─ ended, restartPolicy ─► Running, after a pause
//!             ▲                                │       └─ ended, Never ─► Succeeded or Failed
//!             └── what is missing is waited for │
//!                                    deleted ───┴─ SIGTERM ─ grace ─► SIGKILL ─► gone
//! ```
//! What a manifest asks for and this does not know is said in the status, and nothing is started.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api::Api;
use crate::container::{Container, Image, Mount, Plan, Rights};
use crate::switch::Place;
use crate::text::{field, filled, now};
use crate::volumes::Volumes;

/// Between the second start of a container and its third; doubled from then on, as a kubelet does.
const PAUSE: Duration = Duration::from_secs(10);

/// Its container is killed with this value.
#[derive(Debug)]
pub(crate) struct Pod {
    /// The object, as it was when it came here.
    object: Value,
    /// Where it is in the network.
    pub place: Place,
    folder: PathBuf,
    memory: PathBuf,
    state: State,
    starts: u32,
    /// Whether SIGTERM was sent, and when SIGKILL is.
    leaves: Option<Leaves>,
    posted: Value,
}

#[derive(Debug)]
enum State {
    /// Until then, or until what is missing is there.
    Waiting {
        until: Instant,
        why: String,
    },
    Running {
        container: Container,
        since: String,
    },
    Ended {
        code: i32,
        at: String,
    },
}

#[derive(Clone, Copy, Debug)]
struct Leaves {
    until: Instant,
    is_told: bool,
}

impl Pod {
    /// Of an object that was bound to a machine; its folders are these.
    pub fn new(object: &Value, place: Place, folder: PathBuf, memory: PathBuf) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            object: object.clone(),
            place,
            folder,
            memory,
            state: State::Waiting {
                until: Instant::now(),
                why: String::new(),
            },
            starts: 0,
            leaves: None,
            posted: Value::Null,
        }
    }

    pub fn machine(&self) -> &str {
        text(&self.object["spec"]["nodeName"])
    }

    pub fn name(&self) -> &str {
        text(&self.object["metadata"]["name"])
    }

    fn hostname(&self) -> &str {
        let own = self.object["spec"]["hostname"].as_str();
        own.unwrap_or_else(|| self.name())
    }

    pub fn namespace(&self) -> &str {
        text(&self.object["metadata"]["namespace"])
    }

    /// The container, while it runs.
    pub fn container(&self) -> Option<&Container> {
        match &self.state {
            State::Running { container, .. } => Some(container),
            _ => None,
        }
    }

    /// Where it is in the API.
    pub fn path(&self) -> String {
        format!(
            "/api/v1/namespaces/{}/pods/{}",
            self.namespace(),
            self.name()
        )
    }

    /// Names that are its own, in its file of hosts.
    pub fn hosts(&self) -> String {
        format!(
            "127.0.0.1 localhost\n{} {}\n",
            self.place.address,
            self.hostname()
        )
    }

    /// Its file of hosts.
    pub fn hosts_file(&self) -> PathBuf {
        self.folder.join("hosts")
    }

    /// It was deleted, and has so long to end by itself.
    pub fn leave(&mut self, grace: Duration) {
        let until = Instant::now() + grace;
        let leaves = self.leaves.get_or_insert(Leaves {
            until,
            is_told: false,
        });
        // A second deletion may leave less time.
        leaves.until = leaves.until.min(until);
    }

    /// Whether it was deleted and has ended.
    pub fn is_gone(&self) -> bool {
        self.leaves.is_some() && !matches!(self.state, State::Running { .. })
    }

    /// Looks at the process, starts it, ends it.
    pub fn go_on(&mut self, api: &Api, image: &Image, logs: &Path) {
        match &mut self.state {
            State::Running { container, .. } => match container.ended() {
                Some(code) => self.ended(code),
                None => self.end_if_told(),
            },
            State::Waiting { until, .. } if self.leaves.is_none() && *until <= Instant::now() => {
                self.start(api, image, logs);
            }
            State::Waiting { .. } | State::Ended { .. } => {}
        }
    }

    fn end_if_told(&mut self) {
        let Some(leaves) = &mut self.leaves else {
            return;
        };
        let State::Running { container, .. } = &self.state else {
            return;
        };
        if !leaves.is_told && container.first().is_some() {
            container.signal(Signal::TERM);
            leaves.is_told = true;
        }
        if leaves.until <= Instant::now() {
            container.signal(Signal::KILL);
        }
    }

    fn ended(&mut self, code: i32) {
        let restarts = match text(&self.object["spec"]["restartPolicy"]) {
            "Never" => false,
            "OnFailure" => code != 0,
            _ => true,
        };
        self.state = if restarts && self.leaves.is_none() {
            let doublings = self.starts.saturating_sub(2).min(5);
            let pause = match self.starts {
                1 => Duration::ZERO,
                _ => PAUSE * 2u32.pow(doublings),
            };
            State::Waiting {
                until: Instant::now() + pause,
                why: format!("CrashLoopBackOff: it ended with {code}"),
            }
        } else {
            State::Ended { code, at: now() }
        };
    }

    fn start(&mut self, api: &Api, image: &Image, logs: &Path) {
        match self.plan(api, image) {
            Ok(plan) => {
                let container = plan.start(image, &logs.join(format!("{}.log", self.name())));
                self.starts += 1;
                self.state = State::Running {
                    container,
                    since: now(),
                };
            }
            Err(why) => {
                let until = Instant::now() + Duration::from_millis(500);
                self.state = State::Waiting { until, why };
            }
        }
    }

    fn plan(&self, api: &Api, image: &Image) -> Result<Plan, String> {
        let spec = &self.object["spec"];
        let all = spec["containers"].as_array().ok_or("no containers")?;
        let [container] = &all[..] else {
            return Err("the tests' kubelet runs one container a pod".to_owned());
        };
        refuse_the_unknown(spec, container)?;
        if text(&container["image"]) != image.name {
            return Err(format!("there is no image {}", container["image"]));
        }
        let env = self.environment(api, container)?;
        let words = |key: &str| {
            let all = container[key].as_array().into_iter().flatten();
            all.map(|word| filled(text(word), &env)).collect::<Vec<_>>()
        };
        let mut command = words("command");
        if command.is_empty() {
            command.clone_from(&image.entrypoint);
        }
        command.extend(words("args"));
        Ok(Plan {
            folder: self.folder.clone(),
            hostname: self.hostname().to_owned(),
            network: self.place.name.clone(),
            mounts: self.mounts(api, container)?,
            rights: rights(spec, container)?,
            env: [
                (
                    "PATH".to_owned(),
                    "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned(),
                ),
                ("HOME".to_owned(), home(&image.user)),
                ("HOSTNAME".to_owned(), self.hostname().to_owned()),
            ]
            .into_iter()
            .chain(env)
            .collect(),
            words: command,
        })
    }

    fn environment(&self, api: &Api, container: &Value) -> Result<Vec<(String, String)>, String> {
        let mut env = Vec::new();
        for from in container["envFrom"].as_array().into_iter().flatten() {
            let name = text(&from["secretRef"]["name"]);
            let path = format!("/api/v1/namespaces/{}/secrets/{name}", self.namespace());
            let secret = api.get(&path).map_err(|e| e.to_string())?;
            for (key, value) in secret["data"].as_object().into_iter().flatten() {
                let value = BASE64.decode(text(value)).map_err(|e| e.to_string())?;
                env.push((key.clone(), String::from_utf8_lossy(&value).into_owned()));
            }
        }
        for variable in container["env"].as_array().into_iter().flatten() {
            let name = text(&variable["name"]).to_owned();
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some(path) => field(&self.object, &self.place.address.to_string(), path)?,
                None if variable.get("valueFrom").is_some() => {
                    return Err(format!("the tests' kubelet knows no {variable}"));
                }
                None => filled(text(&variable["value"]), &env),
            };
            env.push((name, value));
        }
        Ok(env)
    }

    fn mounts(&self, api: &Api, container: &Value) -> Result<Vec<Mount>, String> {
        let group = self.object["spec"]["securityContext"]["fsGroup"].as_u64();
        let volumes = Volumes {
            api,
            namespace: self.namespace(),
            folder: &self.folder.join("volumes"),
            memory: &self.memory,
            group: group.and_then(|group| u32::try_from(group).ok()),
        };
        let own = Mount {
            from: self.hosts_file(),
            at: "/etc/hosts".to_owned(),
            read_only: false,
        };
        let mut mounts = vec![own];
        let all = self.object["spec"]["volumes"].as_array();
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let mut named = all.into_iter().flatten();
            let volume = named.find(|volume| volume["name"] == mount["name"]);
            let volume = volumes.make(volume.ok_or_else(|| format!("no volume for {mount}"))?)?;
            mounts.push(Mount {
                from: volume.folder,
                at: text(&mount["mountPath"]).to_owned(),
                read_only: volume.read_only || mount["readOnly"] == true,
            });
        }
        Ok(mounts)
    }

    /// Says how it is, where that has changed.
    pub fn post(&mut self, api: &Api) {
        let status = self.status();
        if status == self.posted {
            return;
        }
        let path = format!("{}/status", self.path());
        // One that was deleted at once has no status any more.
        if api.patch(&path, &json!({ "status": status })).is_ok() {
            self.posted = status;
        }
    }

    fn status(&self) -> Value {
        let (state, phase) = match &self.state {
            State::Waiting { why, .. } => {
                let phase = if self.starts == 0 {
                    "Pending"
                } else {
                    "Running"
                };
                let reason = why.split(':').next().unwrap_or_default();
                let reason = if self.starts == 0 {
                    "ContainerCreating"
                } else {
                    reason
                };
                (
                    json!({"waiting": {"reason": reason, "message": why}}),
                    phase,
                )
            }
            State::Running { since, .. } => (json!({"running": {"startedAt": since}}), "Running"),
            State::Ended { code, at } => {
                let phase = if *code == 0 { "Succeeded" } else { "Failed" };
                let reason = if *code == 0 { "Completed" } else { "Error" };
                let ended = json!({"exitCode": code, "reason": reason, "finishedAt": at});
                (json!({ "terminated": ended }), phase)
            }
        };
        let container = &self.object["spec"]["containers"][0];
        let runs = matches!(self.state, State::Running { .. });
        let is = |kind: &str, so: bool| {
            let so = if so { "True" } else { "False" };
            json!({"type": kind, "status": so})
        };
        json!({
            "phase": phase,
            "podIP": self.place.address.to_string(),
            "podIPs": [{"ip": self.place.address.to_string()}],
            "conditions": [
                is("PodScheduled", true), is("Initialized", true),
                is("ContainersReady", runs), is("Ready", runs),
            ],
            "containerStatuses": [{
                "name": container["name"], "image": container["image"], "imageID": "",
                "ready": runs, "started": runs, "state": state,
                "restartCount": self.starts.saturating_sub(1),
            }],
        })
    }
}

/// A user's home, in a line of `/etc/passwd`.
fn home(line: &str) -> String {
    line.split(':').nth(5).unwrap_or("/").to_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What is not here would be left out silently.
fn refuse_the_unknown(spec: &Value, container: &Value) -> Result<(), String> {
    let of_pod = [
        "initContainers",
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "hostAliases",
        "dnsConfig",
    ];
    let of_container = [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "volumeDevices",
        "workingDir",
    ];
    let is_there =
        |of: &Value, key: &&&str| of.get(**key).is_some_and(|value| *value != json!(false));
    let unknown: BTreeSet<&str> = of_pod
        .iter()
        .filter(|key| is_there(spec, key))
        .chain(of_container.iter().filter(|key| is_there(container, key)))
        .copied()
        .collect();
    match unknown.first() {
        Some(key) => Err(format!("the tests' kubelet knows no {key}")),
        None => Ok(()),
    }
}

fn rights(spec: &Value, container: &Value) -> Result<Rights, String> {
    let (of_pod, own) = (&spec["securityContext"], &container["securityContext"]);
    let number = |key: &str| own[key].as_u64().or(of_pod[key].as_u64());
    let user = number("runAsUser").unwrap_or(0);
    if user == 0 && (own["runAsNonRoot"] == true || of_pod["runAsNonRoot"] == true) {
        return Err("runAsNonRoot, and the user is root".to_owned());
    }
    let dropped = own["capabilities"]["drop"].as_array().into_iter().flatten();
    Ok(Rights {
        user,
        group: number("runAsGroup").unwrap_or(0),
        groups: of_pod["fsGroup"].as_u64().into_iter().collect(),
        read_only_root: own["readOnlyRootFilesystem"] == true,
        drops_all: dropped.into_iter().any(|name| name == "ALL"),
        may_gain: own["allowPrivilegeEscalation"] != false,
    })
}
