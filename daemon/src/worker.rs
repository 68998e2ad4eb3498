//! The command line of a role process.
use crate::grouping::{Grouping, groups_of};
use crate::launcher::{OWNER_VARIABLE, Parked, ParkedGroup, SpawnSpec, held_back};
use crate::logging::LogFormat;
use crate::nodes::{Authorities, JobToken};
use crate::state::{StateDir, StateDirError, write_private};
use robust_identity::EngineClient;
use robust_proto::{
    ENGINES_KEY_VARIABLE, IDENTITY_VARIABLE, INCARNATION_VARIABLE, JOB_TOKEN_VARIABLE,
    ROADS_VARIABLE, ROUTER_KEY_VARIABLE, ROUTER_VARIABLE, SERVICES_VARIABLE,
};
use robust_shared::ids::{Generation, Incarnation, InstanceId, Role};
use robust_shared::job::{DEVICES_VARIABLE, Job, Passed, SlotDevices, WeightTransport, Weights};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

/// What libtorch needs so that the same inputs give the same bits, in every process and on every
/// machine: one thread (more would also spin against each other on shared cores), and kernels whose
/// result for a row does not depend on the rows beside it. MKL picks its own by batch size on some
/// processors (AVX-512 was seen to) unless it is told to be strict; other libraries ignore the key.
pub const ARITHMETIC: [(&str, &str); 2] = [("OMP_NUM_THREADS", "1"), ("MKL_CBWR", "AVX2,STRICT")];

/// Where a role finds how much pinned memory its weights may pass through, in MiB: `robust-weights`
/// reads it too.
const WEIGHTS_BUFFER_VARIABLE: &str = "ROBUST_WEIGHTS_BUFFER_MIB";

/// The incarnation that a spare's environment says: none, with as many digits as any has.
const NOBODY: &str = "00000000000000000000";

/// The programs of roles.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// Where that of the built-in roles is; the one that stands beside foreign engines lies with it.
    pub path: PathBuf,
    /// How they log.
    pub logs: LogFormat,
}

impl WorkerProgram {
    /// The program beside engines and ranks of the user's.
    pub fn shim(&self) -> PathBuf {
        self.path.with_file_name("robust-shim")
    }
}

/// How the built-in worker is started for each role.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// The program.
    pub program: WorkerProgram,
    /// Where job file, sockets and logs are.
    pub state: StateDir,
    /// Which roads weights and gradients take, as roles are told them.
    pub roads: &'static str,
    /// Certify roles. The leader has them alone.
    authorities: Option<Authorities>,
    /// Whether roles speak TLS with each other, and are certified for it.
    certified: bool,
    /// Whether UCX is to use its RDMA transports alone.
    pub rdma_only: bool,
    /// UCX's devices.
    pub net_devices: String,
    /// Pinned memory that weights may pass through, in MiB.
    pub buffer_mib: u64,
    /// Where roles listen.
    pub bind: IpAddr,
    /// What they prove to each other.
    pub token: JobToken,
    /// Whether rollouts are engines of the user's.
    pub foreign_rollouts: bool,
    /// Whether the ranks are programs of the user's.
    pub foreign_trainers: bool,
    /// Whether these can be started before their place is known.
    pub trainers_wait: bool,
    /// Whether the agent workers' environments are.
    pub foreign_agents: bool,
    /// The addresses of the job's services, as roles are told them; empty without any.
    pub services: String,
    /// Which devices the slots of this node are.
    pub devices: SlotDevices,
    /// Where the trainer's programs reach the job's engines; empty without a router.
    pub router: String,
    /// What its processes get of the daemon's own environment.
    pub passes: Arc<Passes>,
    /// The control groups of its lives.
    pub grouping: Arc<Grouping>,
    /// Whether spares wait for lives.
    pub spares: bool,
}

/// What passes to the processes of each role and service.
#[derive(Debug)]
pub struct Passes {
    roles: [Passed; Role::ALL.len()],
    services: BTreeMap<String, Passed>,
}

impl Passes {
    fn of(job: &Job) -> Self {
        let service = |name: &String| (name.clone(), job.passed_to_service(name));
        Self {
            roles: Role::ALL.map(|role| job.passed_to(role)),
            services: job.services.keys().map(service).collect(),
        }
    }

    fn to_role(&self, role: Role) -> Passed {
        let at = Role::ALL.iter().position(|of| *of == role);
        at.map(|at| self.roles[at].clone()).unwrap_or_default()
    }

