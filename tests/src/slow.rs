//! A network namespace whose loopback carries so much and no more: weights take their time, as between
//! machines. Needs root.
use crate::programs::run;
use std::sync::atomic::{AtomicU32, Ordering};

/// The namespace; removed with this value.
pub struct SlowLoopback {
    name: String,
}

impl SlowLoopback {
    /// With so many megabits per second; none, with the reason recorded, where that is not permitted.
    pub fn try_new(mbit: u32) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        robust_needs::program("ip")?;
        robust_needs::program("tc")?;
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let net = Self {
            name: format!("rbsl{}x{made}", std::process::id()),
        };
        let made = net.make(mbit);
        let refused = made.map_err(|why| {
            let lacks = format!("no namespace with a slow loopback can be made ({why})");
            robust_needs::skip(lacks, robust_needs::ROOT);
        });
        refused.ok().map(|()| net)
    }

    fn make(&self, mbit: u32) -> Result<(), String> {
        let name = &self.name;
        run(&format!("ip netns add {name}"))?;
        // A small MTU: packets as large as loopback's would not fit the bucket.
        run(&format!("ip -n {name} link set lo mtu 9000 up"))?;
        run(&format!(
            "ip netns exec {name} tc qdisc add dev lo root \
             tbf rate {mbit}mbit burst 128kb latency 200ms"
        ))
    }

    /// What starts a program there.
    pub fn command(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name]
            .map(str::to_owned)
            .into()
    }
}

impl Drop for SlowLoopback {
    fn drop(&mut self) {
        let _ = run(&format!("ip netns del {}", self.name));
    }
}
