//! `robustctl slurm`: a job on machines that Slurm lends.
//!
//! ```text
//!  submit ── sbatch ─► job.sh on the first machine ── srun, one step a machine ──► robustd --job, robustd --join ..
//!  grow ──── sbatch ─► node.sh on one machine more ── srun ──────────────────────► robustd --join
//!  ask ───── srun --overlap on the controller's machine ─────────────────────────► robustctl --state-dir ..
//!  shrink ── SIGTERM to the node's robustd ── its roles move, it leaves ── scancel, or scontrol update NodeList
//! ```
//! Nothing listens for operators on the network: who may run steps of the job may ask its controller.
mod ask;
mod folder;
mod script;
mod shrink;
mod tools;

use crate::cli::{GrowArgs, SlurmCommand, SubmitArgs};
use crate::error::CliError;
use crate::output::{put, put_json};
use folder::{Folder, Grown, Machine, Submitted};
use robust_proto::endpoint::state_home;
use robust_shared::job::{Job, Node};
use robust_shared::nearest::instead_of;
use std::path::{Path, PathBuf};

/// Controllers of a job with an `[ha]` table: one may be lost, and there is a majority of the machines still.
const CANDIDATES: usize = 3;

/// Carries out what is asked for.
pub async fn run(command: SlurmCommand, json: bool) -> Result<(), CliError> {
    match command {
        SlurmCommand::Submit(args) => submit(&args, json).await,
        SlurmCommand::Grow(args) => grow(&args, json).await,
        SlurmCommand::Ask(args) => ask::run(&args, json).await,
        SlurmCommand::Shrink(args) => shrink::run(&args, json).await,
    }
}

async fn submit(args: &SubmitArgs, json: bool) -> Result<(), CliError> {
    let path = std::path::absolute(&args.job)
        .map_err(|e| CliError::Usage(format!("{}: {e}", args.job.display())))?;
    let job = read(&path)?;
    script::check_options(&args.sbatch)?;
    let folder = Folder::of_job(args.folder.dir.as_deref(), &path)?;
    let mut submitted = Submitted {
        robustd: program(args.programs.as_deref())?,
        local: args
            .local
            .clone()
            .map_or_else(|| local(&job.job.name), Ok)?,
        options: args.robustd.clone(),
        sbatch: args.sbatch.clone(),
        machines: machines(&job, args.nodes as usize, args.pools.as_deref())?,
        controllers: match job.ha {
            Some(_) => CANDIDATES.min(args.nodes as usize),
            None => 1,
        },
        candidates: job.ha.is_some(),
        remote_log: job.store.remote_log.clone().unwrap_or_default(),
        port: args.port,
        drain_s: args.drain.as_secs(),
        slurm_job: String::new(),
        name: job.job.name,
        job: path,
    };
    let text = script::of_job(&folder, &submitted);
    if args.print {
        return put(&text);
    }
    refuse_second(&folder).await?;
    folder.make()?;
    let script = folder.write_script("job.sh", &text)?;
    folder.forget_where()?;
    submitted.slurm_job = tools::submit(&script.to_string_lossy()).await?;
    folder.note_submitted(&submitted)?;
    let (number, dir) = (&submitted.slurm_job, folder.path().display());
    if json {
        let names: Vec<&str> = submitted.machines.iter().map(|m| m.name.as_str()).collect();
        return put_json(&serde_json::json!({
            "slurm_job": number, "dir": dir.to_string(), "script": script.to_string_lossy(), "nodes": names,
        }));
    }
    put(&format!(
        "job {} is Slurm's job {number}: {} machines, folder {dir}\n\
         robustctl slurm ask --dir {dir} -- status     when it runs: look at it\n\
         robustctl slurm grow 1 --dir {dir}            a machine more\n\
         scancel --batch --signal=TERM {number}        end it in order; the same `submit` goes on\n",
        submitted.name,
        submitted.machines.len()
    ))
}