    /// Of a service that the job has.
    pub fn to_service(&self, name: &str) -> Passed {
        self.services.get(name).cloned().unwrap_or_default()
    }
}

/// A life that is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// Whose.
    pub id: InstanceId,
    /// Its fencing number.
    pub incarnation: Incarnation,
    /// The gang's (trainers).
    pub generation: Generation,
    /// Of the job file it reads.
    pub revision: u32,
    /// The pool of its slot.
    pub pool: String,
    /// The place of that pool that it occupies.
    pub place: u32,
}

impl WorkerPlan {
    /// For this job.
    pub fn new(program: WorkerProgram, state: StateDir, job: &Job, token: JobToken) -> Self {
        let held_back = held_back(job);
        if !held_back.is_empty() {
            // Names alone: a value may be a secret.
            tracing::info!(
                "of this environment no role gets {}; `[job] pass_env` names what it should",
                held_back.join(", ")
            );
        }
        let grouping = Arc::new(Grouping::none(groups_of(&state)));
        let plan = Self {
            program,
            state,
            roads: "shm",
            authorities: None,
            certified: false,
            rdma_only: false,
            net_devices: job.weights.net_devices.clone(),
            buffer_mib: job.weights.buffer_mib,
            bind: Ipv4Addr::LOCALHOST.into(),
            token,
            foreign_rollouts: job.rollout.command.is_some(),
            foreign_trainers: job.trainer.command.is_some(),
            trainers_wait: job.trainer.command.as_ref().is_none_or(|c| c.can_wait()),
            foreign_agents: job.agent.command.is_some(),
            services: String::new(),
            devices: SlotDevices::default(),
            router: String::new(),
            passes: Arc::new(Passes::of(job)),
            grouping,
            spares: job.restart.spares > 0,
        };
        plan.on_roads(job, false)
    }

    /// With a router at this address for the trainer's programs.
    pub fn routed_at(self, router: String) -> Self {
        Self { router, ..self }
    }

    /// Writes down what clients of the user's engines show at their own addresses: it is the same in every life
    /// of the job, and on all its nodes.
    pub fn lay_engines_key(&self) -> Result<(), StateDirError> {
        if !self.foreign_rollouts {
            return Ok(());
        }
        let key = self.token.engines().of_clients();
        let text = format!("{}\n", key.reveal());
        write_private(&self.state.engines_key(), text.as_bytes())
    }

    /// Where programs find that key; none where there is none.
    pub fn engines_key(&self) -> Option<(String, String)> {
        let path = self.state.engines_key().display().to_string();
        self.foreign_rollouts
            .then(|| (ENGINES_KEY_VARIABLE.to_owned(), path))
    }

    /// With the authorities that certify roles, which the leader has.
    pub fn certified_by(self, authorities: Authorities) -> Self {
        let authorities = Some(authorities);
        Self {
            authorities,
            ..self
        }
    }

    /// How the leader asks engines of other machines.
    pub fn engine_client(&self) -> Option<EngineClient> {
        let authorities = self.authorities.as_ref();
        authorities.map(Authorities::engine_client)
    }

    /// What certifies the roles; none where no other machine asks them for a certificate.
    pub fn certifiers(&self) -> Option<&Authorities> {
        self.authorities.as_ref().filter(|_| self.certified)
    }

    /// The certificate of a life that begins at `now_ms` (Unix time) and its key, in PEM; none where no other machine asks
    /// for one.
    pub fn certify(&self, life: &Life, now_ms: u64) -> Option<String> {
        let certifiers = self.certifiers()?;
        let issued = certifiers.certify_role(life.incarnation.0, &life.id.to_string(), now_ms);
        // The role then says what it lacks.
        let said =
            issued.inspect_err(|error| tracing::error!("{} is not certified: {error}", life.id));
        said.ok()
    }

    /// With roles that see the devices of their slots alone.
    pub fn with_devices(self, devices: SlotDevices) -> Self {
        Self { devices, ..self }
    }

    /// With lives in these control groups.
    pub fn grouped(self, grouping: Grouping) -> Self {
        let grouping = Arc::new(grouping);
        Self { grouping, ..self }
    }

    /// With roles that other machines reach at this address. UCX uses the device that has it, unless
    /// the job names others than the default.
    pub fn bound_to(self, bind: IpAddr, job: &Job) -> Self {
        let mut plan = Self { bind, ..self }.on_roads(job, true);
        if !bind.is_loopback()
            && plan.net_devices == "lo"
            && let Some(device) = device_of(bind)
        {
            plan.net_devices = device;
        }
        plan
    }

