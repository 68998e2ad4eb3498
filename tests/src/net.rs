//! Machines' network namespaces, each with two cables: one to the job's switch and one to etcd's. A cable can be cut, and
//! a machine can be made deaf to another one in one direction. Needs root.
use crate::programs::run;
use std::sync::atomic::{AtomicU32, Ordering};

/// Which of the two nets between the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wires {
    /// Where daemons and roles reach each other.
    Job,
    /// Where etcd is reached, and its members reach each other.
    Etcd,
}

impl Wires {
    const ALL: [Self; 2] = [Self::Job, Self::Etcd];

    /// The name of a machine's end, of the switch, and of the switch's end.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Job => ("eth0", "br0", "port"),
            Self::Etcd => ("eth1", "br1", "etcd"),
        }
    }

    fn subnet(self) -> &'static str {
        match self {
            Self::Job => "10.213.77",
            Self::Etcd => "10.213.78",
        }
    }

    /// Where a machine (from 0) is reached.
    pub fn address(self, side: usize) -> String {
        format!("{}.{}", self.subnet(), side + 1)
    }
}

/// The namespaces; removed with this value.
pub struct Net {
    /// The machines.
    machines: Vec<String>,
    /// Between them: cutting one's cable leaves the others' up.
    switch: String,
}

impl Net {
    /// Makes three of them; none, with the reason recorded, where that is not permitted.
    pub fn try_new() -> Option<Self> {
        Self::of(3)
    }

    /// Makes so many of them; none, with the reason recorded, where that is not permitted.
    pub fn of(machines: usize) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        robust_needs::program("ip")?;
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}x{made}", std::process::id());
        let named = |name: &str| format!("rbst{id}{name}");
        let net = Self {
            machines: (0..machines).map(|n| named(&format!("m{n}"))).collect(),
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
        for wires in Wires::ALL {
            let (_, bridge, _) = wires.names();
            run(&format!("ip -n {switch} link add {bridge} type bridge"))?;
            run(&format!("ip -n {switch} link set {bridge} up"))?;
            for side in 0..self.machines.len() {
                self.plug_in(side, wires)?;
            }
        }
        let up = |ns: &String| run(&format!("ip -n {ns} link set lo up"));
        self.machines.iter().try_for_each(up)
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.machines.iter().chain([&self.switch])
    }

    /// Connects a machine with a switch.
    fn plug_in(&self, side: usize, wires: Wires) -> Result<(), String> {
        let (ns, switch) = (&self.machines[side], &self.switch);
        let (end, bridge, port) = wires.names();
        let address = wires.address(side);
        run(&format!(
            "ip -n {switch} link add {port}{side} type veth peer name {end} netns {ns}"
        ))?;
        run(&format!(
            "ip -n {switch} link set {port}{side} master {bridge} up"
        ))?;
        run(&format!("ip -n {ns} addr add {address}/24 dev {end}"))?;
        run(&format!("ip -n {ns} link set {end} up"))
    }

    /// Where the daemon of a machine (from 0) is reached.
    pub fn address(side: usize) -> String {
        Wires::Job.address(side)
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
        self.cut_off(1, Wires::Job, is_cut);
    }

    /// Cuts a machine's cable, or mends it.
    pub fn cut_off(&self, side: usize, wires: Wires, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        let (_, _, port) = wires.names();
        run(&format!(
            "ip -n {} link set {port}{side} {state}",
            self.switch
        ))
        .unwrap();
    }

    /// Loses what one machine sends to another, and nothing of what it is sent, or does so no more.
    pub fn mute(&self, from: usize, to: usize, wires: Wires, is_mute: bool) {
        let ns = &self.machines[from];
        let what = if is_mute { "add" } else { "del" };
        let address = wires.address(to);
        run(&format!("ip -n {ns} route {what} blackhole {address}/32")).unwrap();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in self.names() {
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}
