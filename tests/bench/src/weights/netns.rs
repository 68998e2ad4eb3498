//! Machines in miniature: network namespaces around one bridge, with links of a chosen rate.
//!
//! Every namespace belongs to a `cat` that waits for its standard input to close. When this process
//! ends, however it ends, the `cat`s end, and the kernel takes namespaces and links away: nothing is
//! left to be cleaned up, and nothing outside of the namespaces is touched.

use std::process::{Child, Command, Stdio};

/// A bridge that hosts are joined to.
pub struct Net {
    bridge: Holder,
    hosts: u8,
}

/// A namespace with one link to the bridge.
pub struct Host {
    holder: Holder,
    /// Its address.
    pub ip: String,
    port: String,
}

struct Holder(Child);

impl Net {
    /// Makes the bridge; an error says what is missing: root, `unshare`, `ip`.
    pub fn new() -> Result<Self, String> {
        let bridge = Holder::new()?;
        bridge.run("ip link add hub type bridge")?;
        bridge.run("ip link set hub up")?;
        Ok(Net { bridge, hosts: 0 })
    }

    /// Joins a host; with a rate such as `1gbit` its link is no faster in either direction.
    pub fn host(&mut self, rate: Option<&str>) -> Result<Host, String> {
        self.hosts += 1;
        let (holder, number) = (Holder::new()?, self.hosts);
        let (port, ip) = (format!("port{number}"), format!("10.77.0.{number}"));
        let pid = holder.0.id();
        let bridge = &self.bridge;
        bridge.run(&format!(
            "ip link add {port} type veth peer name eth0 netns {pid}"
        ))?;
        bridge.run(&format!("ip link set {port} master hub up"))?;
        holder.run(&format!("ip addr add {ip}/24 dev eth0"))?;
        holder.run("ip link set eth0 up")?;
        if let Some(rate) = rate {
            // A longer queue would hold the acknowledgements of a relay behind what it sends.
            let shape = format!("root tbf rate {rate} burst 256kb latency 10ms");
            bridge.run(&format!("tc qdisc add dev {port} {shape}"))?;
            holder.run(&format!("tc qdisc add dev eth0 {shape}"))?;
        }
        Ok(Host { holder, ip, port })
    }

    /// Cuts a host off: no packet passes any more, and nobody is told.
    pub fn cut(&self, host: &Host) -> Result<(), String> {
        self.bridge
            .run(&format!("ip link set {} nomaster", host.port))
    }
}

impl Host {
    /// What to put before a command to run it there.
    pub fn wrap(&self) -> Vec<String> {
        let namespace = format!("--net=/proc/{}/ns/net", self.holder.0.id());
        vec!["nsenter".into(), namespace]
    }

    /// Lets its processes reach its own address. Before, they cannot mistake it for a fast link.
    pub fn reach_itself(&self) -> Result<(), String> {
        self.holder.run("ip link set lo up")
    }

    /// Bytes that its link received and sent, headers included.
    pub fn traffic(&self) -> Result<(u64, u64), String> {
        let path = format!("/proc/{}/net/dev", self.holder.0.id());
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("eth0:"));
        let numbers: Vec<u64> = line
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        match numbers[..] {
            [received, .., sent, _, _, _, _, _, _, _] => Ok((received, sent)),
            _ => Err(format!("{path} has no eth0")),
        }
    }
}

impl Holder {
    fn new() -> Result<Self, String> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo && exec cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("unshare: {e}"))?;
        // The line comes from within the namespace; without it there is none.
        let mut line = [0];
        let out = child.stdout.as_mut();
        let there = out.map(|out| std::io::Read::read_exact(out, &mut line));
        let holder = Holder(child);
        match there {
            Some(Ok(())) => Ok(holder),
            _ => Err("no network namespace can be made: not root".into()),
        }
    }

    /// Runs a command of plain words in the namespace.
    fn run(&self, words: &str) -> Result<(), String> {
        let namespace = format!("--net=/proc/{}/ns/net", self.0.id());
        let done = Command::new("nsenter")
            .arg(namespace)
            .args(words.split(' '))
            .output()
            .map_err(|e| format!("nsenter: {e}"))?;
        if done.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&done.stderr);
        Err(format!("`{words}`: {}", reason.trim()))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.stdin = None;
        let _ = self.0.wait();
    }
}
