//! Prints the bandwidth of a 256 MiB fetch between two processes next to that of memcpy.
//!
//! `cargo run --release -p robust-transport --example fetch_bench`; `UCX_TLS`, `UCX_TCP_*` and so
//! on are respected. Starts itself again as the source.
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use robust_transport::{Buffer, Config, Part, RegionKey, Transport};

const LEN: usize = 256 << 20;
const ROUNDS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("source") {
        serve()
    } else {
        measure()
    }
}

/// The source: prints address and key, serves until its standard input closes.
fn serve() -> Result<(), Box<dyn Error>> {
    let transport = Transport::start(Config::default())?;
    let buffer = Buffer::new(LEN)?;
    buffer.with_bytes_mut(|bytes| bytes.fill(0x5a))?;
    let exposed = transport.expose(buffer)?;
    let key: Vec<String> = exposed.key().to_bytes().iter().map(u8::to_string).collect();
    println!("{} {}", transport.addr(), key.join(","));
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn measure() -> Result<(), Box<dyn Error>> {
    let mut source = Command::new(std::env::current_exe()?)
        .arg("source")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let result = pull(&mut source);
    drop(source.stdin.take());
    source.wait()?;
    result
}

fn pull(source: &mut Child) -> Result<(), Box<dyn Error>> {
    let mut line = String::new();
    let stdout = source.stdout.take().ok_or("no output of the source")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let (addr, key) = line
        .trim()
        .split_once(' ')
        .ok_or("the source did not start")?;
    let key: Result<Vec<u8>, _> = key.split(',').map(str::parse).collect();
    let (addr, key) = (addr.parse()?, RegionKey::from_bytes(&key?)?);

    let transport = Transport::start(Config::default())?;
    let into = Buffer::new(LEN)?;
    let parts = [Part {
        src: 0,
        dst: 0,
        len: LEN as u64,
    }];
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        transport.fetch(addr, &key, &parts, &into, |_| ())?;
        rates.push(rate(started));
    }
    into.with_bytes(|bytes| assert!(bytes.iter().all(|byte| *byte == 0x5a)))?;
    report("fetch", &mut rates);

    let from = Buffer::new(LEN)?;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        from.with_bytes(|bytes| into.write_at(0, bytes))??;
        rates.push(rate(started));
    }
    report("memcpy", &mut rates);
    Ok(())
}

fn rate(started: Instant) -> f64 {
    LEN as f64 / 1e9 / started.elapsed().as_secs_f64()
}

fn report(what: &str, rates: &mut [f64]) {
    rates.sort_by(f64::total_cmp);
    let (median, worst, best) = (rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
    println!("{what:7} GB/s: median {median:.2}, worst {worst:.2}, best {best:.2}");
}
