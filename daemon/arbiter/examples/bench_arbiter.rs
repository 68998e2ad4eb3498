//! How many fenced transactions three members of etcd make on this machine, and how long each takes:
//! `cargo run --release -p robust-arbiter --example bench_arbiter`. A table is printed; the load is told with it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use robust_arbiter::{Arbiter, Compare, Etcd, Options, Revision, Tls, Transacted, Write};
use robust_etcd::{Cluster, Wire};

const LASTS: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() {
    println!("| wire | in flight | bytes | transactions/s | p50 ms | p99 ms | longest ms |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for wire in [Wire::Plain, Wire::Certified] {
        let Some(cluster) = Cluster::start(3, wire) else {
            return;
        };
        let etcd = client(&cluster);
        let epoch = transact(&etcd, vec![], "leader", 1).await;
        for (in_flight, bytes) in [(1, 200), (1, 8192), (16, 200), (16, 8192)] {
            measure(&etcd, epoch, wire, in_flight, bytes).await;
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("load at the end: {load}");
}

/// The leader of the members first.
fn client(cluster: &Cluster) -> Etcd {
    let endpoints = cluster.endpoints();
    let members = [0, 1, 2].map(|n| (cluster.leader() + n) % 3);
    let endpoints = members.map(|member| endpoints[member].parse().unwrap());
    let mut options = Options::new(endpoints.to_vec());
    options.tls = cluster.papers().map(|papers| Tls {
        certificate: papers.certificate.clone(),
        key: papers.key.clone(),
        authority: papers.authority.clone(),
    });
    Etcd::new(options).unwrap()
}

async fn measure(etcd: &Etcd, epoch: Revision, wire: Wire, in_flight: usize, bytes: usize) {
    let until = Instant::now() + LASTS;
    let each = (0..in_flight).map(|n| {
        let etcd = etcd.clone();
        tokio::spawn(
            async move { transactions(&etcd, epoch, &format!("head{n}"), bytes, until).await },
        )
    });
    let each: Vec<_> = each.collect();
    let mut took = Vec::new();
    for transactions in each {
        took.extend(transactions.await.unwrap());
    }
    took.sort_unstable();
    let at = |share: f64| {
        let index = (share * (took.len() - 1) as f64) as usize;
        took[index].as_secs_f64() * 1e3
    };
    println!(
        "| {wire:?} | {in_flight} | {bytes} | {:.0} | {:.1} | {:.1} | {:.1} |",
        took.len() as f64 / LASTS.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
    );
}

/// One after the other: each compares who leads and the head that it puts.
async fn transactions(
    etcd: &Etcd,
    epoch: Revision,
    head: &str,
    bytes: usize,
    until: Instant,
) -> Vec<Duration> {
    let leads = || Compare::Created {
        key: "leader".to_owned(),
        revision: epoch,
    };
    let mut last = transact(etcd, vec![], head, bytes).await;
    let mut took = Vec::new();
    while Instant::now() < until {
        let is_last = Compare::Modified {
            key: head.to_owned(),
            revision: last,
        };
        let begun = Instant::now();
        last = transact(etcd, vec![leads(), is_last], head, bytes).await;
        took.push(begun.elapsed());
    }
    took
}

async fn transact(etcd: &Etcd, compares: Vec<Compare>, key: &str, bytes: usize) -> Revision {
    let put = Write::Put {
        key: key.to_owned(),
        value: vec![7; bytes],
        lease: None,
    };
    match etcd.transact(compares, vec![put]).await.unwrap() {
        Transacted::Done(revision) => revision,
        Transacted::Refused { found } => panic!("it was refused: {found:?}"),
    }
}
