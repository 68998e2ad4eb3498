#![allow(clippy::unwrap_used)]
use super::model::QWEN3_235B;
use super::*;
use robust_ahead::wire::cut::Order;
use robust_ahead::wire::fabric::Chunk;
use robust_ahead::wire::net::Link;

const MB: u64 = 1_000_000;

fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

fn close(got: f64, expected: f64, within: f64) -> bool {
    (got - expected).abs() <= expected * within
}

/// Everything that is verified, with its time in seconds.
fn arrivals(net: &mut Net<u32>) -> Vec<(u32, f64)> {
    let steps = std::iter::from_fn(|| net.step());
    let verified = steps.filter_map(|(at, what)| Some((what?, at.as_secs_f64())));
    verified.collect()
}

/// Links of 100 MB/s without latency, and a digest that costs nothing.
fn links(count: usize) -> (Net<u32>, Vec<Link>) {
    let mut net = Net::new(Duration::ZERO);
    let mut links: Vec<_> = (0..count).map(|_| net.link(100e6)).collect();
    links.push(net.link(f64::INFINITY));
    (net, links)
}

#[test]
fn a_lone_flow_gets_all_of_the_link() {
    let (mut net, l) = links(2);
    for chunk in 0..10 {
        net.send(
            Duration::ZERO,
            Duration::ZERO,
            [l[0], l[1], l[2]],
            10 * MB,
            chunk,
        );
    }
    let got = arrivals(&mut net);
    assert_eq!(got.len(), 10);
    assert!(close(got[9].1, 1.0, 1e-6), "100 MB take a second: {got:?}");
    assert_eq!((net.carried(l[0]), net.carried(l[1])), (100 * MB, 100 * MB));
}

#[test]
fn two_flows_of_one_link_get_half_of_it_each() {
    let (mut net, l) = links(3);
    for chunk in 0..10 {
        // The one to the first receiver, the other to the second.
        for (flow, into) in [(0, l[1]), (100, l[2])] {
            net.send(
                Duration::ZERO,
                Duration::ZERO,
                [l[0], into, l[3]],
                10 * MB,
                flow + chunk,
            );
        }
    }
    let got = arrivals(&mut net);
    let end = |range: std::ops::Range<u32>| {
        let of = got.iter().filter(|(what, _)| range.contains(what));
        of.map(|(_, at)| *at).fold(0.0, f64::max)
    };
    assert!(
        close(end(0..10), 2.0, 0.06) && close(end(100..110), 2.0, 0.06),
        "{got:?}"
    );
    // Half way both have half.
    let by_one = |flow: u32| {
        got.iter()
            .filter(|(w, at)| w / 100 == flow / 100 && *at <= 1.01)
            .count()
    };
    assert_eq!((by_one(0), by_one(100)), (5, 5));
}

#[test]
fn two_senders_share_their_receivers_link_and_the_slowest_part_sets_the_pace() {
    let (mut net, l) = links(3);
    for chunk in 0..10 {
        for (flow, out) in [(0, l[0]), (100, l[1])] {
            net.send(
                Duration::ZERO,
                Duration::ZERO,
                [out, l[2], l[3]],
                10 * MB,
                flow + chunk,
            );
        }
    }
    assert!(close(arrivals(&mut net)[19].1, 2.0, 1e-6));
    let mut net = Net::new(seconds(0.5));
    let path = [net.link(100e6), net.link(100e6), net.link(20e6)];
    net.send(Duration::ZERO, Duration::ZERO, path, 10 * MB, 7);
    net.send(Duration::ZERO, seconds(3.0), path, 10 * MB, 8);
    let got = arrivals(&mut net);
    assert!(
        close(got[0].1, 0.5 + 0.1 + 0.5, 1e-6),
        "latency, link, digest: {got:?}"
    );
    assert!(
        close(got[1].1, 3.0 + 1.1, 1e-6),
        "not before it is asked for: {got:?}"
    );
}

/// A trainer of two ranks and rollouts of one rank, with links of 100 MB/s; 100 MB in `chunks`.
fn fabric(rollouts: usize, chunks: u64) -> Fabric {
    let mut net: Net<Chunk> = Net::new(Duration::ZERO);
    let trainer = [0; 2].map(|_| net.link(100e6)).to_vec();
    let cut = Cut::of(&[50 * MB, 50 * MB], 100 * MB / chunks);
    let mut port = || Port {
        out: net.link(100e6),
        into: net.link(100e6),
        digest: net.link(f64::INFINITY),
    };
    let hosts = (0..rollouts).map(|_| vec![port()]).collect();
    Fabric::new(net, 4, trainer, vec![cut], hosts)
}

/// Lets everything happen; when each rollout had everything.
fn ends(fabric: &mut Fabric, rollouts: usize) -> Vec<Option<f64>> {
    let mut ends = vec![None; rollouts];
    while let Some(at) = fabric.next_at() {
        if let Some(host) = fabric.step() {
            ends[host] = Some(at.as_secs_f64());
        }
    }
    ends
}

#[test]
fn a_relay_cannot_send_what_it_has_not_got() {
    let mut net = fabric(2, 100);
    net.pull(Duration::ZERO, 1, Source::Rollout(0));
    assert_eq!(ends(&mut net, 2), [None, None]);
    assert_eq!((net.bytes(1), net.sent_by(0)), (0, 0));
    // Once it gets the chunks it passes them on as they come.
    net.pull(seconds(5.0), 0, Source::Trainer);
    while let Some(at) = net.next_at() {
        net.step();
        assert!(net.bytes(1) <= net.bytes(0), "at {at:?}");
    }
    assert_eq!(
        (net.bytes(0), net.bytes(1), net.sent_by_trainer()),
        (100 * MB, 100 * MB, 100 * MB)
    );
}

