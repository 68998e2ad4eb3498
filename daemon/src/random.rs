//! Numbers that nobody can foresee.
use std::fs::File;
use std::io::{self, Read};

/// Where they come from.
pub const SOURCE: &str = "/dev/urandom";

/// So many bytes of them.
pub fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    File::open(SOURCE)?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// So many bytes of them, two digits each.
pub fn hex<const COUNT: usize>() -> io::Result<String> {
    let bytes = bytes::<COUNT>()?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}
