//! What the machine must know of a job.
use crate::core::Budgets;
use crate::job::{Job, Needed, Service, ServiceTies};
use std::time::Duration;

/// How long an answer may take when an instance is asked whether it is up.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two such questions.
const READY_EVERY: Duration = Duration::from_millis(200);

/// The services of a job, in an order in which each starts before those that need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Them.
    pub services: Vec<Spec>,
    /// Restarts that each kind of fault may cost.
    pub budgets: Budgets,
}

/// One service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// How many processes of it there are.
    pub replicas: u32,
    /// How one is asked whether it is up; none: it is up when it runs.
    pub ready: Option<Asked>,
    /// How long it may take to be up.
    pub ready_within: Duration,
    /// How one that is up is asked whether it is well; none: it is not asked.
    pub health: Option<Asked>,
    /// What its absence does to the job.
    pub needed: Needed,
    /// What it starts after, and before.
    pub ties: ServiceTies,
}

/// How something is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The route that must answer 200; none: the port must accept a connection.
    pub path: Option<String>,
    /// Between an answer and the next question.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Bad answers in a row that are a fault.
    pub threshold: u32,
}

impl Plan {
    /// Of a job.
    pub fn of(job: &Job) -> Self {
        let spec = |name: &str| {
            let service = job.services.get(name)?;
            Some(Spec::of(name, service, job.service_ties(name)))
        };
        Self {
            services: job.service_order().into_iter().filter_map(spec).collect(),
            budgets: job.restart.budgets(),
        }
    }
}

impl Spec {
    fn of(name: &str, service: &Service, ties: ServiceTies) -> Self {
        let ready = (service.ports > 0).then(|| Asked {
            path: service.ready.path.clone(),
            every: READY_EVERY,
            timeout: READY_TIMEOUT,
            threshold: u32::MAX,
        });
        let health = service.health.as_ref().map(|health| Asked {
            path: Some(health.path.clone()),
            every: health.every(),
            timeout: health.timeout(),
            threshold: health.threshold,
        });
        Self {
            name: name.to_owned(),
            replicas: service.replicas,
            ready,
            ready_within: service.ready.timeout(),
            health,
            needed: service.needed,
            ties,
        }
    }
}
