//! Accelerators, behind a trait: what is read of them, and where from.
use robust_shared::hardware::Reading;

/// A device's figures and who uses it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceSample {
    /// The figures.
    pub reading: Reading,
    /// Processes that compute on it, by their ids as this machine knows them.
    pub pids: Vec<u32>,
}

/// A source of readings. Any call may block for ever; only the sampler's thread makes them.
pub trait Accelerators: Send {
    /// The devices' numbers.
    fn devices(&self) -> Vec<u32>;

    /// Reads one device.
    fn sample(&mut self, device: u32) -> DeviceSample;

    /// Xid errors since the last call, each with its device; none where that is not known.
    fn xids(&mut self) -> Vec<(Option<u32>, u32)>;
}

/// There is none.
#[derive(Clone, Copy, Debug)]
pub struct NoAccelerator;

impl Accelerators for NoAccelerator {
    fn devices(&self) -> Vec<u32> {
        Vec::new()
    }

    fn sample(&mut self, _device: u32) -> DeviceSample {
        DeviceSample::default()
    }

    fn xids(&mut self) -> Vec<(Option<u32>, u32)> {
        Vec::new()
    }
}
