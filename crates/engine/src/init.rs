//! Initial values of parameters. They are functions of seed, parameter and element, so they are the same on every rank
//! and device.

use loaders::on_threads;
use loaders::random::Draws;
use net::{Init, ParamSpec};

/// Epoch number for the random draws of initial values. Draws for samples count epochs from 0, so they never use this
/// number.
const EPOCH: u32 = u32::MAX;

/// Number of elements that share one stream of random numbers. With this number, threads can fill a tensor in parallel,
/// and a stream needs fewer than 2^18 draws (see [`counter`](loaders::random::counter)) although [`truncated`] repeats
/// draws.
const RUN: usize = 1 << 14;

/// Returns the initial values of parameter number `index` in PyTorch's layout.
pub fn values(spec: &ParamSpec, index: usize, seed: u64) -> Vec<f32> {
    let receptive: usize = spec.shape.iter().skip(2).product();
    let fan_in = spec.shape.get(1).copied().unwrap_or(1) * receptive;
    let fan_out = spec.shape[0] * receptive;
    let uniform = |bound: f64| fill(spec, index, seed, move |d| (2.0 * f64::from(d.unit()) - 1.0) * bound);
    let normal = |sd: f64| fill(spec, index, seed, move |d| gauss(d) * sd);
    match spec.init {
        Init::Constant(v) => vec![v; spec.elems()],
        Init::TruncatedNormal(sd) => fill(spec, index, seed, move |d| truncated(d) * f64::from(sd)),
        Init::HeNormalFanIn => normal((2.0 / fan_in as f64).sqrt()),
        Init::HeNormalFanOut => normal((2.0 / fan_out as f64).sqrt()),
        Init::Xavier => uniform((3.0 / fan_in as f64).sqrt()),
        Init::UniformFanIn => uniform(1.0 / (fan_in as f64).sqrt()),
        Init::Dirac => dirac(spec, uniform(1.0 / (fan_in as f64).sqrt())),
        Init::Normal(sd) => normal(f64::from(sd)),
        Init::HeUniformFanIn => uniform((6.0 / fan_in as f64).sqrt()),
        Init::Uniform(bound) => uniform(f64::from(bound)),
        Init::SinCos(columns) => sines(spec, columns),
    }
}

/// Returns the vectors of [`Init::SinCos`].
fn sines(spec: &ParamSpec, columns: usize) -> Vec<f32> {
    let quarter = spec.shape[1] / 4;
    let frequency = |i: usize| 10_000f64.powf(-(i as f64) / (quarter.max(2) - 1) as f64);
    let value = |position: usize, channel: usize| {
        let (row, column) = ((position / columns) as f64, (position % columns) as f64);
        let (part, f) = (channel / quarter, frequency(channel % quarter));
        match part {
            0 => (f * column).sin(),
            1 => (f * column).cos(),
            2 => (f * row).sin(),
            _ => (f * row).cos(),
        }
    };
    let positions = 0..spec.shape[0];
    positions.flat_map(|position| (0..spec.shape[1]).map(move |channel| value(position, channel) as f32)).collect()
}

/// Makes filter `i` return input channel `i` unchanged. If there are more filters than channels, the others keep their
/// values.
fn dirac(spec: &ParamSpec, mut values: Vec<f32>) -> Vec<f32> {
    let &[out, channels, h, w] = spec.shape.as_slice() else { return values };
    for channel in 0..channels.min(out) {
        let filter = &mut values[channel * channels * h * w..][..channels * h * w];
        filter.fill(0.0);
        filter[(channel * h + h / 2) * w + w / 2] = 1.0;
    }
    values
}

/// Fills a tensor in parallel. Each chunk of [`RUN`] elements has its own random numbers, so the number of threads does
/// not change the values.
fn fill(spec: &ParamSpec, index: usize, seed: u64, draw: impl Fn(&mut Draws) -> f64 + Sync) -> Vec<f32> {
    let mut values = vec![0.0; spec.elems()];
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = threads.min(values.len().div_ceil(RUN));
    on_threads(threads, values.chunks_mut(RUN).enumerate(), |(run, values)| {
        let mut draws = Draws::new(seed, ((index as u64) << 32) | run as u64, EPOCH, 0);
        values.iter_mut().for_each(|v| *v = draw(&mut draws) as f32);
    });
    values
}

