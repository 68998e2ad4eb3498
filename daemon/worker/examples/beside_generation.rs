//! What weights on their way cost an engine that generates meanwhile, for each part of a core that they may
//! take (`[weights] beside_generation`): tokens a second of one that pulls, of one that serves a reader, and
//! how long the version takes.
//!
//! ```text
//!   source (a process) ══ version ══► engine: Qwen3's shape, 8 sequences ══ version ══► reader (a process)
//! ```
//! `cargo run --release -p robust-worker --example beside_generation -- [--out FILE] [--tls]`: FILE is the JSON
//! that `robust-bench weights` wrote, to which the figures are added.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use robust_identity::Authority;
use robust_shared::ids::{Incarnation, WeightVersion};
use robust_shared::job::{Dtype, Swap};
use robust_shared::phase::Phase;
use robust_shared::weights::Manifest;
use robust_transport::{Address, Buffer, Config, Identity, JobToken, Net, RegionKey, Transport};
use robust_weights::{
    Layout, Link, Observer, Order, Progress, Publisher, PullError, Puller, Served, Slots, Source,
    SwapError,
};
use robust_worker::manifest::tensor_specs_of;
use robust_worker::model::config::Qwen3Config;
use robust_worker::model::flat::{FlatParams, layout_of};
use robust_worker::model::qwen3::Qwen3;
use robust_worker::model::sampler::{Engine, EngineConfig, MAX_ROWS, SeqRequest};
use robust_worker::model::single_thread;
use robust_worker::rollout::{
    Command, EngineThread, Generate, Observer as EngineObserver, Piece, SwapRequest,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

/// Sequences that are generated at a time, and how long each gets.
const SEQUENCES: u64 = 8;
const TOKENS: usize = 64;
/// Tokens a second are taken over at least so long.
const SPAN: Duration = Duration::from_millis(600);
const PARTS: [f64; 3] = [1.0, 0.5, 0.25];
const CHUNK: u64 = 1023 << 10;

#[derive(Parser)]
struct Args {
    /// Plays another process of the job: `source` or `reader`.
    #[arg(long, hide = true)]
    play: Option<String>,
    /// Over TLS on loopback instead of through shared memory.
    #[arg(long)]
    tls: bool,
    /// Where processes of this machine find each other.
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The JSON to which the figures are added.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// A version that can be read somewhere.
#[derive(Clone, Serialize, Deserialize)]
struct There {
    manifest: Arc<Manifest>,
    addr: Address,
    key: Vec<u8>,
}

fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    match args.play.as_deref() {
        Some("source") => source(&args),
        Some(_) => reader(&args),
        None => {
            let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
            args.folder = Some(folder.path().join("roads"));
            let measured = measure(&args);
            drop(folder);
            if let Err(error) = &measured {
                eprintln!("error: {error:#}");
            }
            // The engine computes on, and must not see libtorch's memory go.
            robust_role::exit::now(u8::from(measured.is_err()))
        }
    }
}

/// About 58 million parameters: 233 MB of float32.
fn shape() -> anyhow::Result<Qwen3Config> {
    Ok(serde_json::from_value(serde_json::json!({
        "hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "num_key_value_heads": 4,
        "head_dim": 64, "intermediate_size": 2304, "vocab_size": 4096, "max_position_embeddings": 1024,
        "tie_word_embeddings": true,
    }))?)
}

fn bytes() -> anyhow::Result<usize> {
    Ok(layout_of(&shape()?).iter().map(|spec| spec.len * 4).sum())
}

fn transport(args: &Args) -> anyhow::Result<Transport> {
    let config = Config::new(JobToken::new(b"bench"));
    let (local, net) = if args.tls {
        let authority = Authority::of(b"bench", "bench")?;
        let pem = authority.issue(
            &format!("process/{}", std::process::id()),
            robust_identity::Term::unbounded(),
        )?;
        (None, Some(Net::Tls(Identity::from_pem(&pem)?)))
    } else {
        (args.folder.clone(), None)
    };
    Ok(Transport::start(Config {
        local,
        net,
        ..config
    })?)
}

fn tell(line: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Publishes another version for every line that it reads.
fn source(args: &Args) -> anyhow::Result<()> {
    let transport = transport(args)?;
    let specs = tensor_specs_of(&layout_of(&shape()?), Dtype::Float32);
    let layout = Layout {
        bytes: bytes()?,
        tensors: specs,
        chunk_bytes: CHUNK,
        ranks: 1,
        full_every: 1,
    };
    let mut publisher = Publisher::new(&transport, layout)?;
    for (version, line) in (1..).zip(std::io::stdin().lock().lines()) {
        line?;
        let served = publisher.publish(version, |to| {
            to.with_bytes_mut(|bytes| {
                if version <= 2 {
                    fill(bytes);
                }
                // No chunk is what it was in the version before.
                for chunk in bytes.chunks_mut(CHUNK as usize) {
                    chunk[..4].copy_from_slice(&(version as f32 * 1e-6).to_le_bytes());
                }
            })
        })?;
        let (addr, key) = (transport.addr(), served.key.to_bytes().to_vec());
        let manifest = served.manifest;
        tell(&There {
            manifest,
            addr,
            key,
        })?;
    }
    Ok(())
}

/// Small numbers of either sign.
fn fill(bytes: &mut [u8]) {
    let mut state = 1_u64;
    for word in bytes.as_chunks_mut::<4>().0 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let small = ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * 0.04;
        *word = small.to_le_bytes();
    }
}

/// Pulls every version that it reads of, and says when it has it.
fn reader(args: &Args) -> anyhow::Result<()> {
    let transport = transport(args)?;
    let slots = Slots::new(&transport, bytes()?)?;
    let (done, ended) = channel();
    let puller = puller(&transport, &slots, None, done)?;
    for line in std::io::stdin().lock().lines() {
        puller.assign(order(serde_json::from_str(&line?)?)?);
        let result: Result<(), String> = ended.recv()?;
        tell(&result)?;
    }
    Ok(())
}

fn order(there: There) -> anyhow::Result<Order> {
    let key = RegionKey::from_bytes(&there.key)?;
    Ok(Order {
        number: 0,
        version: there.manifest.version,
        manifest: there.manifest,
        sources: vec![Source::relay(Incarnation(1), there.addr, key)],
    })
}

/// Brings versions to the engine, where there is one.
struct ToEngine {
    engine: Option<Sender<Command>>,
    /// A pull can be read here from its begin; what is served is told with its end.
    done: Mutex<Sender<Result<(), String>>>,
}

impl Observer for ToEngine {
    fn started(&self, _: &Order, _: &RegionKey, _: &[Link]) {}

    fn progress(&self, _: Progress) {}

    fn swap(&self, version: WeightVersion, buffer: &Arc<Buffer>) -> Result<(), SwapError> {
        let Some(engine) = &self.engine else {
            return Ok(());
        };
        let failed = |error: &dyn std::fmt::Display| SwapError::Failed(error.to_string());
        let layout = layout_of(&shape().map_err(|error| failed(&error))?);
        let weights = FlatParams::lying_as(Dtype::Float32, layout, buffer);
        let (done, swapped) = channel();
        let request = SwapRequest {
            version: version.0,
            weights: weights.map_err(|error| failed(&error))?,
            done,
        };
        let sent = engine.send(Command::Swap(request));
        sent.map_err(|error| failed(&error))?;
        let swapped = swapped.recv().map_err(|error| failed(&error))?;
        swapped.map_err(|error| failed(&error))
    }

    fn done(&self, _: &Order, result: Result<Served, PullError>) {
        let result = result.map(drop).map_err(|error| error.to_string());
        if let Ok(done) = self.done.lock() {
            let _ = done.send(result);
        }
    }
}

fn puller(
    transport: &Transport,
    slots: &Arc<Slots>,
    engine: Option<Sender<Command>>,
    done: Sender<Result<(), String>>,
) -> anyhow::Result<Puller> {
    let specs = tensor_specs_of(&layout_of(&shape()?), Dtype::Float32);
    let done = Mutex::new(done);
    let to = Arc::new(ToEngine { engine, done });
    Ok(Puller::start(
        transport.clone(),
        Arc::clone(slots),
        specs,
        to,
    )?)
}

/// Counts tokens.
struct Counted(Arc<AtomicU64>);

impl EngineObserver for Counted {
    fn phase(&self, _: Phase, _: u64) {}

    fn figures(&self, new_tokens: u64, _: usize) {
        self.0.fetch_add(new_tokens, Ordering::Relaxed);
    }
}

/// Another process of the job.
struct Other {
    child: Child,
    told: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(args: &Args, play: &str) -> anyhow::Result<Self> {
        let mut program = Program::new(std::env::current_exe()?);
        program.args(["--play", play]);
        if args.tls {
            program.arg("--tls");
        }
        if let Some(folder) = &args.folder {
            program.arg("--folder").arg(folder);
        }
        let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().context("starting another process")?;
        let told = child.stdout.take().context("it has no output")?;
        let told = BufReader::new(told);
        Ok(Self { child, told })
    }

    fn ask<T: for<'a> Deserialize<'a>>(&mut self, line: &impl Serialize) -> anyhow::Result<T> {
        let stdin = self.child.stdin.as_mut().context("it has no input")?;
        serde_json::to_writer(&mut *stdin, line)?;
        stdin.write_all(b"\n")?;
        stdin.flush()?;
        let mut answer = String::new();
        self.told.read_line(&mut answer)?;
        serde_json::from_str(&answer).context("another process ended")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The engine under load.
struct Loaded {
    commands: Sender<Command>,
    tokens: Arc<AtomicU64>,
}

impl Loaded {
    fn start(slots: &Slots) -> anyhow::Result<Self> {
        let (config, tokens) = (shape()?, Arc::new(AtomicU64::new(0)));
        let params = FlatParams::lying_as(Dtype::Float32, layout_of(&config), &slots.current())?;
        let sizes = EngineConfig {
            max_seqs: SEQUENCES as usize,
            max_rows: MAX_ROWS,
            max_len: TOKENS + 8,
        };
        let engine = Engine::new(&config, sizes)?;
        let model = Qwen3::with_params(config, params)?;
        let observer = Box::new(Counted(Arc::clone(&tokens)));
        let engine = EngineThread::start(model, engine, Swap::Step, observer)?;
        Ok(Self {
            commands: engine.commands(),
            tokens,
        })
    }

    /// Keeps as many sequences going, each followed by another, until the engine ends.
    fn generate(&self) {
        for of in 0..SEQUENCES {
            let commands = self.commands.clone();
            std::thread::spawn(move || {
                for number in 0.. {
                    let (pieces, mut coming) = mpsc::unbounded_channel();
                    let (accepted, taken) = oneshot::channel();
                    let request = Box::new(Generate {
                        rid: format!("{of}-{number}"),
                        sequence: SeqRequest {
                            key: 0,
                            ids: vec![of as i64 + 1, 2, 3, 4],
                            seed: of,
                            trajectory: number,
                            position0: 0,
                            max_new_tokens: TOKENS,
                            temperature: 1.0,
                            stop_tokens: Vec::new(),
                        },
                        probe: false,
                        pieces,
                        accepted,
                    });
                    let sent = commands.send(Command::Generate(request));
                    if sent.is_err() || !matches!(taken.blocking_recv(), Ok(Ok(()))) {
                        return;
                    }
                    while let Some(piece) = coming.blocking_recv() {
                        if matches!(
                            piece,
                            Piece::Token {
                                finish: Some(_),
                                ..
                            }
                        ) {
                            break;
                        }
                    }
                }
            });
        }
    }

    /// Waits until tokens come again: after a swap the engine first computes the keys and values of what is there.
    fn settle(&self) {
        let before = self.tokens.load(Ordering::Relaxed);
        while self.tokens.load(Ordering::Relaxed) < before + 4 * SEQUENCES {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Tokens a second while this works, again and again for a while; and how long each took. What is
    /// prepared for each does not count.
    fn rate_while<T>(
        &self,
        mut prepare: impl FnMut() -> anyhow::Result<T>,
        mut work: impl FnMut(T) -> anyhow::Result<()>,
    ) -> anyhow::Result<(f64, f64)> {
        let (mut times, mut tokens, mut took) = (0.0, 0, Duration::ZERO);
        while took < SPAN {
            let prepared = prepare()?;
            self.settle();
            let (began, before) = (Instant::now(), self.tokens.load(Ordering::Relaxed));
            work(prepared)?;
            took += began.elapsed();
            tokens += self.tokens.load(Ordering::Relaxed) - before;
            times += 1.0;
        }
        let took = took.as_secs_f64();
        Ok((tokens as f64 / took, took / times))
    }
}

/// What was measured, by name.
type Figures = BTreeMap<String, Vec<f64>>;

/// The processes, and this one's engine.
struct Job {
    transport: Transport,
    slots: Arc<Slots>,
    puller: Puller,
    ended: Receiver<Result<(), String>>,
    source: Other,
    reader: Other,
    engine: Loaded,
}

impl Job {
    fn start(args: &Args) -> anyhow::Result<Self> {
        let transport = transport(args)?;
        let slots = Slots::new(&transport, bytes()?)?;
        let engine = Loaded::start(&slots)?;
        let (done, ended) = channel();
        let puller = puller(&transport, &slots, Some(engine.commands.clone()), done)?;
        let (source, reader) = (Other::start(args, "source")?, Other::start(args, "reader")?);
        Ok(Self {
            transport,
            slots,
            puller,
            ended,
            source,
            reader,
            engine,
        })
    }

    /// What part of the tokens that it makes alone the engine makes while it pulls and while it serves a reader.
    fn round(&mut self, road: &str, figures: &mut Figures) -> anyhow::Result<()> {
        self.transport.share().set(1.0);
        let nap = || {
            std::thread::sleep(Duration::from_millis(100));
            Ok(())
        };
        let (alone, _) = self.engine.rate_while(|| Ok(()), |()| nap())?;
        add(figures, "beside_generation_tokens_per_s", alone);
        for part in PARTS {
            self.transport.share().set(part);
            let name = |what: &str| format!("beside_generation_{road}_{:.0}_{what}", part * 100.0);
            let (source, reader) = (&mut self.source, &mut self.reader);
            let (puller, ended) = (&self.puller, &self.ended);
            let pull = |order| {
                puller.assign(order);
                ended.recv()?.map_err(anyhow::Error::msg)
            };
            let (rate, took) = self
                .engine
                .rate_while(|| order(source.ask(&"next")?), pull)?;
            add(figures, &name("pulling"), rate / alone);
            add(figures, &name("pull_s"), took);
            let (slots, addr) = (&self.slots, self.transport.addr());
            let served = || {
                pull(order(source.ask(&"next")?)?)?;
                let served = slots.served().context("nothing is served")?;
                Ok(There {
                    manifest: served.manifest,
                    addr,
                    key: served.key.to_bytes().to_vec(),
                })
            };
            let read = |there| {
                let read: Result<(), String> = reader.ask(&there)?;
                read.map_err(anyhow::Error::msg)
            };
            let (rate, took) = self.engine.rate_while(served, read)?;
            add(figures, &name("serving"), rate / alone);
            add(figures, &name("serve_s"), took);
        }
        Ok(())
    }
}

fn add(figures: &mut Figures, name: &str, value: f64) {
    figures.entry(name.to_owned()).or_default().push(value);
}

fn measure(args: &Args) -> anyhow::Result<()> {
    single_thread();
    let (mut job, mut figures) = (Job::start(args)?, Figures::new());
    job.puller.assign(order(job.source.ask(&"first")?)?);
    job.ended.recv()?.map_err(anyhow::Error::msg)?;
    job.engine.generate();
    for round in 0..=args.rounds {
        if round == 1 {
            // The first one warms up: memory gets its pages, links are made.
            figures.clear();
        }
        job.round(if args.tls { "tls" } else { "shm" }, &mut figures)?;
    }
    report(args, figures)
}

/// As `robust-bench weights` writes figures.
fn report(args: &Args, figures: Figures) -> anyhow::Result<()> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load: f64 = load.split(' ').next().unwrap_or_default().parse()?;
    let mut all = serde_json::Map::new();
    for (name, mut values) in figures {
        values.sort_by(f64::total_cmp);
        let (median, min, max) = (
            values[values.len() / 2],
            values[0],
            values[values.len() - 1],
        );
        println!("{name:42} {median:9.3}  ({min:.3} to {max:.3})  load {load}");
        let figure = serde_json::json!(
            {"median": median, "min": min, "max": max, "all": values, "load": load});
        all.insert(name, figure);
    }
    let Some(out) = &args.out else { return Ok(()) };
    let there = std::fs::read(out).unwrap_or_else(|_| b"{}".to_vec());
    let mut there: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&there)?;
    there.extend(all);
    Ok(std::fs::write(out, serde_json::to_vec_pretty(&there)?)?)
}