async fn grow(args: &GrowArgs, json: bool) -> Result<(), CliError> {
    let folder = Folder::find(args.folder.dir.as_deref())?;
    let submitted = folder.submitted()?;
    let sbatch = match args.sbatch.is_empty() {
        true => &submitted.sbatch,
        false => &args.sbatch,
    };
    script::check_options(sbatch)?;
    let job = read(&submitted.job)?;
    let pools = pools_of_more(&job, args)?;
    let text = script::of_node(&folder, &submitted, &pools, sbatch);
    if args.print {
        return put(&text);
    }
    if folder.controllers().is_empty() {
        return Err(CliError::Refused(format!(
            "Slurm's job {} has not begun: there is nothing to join yet (squeue --jobs={0})",
            submitted.slurm_job
        )));
    }
    let script = folder.write_script("node.sh", &text)?;
    let mut all = Vec::new();
    for _ in 0..args.count {
        let slurm_job = tools::submit(&script.to_string_lossy()).await?;
        let grown = Grown {
            name: format!("slurm-{slurm_job}"),
            slurm_job,
        };
        folder.note_grown(&grown)?;
        all.push(grown);
    }
    if json {
        let each = |g: &Grown| serde_json::json!({"slurm_job": g.slurm_job, "node": g.name, "pools": pools});
        let all: Vec<_> = all.iter().map(each).collect();
        return put_json(&serde_json::json!({ "grown": all }));
    }
    let each = |g: &Grown| {
        format!(
            "node {} ({pools}) joins when Slurm has a machine for job {}\n",
            g.name, g.slurm_job
        )
    };
    put(&all.iter().map(each).collect::<String>())
}

/// A second controller on the same nodes would take them from the first.
async fn refuse_second(folder: &Folder) -> Result<(), CliError> {
    let Ok(known) = folder.submitted() else {
        return Ok(());
    };
    let jobs = format!("--jobs={}", known.slurm_job);
    // Slurm forgets jobs, and says then that the number is wrong.
    match tools::asked("squeue", &["--noheader", "--format=%T", &jobs]).await {
        Ok(state) if !state.trim().is_empty() => Err(CliError::Refused(format!(
            "{} has Slurm's job {}, which is {}: end it with `scancel --batch --signal=TERM {1}`, or name another --dir",
            folder.path().display(),
            known.slurm_job,
            state.trim().to_lowercase()
        ))),
        Err(e @ CliError::Usage(_)) => Err(e),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<Job, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| CliError::Usage(format!("{} cannot be read: {e}", path.display())))?;
    Job::parse(&text, path).map_err(|e| CliError::Usage(e.to_string()))
}

fn program(folder: Option<&Path>) -> Result<PathBuf, CliError> {
    if let Some(folder) = folder {
        // It need not be on this machine.
        return Ok(folder.join("robustd"));
    }
    let own = std::env::current_exe()
        .map_err(|e| CliError::Failed(format!("cannot tell where robustctl is: {e}")))?;
    let robustd = own.with_file_name("robustd");
    match robustd.is_file() {
        true => Ok(robustd),
        false => Err(CliError::Usage(format!(
            "{} is missing; name the folder of robustd on the machines with --programs",
            robustd.display()
        ))),
    }
}

/// On the machines there is no session of the user's, and so no folder at run time; each daemon has one of its own there.
fn local(name: &str) -> Result<PathBuf, CliError> {
    let home = state_home().map_err(|e| CliError::Usage(e.to_string()))?;
    Ok(home.join(name))
}

/// Nodes of machines with slots, as the job file has them: without what `[ha]` puts before them.
fn tables(job: &Job) -> &[Node] {
    &job.nodes[usize::from(job.ha.is_some()).min(job.nodes.len())..]
}

/// The machines that Slurm is asked for, in the order of the job file's nodes.
fn machines(job: &Job, count: usize, pools: Option<&str>) -> Result<Vec<Machine>, CliError> {
    let tables = tables(job);
    if count < tables.len() {
        return Err(CliError::Usage(format!(
            "the job file has {} nodes ({}), and the job begins when all of them are there: --nodes {0} or more, or take \
             [[node]] tables out",
            tables.len(),
            names(tables).join(", ")
        )));
    }
    if count > tables.len() && pools.is_none() {
        return Err(CliError::Usage(format!(
            "the job file has [[node]] tables for {} machines ({}), and --nodes is {count}: say what slots the others \
             have with --pools, such as --pools rollout=2",
            tables.len(),
            names(tables).join(", ")
        )));
    }
    let known = tables.iter().map(|table| Machine {
        name: table.name.clone(),
        pools: String::new(),
    });
    let more = (tables.len()..count).map(|at| Machine {
        name: format!("slurm-m{at}"),
        pools: pools.unwrap_or_default().to_owned(),
    });
    Ok(known.chain(more).collect())
}