#[test]
fn down_a_chain_every_hop_costs_the_time_of_one_chunk() {
    let (hops, chunk) = (8, 0.01);
    let mut net = fabric(hops, 100);
    net.pull(Duration::ZERO, 0, Source::Trainer);
    for hop in 1..hops {
        net.pull(Duration::ZERO, hop, Source::Rollout(hop - 1));
    }
    for (hop, end) in ends(&mut net, hops).into_iter().enumerate() {
        // Two trainer ranks fill the first one from two ends, hence a chunk more.
        let most = 1.0 + (hop as f64 + 1.5) * chunk;
        let end = end.unwrap();
        assert!(
            (1.0..=most).contains(&end),
            "hop {hop}: {end}, at most {most}"
        );
    }
}

#[test]
fn a_puller_goes_on_from_another_source_with_what_it_lacks() {
    let mut net = fabric(2, 100);
    net.pull(Duration::ZERO, 0, Source::Trainer);
    ends(&mut net, 2);
    let begin = seconds(10.0);
    net.pull(begin, 1, Source::Rollout(0));
    while net.bytes(1) < 40 * MB {
        net.step();
    }
    assert_eq!(net.readers(0), [1]);
    let now = net.next_at().unwrap();
    net.stop(0);
    net.pull(now, 1, Source::Trainer);
    let end = ends(&mut net, 2)[1].unwrap();
    // What was on its way is asked for again: no more than was asked ahead.
    let again = net.sent_by_trainer() - 160 * MB;
    assert!(again <= 4 * MB && net.bytes(1) == 100 * MB, "{again}");
    assert!(close(end - now.as_secs_f64(), 0.6, 0.1), "{end}");
}

#[test]
fn relays_are_asked_in_the_order_in_which_chunks_come_to_them() {
    let cut = Cut::of(&[40, 20, 0], 10);
    assert_eq!(cut.from, [0, 0, 0, 0, 1, 1]);
    let order = Order::of(&cut, 3);
    assert_eq!(order.lanes, [vec![0, 1, 2, 3], vec![4, 5], vec![]]);
    assert_eq!(order.all, [0, 1, 4, 2, 3, 5]);
}

#[test]
fn the_large_model_has_the_papers_bytes_and_its_plan_moves_all_of_them() {
    let tensors = QWEN3_235B.tensors();
    assert_eq!(tensors.len(), 94 * (9 + 3 * 128) + 3);
    let experiment = Experiment::new(&QWEN3_235B, Machines::default()).unwrap();
    assert_eq!(experiment.bytes(), 470_187_269_120);
    assert!(close(experiment.ideal_s(), 4.7, 0.001));
    // Norms, routers and shared key-value heads are held by more than one rank: little.
    let more = experiment.version_bytes() as f64 / experiment.bytes() as f64;
    assert!((1.0..1.01).contains(&more), "{more}");
    // Every trainer rank sends its part.
    let sent = |rank| {
        experiment
            .shares
            .iter()
            .map(|s: &Vec<u64>| s[rank])
            .sum::<u64>()
    };
    let fair = experiment.version_bytes() as f64 / 64.0;
    assert!((0..64).all(|rank| close(sent(rank) as f64, fair, 0.05)));
}

/// The large model in large chunks, which is quick.
fn coarse() -> Experiment {
    let machines = Machines {
        chunk_bytes: 64 << 20,
        ..Machines::default()
    };
    Experiment::new(&QWEN3_235B, machines).unwrap()
}

#[test]
fn the_controller_sends_one_copy_down_a_chain_and_sixteen_take_little_longer_than_one() {
    let experiment = coarse();
    let one = experiment.run(1, Method::Pipelined);
    let many = experiment.run(16, Method::Pipelined);
    assert_eq!((one.served, many.served), (1, 16));
    assert!(one.seconds >= experiment.ideal_s() && one.seconds < 1.15 * experiment.ideal_s());
    assert!(many.seconds < 1.2 * one.seconds, "{many:?} {one:?}");
    assert!(close(many.trainer_copies, 1.0, 1e-9), "{many:?}");
    assert_eq!(many, experiment.run(16, Method::Pipelined));
    // Whoever has it doubles what is there, the trainer too: 1, 3, 7, 15, 16.
    let rounds = experiment.run(16, Method::StoreAndForward).seconds / one.seconds;
    assert!((4.5..5.5).contains(&rounds), "{rounds}");
    // One link of four.
    let broadcast = experiment.run(16, Method::GatherAndBroadcast);
    assert!(
        close(broadcast.seconds, 4.0 * experiment.ideal_s() / 0.96, 0.1),
        "{broadcast:?}"
    );
}

#[test]
fn when_a_relay_dies_half_way_the_others_go_on_from_elsewhere() {
    let experiment = coarse();
    let whole = experiment.run(16, Method::Pipelined).seconds;
    let (others, all) = experiment.relay_dies(16);
    assert!(others < whole + 1.0, "{others} against {whole}");
    // The one in its place starts and pulls everything from a relay.
    assert!(
        all > others && all < whole * 2.0 + 2.0,
        "{all} against {whole}"
    );
}

#[test]
fn behind_a_slow_machine_the_chain_is_as_slow_as_it() {
    let experiment = coarse();
    let whole = experiment.run(4, Method::Pipelined);
    let slow = experiment.slow_machine(4, 2.0);
    assert!(
        close(slow.seconds, 2.0 * whole.seconds, 0.1),
        "{slow:?} {whole:?}"
    );
    assert!(
        close(slow.first_s, whole.first_s, 1e-6),
        "before it nothing changes"
    );
}
