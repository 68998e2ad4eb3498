//! `robust-worker`: the built-in role processes.
//!
//! Exit codes: 0 told to end, 1 an exception that nobody handled, 2 wrong usage, 3 fenced (the daemon knows a newer incarnation),
//! 4 could not start (the last line on stderr is `error: ...`), 5 no daemon for longer than the
//! job allows.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use robust_role::exit::code;
use robust_role::program::{self, Process};
use robust_role::{LinkEnd, RoleArgs};
use robust_shared::job::Job;
use robust_worker::StartError;
use robust_worker::model::config::Qwen3Config;
use robust_worker::model::qwen3::Qwen3;
use robust_worker::model::tokenizer::Tokenizer;
use robust_worker::model::{self, hf, warmup};
use robust_worker::{agent, doctor, rollout, trainer};
use tokio::runtime::Handle;

/// Progress of the warm-up is printed every so many steps.
const WARMUP_LINE_EVERY: usize = 10;

/// Built-in role processes of RobustRL; robustd starts them.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A rank of the training gang.
    Trainer(Process),
    /// A rollout replica with SGLang's HTTP API.
    Rollout(Process),
    /// A rollout engine on the slot of a trainer's rank: the same process under another name.
    Hybrid(Process),
    /// An agent worker.
    Agent(Process),
    /// A process that has done what a start needs no identity for, and waits until robustd makes it one of the roles
    /// above.
    Spare(Spare),
    /// Prints what this program has to work with as JSON (`robustctl doctor`).
    Doctor {
        /// A job's network devices: says which of them UCX does not have.
        #[arg(long, default_value = "all")]
        net_devices: String,
    },
    /// Makes a model of random weights, for measurements and tests of a shape whose weights are not at
    /// hand.
    RandomModel {
        /// The shape: a Hugging Face config.json.
        #[arg(long)]
        config: PathBuf,
        /// The model folder to write.
        #[arg(long)]
        out: PathBuf,
        /// What the weights depend on besides the shape.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Makes the warm-start model.
    Warmup {
        /// The job file (.toml), or a resolved one (.json).
        #[arg(long)]
        job: PathBuf,
        /// The model folder to write.
        #[arg(long)]
        out: PathBuf,
    },
}

/// What robustd starts a spare with.
#[derive(Args)]
struct Spare {
    /// What it can become.
    role: Kind,
    /// The resolved job file.
    #[arg(long)]
    job: PathBuf,
    /// Folder of the shared-memory snapshots.
    #[arg(long)]
    snapshot_dir: PathBuf,
}

/// The roles that spares stand by for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Trainer,
    Rollout,
    Hybrid,
}

/// What a spare has done when it becomes a role.
enum Prepared {
    Trainer(Box<trainer::Prepared>),
    Engine,
}

fn main() {
    let started = Instant::now();
    let cli = Cli::parse();
    program::main(|| {
        model::single_thread();
        match cli.command {
            Command::Spare(spare) => stand_by(&spare),
            command => execute(command, started, None),
        }
    })
}

/// Prepares, waits, and goes on as the command line that it is handed.
fn stand_by(spare: &Spare) -> anyhow::Result<u8> {
    robust_role::spare::end_with_daemon().context("watching for the daemon's end")?;
    let job = RoleArgs::read_job(&spare.job)?;
    let prepared = match spare.role {
        Kind::Trainer => {
            let prepared = trainer::Prepared::new(job, &spare.snapshot_dir)?;
            Prepared::Trainer(Box::new(prepared))
        }
        Kind::Rollout | Kind::Hybrid => {
            rollout::prepare(&job)?;
            Prepared::Engine
        }
    };
    let Some(argv) = robust_role::spare::wait().context("waiting to become a role")? else {
        return Ok(code::ENDED);
    };
    let taken = Instant::now();
    let cli = Cli::try_parse_from(argv).context("the command line that was handed over")?;
    execute(cli.command, taken, Some(prepared))
}

fn execute(command: Command, started: Instant, spare: Option<Prepared>) -> anyhow::Result<u8> {
    match command {
        Command::Trainer(process) => {
            let prepared = match spare {
                Some(Prepared::Trainer(prepared)) => Some(*prepared),
                Some(Prepared::Engine) | None => None,
            };
            role(&process, started, |args, runtime, started| {
                trainer::run_with(args, runtime, started, prepared)
            })
        }
        Command::Rollout(process) => role(&process, started, rollout::run_rollout),
        Command::Hybrid(process) => role(&process, started, rollout::run_hybrid),
        Command::Agent(process) => role(&process, started, agent::run),
        // It was told apart before: no spare becomes another one.
        Command::Spare(_) => anyhow::bail!("a spare was told to become a spare"),
        Command::Doctor { net_devices } => {
            println!("{}", doctor::report(&net_devices));
            Ok(code::ENDED)
        }
        Command::RandomModel { config, out, seed } => {
            let config = Qwen3Config::read(&config)?;
            hf::save(&Qwen3::random(config, seed)?, &out)?;
            Ok(code::ENDED)
        }
        Command::Warmup { job, out } => make_warm_start(&job, &out).map(|()| code::ENDED),
    }
}

fn role(
    process: &Process,
    started: Instant,
    run: impl FnOnce(&RoleArgs, &Handle, Instant) -> Result<LinkEnd, StartError>,
) -> anyhow::Result<u8> {
    let args = process.role_args()?;
    Ok(program::run(&args, started, run)?)
}

fn make_warm_start(job: &Path, out: &Path) -> anyhow::Result<()> {
    let job = read_job(job)?;
    let tokenizer = Tokenizer::load(&job.data.tokenizer)?;
    let c = &job.model.config;
    let shape = Qwen3Config {
        hidden_size: c.hidden_size.into(),
        num_hidden_layers: c.num_hidden_layers.into(),
        num_attention_heads: c.num_attention_heads.into(),
        num_key_value_heads: c.num_key_value_heads.into(),
        head_dim: c.head_dim.into(),
        intermediate_size: c.intermediate_size.into(),
        rms_norm_eps: c.rms_norm_eps,
        rope_theta: c.rope_theta,
        max_position_embeddings: c.max_position_embeddings.into(),
        ..Qwen3Config::demo(tokenizer.vocab_size())
    };
    let w = &job.model.warmup;
    let settings = warmup::WarmupConfig {
        steps: w.steps as usize,
        batch: w.batch as usize,
        lr: w.lr,
        copying_first: w.copying_first,
        tool_share: w.tool_share,
        call_mistakes: w.call_mistakes,
        copy_mistakes: w.copy_mistakes,
    };
    let trained = warmup::run(&shape, &settings, &tokenizer, w.seed, |progress| {
        if progress.step % WARMUP_LINE_EVERY == 0 || progress.step == progress.steps {
            let warmup::Progress { step, steps, loss } = progress;
            println!("warm-up step {step}/{steps} loss {loss:.3}");
        }
    })?;
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("creating {}", parent.display()))?;
    }
    hf::save(&trained, out)?;
    Ok(())
}

fn read_job(path: &Path) -> anyhow::Result<Job> {
    if path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        return Ok(RoleArgs::read_job(path)?);
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut job = Job::parse(&text, path)?;
    let folder = std::path::absolute(path).context("the job file's folder")?;
    job.resolve(folder.parent().unwrap_or(Path::new("/")));
    Ok(job)
}
