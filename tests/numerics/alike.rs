//! Results that must be the same on every backend although a formula alone does not determine them: which of equal
//! maxima gets the gradient, pooled statistics, random draws, and functions of very large or infinite values.

use backend::Backend;
use backend::reference::Reference;
use net::{Activation, DropPath, Dropout, Norm, Op, Pool, PoolKind, Shape};

use support::numerics::{Case, noise, on_every_backend};

fn check_ties<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    let case = Case {
        x: vec![vec![1.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]],
        dy: Some(vec![3.0, 5.0]),
        ..Case::random(Op::Pool(Pool::new(PoolKind::Max, 2, 2)), 2, Shape::image(1, 2, 2), 1)
    };
    for &block in blocks {
        let out = case.run(backend, block, false);
        assert_eq!(out.y, [2.0, 0.0], "{name}");
        assert_eq!(out.dx[0], [0.0, 3.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0], "{name} in blocks of {block}");
    }
}

#[test]
fn the_first_of_equal_maxima_gets_the_gradient() {
    on_every_backend!(check_ties());
}

fn check_statistics<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    // d is the mean minus the running mean, M2 the sum of squared deviations. Channel 0 has the values 1 and 3 and the
    // running mean 0.5: d = 1.5, M2 = 2. Channel 1 has 10 and 10 and the running mean 10: d = 0, M2 = 0.
    let case = Case {
        x: vec![vec![1.0, 10.0, 3.0, 10.0]],
        running: vec![0.5, 10.0, 1.0, 1.0],
        ..Case::random(Op::Norm(Norm::new()), 2, Shape::image(2, 1, 1), 1)
    };
    for &block in blocks {
        let (sums, count) = case.run(backend, block, false).statistics;
        assert_eq!(count, 2, "{name}");
        assert_eq!(sums, [3.0, 0.0, 2.0 + 2.0 * 2.25, 0.0], "{name} in blocks of {block}");
    }
}

#[test]
fn pooled_statistics_match_the_formula() {
    on_every_backend!(check_statistics());
}

/// Draws: seed, epoch, first sample id and op index.
type Draws = (u64, u32, u64, u16);

/// Applies an operation with random draws to `n` samples of ones. The result shows which elements it keeps.
fn on_ones<B: Backend>(backend: &B, block: usize, draws: Draws, op: Op, (n, shape): (usize, Shape)) -> Vec<f32> {
    let ones = vec![1.0; n * shape.elems()];
    let case = Case { x: vec![ones.clone()], dy: Some(ones), draws, ..Case::random(op, n, shape, 1) };
    let out = case.run(backend, block, false);
    assert_eq!(out.y, out.dx[0], "forward and backward must keep the same elements");
    out.y
}

/// Returns dropout's factors for four samples.
fn mask<B: Backend>(backend: &B, block: usize, draws: Draws) -> Vec<f32> {
    on_ones(backend, block, draws, Op::from(Dropout(0.3)), (4, Shape::image(20, 16, 16)))
}

/// Returns the factor that DropPath applies to each of eight samples.
fn drop_path_factors<B: Backend>(backend: &B, block: usize, draws: Draws) -> Vec<f32> {
    let shape = Shape::image(5, 3, 2);
    let factors = on_ones(backend, block, draws, Op::from(DropPath(0.5)), (8, shape));
    let samples = factors.chunks(shape.elems());
    assert!(samples.clone().all(|sample| sample.iter().all(|v| *v == sample[0])), "part of a sample was dropped");
    samples.map(|sample| sample[0]).collect()
}

fn check_drop_path<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    let want = drop_path_factors(&Reference, 1, (9, 2, 1_000, 5));
    assert!(want.contains(&0.0) && want.contains(&2.0), "{want:?}");
    for &block in blocks {
        assert_eq!(drop_path_factors(backend, block, (9, 2, 1_000, 5)), want, "{name} in blocks of {block}");
    }
    // the draw depends on the sample, not on its position in the batch
    assert_eq!(drop_path_factors(backend, blocks[0], (9, 2, 1_003, 5))[..5], want[3..], "{name}");
    for other in [(10, 2, 1_000, 5), (9, 3, 1_000, 5), (9, 2, 2_000, 5), (9, 2, 1_000, 6)] {
        assert_ne!(drop_path_factors(backend, blocks[0], other), want, "{name} with {other:?}");
    }
    let case = Case { training: false, dy: None, ..Case::random(Op::from(DropPath(0.5)), 2, Shape::vector(12), 1) };
    assert_eq!(case.run(backend, 1, false).y, case.x[0], "{name}: evaluation must not drop anything");
}

