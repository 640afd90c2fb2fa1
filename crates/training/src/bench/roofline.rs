//! Compares each layer with the peak rates of the cores and their memory, and forecasts the time of a step on more
//! cores.
//!
//! Operations: 2 per multiply-add in the layer's definition. Forward counts once and backward twice, except that
//! backward of the first layer counts once because its input needs no gradient. Bytes: each tensor that a pass must
//! read or write counts once. Forward has x, weights and y. Backward has x, weights, dy, dx and dw. Caches may save
//! some of this traffic, so a layer can reach more than 1.0 of its roof. A layer that reads a tensor twice has more
//! traffic than counted.

use std::fmt::Write;
use std::time::Duration;

use backend::{Backend, Cores, Error, Regions};
use base::text::plural;
use engine::{Graph, NodeCost};
use net::Node;

/// Measured peak rates of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    pub threads: usize,
    /// Operations per second and thread while all threads compute.
    pub peak: f64,
    /// Bytes per second if only a single thread runs.
    pub bandwidth_one: f64,
    /// Bytes per second of all threads together.
    pub bandwidth: f64,
    /// Seconds of an empty parallel region.
    pub barrier: f64,
}

/// Work and time of a layer, forward and backward, for a whole batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub name: String,
    /// Multiplications and additions.
    pub operations: f64,
    /// Bytes read and written, counted as described at the top of this file. 0 if the layer took no time, for example
    /// because it runs as part of another layer.
    pub bytes: f64,
    pub seconds: f64,
    pub regions: f64,
}

/// A measured step and the machine that ran it.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    pub machine: Machine,
    /// The network's layers in forward order.
    pub layers: Vec<Layer>,
    /// Seconds of the step outside the layers, such as batch copy, loss, gradient sums and optimizer.
    pub rest: f64,
    /// Parallel regions outside the layers.
    pub rest_regions: f64,
}

/// A step predicted for another number of cores on one socket. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Number of cores, with a compute thread each.
    pub cores: usize,
    /// Assumed memory bandwidth in bytes per second: best case, worst case.
    pub bandwidth: [f64; 2],
    /// Assumed time of an empty parallel region: best case, worst case.
    pub barrier: [f64; 2],
    /// Time of a step: best case, worst case.
    pub step: [f64; 2],
}

/// Assumptions of the best case.
pub const BEST: &str = "each layer reaches the measured fraction of its roof, memory without --bandwidth scales with the cores, the time \
                        of a barrier grows with log2 of the cores, everything else is divided among the cores";
/// Assumptions of the worst case.
pub const WORST: &str = "the same fractions, memory without --bandwidth is as fast as measured, the time of a barrier grows with the \
                         number of cores, everything else takes as long as measured";

impl Machine {
    /// Measures the peak rates. This takes seconds.
    pub fn measure(cores: &dyn Cores) -> Result<Self, Error> {
        let threads = cores.threads();
        let bandwidth_one = cores.bandwidth(1)?;
        let bandwidth = if threads == 1 { bandwidth_one } else { cores.bandwidth(threads)? };
        let peak = cores.peak() / threads as f64;
        Ok(Self { threads, peak, bandwidth_one, bandwidth, barrier: cores.barrier() })
    }

    /// Returns the shortest possible time for a layer on `cores` cores with this bandwidth.
    fn roof(&self, layer: &Layer, cores: usize, bandwidth: f64) -> f64 {
        self.compute(layer, cores).max(layer.bytes / bandwidth)
    }

    fn compute(&self, layer: &Layer, cores: usize) -> f64 {
        layer.operations / (self.peak * cores as f64)
    }
}