fn names(tables: &[Node]) -> Vec<&str> {
    tables.iter().map(|table| table.name.as_str()).collect()
}

/// The slots of machines that come later.
fn pools_of_more(job: &Job, args: &GrowArgs) -> Result<String, CliError> {
    if let Some(pools) = &args.pools {
        return Ok(pools.clone());
    }
    let tables = tables(job);
    if let Some(name) = &args.like {
        let found = tables.iter().find(|table| table.name == *name);
        return found.map(slots).ok_or_else(|| {
            let hint = instead_of(name, &names(tables), "the job file's nodes are");
            CliError::Usage(format!("the job file has no node `{name}`; {hint}"))
        });
    }
    // The leader's own machine is often another kind than those that join.
    let joins = match tables {
        [_, rest @ ..] if job.ha.is_none() && !rest.is_empty() => rest,
        all => all,
    };
    let mut kinds: Vec<String> = joins.iter().map(slots).collect();
    kinds.dedup();
    match <[String; 1]>::try_from(kinds) {
        Ok([pools]) => Ok(pools),
        Err(_) => Err(CliError::Usage(format!(
            "the job file's nodes have different slots: say whose with --like ({}), or which with --pools",
            names(tables).join(", ")
        ))),
    }
}

fn slots(table: &Node) -> String {
    let each = |(pool, slots): (&String, &u32)| format!("{pool}={slots}");
    table.pools.iter().map(each).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const JOB: &str = r#"
[data]
prompts = "p"
tokenizer = "t"
"#;
    const A: &str = "[[node]]\nname = \"a\"\npools = { train = 2, agent = 2 }\n";
    const B: &str = "[[node]]\nname = \"b\"\npools = { train = 2, rollout = 3, agent = 2 }\n";
    const C: &str = "[[node]]\nname = \"c\"\npools = { train = 2, rollout = 3, agent = 2 }\n";

    fn job(tables: &[&str]) -> Job {
        let text = format!("{JOB}{}", tables.concat());
        Job::parse(&text, Path::new("job.toml")).unwrap()
    }

    fn grow(pools: Option<&str>, like: Option<&str>) -> GrowArgs {
        GrowArgs {
            count: 1,
            folder: crate::cli::FolderArgs { dir: None },
            pools: pools.map(str::to_owned),
            like: like.map(str::to_owned),
            print: false,
            sbatch: Vec::new(),
        }
    }

    #[test]
    fn machines_have_the_names_of_the_job_files_nodes_and_slots_of_others_have_to_be_said() {
        let three = job(&[A, B, C]);
        let of = |count, pools| machines(&three, count, pools).map_err(|e| e.to_string());
        let names: Vec<String> = of(3, None).unwrap().into_iter().map(|m| m.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(
            of(2, None)
                .unwrap_err()
                .contains("the job file has 3 nodes (a, b, c)")
        );
        assert!(of(4, None).unwrap_err().contains("--pools"));
        let four = of(4, Some("rollout=1")).unwrap();
        assert_eq!(
            (four[3].name.as_str(), four[3].pools.as_str()),
            ("slurm-m3", "rollout=1")
        );
        assert_eq!(four[0].pools, "", "the job file says it");
    }

    #[test]
    fn a_machine_more_has_the_slots_of_those_that_join_where_these_are_alike() {
        let of = |job: &Job, args: GrowArgs| pools_of_more(job, &args).map_err(|e| e.to_string());
        let alike = job(&[A, B, C]);
        assert_eq!(
            of(&alike, grow(None, None)).unwrap(),
            "agent=2,rollout=3,train=2"
        );
        assert_eq!(
            of(&alike, grow(None, Some("a"))).unwrap(),
            "agent=2,train=2"
        );
        assert_eq!(
            of(&alike, grow(Some("rollout=9"), None)).unwrap(),
            "rollout=9"
        );
        assert!(
            of(&alike, grow(None, Some("d")))
                .unwrap_err()
                .contains("no node `d`")
        );
        let other = "[[node]]\nname = \"d\"\npools = { rollout = 1 }\n";
        let unlike = job(&[A, B, other]);
        assert!(
            of(&unlike, grow(None, None))
                .unwrap_err()
                .contains("--like (a, b, d)")
        );
    }
}
