//! A machine without a CUDA driver. Of its own process, for nothing here loads the fake one.
#![allow(clippy::panic)]

use robust_device::{DeviceError, SMALLEST, Staging};

#[test]
fn without_a_driver_there_is_one_clear_error_and_no_panic() {
    match Staging::open(0, SMALLEST) {
        Err(DeviceError::NoDriver { reason }) => {
            assert_eq!(reason, "its library, libcuda.so, cannot be loaded");
        }
        // A machine with a driver, whether or not it has a device.
        Err(DeviceError::Driver { .. }) | Ok(_) => {
            robust_needs::elsewhere("this machine has a CUDA driver", "machines without one");
        }
        Err(other) => panic!("{other}"),
    }
}
