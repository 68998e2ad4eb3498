//! What crosses the switch of a [`Net`], byte for byte.
use crate::Net;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Addresses and ports: from, to.
type Flow = ((Ipv4Addr, u16), (Ipv4Addr, u16));

/// Listens until it is asked what it heard.
pub struct Capture {
    ends: Arc<AtomicBool>,
    listening: JoinHandle<Heard>,
}

/// What was heard.
#[derive(Default)]
pub struct Heard {
    /// What TCP carried, each way of each connection for itself.
    tcp: BTreeMap<Flow, Vec<u8>>,
    /// What anything else carried, UDP among it.
    other: Vec<u8>,
}

impl Capture {
    /// On the switch from now on.
    pub fn start(net: &Net) -> Self {
        let switch = File::open(format!("/run/netns/{}", net.switch())).expect("its namespace");
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let listening = std::thread::spawn(move || {
            setns(switch, CloneFlags::CLONE_NEWNET).expect("the switch's namespace");
            let flags = SockFlag::SOCK_CLOEXEC;
            let kind = (AddressFamily::Packet, SockType::Raw);
            let socket = socket(kind.0, kind.1, flags, SockProtocol::EthAll).expect("a raw socket");
            setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 50_000)).unwrap();
            // No packet of a burst is to be missed; without the right to so much it is what there is.
            let _ = setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20));
            ready.send(()).expect("whoever starts it waits");
            let (mut heard, mut packet) = (Heard::default(), vec![0; 1 << 17]);
            while !ended.load(Ordering::Relaxed) {
                let Ok(length) = recv(socket.as_raw_fd(), &mut packet, MsgFlags::empty()) else {
                    continue;
                };
                heard.take(&packet[..length]);
            }
            heard
        });
        is_ready.recv().expect("it listens");
        Self { ends, listening }
    }

    /// What was heard until now.
    pub fn end(self) -> Heard {
        self.ends.store(true, Ordering::Relaxed);
        self.listening.join().expect("it listened")
    }
}

impl Heard {
    /// A frame of Ethernet.
    fn take(&mut self, frame: &[u8]) {
        match tcp(frame) {
            Some((flow, payload)) => {
                let known = self.tcp.entry(flow).or_default();
                // Each packet comes by one port of the switch and leaves by the other.
                if !known.ends_with(payload) {
                    known.extend_from_slice(payload);
                }
            }
            None => self.other.extend_from_slice(frame),
        }
    }

    /// How many bytes TCP carried.
    pub fn bytes(&self) -> usize {
        self.tcp.values().map(Vec::len).sum()
    }

    /// Where somewhere in what was carried these bytes are: the connection, in words.
    pub fn find(&self, wanted: &[u8]) -> Option<String> {
        let has = |all: &[u8]| all.windows(wanted.len()).any(|bytes| bytes == wanted);
        let mut tcp = self.tcp.iter().filter(|(_, all)| has(all));
        let found = tcp.next().map(|(flow, _)| format!("{flow:?}"));
        found.or_else(|| has(&self.other).then(|| "beside TCP".to_owned()))
    }

    /// How what went to this port begins, connection by connection.
    pub fn begins_to(&self, port: u16) -> Vec<&[u8]> {
        let to = self.tcp.iter().filter(|(flow, _)| flow.1.1 == port);
        to.map(|(_, all)| &all[..all.len().min(3)]).collect()
    }
}

/// The connection and what is carried, of a frame that carries something of TCP over IPv4.
fn tcp(frame: &[u8]) -> Option<(Flow, &[u8])> {
    let ip = frame.get(14..)?;
    if frame[12..14] != [8, 0] || *ip.get(9)? != 6 {
        return None;
    }
    let address = |at: usize| {
        let bytes: [u8; 4] = ip.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    };
    let total = usize::from(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?));
    let segment = ip.get(usize::from(ip[0] & 15) * 4..)?;
    let port = |at: usize| {
        Some(u16::from_be_bytes(
            segment.get(at..at + 2)?.try_into().ok()?,
        ))
    };
    let flow = ((address(12)?, port(0)?), (address(16)?, port(2)?));
    let head = usize::from(segment.get(12)? >> 4) * 4;
    // A frame may be padded; where the network card splits segments its length may be 0.
    let end = match total {
        0 => segment.len(),
        total => segment
            .len()
            .min(total.saturating_sub(usize::from(ip[0] & 15) * 4)),
    };
    Some((flow, segment.get(head..end)?)).filter(|(_, payload)| !payload.is_empty())
}