    /// With the roads that this job's roles take, on this machine alone or on others, too.
    fn on_roads(mut self, job: &Job, several: bool) -> Self {
        self.roads = roads(&job.weights, several);
        self.certified = several || self.roads.ends_with("tls");
        self.rdma_only =
            self.roads.ends_with("ucx") && job.weights.transport != WeightTransport::UcxTcpUnsafe;
        self
    }

    /// What to start for an instance, which is certified with this.
    pub fn spec(&self, life: &Life, identity: Option<String>) -> SpawnSpec {
        let Life {
            id,
            incarnation,
            generation,
            revision,
            ..
        } = *life;
        let text = |path: PathBuf| path.display().to_string();
        let program = match self.is_foreign(id.role) {
            true => self.program.shim(),
            false => self.program.path.clone(),
        };
        let argv = [
            text(program),
            id.role.name().to_owned(),
            "--job".to_owned(),
            text(self.state.job_revision(revision)),
            "--index".to_owned(),
            id.index.to_string(),
            "--incarnation".to_owned(),
            incarnation.0.to_string(),
            "--generation".to_owned(),
            generation.0.to_string(),
            "--host-socket".to_owned(),
            text(self.state.roles_socket()),
            "--snapshot-dir".to_owned(),
            text(self.state.snapshots()),
            "--bind".to_owned(),
            self.bind.to_string(),
        ];
        SpawnSpec {
            incarnation,
            argv: argv.into(),
            passed: self.passes.to_role(id.role),
            env: self.environment(life, identity),
            log_path: self.log_path(id),
            header: self.header(id, incarnation, generation),
            group: self.grouping.of_role(id, incarnation),
            parked: self.parked(id.role, revision).map(Box::new),
        }
    }

    /// Whether this role's lives are programs of the user's.
    fn is_foreign(&self, role: Role) -> bool {
        match role {
            Role::Trainer => self.foreign_trainers,
            Role::Agent => self.foreign_agents,
            Role::Rollout | Role::Hybrid => self.foreign_rollouts,
        }
    }

    /// The spares for lives of this role that read this revision of the job file. None where there are none: a life of
    /// an agent worker has little to load, and engines of the user's are started for a place of the job.
    pub fn parked(&self, role: Role, revision: u32) -> Option<Parked> {
        let foreign = self.is_foreign(role);
        let waits = match role {
            Role::Trainer => self.trainers_wait,
            Role::Rollout | Role::Hybrid => !foreign,
            Role::Agent => false,
        };
        if !self.spares || !waits {
            return None;
        }
        let text = |path: PathBuf| path.display().to_string();
        let program = match foreign {
            true => self.program.shim(),
            false => self.program.path.clone(),
        };
        let mut argv = vec![
            text(program),
            "spare".to_owned(),
            role.name().to_owned(),
            "--job".to_owned(),
            text(self.state.job_revision(revision)),
            "--snapshot-dir".to_owned(),
            text(self.state.snapshots()),
        ];
        if foreign {
            // It hides that from the program, which it starts by itself.
            argv.extend(["--state-dir".to_owned(), text(self.state.root().to_owned())]);
        }
        let mut env = self.common(role);
        env.push((INCARNATION_VARIABLE.to_owned(), NOBODY.to_owned()));
        let group = self
            .grouping
            .of_role(InstanceId { role, index: 0 }, Incarnation(0));
        Some(Parked {
            role,
            argv,
            passed: self.passes.to_role(role),
            env,
            log_path: self.state.logs().join(format!("spare-{role}.log")),
            limits: group.map(|of| ParkedGroup {
                limits: of.limits,
                table: of.table,
                needed: of.needed,
            }),
        })
    }

    /// The first line of a life in its log.
    fn header(&self, id: InstanceId, incarnation: Incarnation, generation: Generation) -> String {
        let (incarnation, generation) = (incarnation.0, generation.0);
        match self.program.logs {
            LogFormat::Human => {
                format!("=== {id} incarnation {incarnation} generation {generation}")
            }
            LogFormat::Json => serde_json::json!({
                "level": "INFO",
                "fields": {"message": "started"},
                "instance": id.to_string(),
                "incarnation": incarnation,
                "generation": generation,
            })
            .to_string(),
        }
    }

