//! New values for one role while the job runs: which keys a role may take, and the job with them.
use super::Job;
use super::error::{Problem, from_message, suggest};
use crate::ids::Role;
use toml::Value;

/// The keys whose values a restart of the role's processes brings into force. Everything else is
/// either the same for all roles or part of what was trained and generated already.
const KEYS: [(Role, &[&str]); 3] = [
    (
        Role::Trainer,
        &[
            "batch.prompts",
            "train.lr",
            "train.betas",
            "train.eps",
            "train.weight_decay",
            "train.max_grad_norm",
            "train.clip_eps",
            "train.clip_eps_high",
            "train.dual_clip",
            "train.kl_coef",
            "train.micro_batch",
        ],
    ),
    (Role::Rollout, &["rollout.max_running", "rollout.swap"]),
    (
        Role::Agent,
        &[
            "agent.concurrency",
            "agent.max_turns",
            "agent.tool.timeout_ms",
            "agent.tool.memory_mb",
            "agent.tool.retries",
            "agent.tool.retry_ms",
            "rollout.max_new_tokens",
        ],
    ),
];

/// The samples of a step, which a job file gives as prompts and responses.
const BATCH_SIZE: &str = "batch_size";

/// The keys a role may take.
pub fn updatable(role: Role) -> &'static [&'static str] {
    let found = KEYS.iter().find(|(of, _)| *of == role);
    found.map(|(_, keys)| *keys).unwrap_or_default()
}

impl Job {
    /// The job with these changes (`key=value`, the value as in a job file) for a role. This one is
    /// not changed, so that a refused change changes nothing.
    pub fn updated(&self, role: Role, changes: &[String]) -> Result<Job, Problem> {
        let mut job = self.clone();
        for change in changes {
            let (key, value) = change.split_once('=').ok_or_else(|| Problem::BadValue {
                key: change.clone(),
                value: "no change".to_owned(),
                must: "write it as `key=value`, such as `train.lr=1e-5`".to_owned(),
            })?;
            job = match (role, key.trim()) {
                (Role::Trainer, BATCH_SIZE) => job.with_batch_size(value.trim())?,
                (_, key) => job.with_value(role, key, value.trim())?,
            };
        }
        job.validate_values()?;
        Ok(job)
    }

    /// The job with another number of instances of a role.
    pub fn scaled(&self, role: Role, count: u32) -> Job {
        let mut job = self.clone();
        match role {
            Role::Trainer | Role::Hybrid => job.trainer.ranks = count,
            Role::Rollout => job.rollout.replicas = count,
            Role::Agent => job.agent.workers = count,
        }
        job
    }

    /// So many samples a step, as another number of prompts.
    fn with_batch_size(&self, text: &str) -> Result<Job, Problem> {
        let each = self.batch.responses.max(1);
        match text.parse::<u32>() {
            Ok(size) if size > 0 && size.is_multiple_of(each) => {
                self.with_value(Role::Trainer, "batch.prompts", &(size / each).to_string())
            }
            _ => Err(Problem::BadValue {
                key: BATCH_SIZE.to_owned(),
                value: text.to_owned(),
                must: format!("it must be a multiple of the {each} responses to each prompt"),
            }),
        }
    }

    fn with_value(&self, role: Role, key: &str, text: &str) -> Result<Job, Problem> {
        let keys = updatable(role);
        if !keys.contains(&key) {
            let others = KEYS.iter().find(|(_, keys)| keys.contains(&key));
            let hint = match others {
                Some((of, _)) => format!("it is {of}'s: `robustctl update {of} --set {key}=..`"),
                None if [
                    "rollout.command",
                    "trainer.command",
                    "agent.command",
                    "limits",
                    "service",
                ]
                .contains(&section(key)) =>
                {
                    "it is for the whole job: change it in the job file and start that anew"
                        .to_owned()
                }
                None => suggest(key, keys),
            };
            let key = key.to_owned();
            return Err(Problem::UnknownKey { key, hint });
        }
        let value = parse(key, text)?;
        let unreadable = |message: String| Problem::Unreadable {
            key: key.to_owned(),
            message,
        };
        let mut root = Value::try_from(self).map_err(|e| unreadable(e.to_string()))?;
        set(&mut root, key, value);
        root.try_into()
            .map_err(|e: toml::de::Error| from_message(e.message(), key.to_owned()))
    }
}

/// The first part of a key, of a role's command both; a role's limits are of all roles alike.
fn section(key: &str) -> &str {
    match key.split_once('.') {
        Some(("rollout", rest)) if rest.split('.').next() == Some("command") => "rollout.command",
        Some(("trainer", rest)) if rest.split('.').next() == Some("command") => "trainer.command",
        Some(("agent", rest)) if rest.split('.').next() == Some("command") => "agent.command",
        Some((_, rest)) if rest.split('.').next() == Some("limits") => "limits",
        Some((first, _)) => first,
        None => key,
    }
}

/// A value as in a job file.
fn parse(key: &str, text: &str) -> Result<Value, Problem> {
    let document: Result<toml::Table, _> = toml::from_str(&format!("value = {text}"));
    let value = document.ok().and_then(|mut table| table.remove("value"));
    value.ok_or_else(|| Problem::BadValue {
        key: key.to_owned(),
        value: format!("`{text}`"),
        must: "write it as in a job file: a number, a list, a text in quotes".to_owned(),
    })
}