/// Returns the work and times of all layers per step. `costs` is the profile of `steps` steps with `batch` images each.
pub fn layers<B: Backend>(graph: &Graph<B>, costs: &[NodeCost], batch: usize, steps: usize) -> Vec<Layer> {
    let (net, shapes, steps) = (graph.net(), graph.shapes(), steps as f64);
    let layer = |(index, (cost, node)): (usize, (&NodeCost, &Node))| {
        let bytes = |tensor: usize| batch * shapes[tensor].elems() * graph.bytes_each(tensor);
        let inputs: usize = node.inputs.iter().map(|id| bytes(id.0)).sum();
        let output = bytes(index + 1);
        let weights: usize = 4 * node.op.params(shapes[node.inputs[0].0]).iter().map(|p| p.elems()).sum::<usize>();
        let first = node.inputs.iter().all(|id| id.0 == 0);
        let (forward, back) =
            (inputs + weights + output, inputs + 2 * weights + output + if first { 0 } else { inputs });
        let macs = batch as f64 * node.op.macs(shapes[node.inputs[0].0]) as f64;
        let seconds: f64 = cost.time.iter().map(|time: &Duration| time.as_secs_f64()).sum();
        Layer {
            name: node.name.clone(),
            operations: 2.0 * macs * if first { 2.0 } else { 3.0 },
            bytes: if seconds > 0.0 { (forward + back) as f64 } else { 0.0 },
            seconds: seconds / steps,
            regions: cost.regions.all() as f64 / steps,
        }
    };
    costs.iter().zip(&net.nodes).enumerate().map(layer).collect()
}

impl Roofline {
    /// Creates a roofline from the time and the parallel regions of a whole step.
    pub fn new(machine: Machine, layers: Vec<Layer>, step: f64, regions: Regions) -> Self {
        let (seconds, own) = layers.iter().fold((0.0, 0.0), |(s, r), layer| (s + layer.seconds, r + layer.regions));
        let (rest, rest_regions) = ((step - seconds).max(0.0), (regions.all() as f64 - own).max(0.0));
        Self { machine, layers, rest, rest_regions }
    }

    /// Formats a table of the layers that took time, with their rates and limits, and a line with the machine's rates.
    pub fn table(&self) -> String {
        let Machine { threads, peak, bandwidth, .. } = self.machine;
        let mut text = format!(
            "{:<20} {:>9} {:>9} {:>9} {:>9} {:>8}  {}\n",
            "layer", "ms", "GFLOP/s", "GB/s", "FLOP/byte", "of roof", "bound"
        );
        for layer in self.layers.iter().filter(|layer| layer.bytes > 0.0) {
            let _ = writeln!(
                text,
                "{:<20} {:>9.3} {:>9.1} {:>9.1} {:>9.1} {:>8.2}  {}",
                layer.name,
                1e3 * layer.seconds,
                layer.operations / layer.seconds / 1e9,
                layer.bytes / layer.seconds / 1e9,
                layer.operations / layer.bytes,
                self.of_roof(layer),
                self.bound(layer)
            );
        }
        let _ = writeln!(
            text,
            "{}: {:.1} GFLOP/s each, {:.1} GB/s together, {:.1} GB/s on a single thread; outside the layers {:.3} ms",
            plural(threads, "thread"),
            peak / 1e9,
            bandwidth / 1e9,
            self.machine.bandwidth_one / 1e9,
            1e3 * self.rest
        );
        text
    }

    /// Returns the fraction of its roof that a layer reaches. The roof is the highest rate that the cores and the
    /// memory allow for it.
    pub fn of_roof(&self, layer: &Layer) -> f64 {
        self.machine.roof(layer, self.machine.threads, self.machine.bandwidth) / layer.seconds
    }

