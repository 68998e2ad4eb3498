//! Two roads between machines at once: UCX where both sides have it and it leads there, else TLS. UCX's TCP
//! stands for RDMA, of which this machine has none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use robust_transport::{Address, Buffer, Cancel, Config, Exposed, Net, Rdma, RoadKind, Transport};

const LEN: usize = 3_000_000;

fn transport(rdma: Option<&str>) -> Transport {
    let rdma = rdma.map(|devices| Rdma {
        devices: devices.to_owned(),
        transports: "tcp,self".to_owned(),
        managers: "tcp".to_owned(),
    });
    Transport::start(Config {
        net: Some(Net::Tls(support::member(b"two roads"))),
        rdma,
        connect_timeout: Duration::from_millis(500),
        ..support::config(support::token())
    })
    .unwrap()
}

fn exposed(source: &Transport) -> Exposed {
    let buffer = Buffer::new(LEN).unwrap();
    buffer.write_at(0, &support::pattern(7, LEN)).unwrap();
    source.expose(buffer).unwrap()
}

/// The road that the bytes took, which are all there and right.
fn road(reader: &Transport, at: Address, of: &Exposed) -> Option<RoadKind> {
    let (into, mut road) = (Buffer::new(LEN).unwrap(), None);
    let parts = support::chunks(LEN);
    let fetched = reader.fetch(
        at,
        of.key(),
        &parts,
        &Arc::clone(&into),
        &Cancel::new(),
        |part| {
            road = part.road();
        },
    );
    assert_eq!(fetched.unwrap(), LEN as u64);
    assert!(
        into.with_bytes(|bytes| bytes == support::pattern(7, LEN))
            .unwrap()
    );
    road
}

#[test]
fn two_that_have_it_take_it_and_one_that_has_not_takes_the_other_road() {
    let (source, reader, without) = (
        transport(Some("lo")),
        transport(Some("lo")),
        transport(None),
    );
    let version = exposed(&source);
    assert!(source.addr().rdma().is_some() && without.addr().rdma().is_none());
    assert_eq!(source.net(), Some(RoadKind::Tls), "all come by it");
    assert_eq!(road(&reader, source.addr(), &version), Some(RoadKind::Ucx));
    assert_eq!(road(&without, source.addr(), &version), Some(RoadKind::Tls));
    let theirs = exposed(&without);
    assert_eq!(road(&reader, without.addr(), &theirs), Some(RoadKind::Tls));
}

#[test]
fn an_address_that_travelled_as_text_leads_over_both_roads() {
    let (source, reader) = (transport(Some("lo")), transport(Some("lo")));
    let version = exposed(&source);
    let at: Address = source.addr().to_string().parse().unwrap();
    assert_eq!(at, source.addr());
    assert_eq!(road(&reader, at, &version), Some(RoadKind::Ucx));
}

#[test]
fn a_peer_that_answers_on_no_road_is_given_up_within_the_time_of_one() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = silent.local_addr().unwrap();
    let reader = transport(Some("lo"));
    let at: Address = format!("{dead}+rdma:{dead}").parse().unwrap();
    let began = Instant::now();
    reader.notify(at, b"x").unwrap_err();
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(400),
        "both were tried: {took:?}"
    );
    assert!(took < Duration::from_millis(900), "{took:?}");
}

/// Both are on Ethernet, and between their fabrics nothing goes: refused there, or silent.
#[test]
fn where_the_better_road_leads_nowhere_the_other_is_taken_and_messages_too() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = [silent.local_addr().unwrap(), refused.local_addr().unwrap()];
    drop(refused);
    for rdma in dead {
        let (source, reader) = (transport(None), transport(Some("lo")));
        let version = exposed(&source);
        let at: Address = format!("{}+rdma:{rdma}", source.addr()).parse().unwrap();
        assert_eq!(road(&reader, at, &version), Some(RoadKind::Tls), "{rdma}");
        reader.notify(at, b"after").unwrap();
        let told = source.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(told, b"after");
        // From then on nobody tries it again.
        let began = Instant::now();
        reader.disconnect(at);
        assert_eq!(road(&reader, at, &version), Some(RoadKind::Tls));
        assert!(began.elapsed() < Duration::from_millis(450));
        assert_eq!(reader.stats().errors, 0, "nothing failed for whoever asked");
    }
}

#[test]
fn a_device_that_is_not_there_leaves_the_other_road() {
    let (source, reader) = (transport(Some("mlx5_9:1")), transport(Some("lo")));
    assert_eq!(source.addr().rdma(), None);
    let version = exposed(&source);
    assert_eq!(road(&reader, source.addr(), &version), Some(RoadKind::Tls));
}

#[test]
fn where_no_road_leads_it_is_said_and_tried_again_by_the_next() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = nobody.local_addr().unwrap();
    drop(nobody);
    let (source, reader) = (transport(Some("lo")), transport(Some("lo")));
    let at: Address = format!("{dead}+rdma:{dead}").parse().unwrap();
    reader.notify(at, b"x").unwrap_err();
    reader.notify(at, b"x").unwrap_err();
    let version = exposed(&source);
    assert_eq!(road(&reader, source.addr(), &version), Some(RoadKind::Ucx));
}