    /// Where an instance's output goes, whatever its incarnation.
    pub fn log_path(&self, id: InstanceId) -> PathBuf {
        self.state.logs().join(format!("{id}.log"))
    }

    fn environment(&self, life: &Life, identity: Option<String>) -> Vec<(String, String)> {
        let mut environment = self.common(life.id.role);
        // Not an argument: those can be read by every user of the machine.
        let token = self.token.reveal().to_owned();
        environment.push((JOB_TOKEN_VARIABLE.to_owned(), token));
        environment.extend(identity.map(|pem| (IDENTITY_VARIABLE.to_owned(), pem)));
        let number = life.incarnation.0.to_string();
        environment.push((INCARNATION_VARIABLE.to_owned(), number));
        let devices = self.devices.of_place(&life.pool, life.place);
        environment.extend(devices.map(|of| (DEVICES_VARIABLE.to_owned(), of)));
        environment
    }

    /// What the lives of a role have in common: nothing of it is secret, or says which one it is.
    fn common(&self, role: Role) -> Vec<(String, String)> {
        let mut environment: Vec<_> = ARITHMETIC
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let ucx = [
            // Some builds of UCX catch signals by default; ours must end the process.
            ("UCX_HANDLE_ERRORS", "none"),
            ("UCX_WARN_UNUSED_ENV_VARS", "n"),
            ("UCX_NET_DEVICES", &self.net_devices),
            (ROADS_VARIABLE, self.roads),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
        environment.extend(ucx);
        if self.rdma_only {
            environment.push(("UCX_TLS".to_owned(), "rc,dc,ud,self".to_owned()));
        }
        let buffer_mib = self.buffer_mib.to_string();
        environment.push((WEIGHTS_BUFFER_VARIABLE.to_owned(), buffer_mib));
        let owner = self.state.root().display().to_string();
        environment.push((OWNER_VARIABLE.to_owned(), owner));
        environment.push(self.program.logs.variable());
        if !self.services.is_empty() {
            environment.push((SERVICES_VARIABLE.to_owned(), self.services.clone()));
        }
        if self.foreign_trainers && role == Role::Trainer && !self.router.is_empty() {
            let key = self.state.router_key().display().to_string();
            environment.push((ROUTER_VARIABLE.to_owned(), self.router.clone()));
            environment.push((ROUTER_KEY_VARIABLE.to_owned(), key));
        }
        if role == Role::Trainer {
            environment.extend(self.engines_key());
        }
        environment
    }
}

/// The roads of a job's roles, which are on this machine alone or on others, too.
fn roads(weights: &Weights, several: bool) -> &'static str {
    match weights.transport {
        // RDMA where the job names devices and a node has them.
        WeightTransport::Auto if several && weights.transport.takes_rdma(&weights.net_devices) => {
            "shm,rdma,tls"
        }
        WeightTransport::Auto if several => "shm,tls",
        WeightTransport::Auto | WeightTransport::Shm => "shm",
        WeightTransport::Tls => "tls",
        WeightTransport::Ucx | WeightTransport::UcxTcpUnsafe => "ucx",
    }
}

