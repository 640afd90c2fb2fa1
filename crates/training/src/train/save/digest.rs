//! A digest of all that training has computed, to compare runs bit for bit: it depends on no memory layout and no file format.

use backend::Backend;
use loaders::crc32c::crc32c_append;

use crate::error::Error;
use crate::train::plan::run::Run;

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