#[test]
fn drop_path_depends_only_on_the_sample() {
    on_every_backend!(check_drop_path());
}

fn check_dropout<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    let want = mask(&Reference, 1, (9, 2, 1_000, 5));
    for &block in blocks {
        assert_eq!(mask(backend, block, (9, 2, 1_000, 5)), want, "{name} in blocks of {block}");
    }
    // a mask depends on seed, epoch, sample and operation, not on the sample's position in the batch
    for other in [(10, 2, 1_000, 5), (9, 3, 1_000, 5), (9, 2, 2_000, 5), (9, 2, 1_000, 6)] {
        assert_ne!(mask(backend, blocks[0], other), want, "{name} with {other:?}");
    }
    let shifted = mask(backend, blocks[0], (9, 2, 1_001, 5));
    let sample = want.len() / 4;
    assert_eq!(shifted[..3 * sample], want[sample..], "{name}: sample 1001");
    // more than 2^18 elements per sample: the mask does not repeat
    let (op, large) = (Op::from(Dropout(0.3)), (1, Shape::image(20, 120, 120)));
    let got = on_ones(backend, blocks[0], (9, 2, 1_000, 5), op.clone(), large);
    let want = on_ones(&Reference, 1, (9, 2, 1_000, 5), op, large);
    assert!(got == want, "{name}: the mask of a large sample differs from the reference");
    assert_ne!(got[1 << 18..][..1000], got[..1000], "{name}: the mask repeats after 2^18 elements");
    let x = vec![noise(2 * 12, 3, 1.0)];
    let evaluation =
        Case { x, training: false, dy: None, ..Case::random(Op::from(Dropout(0.3)), 2, Shape::vector(12), 1) };
    assert_eq!(evaluation.run(backend, 1, false).y, evaluation.x[0], "{name}: evaluation must not drop anything");
}

#[test]
fn dropout_agrees_on_every_backend_and_drops_its_share() {
    on_every_backend!(check_dropout());
    let mask = mask(&Reference, 1, (9, 2, 1_000, 5));
    let kept = mask.iter().filter(|v| **v > 0.0).count() as f64 / mask.len() as f64;
    let deviation = (0.3 * 0.7 / mask.len() as f64).sqrt();
    assert!((kept - 0.7).abs() < 4.0 * deviation, "expected a share of 0.7, kept {kept}");
    assert!(mask.iter().all(|v| *v == 0.0 || *v == 1.0 / (1.0 - 0.3f32)), "kept elements must be scaled");
}

/// Tests functions at values beyond the range of exponentials. Slopes are compared only at finite values, because some
/// are 0 times infinity at infinite values.
fn check_far<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    let far = [90.0, 104.0, 1e4, 1e13, 1e30, f32::MAX, f32::INFINITY];
    let x: Vec<f32> = far.iter().flat_map(|&x| [x, -x]).chain([f32::NAN, 0.5]).collect();
    for function in Activation::ALL {
        let random = Case::random(Op::Activation(function), 1, Shape::vector(x.len()), 1);
        let case = Case { dy: Some(vec![1.0; x.len()]), x: vec![x.clone()], ..random };
        let want = case.run(&Reference, 1, false);
        for &block in blocks {
            let got = case.run(backend, block, false);
            for (i, &x) in x.iter().enumerate() {
                let is_like = |got: f32, want: f32| {
                    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= 1e-6 * want.abs() + 1e-36
                };
                let near = |got: &[f32], want: &[f32]| is_like(got[i], want[i]);
                assert!(near(&got.y, &want.y), "{name}: {function:?} of {x}: got {}, expected {}", got.y[i], want.y[i]);
                let (slope, expected) = (&got.dx[0], &want.dx[0]);
                let alike = !x.is_finite() || near(slope, expected);
                assert!(alike, "{name}: slope of {function:?} at {x}: got {}, expected {}", slope[i], expected[i]);
            }
        }
    }
}

#[test]
fn functions_of_huge_and_infinite_values_equal_the_references() {
    on_every_backend!(check_far());
}
