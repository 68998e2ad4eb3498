//! The symbols that `nvml-wrapper` calls for what robustd reads. Others are absent, which the
//! wrapper reports as it does for an old driver.
#![allow(non_upper_case_globals)] // the bindings' constants, in patterns too

mod device;
mod events;
mod gpm;
mod links;

use crate::scenario::{Figures, Scenario};
use nvml_wrapper_sys::bindings::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_char, c_uint};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) const GPU_LOST: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST;
pub(crate) const INSUFFICIENT_SIZE: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;
pub(crate) const INVALID_ARGUMENT: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
pub(crate) const NOT_SUPPORTED: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
pub(crate) const TIMEOUT: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_TIMEOUT;
pub(crate) const SUCCESS: nvmlReturn_t = nvmlReturn_enum_NVML_SUCCESS;

/// What the library knows while it is loaded.
pub(crate) struct Play {
    scenario: Scenario,
    /// Handles asked for each device: its rounds, counted from 1.
    rounds: BTreeMap<u32, u64>,
    /// Devices that were lost once stay lost while the figures say so.
    lost: BTreeMap<u32, u64>,
    /// Strikes that were shown, of those in the file.
    struck: BTreeSet<usize>,
    pub(crate) events: events::Events,
}

static PLAY: OnceLock<Mutex<Play>> = OnceLock::new();

/// The play; none before `nvmlInit_v2` found its scenario.
pub(crate) fn play() -> Option<MutexGuard<'static, Play>> {
    let play = PLAY.get()?;
    Some(play.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Play {
    fn round(&self, device: u32) -> u64 {
        let asked = self.rounds.get(&device).copied().unwrap_or_default();
        asked.saturating_sub(1)
    }

    /// A round of this device begins: what struck it since the last one is shown from now on.
    fn strike(&mut self, device: u32) {
        let strikes = Scenario::strikes(&crate::scenario_path());
        for (number, strike) in strikes.iter().enumerate() {
            let is_for = self.scenario.struck(strike, |d| self.round(d));
            if is_for == device && self.struck.insert(number) {
                let round = self.round(device);
                self.scenario.strike(device, round, strike);
            }
        }
    }

    fn figures(&self, device: u32) -> Figures {
        self.scenario.figures(device, self.round(device))
    }
}

/// A device's handle is its number, one up: never null.
pub(crate) fn handle(device: u32) -> nvmlDevice_t {
    (device as usize + 1) as nvmlDevice_t
}

pub(crate) fn number(handle: nvmlDevice_t) -> Option<u32> {
    u32::try_from((handle as usize).checked_sub(1)?).ok()
}

/// What the device shows to this call, unless it is lost or the call hangs.
pub(crate) fn shown(device: nvmlDevice_t, call: &str) -> Result<Figures, nvmlReturn_t> {
    let device = number(device).ok_or(INVALID_ARGUMENT)?;
    let figures = {
        let mut play = play().ok_or(nvmlReturn_enum_NVML_ERROR_UNINITIALIZED)?;
        if device >= play.scenario.count() {
            return Err(INVALID_ARGUMENT);
        }
        let figures = play.figures(device);
        if figures
            .lost_at
            .as_ref()
            .is_some_and(|at| call.contains(at.as_str()))
        {
            let round = play.round(device);
            play.lost.insert(device, round);
        }
        if play.lost.contains_key(&device) {
            return Err(GPU_LOST);
        }
        figures
    };
    if figures
        .hangs_at
        .as_ref()
        .is_some_and(|at| call.contains(at.as_str()))
    {
        loop {
            std::thread::park();
        }
    }
    Ok(figures)
}

/// Answers a call with one value.
pub(crate) fn answer<T>(
    device: nvmlDevice_t,
    call: &str,
    out: *mut T,
    value: impl FnOnce(&Figures) -> Option<T>,
) -> nvmlReturn_t {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    match shown(device, call).map(|figures| value(&figures)) {
        Ok(Some(value)) => {
            // SAFETY: not null, and the caller's to write by NVML's contract.
            unsafe { out.write(value) };
            SUCCESS
        }
        Ok(None) => NOT_SUPPORTED,
        Err(error) => error,
    }
}

/// Begins the play.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    if PLAY.get().is_some() {
        return SUCCESS;
    }
    match Scenario::read(&crate::scenario_path()) {
        Ok(scenario) => {
            let play = Play {
                scenario,
                rounds: BTreeMap::new(),
                lost: BTreeMap::new(),
                struck: BTreeSet::new(),
                events: events::Events::default(),
            };
            let _ = PLAY.set(Mutex::new(play));
            SUCCESS
        }
        Err(error) => {
            eprintln!("nvml-fake: {error}");
            nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED
        }
    }
}

/// Ends nothing: the play goes on for who else uses it.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    SUCCESS
}

/// The scenario's driver.
///
/// # Safety
/// As NVML documents: `version` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(
    version: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    let Some(text) = play().and_then(|p| CString::new(p.scenario.driver.clone()).ok()) else {
        return nvmlReturn_enum_NVML_ERROR_UNINITIALIZED;
    };
    let bytes = text.as_bytes_with_nul();
    if bytes.len() > length as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: it fits.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), version, bytes.len()) };
    SUCCESS
}
