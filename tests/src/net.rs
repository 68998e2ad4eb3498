//! Two machines' network namespaces on a switch, and a cable that can be cut. Needs root.
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The namespaces; removed with this value.
pub struct Net {
    /// The two machines and the switch between them: cutting one's cable leaves the other's up.
    names: [String; 3],
}

fn ip(args: &[&str]) -> bool {
    let run = Command::new("ip").args(args).output();
    run.is_ok_and(|out| out.status.success())
}

impl Net {
    /// Makes them; none, with the reason printed, where that is not permitted.
    pub fn try_new() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}x{made}", std::process::id());
        let net = Self {
            names: ["a", "b", "sw"].map(|name| format!("rbst{id}{name}")),
        };
        let switch = &net.names[2];
        let made = net.names.iter().all(|ns| ip(&["netns", "add", ns]))
            && ip(&["-n", switch, "link", "add", "br0", "type", "bridge"])
            && ip(&["-n", switch, "link", "set", "br0", "up"])
            && (0..2).all(|side| net.plug_in(side));
        if !made {
            eprintln!("skipped: network namespaces cannot be made here (root and iproute2 needed)");
            return None;
        }
        Some(net)
    }

    /// Connects a machine with the switch.
    fn plug_in(&self, side: usize) -> bool {
        let (ns, switch, port) = (&self.names[side], &self.names[2], format!("port{side}"));
        let address = format!("{}/24", Self::address(side));
        let pair = ["type", "veth", "peer", "name", "eth0", "netns", ns];
        let add = [&["-n", switch, "link", "add", &port][..], &pair].concat();
        ip(&add)
            && ip(&["-n", switch, "link", "set", &port, "master", "br0", "up"])
            && ip(&["-n", ns, "addr", "add", &address, "dev", "eth0"])
            && ip(&["-n", ns, "link", "set", "eth0", "up"])
            && ip(&["-n", ns, "link", "set", "lo", "up"])
    }

    fn address(side: usize) -> String {
        format!("10.213.77.{}", side + 1)
    }

    /// Where the first machine is reached.
    pub fn leader(&self) -> String {
        Self::address(0)
    }

    /// What starts a program on a machine (0 or 1).
    pub fn on(&self, side: usize) -> Vec<String> {
        let words = ["ip", "netns", "exec", &self.names[side]];
        words.map(str::to_owned).into()
    }

    /// Cuts the second machine's cable, or mends it.
    pub fn cut(&self, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        assert!(ip(&["-n", &self.names[2], "link", "set", "port1", state]));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}
