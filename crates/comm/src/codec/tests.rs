//! Tests every codec with a single rank. `tests/comm.rs` of this crate and `tests/runs/laws.rs` test them on real ranks.

use super::packed::head_room;
use super::*;

const SEED: u64 = 20;

fn tensor(name: &str, parameter: u16, start: usize, elems: usize, exempt: bool) -> Tensor {
    Tensor { name: name.into(), parameter, range: start..start + elems, elems, exempt }
}

fn one_tensor(elems: usize) -> Bucket {
    Bucket { len: elems, tensors: vec![tensor("conv.weight", 3, 0, elems, false)] }
}

fn settings(workers: usize) -> Settings {
    Settings { workers, clip: 2.5, error_feedback: false }
}

/// Returns numbers in [-1, 1) that are equal in every run.
fn noise(len: usize, salt: u64) -> Vec<f32> {
    let mut draws = loaders::Draws::new(SEED, salt, 0, 1);
    (0..len).map(|_| 2.0 * draws.unit() - 1.0).collect()
}

/// Returns the codec's sum over all workers on one rank.
fn sum_with(entry: &Entry, bucket: &Bucket, settings: &Settings, workers: &[Vec<f32>], step: u64) -> Vec<f32> {
    let mut codec = (entry.make)(bucket, settings, 0..workers.len());
    step_of(codec.as_mut(), bucket, workers, step)
}

fn step_of(codec: &mut dyn Codec, bucket: &Bucket, workers: &[Vec<f32>], step: u64) -> Vec<f32> {
    step_in_order(codec, bucket, workers.iter().cloned().enumerate().collect(), step)
}

/// Returns the codec's sum for shares in this order. Each has the index of its worker.
fn step_in_order(codec: &mut dyn Codec, bucket: &Bucket, mut workers: Vec<(usize, Vec<f32>)>, step: u64) -> Vec<f32> {
    let mut shares: Vec<_> = workers.iter_mut().map(|(worker, g)| Share { worker: *worker, gradients: g }).collect();
    let mut scales = Vec::new();
    codec.scales(bucket, &mut shares, &mut scales);
    codec.encode(bucket, &scales, &mut shares, Key { seed: SEED, step });
    let last = shares.last_mut().expect("a worker");
    codec.decode(bucket, &scales, last.gradients);
    last.gradients.to_vec()
}

fn plain_sum(workers: &[Vec<f32>]) -> Vec<f64> {
    (0..workers[0].len()).map(|i| workers.iter().map(|w| f64::from(w[i])).sum()).collect()
}

/// `exact` has an error of at most half a step per worker. A step is 2^-(30 - h) times the power of two above the
/// largest gradient.
#[test]
fn exact_has_an_error_of_at_most_half_a_step_per_worker() {
    for v in [1, 2, 3, 8, 64] {
        let workers: Vec<_> = (0..v).map(|w| noise(1_000, w as u64)).collect();
        let sum = sum_with(&exact::ENTRY, &one_tensor(1_000), &settings(v), &workers, 0);
        let bound = v as f64 * 0.5 * 2f64.powi(head_room(v) as i32 - 30);
        for (got, want) in sum.iter().zip(plain_sum(&workers)) {
            let rounded = f64::from(want.abs() as f32) * f64::from(f32::EPSILON);
            assert!((f64::from(*got) - want).abs() <= bound + rounded, "V = {v}: {got} for {want}");
        }
    }
}

/// All V workers have the largest gradient. This sum is the closest to an overflow.
#[test]
fn sums_of_the_largest_gradients_do_not_overflow() {
    for entry in [&exact::ENTRY, &int8::ENTRY, &ternary::ENTRY] {
        for v in [1, 2, 3, 5, 8, 17, 256] {
            for sign in [1.0, -1.0] {
                for x in [f32::MAX / 512.0, 1.999_999_9, 1.0, f32::MIN_POSITIVE] {
                    let workers = vec![vec![sign * x; 40]; v];
                    let sum = sum_with(entry, &one_tensor(40), &settings(v), &workers, 1);
                    let want = f64::from(sign * x) * v as f64;
                    assert!(
                        sum.iter().all(|s| (f64::from(*s) / want - 1.0).abs() < 1e-6),
                        "{}, {v}, {want:e}",
                        entry.name
                    );
                }
            }
        }
    }
}

