//! A digest of all that training has made, to compare runs bit for bit: it depends on no memory layout and no file format.

use crc32c::{crc32c, crc32c_append};

use super::Error;
use super::prepare::Run;
use crate::backend::Backend;

/// CRC-32C of the parameters, of the running statistics and of the optimizer's values and averages, each with the names of its tensors and in
/// plain layout.
pub fn state<B: Backend>(run: &Run<B>) -> Result<String, Error> {
    let (graph, backend) = (&run.graph, run.graph.backend());
    let (mut parameters, mut optimizer) = (0, 0);
    for (index, p) in graph.params().iter().enumerate() {
        parameters = extend(parameters, &p.name, &graph.param(index)?);
        let averages = run.ema.iter().map(|ema| ("ema", &ema.weights));
        for (slot, arena) in run.optimizer.slots().chain(averages) {
            let mut plain = vec![0.0; p.spec.elems()];
            backend.unpack(&p.format, arena, p.slot, &mut plain)?;
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
    let read = std::fs::read("/proc/self/exe");
    let what =
        read.map_or_else(|e| format!("unreadable: {e}"), |b| format!("crc32c {:08x}, {} bytes", crc32c(&b), b.len()));
    format!("trireme {}, {what}", env!("CARGO_PKG_VERSION"))
}