/// Puts a value at a dotted key. A whole number is a fraction where one is due.
fn set(root: &mut Value, key: &str, value: Value) {
    let mut place = root;
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let Some(table) = place.as_table_mut() else {
            return;
        };
        place = table
            .entry(part.to_owned())
            .or_insert_with(|| Value::Table(toml::Table::new()));
    }
    if let Some(table) = place.as_table_mut() {
        let fraction = matches!(table.get(last), Some(Value::Float(_)));
        let value = match value {
            Value::Integer(n) if fraction => Value::Float(n as f64),
            other => other,
        };
        table.insert(last.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::job::tests::minimal;

    fn update(role: Role, changes: &[&str]) -> Result<Job, String> {
        let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
        minimal().updated(role, &changes).map_err(|p| p.to_string())
    }

    #[test]
    fn a_role_takes_new_values_of_its_own_keys_and_nothing_else_changes() {
        let job = update(Role::Trainer, &["batch.prompts=4", "train.lr = 1e-5"]).unwrap();
        assert_eq!((job.batch.prompts, job.train.lr), (4, 1e-5));
        let mut same = job.clone();
        let old = minimal();
        (same.batch.prompts, same.train.lr) = (old.batch.prompts, old.train.lr);
        assert_eq!(same, old);
        let whole = update(Role::Trainer, &["train.clip_eps_high=1"]).unwrap();
        assert_eq!(whole.train.clip_eps_high, Some(1.0));
        let by_size = minimal().batch.responses * 3;
        let sized = update(Role::Trainer, &[&format!("batch_size={by_size}")]).unwrap();
        assert_eq!(sized.batch.prompts, 3);
        let agent = update(Role::Agent, &["agent.tool.timeout_ms=50"]).unwrap();
        assert_eq!(agent.agent.tool.timeout_ms, 50);
    }

    #[test]
    fn every_key_of_the_table_is_one_of_the_job_file() {
        for (role, keys) in KEYS {
            for key in keys {
                let refusal = update(role, &[&format!("{key}=\"no\"")]).unwrap_err();
                assert!(!refusal.contains("unknown"), "{key}: {refusal}");
            }
        }
    }

    #[test]
    fn what_a_role_cannot_take_is_refused_with_what_to_do_instead() {
        for (role, change, words) in [
            (
                Role::Trainer,
                "train.rl=1",
                "unknown key `train.rl`; did you mean `train.lr`?",
            ),
            (
                Role::Trainer,
                "rollout.max_running=3",
                "unknown key `rollout.max_running`; it is rollout's: `robustctl update rollout \
                 --set rollout.max_running=..`",
            ),
            (
                Role::Rollout,
                "rollout.command.requests=3",
                "unknown key `rollout.command.requests`; it is for the whole job: change it in the \
                 job file and start that anew",
            ),
            (
                Role::Agent,
                "service.judge.replicas=3",
                "unknown key `service.judge.replicas`; it is for the whole job: change it in the job \
                 file and start that anew",
            ),
            (
                Role::Rollout,
                "rollout.limits.memory=\"64GiB\"",
                "unknown key `rollout.limits.memory`; it is for the whole job: change it in the job file \
                 and start that anew",
            ),
            (
                Role::Trainer,
                "train.lr=fast",
                "`train.lr` is `fast`; write it as in a job file: a number, a list, a text in quotes",
            ),
            (
                Role::Trainer,
                "train.lr=7",
                "`train.lr` is 7; it must be 0 to 1",
            ),
            (
                Role::Trainer,
                "batch_size=none",
                "`batch_size` is none; it must be a multiple of the 8 responses to each prompt",
            ),
            (
                Role::Trainer,
                "train.lr",
                "`train.lr` is no change; write it as `key=value`, such as `train.lr=1e-5`",
            ),
            (
                Role::Agent,
                "agent.max_turns=\"x\"",
                "`agent.max_turns` has the wrong type (string \"x\"); write a whole number of 0 or \
                 more",
            ),
        ] {
            assert_eq!(update(role, &[change]).unwrap_err(), words);
        }
    }

    #[test]
    fn a_job_that_was_scaled_beyond_what_it_began_with_takes_new_values() {
        let mut job = minimal();
        job.rollout.n_init = job.rollout.replicas;
        for count in [1, job.rollout.replicas + 9] {
            let scaled = job.scaled(Role::Rollout, count);
            let updated = scaled.updated(Role::Trainer, &["train.lr=1e-5".to_owned()]);
            assert_eq!(updated.unwrap().rollout.replicas, count);
        }
    }

    #[test]
    fn a_batch_that_the_ranks_do_not_divide_is_refused() {
        let mut job = minimal();
        (job.trainer.ranks, job.batch.responses) = (4, 2);
        let refusal = job.updated(Role::Trainer, &["batch.prompts=3".to_owned()]);
        let words = refusal.unwrap_err().to_string();
        assert!(words.contains("it must divide the samples"), "{words}");
    }
}
