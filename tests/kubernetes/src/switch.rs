//! The network of the pods: a namespace for each, with one cable to a switch in a namespace of its own. What pods need from
//! outside the cluster, as an object store, runs beside the switch.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::programs::run;

/// The switch's own address, and the first of those beside it.
const BESIDE: [u8; 3] = [10, 244, 0];
/// The pods have addresses above it.
const FIRST_POD: u32 = u32::from_be_bytes([10, 244, 1, 1]);

/// Removed with this value, with all that is plugged in.
#[derive(Debug)]
pub(crate) struct Switch {
    name: String,
    plugged: u32,
}

/// A pod's place in the network; removed with this value.
#[derive(Debug)]
pub(crate) struct Place {
    switch: String,
    /// The namespace.
    pub name: String,
    /// Its address there.
    pub address: Ipv4Addr,
    number: u32,
}

impl Switch {
    /// Makes one; none, with the reason recorded, where that is not permitted.
    pub fn make() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        robust_needs::program("ip")?;
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let switch = Self {
            name: format!("rbkube{}x{made}", std::process::id()),
            plugged: 0,
        };
        let refused = switch.try_make().map_err(|why| {
            let lacks = format!("network namespaces cannot be made ({why})");
            robust_needs::skip(lacks, robust_needs::ROOT);
        });
        refused.ok().map(|()| switch)
    }

    fn try_make(&self) -> Result<(), String> {
        let name = &self.name;
        run(&format!("ip netns add {name}"))?;
        run(&format!("ip -n {name} link set lo up"))?;
        // Without an address of its own it takes one of its ports', and another one when that is gone: who knows the
        // former one reaches nobody beside it for half a minute.
        let bridge = "br0 address 02:00:0a:f4:00:01";
        run(&format!("ip -n {name} link add {bridge} type bridge"))?;
        for last in 1..=9 {
            let address = Self::beside(last);
            run(&format!("ip -n {name} addr add {address}/16 dev br0"))?;
        }
        run(&format!("ip -n {name} link set br0 up"))
    }

    /// An address for a program that runs beside the switch, of nine.
    pub fn beside(last: u8) -> Ipv4Addr {
        let [a, b, c] = BESIDE;
        Ipv4Addr::new(a, b, c, last)
    }

    /// What starts a program there.
    pub fn on(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name]
            .map(str::to_owned)
            .into()
    }

    /// A place for a pod.
    pub fn plug_in(&mut self) -> Result<Place, String> {
        let number = self.plugged;
        self.plugged += 1;
        let place = Place {
            switch: self.name.clone(),
            name: format!("{}p{number}", self.name),
            address: Ipv4Addr::from(FIRST_POD + number),
            number,
        };
        let (switch, name, address) = (&self.name, &place.name, place.address);
        run(&format!("ip netns add {name}"))?;
        run(&format!(
            "ip -n {switch} link add pod{number} type veth peer name eth0 netns {name}"
        ))?;
        run(&format!(
            "ip -n {switch} link set pod{number} master br0 up"
        ))?;
        run(&format!("ip -n {name} link set lo up"))?;
        run(&format!("ip -n {name} addr add {address}/16 dev eth0"))?;
        run(&format!("ip -n {name} link set eth0 up"))?;
        Ok(place)
    }
}

impl Place {
    /// Pulls the cable: whoever speaks with it hears nothing more, as of a machine without power.
    pub fn pull(&self) {
        let _ = run(&format!(
            "ip -n {} link set pod{} down",
            self.switch, self.number
        ));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = run(&format!("ip netns del {}", self.name));
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = run(&format!("ip netns del {}", self.name));
    }
}
