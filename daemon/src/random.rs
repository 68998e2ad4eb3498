//! Numbers that nobody can foresee.
use std::fs::File;
use std::io::{self, Read};

/// So many bytes of them.
pub fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
