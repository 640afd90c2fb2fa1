//! A digest of all that training has made, to compare runs bit for bit: it depends on no memory layout and no file format.

use std::io::{ErrorKind, Read};

use crc32c::crc32c_append;

use crate::backend::Backend;
use crate::error::Error;
use crate::train::plan::prepare::Run;

/// CRC-32C of the parameters, of the running statistics and of the optimizer's values and averages, each with the names of its
/// tensors and in plain layout.
pub fn state<B: Backend>(run: &Run<B>) -> Result<String, Error> {
    let graph = &run.graph;
    let (mut parameters, mut optimizer) = (0, 0);
    for (index, p) in graph.params().iter().enumerate() {
        parameters = extend(parameters, &p.name, &graph.param(index)?);
        let averages = run.ema.iter().map(|ema| ("ema", &ema.weights));
        for (slot, arena) in run.optimizer.slots().chain(averages) {
            let mut plain = vec![0.0; p.spec.elems()];
            arena.unpack(&p.format, p.slot, &mut plain)?;
            optimizer = extend(extend(optimizer, slot, &[]), &p.name, &plain);
        }
    }
    let statistics = extend(0, "running", graph.running());
    Ok(format!("{parameters:08x}-{statistics:08x}-{optimizer:08x}"))
}

fn extend(crc: u32, name: &str, values: &[f32]) -> u32 {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    crc32c_append(crc32c_append(crc, name.as_bytes()), &bytes)
}

/// The program that runs, as a line to compare between ranks.
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
