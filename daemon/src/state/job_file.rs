//! The job a state directory belongs to.
use super::{Readers, StateDir, StateDirError, read_private, write_private};
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
pub fn write_job(dir: &StateDir, json: &str) -> Result<WrittenJob, JobFileError> {
    let path = dir.job_json();
    match read_private(&path, Readers::Owner)? {
        Some(there) if is_same(&there, json) => Ok(WrittenJob::Same),
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

fn is_same(there: &str, here: &str) -> bool {
    let job = |text: &str| {
        let mut job: serde_json::Value = serde_json::from_str(text).ok()?;
        for part in OF_MACHINE {
            if let Some(value) = job.pointer_mut(part).filter(|value| !value.is_null()) {
                *value = true.into();
            }
        }
        Some(job)
    };
    there == here || (job(there).is_some() && job(there) == job(here))
}

fn job_name(json: &str) -> String {
    let job: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let name = job.pointer("/job/name").or_else(|| job.get("name"));
    match name.and_then(serde_json::Value::as_str) {
        Some(name) => format!("`{name}`, or another version of its job file"),
        None => "its job.json is unreadable".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_same_job_goes_on_and_another_is_refused_by_name() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::make(temp.path()).unwrap();
        let one = r#"{"job":{"name":"one"}}"#;
        assert_eq!(write_job(&dir, one).unwrap(), WrittenJob::New);
        assert_eq!(write_job(&dir, one).unwrap(), WrittenJob::Same);
        let refusal = write_job(&dir, r#"{"job":{"name":"two"}}"#).unwrap_err();
        assert!(refusal.to_string().contains("`one`"), "{refusal}");
        assert!(refusal.to_string().contains("--fresh"));
        dir.clear().unwrap();
        assert_eq!(
            write_job(&dir, r#"{"job":{"name":"two"}}"#).unwrap(),
            WrittenJob::New
        );
    }

    #[test]
    fn controllers_reach_log_and_etcd_by_ways_of_their_own_and_none_goes_on_without() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::make(temp.path()).unwrap();
        let one = r#"{"store":{"remote_log":"s3://a","secret_file":"s"},"ha":{"etcd":["a"]}}"#;
        write_job(&dir, one).unwrap();
        let other = r#"{"store":{"remote_log":"s3://b","secret_file":"t"},"ha":{"etcd":["b"]}}"#;
        assert_eq!(write_job(&dir, other).unwrap(), WrittenJob::Same);
        for without in [
            r#"{"store":{"remote_log":"s3://a","secret_file":"s"},"ha":null}"#,
            r#"{"store":{"remote_log":null,"secret_file":"s"},"ha":{"etcd":["a"]}}"#,
            r#"{"store":{"remote_log":"s3://a"},"ha":{"etcd":["a"]}}"#,
        ] {
            assert!(write_job(&dir, without).is_err(), "{without}");
        }
    }
}
