//! What a role program is started with.

use std::path::Path;

use clap::Parser;
use robust_role::program::Process;
use robust_role::{RoleArgs, StartError};
use robust_shared::ids::Role;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    process: Process,
}

fn started_with(job: &Path, more: &[&str]) -> Result<Process, clap::Error> {
    let job = job.to_str().unwrap();
    let words = ["role", "--job", job, "--index", "2", "--incarnation", "7"];
    let places = ["--host-socket", "roles.sock", "--snapshot-dir", "slots"];
    let all = words.iter().chain(&places).chain(more);
    Ok(Cli::try_parse_from(all)?.process)
}

#[test]
fn a_role_is_linked_as_its_command_line_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.json");
    let text = "[data]\nprompts = \"p\"\ntokenizer = \"t\"\n";
    let job = robust_shared::job::Job::parse(text, Path::new("job.toml")).unwrap();
    std::fs::write(&path, serde_json::to_vec(&job).unwrap()).unwrap();
    let process = started_with(&path, &["--generation", "3"]).unwrap();
    let args = RoleArgs {
        job: RoleArgs::read_job(&process.job).unwrap(),
        index: process.index,
        incarnation: process.incarnation,
        generation: process.generation,
        host_socket: process.host_socket,
        snapshot_dir: process.snapshot_dir,
        bind: process.bind,
        token: robust_transport::JobToken::new(b"a token of the tests"),
        engines: robust_identity::EngineKeys::of(b"a token of the tests"),
        roads: "ucx".to_owned(),
        end_within: None,
    };
    let config = args.link(Role::Rollout);
    assert_eq!((config.role, config.index), (Role::Rollout, 2));
    assert_eq!((config.incarnation, config.generation), (7, 3));
    assert_eq!(config.socket, Path::new("roles.sock"));
    assert!(args.bind.is_loopback());
    assert!(matches!(args.model_folder(), Err(StartError::NoModel)));
}

#[test]
fn a_job_file_that_is_missing_or_no_job_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.json");
    let process = started_with(&path, &[]).unwrap();
    let missing = process.role_args().unwrap_err().to_string();
    assert!(
        missing.contains("reading") && missing.contains("job.json"),
        "{missing}"
    );
    std::fs::write(&path, "{}").unwrap();
    let no_job = process.role_args().unwrap_err().to_string();
    assert!(
        no_job.contains("job.json is not a resolved job file"),
        "{no_job}"
    );
}