#[test]
fn codecs_handle_zeros_denormals_and_single_elements() {
    let tiny = f32::from_bits(3);
    for entry in CATALOGUE.iter().filter(|entry| entry.integer) {
        let bucket = Bucket {
            len: 48,
            tensors: vec![
                tensor("zero", 0, 0, 9, false),
                tensor("denormal", 1, 16, 2, false),
                tensor("single", 2, 32, 1, false),
            ],
        };
        let mut worker = vec![0.0; 48];
        worker[16..18].copy_from_slice(&[tiny, -tiny]);
        worker[32] = -0.3;
        let sum = sum_with(entry, &bucket, &Settings { clip: 0.0, ..settings(2) }, &[worker.clone(), worker], 0);
        let name = entry.name;
        assert!(sum[..9].iter().all(|x| *x == 0.0), "{name}: {sum:?}");
        assert_eq!(sum[16..18], [2.0 * tiny, -2.0 * tiny], "{name}");
        assert!((sum[32] + 0.6).abs() < 1e-6, "{name}: {}", sum[32]);
    }
    // Sigma of one element is zero, and clipping to zero would lose the gradient.
    let sum = sum_with(&ternary::ENTRY, &one_tensor(1), &settings(2), &[vec![0.25], vec![0.25]], 0);
    assert_eq!(sum, [0.5]);
}

/// The mean of 10^6 random codes is within 3 standard errors of the gradient. The seed is fixed.
#[test]
fn stochastic_rounding_is_unbiased() {
    let values = [0.0f32, 0.001, -0.1, 0.25, -0.333, 0.5, 0.9, -1.0];
    let draws = 1_000_000 / values.len() * values.len();
    for (code, steps) in [(ternary::code as fn(&[f32], &mut [u32], f32), 1.0), (int8::code, 127.0)] {
        for (number, value) in values.iter().enumerate() {
            let gradients = vec![*value; draws];
            let mut words = vec![0; draws];
            philox::Stream::new(Key { seed: SEED, step: 5 }, 1, number as u16).fill(0, &mut words);
            code(&gradients, &mut words, 1.0);
            let decoded = |word: &u32| f64::from(*word as i32 - steps as i32) / steps;
            let mean = words.iter().map(decoded).sum::<f64>() / draws as f64;
            let size = f64::from(value.abs()) * steps;
            let deviation = ((size - size.floor()) * (size.floor() + 1.0 - size)).sqrt() / steps;
            let error = (mean - f64::from(*value)).abs();
            assert!(error <= 3.0 * deviation / (draws as f64).sqrt() + 1e-12, "{value} at {steps}: mean {mean}");
        }
    }
}

#[test]
fn values_beyond_the_scale_are_clipped() {
    let mut words = vec![u32::MAX, u32::MAX, 0, u32::MAX];
    ternary::code(&[0.5, -7.0, 0.0, 0.499], &mut words, 0.5);
    assert_eq!(words, [2, 0, 1, 1]);
    let mut values = noise(2_000, 4);
    values[17] = 40.0;
    let sigma = {
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / 2e3;
        (values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / 2e3).sqrt()
    };
    let sum = sum_with(&ternary::ENTRY, &one_tensor(2_000), &settings(1), &[values.clone()], 0);
    assert!((f64::from(sum[17]) / (2.5 * sigma) - 1.0).abs() < 1e-6, "{} for sigma {sigma}", sum[17]);
    assert!(sum.iter().all(|x| *x == 0.0 || x.abs() == sum[17]));
    let unclipped = sum_with(&ternary::ENTRY, &one_tensor(2_000), &Settings { clip: 0.0, ..settings(1) }, &[values], 0);
    assert_eq!(unclipped[17], 40.0);
}

/// Sigma's sums have the order defined by [`Moments`](base::code_spec::Moments), with any instruction set.
#[test]
fn moments_are_summed_in_the_documented_order() {
    for len in [1, 15, 31, 32, 33, 63, 64, 65, 200] {
        let mut values = noise(len, len as u64);
        values[0] = 1e20;
        let (mut sums, mut squares) = ([0f64; 32], [0f64; 32]);
        for (i, g) in values.iter().enumerate() {
            sums[i % 32] += f64::from(*g);
            squares[i % 32] += f64::from(*g) * f64::from(*g);
        }
        for half in [16, 8, 4, 2, 1] {
            (0..half).for_each(|l| (sums[l], squares[l]) = (sums[l] + sums[l + half], squares[l] + squares[l + half]));
        }
        let got = ternary::moments(&values);
        assert_eq!((got.largest, got.sum, got.squares), (1e20f32.to_bits(), sums[0], squares[0]), "{len} elements");
    }
}

