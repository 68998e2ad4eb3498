//! Three machines' network namespaces on a switch, and a cable that can be cut. Needs root.
use crate::programs::run;
use std::sync::atomic::{AtomicU32, Ordering};

/// The namespaces; removed with this value.
pub struct Net {
    /// The machines.
    machines: [String; 3],
    /// Between them: cutting one's cable leaves the others' up.
    switch: String,
}

impl Net {
    /// Makes them; none, with the reason recorded, where that is not permitted.
    pub fn try_new() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        robust_needs::program("ip")?;
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}x{made}", std::process::id());
        let named = |name: &str| format!("rbst{id}{name}");
        let net = Self {
            machines: ["a", "b", "c"].map(named),
            switch: named("sw"),
        };
        let refused = net.make().map_err(|why| {
            let lacks = format!("network namespaces cannot be made ({why})");
            robust_needs::skip(lacks, robust_needs::ROOT);
        });
        refused.ok().map(|()| net)
    }

    fn make(&self) -> Result<(), String> {
        for name in self.names() {
            run(&format!("ip netns add {name}"))?;
        }
        let switch = &self.switch;
        run(&format!("ip -n {switch} link add br0 type bridge"))?;
        run(&format!("ip -n {switch} link set br0 up"))?;
        (0..self.machines.len()).try_for_each(|side| self.plug_in(side))
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.machines.iter().chain([&self.switch])
    }

    /// Connects a machine with the switch.
    fn plug_in(&self, side: usize) -> Result<(), String> {
        let (ns, switch) = (&self.machines[side], &self.switch);
        let address = Self::address(side);
        run(&format!(
            "ip -n {switch} link add port{side} type veth peer name eth0 netns {ns}"
        ))?;
        run(&format!("ip -n {switch} link set port{side} master br0 up"))?;
        run(&format!("ip -n {ns} addr add {address}/24 dev eth0"))?;
        run(&format!("ip -n {ns} link set eth0 up"))?;
        run(&format!("ip -n {ns} link set lo up"))
    }

    /// Where a machine (from 0) is reached.
    pub fn address(side: usize) -> String {
        format!("10.213.77.{}", side + 1)
    }

    /// The namespace that all between them passes through.
    pub fn switch(&self) -> &str {
        &self.switch
    }

    /// Where the first machine is reached.
    pub fn leader(&self) -> String {
        Self::address(0)
    }

    /// What starts a program on a machine (from 0).
    pub fn on(&self, side: usize) -> Vec<String> {
        let words = ["ip", "netns", "exec", &self.machines[side]];
        words.map(str::to_owned).into()
    }

    /// Cuts the second machine's cable, or mends it.
    pub fn cut(&self, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        run(&format!("ip -n {} link set port1 {state}", self.switch)).unwrap();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in self.names() {
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}
