//! Bandwidth of fetches between two processes, with and without digests, and what they cost.
//!
//! `cargo run --release -p robust-transport --example fetch_bench [MiB] [part KiB] [rounds]`.
//! `UCX_TLS`, `UCX_TCP_*` and so on are respected. Starts itself again as the source. Processor
//! time is printed beside the bandwidth because it does not depend on who else uses the machine.
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use robust_transport::{Arrived, Buffer, Cancel, Config, JobToken, Part, RegionKey, Transport};
use xxhash_rust::xxh3::xxh3_64;

const TICKS_PER_S: f64 = 100.0;

/// What is measured: total bytes, bytes of a part, rounds.
struct Plan {
    len: usize,
    part: usize,
    rounds: usize,
}

/// One round of one kind.
struct Round {
    gb_per_s: f64,
    /// Processor seconds per GB: source, puller.
    cost: [f64; 2],
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| args.get(at).map_or(Ok(default), |arg| arg.parse());
    if args.first().map(String::as_str) == Some("source") {
        return serve(number(1, 0)?);
    }
    measure(&Plan {
        len: number(0, 1024)? << 20,
        part: number(1, 1024)? << 10,
        rounds: number(2, 5)?,
    })
}

fn config() -> Config {
    Config::new(JobToken::new(b"bench"))
}

/// The source: prints address and key, serves until its standard input closes.
fn serve(len: usize) -> Result<(), Box<dyn Error>> {
    let transport = Transport::start(config())?;
    let buffer = Buffer::new(len)?;
    buffer.with_bytes_mut(|bytes| {
        let words = bytes.chunks_exact_mut(8).zip(0u64..);
        words.for_each(|(word, n)| word.copy_from_slice(&n.wrapping_mul(0x9e37).to_le_bytes()));
    })?;
    let exposed = transport.expose(buffer)?;
    let key: Vec<String> = exposed.key().to_bytes().iter().map(u8::to_string).collect();
    println!("{} {}", transport.addr(), key.join(","));
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn measure(plan: &Plan) -> Result<(), Box<dyn Error>> {
    let mut source = Command::new(std::env::current_exe()?)
        .args(["source", &plan.len.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let result = pull(plan, &mut source);
    drop(source.stdin.take());
    source.wait()?;
    result
}

fn pull(plan: &Plan, source: &mut Child) -> Result<(), Box<dyn Error>> {
    let mut line = String::new();
    let stdout = source.stdout.take().ok_or("no output of the source")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let (addr, key) = line
        .trim()
        .split_once(' ')
        .ok_or("the source did not start")?;
    let key: Result<Vec<u8>, _> = key.split(',').map(str::parse).collect();
    let (addr, key) = (addr.parse()?, RegionKey::from_bytes(&key?)?);

    let transport = Transport::start(config())?;
    let into = Buffer::new(plan.len)?;
    let part = |at: usize| {
        let (at, len) = (at as u64, plan.part.min(plan.len - at) as u64);
        Part {
            src: at,
            dst: at,
            len,
        }
    };
    let parts: Vec<Part> = (0..plan.len).step_by(plan.part).map(part).collect();
    let (mut without, mut given, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let mut digests = vec![0; parts.len()];
    for _ in 0..plan.rounds {
        for kind in 0..3 {
            let before = [ticks(source.id())?, ticks(std::process::id())?];
            let (started, cancel) = (Instant::now(), Cancel::new());
            let arrived = |part: Arrived<'_>| match kind {
                0 => {}
                1 => digests[part.part] = part.digest().unwrap_or_default(),
                _ => assert_eq!(Some(digests[part.part]), part.bytes().map(xxh3_64)),
            };
            transport.fetch(addr, &key, &parts, &into, &cancel, arrived)?;
            let gb = plan.len as f64 / 1e9;
            let gb_per_s = gb / started.elapsed().as_secs_f64();
            let after = [ticks(source.id())?, ticks(std::process::id())?];
            let cost = [0, 1].map(|at| (after[at] - before[at]) as f64 / TICKS_PER_S / gb);
            let rounds = [&mut without, &mut given, &mut again];
            rounds[kind].push(Round { gb_per_s, cost });
        }
    }
    report("fetch", &without);
    report("and digest", &given);
    report("and again", &again);

    let from = Buffer::new(plan.len)?;
    let mut copies = Vec::new();
    for _ in 0..plan.rounds {
        let (before, started) = (ticks(std::process::id())?, Instant::now());
        from.with_bytes(|bytes| into.write_at(0, bytes))??;
        let gb = plan.len as f64 / 1e9;
        let gb_per_s = gb / started.elapsed().as_secs_f64();
        let cost = (ticks(std::process::id())? - before) as f64 / TICKS_PER_S / gb;
        copies.push(Round {
            gb_per_s,
            cost: [0.0, cost],
        });
    }
    report("memcpy", &copies);
    Ok(())
}

/// Processor time of a process so far, in clock ticks.
fn ticks(pid: u32) -> Result<u64, Box<dyn Error>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no process")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

fn report(what: &str, rounds: &[Round]) {
    let median = |of: &dyn Fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        (
            values[0],
            values[values.len() / 2],
            values[values.len() - 1],
        )
    };
    let (worst, middle, best) = median(&|round| round.gb_per_s);
    let (source, puller) = (median(&|r| r.cost[0]).1, median(&|r| r.cost[1]).1);
    println!(
        "{what:10} GB/s: median {middle:.2} ({worst:.2}..{best:.2}); \
         processor s/GB: source {source:.2}, puller {puller:.2}"
    );
}
