//! The leader: starts the tree, serves HTTP, and ends as the real one does.

use crate::args::Args;
use crate::http::{self, App};
use crate::link::Link;
use crate::protocol::{Boot, Dialect, Operation};
use crate::tree::Tree;
use nix::sys::signal::{SigHandler, Signal, raise, signal};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal as caught};
use tokio::task::JoinHandle;

/// Says why the program ends, and ends it.
pub fn failed(error: &dyn Error) -> ExitCode {
    eprintln!("fake-engine: {error}");
    ExitCode::FAILURE
}

/// Runs a life of the engine.
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let dialect = args.dialect()?;
    let quirks = args.quirks()?;
    let mut boot = Boot {
        dialect,
        model: args
            .model_path
            .clone()
            .unwrap_or_else(|| PathBuf::from("dummy")),
        tokens_per_s: args.tokens_per_s,
        max_running: args.max_running_requests,
        time_scale: args.time_scale,
        quirks,
        shared: Vec::new(),
    };
    let (died, deaths) = std::sync::mpsc::channel();
    let (tree, commands, reports) = Tree::start(&mut boot, died)?;
    let shared: Vec<_> = boot
        .shared
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    println!("fake-engine: shares {}", shared.join(" "));
    let link = Link::start(commands, reports);
    let told = link.clone();
    std::thread::spawn(move || deaths.iter().for_each(|name| told.died(&name)));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let app = Arc::new(App::new(args, boot, link));
    let ended = runtime.block_on(live(&app, &tree));
    if ended.is_err() {
        tree.end(true);
    }
    // Streams under way break here, as those of a process that is gone.
    runtime.shutdown_background();
    ended
}

/// From the start of the listener to the end of the process.
async fn live(app: &Arc<App>, tree: &Tree) -> Result<ExitCode, Box<dyn Error>> {
    let mut term = caught(SignalKind::terminate())?;
    let mut int = caught(SignalKind::interrupt())?;
    let serving = tokio::select! {
        _ = term.recv() => return Ok(stopped(app, tree)),
        _ = int.recv() => return Ok(stopped(app, tree)),
        name = app.link.death() => {
            return Err(format!("{name} died before the engine was ready").into());
        }
        serving = start(app) => serving?,
    };
    tokio::select! {
        _ = term.recv() => Ok(stopped(app, tree)),
        _ = int.recv() => Ok(stopped(app, tree)),
        name = app.link.death() => {
            eprintln!("fake-engine: {name} died");
            Ok(bereft(app, tree, &serving).await)
        }
    }
}

/// Waits for the weights and listens.
async fn start(app: &Arc<App>) -> Result<JoinHandle<()>, Box<dyn Error>> {
    if app.link.call(Operation::Ping).await.is_err() {
        std::future::pending::<()>().await; // The death of the child is what is told.
    }
    tokio::time::sleep(Duration::from_secs_f64(app.boot.quirks.late_start_s)).await;
    if app.boot.quirks.never_ready {
        std::future::pending::<()>().await;
    }
    let router = http::router(app.clone());
    if let Some(path) = &app.args.uds {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        println!("fake-engine: listening on {}", path.display());
        return Ok(tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        }));
    }
    let default = if app.boot.dialect == Dialect::Vllm {
        8000
    } else {
        30_000
    };
    let at = (app.args.host.as_str(), app.args.port.unwrap_or(default));
    let listener = TcpListener::bind(at).await?;
    println!(
        "fake-engine: listening on http://{}",
        listener.local_addr()?
    );
    Ok(tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    }))
}

/// A child is dead; the leader follows it, slowly.
async fn bereft(app: &App, tree: &Tree, serving: &JoinHandle<()>) -> ExitCode {
    if app.boot.dialect == Dialect::Vllm {
        tokio::time::sleep(tree.scaled(0.25)).await;
        app.dead();
        tokio::time::sleep(tree.scaled(1.75)).await;
        serving.abort();
        tokio::time::sleep(tree.scaled(1.0)).await;
        tree.end(true);
        return ExitCode::SUCCESS;
    }
    tokio::time::sleep(tree.scaled(6.5)).await;
    tree.end(false);
    if !app.boot.quirks.exit_zero {
        let _ = raise(Signal::SIGKILL);
    }
    ExitCode::SUCCESS
}

/// The leader was told to end.
fn stopped(app: &App, tree: &Tree) -> ExitCode {
    tree.end(app.boot.dialect == Dialect::Vllm);
    if app.boot.dialect == Dialect::Sglang {
        // SAFETY: the default action takes the place of a handler, and no handler of ours is left
        // behind.
        #[allow(unsafe_code)]
        let _ = unsafe { signal(Signal::SIGTERM, SigHandler::SigDfl) };
        let _ = raise(Signal::SIGTERM);
    }
    ExitCode::SUCCESS
}