/// Draws from the standard normal distribution with the Box-Muller transform.
fn gauss(d: &mut Draws) -> f64 {
    let (a, b) = (1.0 - f64::from(d.unit()), f64::from(d.unit()));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// Draws from the standard normal distribution until the value is within two standard deviations.
fn truncated(d: &mut Draws) -> f64 {
    loop {
        let v = gauss(d);
        if v.abs() <= 2.0 {
            return v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(shape: &[usize], init: Init) -> ParamSpec {
        ParamSpec::new("weight", shape.to_vec(), init)
    }

    fn moments(v: &[f32]) -> (f64, f64) {
        let n = v.len() as f64;
        let mean = v.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        (mean, (v.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n).sqrt())
    }

    #[test]
    fn initial_weights_have_the_published_deviation() {
        let cases = [
            (Init::HeNormalFanIn, (2.0f64 / (64.0 * 9.0)).sqrt()),
            (Init::HeNormalFanOut, (2.0f64 / (128.0 * 9.0)).sqrt()),
            (Init::Xavier, (1.0f64 / (64.0 * 9.0)).sqrt()),
            (Init::UniformFanIn, (1.0f64 / (3.0 * 64.0 * 9.0)).sqrt()),
            (Init::Uniform(0.3), 0.3 / 3f64.sqrt()),
            (Init::Normal(0.01), 0.01),
            (Init::HeUniformFanIn, (2.0f64 / (64.0 * 9.0)).sqrt()),
            // a normal distribution that is truncated at two standard deviations keeps 0.87963 of its standard
            // deviation
            (Init::TruncatedNormal(0.05), 0.05 * 0.879_63),
        ];
        for (init, sd) in cases {
            let (mean, got) = moments(&values(&spec(&[128, 64, 3, 3], init), 3, 1));
            assert!(mean.abs() < 4.0 * sd / (73_728f64).sqrt(), "{init:?}: mean {mean}");
            assert!((got / sd - 1.0).abs() < 0.01, "{init:?}: expected a spread of {sd}, got {got}");
        }
    }

    #[test]
    fn dirac_filters_are_the_identity_for_the_first_channels() {
        let start = values(&spec(&[5, 3, 3, 3], Init::Dirac), 0, 1);
        for (filter, values) in start.chunks(27).enumerate() {
            let ones: Vec<usize> = (0..27).filter(|i| values[*i] == 1.0).collect();
            let zeros = values.iter().filter(|v| **v == 0.0).count();
            assert!(if filter < 3 { ones == [filter * 9 + 4] && zeros == 26 } else { zeros == 0 }, "filter {filter}");
        }
    }

    #[test]
    fn initial_values_depend_only_on_seed_and_parameter() {
        let s = spec(&[40, 30], Init::HeNormalFanIn);
        assert_eq!(values(&s, 0, 1), values(&s, 0, 1));
        assert_ne!(values(&s, 0, 1), values(&s, 1, 1));
        assert_ne!(values(&s, 0, 1), values(&s, 0, 2));
        assert_eq!(values(&spec(&[9], Init::Constant(0.5)), 0, 1), vec![0.5; 9]);
    }

    /// Compares with `posemb_sincos_2d(2, 3, 8)` of Big Vision: frequencies 1 and 1/10,000.
    #[test]
    fn sincos_positions_match_big_vision() {
        let values = values(&spec(&[6, 8], Init::SinCos(3)), 0, 1);
        assert_eq!(values[..8], [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
        // row 1, column 2
        let want = [
            2f32.sin(),
            2e-4f32.sin(),
            2f32.cos(),
            2e-4f32.cos(),
            1f32.sin(),
            1e-4f32.sin(),
            1f32.cos(),
            1e-4f32.cos(),
        ];
        assert!(values[40..].iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-6), "{:?}", &values[40..]);
    }
}