/// The network device that has an address of this machine.
fn device_of(address: IpAddr) -> Option<String> {
    let has = |interface: &nix::ifaddrs::InterfaceAddress| {
        let there = interface.address.as_ref();
        let ip = there.and_then(|a| match (a.as_sockaddr_in(), a.as_sockaddr_in6()) {
            (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
            (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
            (None, None) => None,
        });
        ip == Some(address)
    };
    let mut interfaces = nix::ifaddrs::getifaddrs().ok()?;
    interfaces.find(has).map(|i| i.interface_name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::nodes::JobSecret;
    use robust_shared::job::SeenDevices;

    #[test]
    fn an_address_of_this_machine_names_its_device() {
        assert_eq!(device_of(Ipv4Addr::LOCALHOST.into()).as_deref(), Some("lo"));
        assert_eq!(device_of(IpAddr::from([192, 0, 2, 1])), None);
    }

    #[test]
    fn no_road_but_the_one_that_says_so_is_open_to_whoever_reaches_a_port() {
        let roads = |transport, devices: &str, several| {
            let net_devices = devices.to_owned();
            let weights = Weights {
                transport,
                net_devices,
                ..Weights::default()
            };
            super::roads(&weights, several)
        };
        assert_eq!(roads(WeightTransport::Auto, "lo", false), "shm");
        assert_eq!(roads(WeightTransport::Auto, "eth0", true), "shm,tls");
        assert_eq!(
            roads(WeightTransport::Auto, "mlx5_0:1", true),
            "shm,rdma,tls"
        );
        assert_eq!(roads(WeightTransport::Auto, "rdma", true), "shm,rdma,tls");
        assert_eq!(roads(WeightTransport::Auto, "mlx5_0:1", false), "shm");
        assert_eq!(roads(WeightTransport::Tls, "lo", false), "tls");
        assert_eq!(roads(WeightTransport::UcxTcpUnsafe, "lo", true), "ucx");
    }

    #[test]
    fn every_life_on_the_road_between_machines_has_a_certificate_of_its_own() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let text = include_str!("../../fixtures/jobs/test.toml");
        let job = Job::parse(text, std::path::Path::new("test.toml")).unwrap();
        let token = JobToken::of("a token of the tests");
        let (path, logs) = ("worker".into(), LogFormat::Human);
        let node = WorkerPlan::new(WorkerProgram { path, logs }, state, &job, token);
        let secret = JobSecret::of("a secret of the tests");
        let authorities = Authorities::open(&node.state, secret, "test", true).unwrap();
        let here = node.clone().certified_by(authorities);
        let identity = |plan: &WorkerPlan| plan.certify(&life("rollout", 1), 1_800_000_000_000);
        assert_eq!(identity(&here), None, "no other machine asks for it");
        let spread = here.bound_to(Ipv4Addr::LOCALHOST.into(), &job);
        assert!(identity(&spread).unwrap().contains("BEGIN CERTIFICATE"));
        assert_ne!(identity(&spread), identity(&spread));
        let given = identity(&spread).unwrap();
        let environment = spread.environment(&life("rollout", 1), Some(given.clone()));
        assert!(environment.contains(&(IDENTITY_VARIABLE.to_owned(), given)));
        let node = node.bound_to(Ipv4Addr::LOCALHOST.into(), &job);
        assert_eq!(identity(&node), None, "a node certifies nobody");
    }

    #[test]
    fn a_role_finds_the_jobs_bound_of_pinned_memory_in_its_environment() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let text = include_str!("../../fixtures/jobs/test.toml");
        let mut job = Job::parse(text, std::path::Path::new("test.toml")).unwrap();
        job.weights.buffer_mib = 7;
        let token = JobToken::of("a token of the tests");
        let (path, logs) = ("worker".into(), LogFormat::Human);
        let program = WorkerProgram { path, logs };
        let plan = WorkerPlan::new(program, state, &job, token);
        let bound = (WEIGHTS_BUFFER_VARIABLE.to_owned(), "7".to_owned());
        assert!(plan.environment(&life("rollout", 1), None).contains(&bound));
    }

    fn life(pool: &str, place: u32) -> Life {
        Life {
            id: "rollout-1".parse().unwrap(),
            incarnation: Incarnation(1),
            generation: Generation(0),
            revision: 0,
            pool: pool.to_owned(),
            place,
        }
    }

    #[test]
    fn a_role_sees_the_devices_of_its_slot_alone() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let text = "[data]\nprompts='p'\ntokenizer='t'\n[rollout]\nreplicas=2\n[rollout.command]\n\
                    kind='vllm'\nargv=['x','{port}']\nslots=2\n[[node]]\nname='a'\n\
                    pools={rollout=4,train=2,agent=2}\ndevices={rollout=[7,6,5,4],agent=[]}\n";
        let job = Job::parse(text, std::path::Path::new("job.toml")).unwrap();
        let token = JobToken::of("a token of the tests");
        let (path, logs) = ("worker".into(), LogFormat::Human);
        let plan = WorkerPlan::new(WorkerProgram { path, logs }, state, &job, token);
        let sees = |plan: &WorkerPlan, pool, place| {
            let environment = plan.environment(&life(pool, place), None);
            let found = environment
                .into_iter()
                .find(|(key, _)| key == DEVICES_VARIABLE);
            found.map(|(_, value)| value)
        };
        assert_eq!(sees(&plan, "rollout", 1), None, "it is not known yet");
        let devices = job.slot_devices("a", &job.nodes[0].pools, &SeenDevices::Unknown);
        let plan = plan.with_devices(devices.unwrap());
        assert_eq!(sees(&plan, "rollout", 1).as_deref(), Some("5,4"));
        assert_eq!(sees(&plan, "agent", 0).as_deref(), Some(""));
        assert_eq!(sees(&plan, "train", 0), None);
    }
}