    /// Returns the resource that limits a layer at its roof: `compute` or `memory`.
    pub fn bound(&self, layer: &Layer) -> &'static str {
        let memory = layer.bytes / self.machine.bandwidth;
        if self.machine.compute(layer, self.machine.threads) > memory { "compute" } else { "memory" }
    }

    /// Returns the fraction of the roof that all layers together reach.
    pub fn of_roof_together(&self) -> f64 {
        let Machine { threads, bandwidth, .. } = self.machine;
        let roof: f64 = self.layers.iter().map(|layer| self.machine.roof(layer, threads, bandwidth)).sum();
        roof / self.layers.iter().map(|layer| layer.seconds).sum::<f64>()
    }

    /// Forecasts the best and the worst step time on `cores` cores. `bandwidth` is the known rate of their memory in
    /// bytes per second. Returns `None` if only one thread was measured, because barriers need at least two.
    pub fn forecast(&self, cores: usize, bandwidth: Option<f64>) -> Option<Forecast> {
        let machine = self.machine;
        let threads = machine.threads as f64;
        if machine.threads < 2 {
            return None;
        }
        let (growth, more) = ((cores as f64).log2() / threads.log2(), cores as f64 / threads);
        let linear = (cores as f64 - 1.0) / (threads - 1.0);
        let memory = [bandwidth.unwrap_or(machine.bandwidth * more), bandwidth.unwrap_or(machine.bandwidth)];
        let barrier = [growth, linear].map(|factor| machine.barrier * factor);
        let rest = (self.rest - self.rest_regions * machine.barrier).max(0.0);
        let regions = self.rest_regions + self.layers.iter().map(|layer| layer.regions).sum::<f64>();
        let ends = [0, 1].map(|end| {
            let layers: f64 = self.layers.iter().map(|layer| self.layer_on(layer, cores, memory[end])).sum();
            let shared = if end == 0 { more } else { 1.0 };
            layers + rest / shared + regions * barrier[end]
        });
        Some(Forecast { cores, bandwidth: memory, barrier, step: [ends[0].min(ends[1]), ends[0].max(ends[1])] })
    }

    /// Returns the seconds for a layer without its barriers, assuming that it reaches the same fraction of its roof as
    /// in the measurement.
    fn layer_on(&self, layer: &Layer, cores: usize, bandwidth: f64) -> f64 {
        let here = self.machine.roof(layer, self.machine.threads, self.machine.bandwidth);
        if here == 0.0 {
            return 0.0;
        }
        let work = (layer.seconds - layer.regions * self.machine.barrier).max(0.0);
        work * self.machine.roof(layer, cores, bandwidth) / here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { threads: 2, peak: 100e9, bandwidth_one: 15e9, bandwidth: 20e9, barrier: 1e-6 };

    fn layer(operations: f64, bytes: f64, seconds: f64) -> Layer {
        Layer { name: "conv".into(), operations, bytes, seconds, regions: 10.0 }
    }

    fn roofline() -> Roofline {
        // without barriers, each layer needs 2 ms, twice the minimum: 1 ms of compute for the first layer, 1 ms of
        // memory traffic for the second one
        let layers = vec![layer(200e6, 2e6, 2.01e-3), layer(20e6, 20e6, 2.01e-3)];
        let all = Regions { own: 20, library: 5 };
        Roofline::new(MACHINE, layers, 4.02e-3 + 0.5e-3 + 5e-6, all)
    }

    #[test]
    fn layers_are_bound_by_what_takes_longer() {
        let roofline = roofline();
        let [compute, memory] = [0, 1].map(|i| &roofline.layers[i]);
        assert_eq!([compute, memory].map(|layer| roofline.bound(layer)), ["compute", "memory"]);
        assert!([compute, memory].iter().all(|layer| (roofline.of_roof(layer) - 1.0 / 2.01).abs() < 1e-9));
        assert!((roofline.of_roof_together() - 1.0 / 2.01).abs() < 1e-9);
        let table = roofline.table();
        assert!(
            table.contains("compute\n") && table.contains("memory\n") && table.contains("100.0 GFLOP/s each"),
            "{table}"
        );
    }

    #[test]
    fn more_cores_share_what_they_can() {
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} for {b}");
        let known = roofline().forecast(64, Some(80e9)).unwrap();
        // 2 ms of compute / 32, 2 ms of memory traffic / 4, and 25 barriers
        let layers = 2e-3 / 32.0 + 2e-3 / 4.0;
        near(known.step[0], layers + 0.5e-3 / 32.0 + 25.0 * 6e-6);
        near(known.step[1], layers + 0.5e-3 + 25.0 * 63e-6);
        assert_eq!(known.bandwidth, [80e9; 2]);
        // in the worst case, memory limits the first layer too
        let unknown = roofline().forecast(64, None).unwrap();
        near(unknown.step[0], 4e-3 / 32.0 + 0.5e-3 / 32.0 + 25.0 * 6e-6);
        near(unknown.step[1], 2e-3 / 10.0 + 2e-3 + 0.5e-3 + 25.0 * 63e-6);
        // with the same number of cores, the forecast equals the measurement
        let same = roofline().forecast(2, None).unwrap();
        let measured = roofline().layers.iter().map(|layer| layer.seconds).sum::<f64>() + roofline().rest;
        same.step.iter().for_each(|step| near(*step, measured));
        let one = Roofline { machine: Machine { threads: 1, ..MACHINE }, ..roofline() };
        assert_eq!(one.forecast(64, None), None);
    }
}
