//! The job a state directory belongs to.
use super::{Readers, StateDir, StateDirError, read_private, write_private};
use robust_shared::job::Job;
use serde_json::Value;
use std::path::PathBuf;

/// Whether the directory already belonged to this job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenJob {
    /// The directory was empty.
    New,
    /// The same job was here before: it goes on.
    Same,
}

/// Why a job cannot live in a state directory.
#[derive(Debug, thiserror::Error)]
pub enum JobFileError {
    /// Another job's state is there.
    #[error(
        "state directory {dir} belongs to another job ({there}); choose another with --state-dir, \
         or start with --fresh to discard that job with its checkpoints"
    )]
    OtherJob {
        /// The directory.
        dir: PathBuf,
        /// That job's name.
        there: String,
    },
    /// It could not be read or written.
    #[error(transparent)]
    State(#[from] StateDirError),
}

/// Writes the resolved job, unless a job is there already: the same one goes on, another one is a
/// refusal. Where this machine finds the job's log and its etcd may be another on each controller; that there are some may not.
///
/// Where this machine has the files that the job is made of, `located` says, of a job of which it is known what they are: then
/// their paths may be others than before, and this job and its revisions have those of this machine from now on.
pub fn write_job(dir: &StateDir, json: &str, located: bool) -> Result<WrittenJob, JobFileError> {
    let path = dir.job_json();
    match read_private(&path, Readers::Owner)? {
        Some(there) if is_same(&there, json, located) => {
            if located {
                name_files(dir, json)?;
            }
            Ok(WrittenJob::Same)
        }
        Some(there) => Err(JobFileError::OtherJob {
            dir: dir.root().to_owned(),
            there: job_name(&there),
        }),
        None => {
            write_private(&path, json.as_bytes())?;
            Ok(WrittenJob::New)
        }
    }
}

/// Parts of a job that are of the machine: how its log and its etcd are reached from here.
const OF_MACHINE: [&str; 3] = ["/ha", "/store/remote_log", "/store/secret_file"];

/// Where the files that the job is made of are: sections and keys.
const PATHS: [(&str, &str); 3] = [
    ("data", "prompts"),
    ("data", "tokenizer"),
    ("model", "path"),
];

fn is_same(there: &str, here: &str, located: bool) -> bool {
    let job = |text: &str| {
        let mut job = as_this_build_says_it(text)?;
        for part in OF_MACHINE {
            if let Some(value) = job.pointer_mut(part).filter(|value| !value.is_null()) {
                *value = true.into();
            }
        }
        // How much is kept beside the log may change from one start to the next.
        if let Some(store) = job.get_mut("store").and_then(Value::as_object_mut) {
            store.remove("copy_files_up_to_mb");
        }
        for (section, key) in PATHS.into_iter().filter(|_| located) {
            if let Some(section) = job.get_mut(section).and_then(Value::as_object_mut) {
                section.remove(key);
            }
        }
        Some(job)
    };
    there == here || (job(there).is_some() && job(there) == job(here))
}

/// A job that another build wrote lacks the keys that have come since: they have their defaults.
fn as_this_build_says_it(text: &str) -> Option<Value> {
    match serde_json::from_str::<Job>(text) {
        Ok(job) => serde_json::to_value(job).ok(),
        // Whoever wants to read it says so.
        Err(_) => serde_json::from_str(text).ok(),
    }
}

/// Names the files in the job and in its revisions as they are named here.
fn name_files(dir: &StateDir, here: &str) -> Result<(), StateDirError> {
    let Ok(here) = serde_json::from_str::<Value>(here) else {
        return Ok(());
    };
    for path in dir.all_jobs()? {
        let Some(text) = read_private(&path, Readers::Owner)? else {
            continue;
        };
        let Ok(mut job) = serde_json::from_str::<Value>(&text) else {
            // Whoever wants to read it says so.
            continue;
        };
        let before = job.clone();
        for (section, key) in PATHS {
            let value = here.get(section).and_then(|section| section.get(key));
            let there = job.get_mut(section).and_then(Value::as_object_mut);
            if let (Some(value), Some(there)) = (value, there) {
                there.insert(key.to_owned(), value.clone());
            }
        }
        if job != before {
            write_private(&path, format!("{job:#}").as_bytes())?;
        }
    }
    Ok(())
}

