//! A network namespace whose loopback carries so much and no more: weights take their time, as between
//! machines. Needs root.
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The namespace; removed with this value.
pub struct SlowLoopback {
    name: String,
}

fn run(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a program");
    let run = Command::new(program).args(words).output();
    run.is_ok_and(|out| out.status.success())
}

impl SlowLoopback {
    /// With so many megabits per second; none, with the reason printed, where that is not permitted.
    pub fn try_new(mbit: u32) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("rbsl{}x{made}", std::process::id());
        let net = Self { name };
        let name = &net.name;
        // A small MTU: packets as large as loopback's would not fit the bucket.
        let made = run(&format!("ip netns add {name}"))
            && run(&format!("ip -n {name} link set lo mtu 9000 up"))
            && run(&format!(
                "ip netns exec {name} tc qdisc add dev lo root \
                 tbf rate {mbit}mbit burst 128kb latency 200ms"
            ));
        if !made {
            eprintln!("skipped: no namespace with a slow loopback here (root, ip and tc needed)");
            return None;
        }
        Some(net)
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
        run(&format!("ip netns del {}", self.name));
    }
}
