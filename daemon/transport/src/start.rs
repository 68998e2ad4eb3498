//! Which roads a transport has.

use std::net::SocketAddr;

use crate::address::Address;
use crate::config::{Config, Net, Rdma};
use crate::error::TransportError;
use crate::local::LocalRoad;
use crate::road::{Road, Roads, Targets};
use crate::tls::TlsRoad;
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
    let at = SocketAddr::new(config.bind, 0);
    let rdma = config.rdma.as_ref().and_then(|rdma| {
        let opened = over_rdma(rdma, at, targets.clone());
        let failed = |error: &TransportError| {
            tracing::warn!(%error, rdma.devices, "there is RDMA, and it cannot be used");
        };
        opened.inspect_err(failed).ok()
    });
    let (road, rdma) = rdma.unzip();
    all.extend(road);
    match &config.net {
        Some(Net::Tls(identity)) => {
            let identity = (identity.clone(), config.connect_timeout);
            let (road, address) = TlsRoad::open(identity, at, targets.clone())?;
            net = Some(address);
            all.push(Box::new(road));
        }
        Some(Net::Ucx) => {
            let mut worker = Worker::new(&config.ucx_settings(), targets.clone())?;
            net = Some(worker.listen(at)?);
            all.push(Box::new(worker));
        }
        None => {}
    }
    let number = config.local.is_some().then_some(number);
    let address = Address::new(number, net).with_rdma(rdma);
    Ok((Roads::new(all, targets), address))
}

/// UCX beside another road.
fn over_rdma(
    rdma: &Rdma,
    at: SocketAddr,
    targets: Targets,
) -> Result<(Box<dyn Road>, SocketAddr), TransportError> {
    let mut worker = Worker::new(&rdma.ucx_settings(), targets)?.beside();
    let address = worker.listen(at)?;
    Ok((Box::new(worker), address))
}
