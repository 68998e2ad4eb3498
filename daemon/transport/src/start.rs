//! Which roads a transport has.

use std::net::SocketAddr;

use crate::address::Address;
use crate::config::{Config, Net};
use crate::error::TransportError;
use crate::local::LocalRoad;
use crate::road::{Road, Roads, Targets};
use crate::ucx::Worker;

/// Opens those that the settings ask for, the best one first. `number` names this transport on its own
/// machine.
pub(crate) fn open(config: &Config, number: u64) -> Result<(Roads, Address), TransportError> {
    let (targets, number) = (Targets::default(), number.max(1));
    let (mut all, mut net): (Vec<Box<dyn Road>>, _) = (Vec::new(), None);
    if let Some(folder) = &config.local {
        let local = LocalRoad::open(folder, number, targets.clone())?;
        all.push(Box::new(local));
    }
    if let Some(Net::Ucx) = config.net {
        let mut worker = Worker::new(&config.ucx_settings(), targets.clone())?;
        net = Some(worker.listen(SocketAddr::new(config.bind, 0))?);
        all.push(Box::new(worker));
    }
    let number = config.local.is_some().then_some(number);
    Ok((Roads::new(all, targets), Address::new(number, net)))
}
