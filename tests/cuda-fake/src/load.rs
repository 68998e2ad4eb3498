//! How a test gets at the library.
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};

use crate::knobs::{Count, Knob};

/// The loaded library. Its state is that of the process: one test a process (nextest), or tests
/// that take turns.
pub struct Fake {
    set: extern "C" fn(u32, u64),
    get: extern "C" fn(u32) -> u64,
}

impl Fake {
    /// Where cargo built it: beside the test.
    pub fn path() -> PathBuf {
        let test = std::env::current_exe().unwrap_or_default();
        let beside = test.with_file_name("libcuda_fake.so");
        match beside.exists() {
            true => beside,
            // A program's is one folder further up.
            false => test.with_file_name("deps").join("libcuda_fake.so"),
        }
    }

    /// Loads it, so that it is this process's CUDA driver from now on. None where it was not built.
    pub fn load() -> Option<Fake> {
        let path = CString::new(Self::path().to_str()?).ok()?;
        // SAFETY: a library of ours, without initialisers; never unloaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        let symbol = |name: &std::ffi::CStr| -> Option<*mut c_void> {
            // SAFETY: a library that stays loaded and a C string.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!library.is_null() && !symbol.is_null()).then_some(symbol)
        };
        let (set, get) = (symbol(c"cuda_fake_set")?, symbol(c"cuda_fake_get")?);
        // SAFETY: the symbols' types, see `knobs`.
        unsafe {
            Some(Fake {
                set: std::mem::transmute::<*mut c_void, extern "C" fn(u32, u64)>(set),
                get: std::mem::transmute::<*mut c_void, extern "C" fn(u32) -> u64>(get),
            })
        }
    }

    /// Puts a copy under the driver's name into a folder, for other processes' `LD_LIBRARY_PATH`.
    pub fn install(folder: &Path) -> std::io::Result<()> {
        std::fs::copy(Self::path(), folder.join("libcuda.so")).map(drop)
    }

    /// Sets a knob.
    pub fn set(&self, knob: Knob, value: u64) {
        (self.set)(knob as u32, value);
    }

    /// Reads a count.
    pub fn count(&self, count: Count) -> u64 {
        (self.get)(count as u32)
    }
}