fn job_name(json: &str) -> String {
    let job: Value = serde_json::from_str(json).unwrap_or_default();
    let name = job.pointer("/job/name").or_else(|| job.get("name"));
    match name.and_then(Value::as_str) {
        Some(name) => format!("`{name}`, or another version of its job file"),
        None => "its job.json is unreadable".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_job_that_a_build_without_some_of_the_keys_began_is_the_same_where_they_have_their_defaults()
     {
        let text = include_str!("../../../fixtures/jobs/test.toml");
        let job = Job::parse(text, "test.toml".as_ref()).unwrap();
        let here = serde_json::to_string(&job).unwrap();
        let mut former: Value = serde_json::from_str(&here).unwrap();
        let rollout = former["rollout"].as_object_mut().unwrap();
        rollout.remove("swap").unwrap();
        let restart = former["restart"].as_object_mut().unwrap();
        restart.remove("same_cause").unwrap();
        assert!(is_same(&former.to_string(), &here, false));
        let steps = former["job"]["steps"].as_u64().unwrap();
        former["job"]["steps"] = (steps + 1).into();
        assert!(!is_same(&former.to_string(), &here, false));
    }

    #[test]
    fn the_same_job_goes_on_and_another_is_refused_by_name() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::make(temp.path()).unwrap();
        let one = r#"{"job":{"name":"one"}}"#;
        assert_eq!(write_job(&dir, one, false).unwrap(), WrittenJob::New);
        assert_eq!(write_job(&dir, one, false).unwrap(), WrittenJob::Same);
        let refusal = write_job(&dir, r#"{"job":{"name":"two"}}"#, false).unwrap_err();
        assert!(refusal.to_string().contains("`one`"), "{refusal}");
        assert!(refusal.to_string().contains("--fresh"));
        dir.clear().unwrap();
        assert_eq!(
            write_job(&dir, r#"{"job":{"name":"two"}}"#, false).unwrap(),
            WrittenJob::New
        );
    }

    #[test]
    fn controllers_reach_log_and_etcd_by_ways_of_their_own_and_none_goes_on_without() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::make(temp.path()).unwrap();
        let one = r#"{"store":{"remote_log":"s3://a","secret_file":"s"},"ha":{"etcd":["a"]}}"#;
        write_job(&dir, one, false).unwrap();
        let other = r#"{"store":{"remote_log":"s3://b","secret_file":"t"},"ha":{"etcd":["b"]}}"#;
        assert_eq!(write_job(&dir, other, false).unwrap(), WrittenJob::Same);
        for without in [
            r#"{"store":{"remote_log":"s3://a","secret_file":"s"},"ha":null}"#,
            r#"{"store":{"remote_log":null,"secret_file":"s"},"ha":{"etcd":["a"]}}"#,
            r#"{"store":{"remote_log":"s3://a"},"ha":{"etcd":["a"]}}"#,
        ] {
            assert!(write_job(&dir, without, false).is_err(), "{without}");
        }
    }

    #[test]
    fn a_job_whose_files_are_known_by_what_they_are_has_them_where_this_machine_has_them() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::make(temp.path()).unwrap();
        let of = |folder: &str, lr: f64| {
            format!(
                r#"{{"data":{{"prompts":"{folder}/p","tokenizer":"{folder}/t"}},"model":{{"path":"{folder}/m"}},"lr":{lr}}}"#
            )
        };
        write_job(&dir, &of("/a", 1.0), false).unwrap();
        write_private(&dir.job_revision(1), of("/a", 2.0).as_bytes()).unwrap();
        assert!(write_job(&dir, &of("/b", 1.0), false).is_err());
        assert!(
            write_job(&dir, &of("/b", 3.0), true).is_err(),
            "another job"
        );
        let written = write_job(&dir, &of("/b", 1.0), true).unwrap();
        assert_eq!(written, WrittenJob::Same);
        for (revision, lr) in [(0, 1.0), (1, 2.0)] {
            let there = std::fs::read_to_string(dir.job_revision(revision)).unwrap();
            let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(json(&there), json(&of("/b", lr)));
        }
    }
}
