//! A digest of the program that runs, to compare ranks.

use std::io::{ErrorKind, Read};

use loaders::crc32c::crc32c_append;

/// Version, checksum and length of the program, as one line.
pub fn program() -> String {
    let what = match checksum("/proc/self/exe") {
        Ok((crc, bytes)) => format!("crc32c {crc:08x}, {bytes} bytes"),
        Err(error) => format!("unreadable: {error}"),
    };
    format!("trireme {}, {what}", env!("CARGO_PKG_VERSION"))
}

/// Checksum and length of a file, read in pieces that stay in the cache.
fn checksum(path: &str) -> std::io::Result<(u32, usize)> {
    let mut file = std::fs::File::open(path)?;
    let (mut piece, mut crc, mut bytes) = (vec![0; 1 << 18], 0, 0);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((crc, bytes)),
            Ok(n) => (crc, bytes) = (crc32c_append(crc, &piece[..n]), bytes + n),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
