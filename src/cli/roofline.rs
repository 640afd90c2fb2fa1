//! The roofline of `trireme bench step` as JSON, and its forecast, which is marked as one on stderr, too.

use base::screen;
use serde_json::{Value, json};
use training::Error;
use training::bench::roofline::{BEST, Forecast, Layer, Roofline, WORST};

use super::exit::Failure;

/// What was measured.
pub(super) fn measured(roofline: &Roofline) -> Value {
    let machine = roofline.machine;
    let layer = |layer: &Layer| {
        json!({
            "layer": layer.name, "ms": 1e3 * layer.seconds, "gflop": layer.operations / 1e9, "mb": layer.bytes / 1e6,
            "regions": layer.regions, "of_roof": roofline.of_roof(layer), "bound": roofline.bound(layer),
        })
    };
    let layers: Vec<Value> = roofline.layers.iter().filter(|l| l.bytes > 0.0).map(layer).collect();
    json!({
        "gflops_per_thread": machine.peak / 1e9, "gb_per_s": machine.bandwidth / 1e9,
        "gb_per_s_one_thread": machine.bandwidth_one / 1e9, "of_roof": roofline.of_roof_together(),
        "outside_layers_ms": 1e3 * roofline.rest, "layers": layers,
    })
}

/// Refuses a forecast that cannot be made from so many threads, before anything is measured.
pub(super) fn check(cores: usize, threads: usize) -> Result<(), Failure> {
    if threads < 2 {
        return Err(one_thread(cores));
    }
    if cores <= threads {
        let why = format!("a forecast is for more cores than the {threads} threads that are measured");
        return Err(Error::Usage(format!("--cores {cores}: {why}")).into());
    }
    Ok(())
}

fn one_thread(cores: usize) -> Failure {
    let why = "a forecast needs the cost of a barrier, which one thread has none of; add --threads 2";
    Error::Usage(format!("--cores {cores}: {why}")).into()
}

/// What a step of this batch takes on more cores.
pub(super) fn forecast(
    roofline: &Roofline,
    cores: usize,
    bandwidth: Option<f64>,
    batch: usize,
) -> Result<Value, Failure> {
    let forecast = roofline.forecast(cores, bandwidth).ok_or_else(|| one_thread(cores))?;
    let Forecast { cores, bandwidth, barrier, step } = forecast;
    let ms = step.map(|seconds| 1e3 * seconds);
    let rates = [step[1], step[0]].map(|seconds| batch as f64 / seconds);
    screen::say(&format!(
        "forecast, not measured: {cores} cores, {:.2} to {:.2} ms a step ({:.0} to {:.0} images/s). At best, {BEST}. At worst, {WORST}.",
        ms[0], ms[1], rates[0], rates[1]
    ));
    Ok(json!({
        "forecast": true, "cores": cores, "step_ms": ms, "img_per_s": rates,
        "gb_per_s": bandwidth.map(|rate| rate / 1e9), "barrier_us": barrier.map(|seconds| 1e6 * seconds),
    }))
}
