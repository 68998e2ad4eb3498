//! The machine's figures, and what processes do to disks.
use super::super::processes::Watched;
use super::super::*;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

#[test]
fn the_machine_tells_its_memory_load_and_the_state_directorys_disk() {
    let dir = tempfile::tempdir().unwrap();
    let host = HostSample::take(dir.path()).unwrap();
    assert!(host.memory_total_bytes >= host.memory_available_bytes);
    assert!(host.memory_available_bytes > 0 && host.disk_total_bytes > 0);
    assert!(host.disk_free_bytes <= host.disk_total_bytes);
    assert!(host.load_1m >= 0.0);
    let sampler = HostSampler::start(dir.path().to_owned()).unwrap();
    assert!(sampler.read().is_some());
    assert!(HostSample::take(&dir.path().join("gone")).is_err());
}

#[test]
fn bytes_a_process_writes_are_counted() {
    let before = Watched::new(std::process::id())
        .look()
        .unwrap()
        .disk_write_bytes;
    // Beside the test's program, as temporary folders may be kept in memory.
    let here = std::env::current_exe().unwrap();
    let mut file = tempfile::NamedTempFile::new_in(here.parent().unwrap()).unwrap();
    let direct = std::fs::OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DSYNC)
        .open(file.path())
        .unwrap();
    (&direct).write_all(&[7; 1 << 20]).unwrap();
    file.flush().unwrap();
    let after = Watched::new(std::process::id())
        .look()
        .unwrap()
        .disk_write_bytes;
    assert!(after >= before + (1 << 20), "{before} {after}");
}