/// The standard deviation covers the elements, not the padding after them.
#[test]
fn ternary_scale_ignores_padding() {
    let values = noise(100, 9);
    let padded = [values.clone(), vec![0.0; 28]].concat();
    let bare = tensor("w", 0, 0, 100, false);
    let wide = Tensor { range: 0..128, ..bare.clone() };
    assert_eq!(ternary::scale(&bare, &values, 2.5, 64), ternary::scale(&wide, &padded, 2.5, 64));
}

#[test]
fn sums_do_not_depend_on_the_order_of_workers() {
    let workers: Vec<_> = (0..5).map(|w| noise(3_000, 100 + w)).collect();
    let bucket = Bucket { len: 3_000, tensors: vec![tensor("a", 0, 0, 64, true), tensor("b", 1, 64, 2_936, false)] };
    for entry in CATALOGUE.iter().filter(|entry| entry.integer) {
        let whole = sum_with(entry, &bucket, &settings(5), &workers, 9);
        let mut codec = (entry.make)(&bucket, &settings(5), 0..5);
        let turned = step_in_order(codec.as_mut(), &bucket, workers.iter().cloned().enumerate().rev().collect(), 9);
        assert_eq!(whole, turned, "{}", entry.name);
        let near = whole.iter().zip(plain_sum(&workers)).filter(|(a, b)| (f64::from(**a) - b).abs() < 5.0).count();
        assert_eq!(near, 3_000, "{}", entry.name);
        assert!(whole[..64].iter().zip(plain_sum(&workers)).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-6));
    }
}

#[test]
fn random_rounding_differs_between_steps_and_workers() {
    let value = vec![noise(500, 1)];
    let at = |step| sum_with(&ternary::ENTRY, &one_tensor(500), &settings(1), &value, step);
    assert_ne!(at(1), at(2));
    assert_eq!(at(1), at(1));
    let twice = [value[0].clone(), value[0].clone()];
    let sum = sum_with(&ternary::ENTRY, &one_tensor(500), &settings(2), &twice, 1);
    let scale = sum.iter().fold(0f32, |most, x| most.max(x.abs())) / 2.0;
    assert!(sum.iter().any(|x| x.abs() == scale), "two workers never drew differently");
}

/// The sent gradients of all steps plus the final residual equal the input.
#[test]
fn sent_gradients_plus_residual_equal_the_input() {
    let mut gradient = noise(256, 3);
    gradient[5] = 30.0;
    for (entry, bound) in [(&bf16::ENTRY, 1e-5), (&ternary::ENTRY, 1e-4)] {
        let bucket = one_tensor(256);
        let mut codec = (entry.make)(&bucket, &Settings { error_feedback: true, ..settings(1) }, 4..5);
        assert!(codec.residual(3).is_none() && codec.residual(5).is_none());
        let (mut sent, steps) = (0.0, 50);
        for step in 0..steps {
            sent += f64::from(step_of(codec.as_mut(), &bucket, std::slice::from_ref(&gradient), step)[5]);
        }
        let left = f64::from(codec.residual(4).expect("worker 4 is here")[5]);
        let put = 30.0 * steps as f64;
        assert!((sent + left - put).abs() <= bound * put, "{}: {sent} and {left} of {put}", entry.name);
    }
    assert!((exact::ENTRY.make)(&one_tensor(4), &settings(1), 0..1).residual(0).is_none());
}

/// A worker's residual is the same whether one rank has two workers or two ranks have one each.
#[test]
fn residuals_do_not_depend_on_the_rank_of_a_worker() {
    let bucket = one_tensor(64);
    let fed = Settings { error_feedback: true, ..settings(1) };
    let workers = [noise(64, 1), noise(64, 2)];
    let mut both = (bf16::ENTRY.make)(&bucket, &fed, 0..2);
    step_of(both.as_mut(), &bucket, &workers, 0);
    for (worker, gradients) in workers.iter().enumerate() {
        let mut alone = (bf16::ENTRY.make)(&bucket, &fed, worker..worker + 1);
        step_of(alone.as_mut(), &bucket, std::slice::from_ref(gradients), 0);
        assert_eq!(alone.residual(worker), both.residual(worker));
    }
}

#[test]
fn names_match_the_catalogue() {
    assert_eq!(NAMES, ["float", "exact", "int8", "bf16", "ternary"]);
    assert!(NAMES.iter().all(|name| find(name).is_some_and(|entry| entry.name == *name)) && find("float16").is_none());
    assert_eq!([1, 2, 3, 4, 5, 8, 9, 64].map(head_room), [0, 1, 2, 2, 3, 3, 4, 6]);
}
