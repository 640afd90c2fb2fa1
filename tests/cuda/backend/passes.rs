//! Whole passes on the GPU compared with the reference: loss, gradients and statistics, within the errors of f32 sums.

use super::*;
use support::gpu::assert_recorded;
use support::numerics::{IdenticalRanks, largest, shaken, with_tolerances};

/// Runs one pass and returns its loss and the gradients of all parameters.
fn train<B: Backend>(graph: &mut Graph<B>, batch: &Batch<'_>, loss: Loss) -> Vec<Vec<f32>> {
    let turn = MicroBatch { worker: 0, last: true };
    let sums = graph.train::<Error>(*batch, loss, turn, None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sums.count, batch.ids.len() as u64);
    let each = (0..graph.params().len()).map(|i| graph.gradient(i).unwrap());
    std::iter::once(vec![sums.loss as f32]).chain(each).collect()
}

/// Creates a graph on the reference backend. If `k` is set, random errors are added to the parameters. They are as large
/// as the rounding errors of a sum of `longest` products, and `k` selects the draw.
fn oracle(net: &NetSpec, rows: usize, longest: usize, k: Option<u64>) -> Graph<Reference> {
    let mut graph = Graph::new(Reference, net.clone(), rows, Purpose::Train { bucket_bytes: 4_000 }, 3).unwrap();
    for i in 0..graph.params().len() {
        let values = graph.param(i).unwrap();
        k.into_iter().for_each(|k| graph.set_param(i, &shaken(&values, longest, 100 * k + i as u64)).unwrap());
    }
    graph
}

/// Returns the expected results of [`train`] with their tolerances. `longest` is the length of the longest sum in a pass.
fn expected(net: &NetSpec, images: &[f32], batch: &Batch<'_>, loss: Loss, longest: usize) -> Vec<(Vec<f64>, f64)> {
    with_tolerances(|k| {
        let images = k.map_or(images.to_vec(), |k| shaken(images, longest, 100 * k + 99));
        let batch = Batch { images: Input::Values(&images), ..*batch };
        let results = train(&mut oracle(net, batch.ids.len(), longest, k), &batch, loss);
        results.into_iter().map(|values| values.into_iter().map(f64::from).collect()).collect()
    })
}

#[track_caller]
fn assert_expected(what: &str, got: &[Vec<f32>], expected: &[(Vec<f64>, f64)]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, (want, tolerance))) in got.iter().zip(expected).enumerate() {
        let part = if i == 0 { "loss".to_string() } else { format!("gradient {}", i - 1) };
        assert!(*tolerance < 1e-2 * magnitude(want), "{what}, {part}: tolerance {tolerance:e} is too large");
        assert_close(&format!("{what}, {part}"), got, want, *tolerance);
    }
}

/// Creates a network of smooth functions, so that no rounding error changes which branch a gradient takes.
fn smooth(input: Shape) -> NetSpec {
    let mut net = NetSpec::new("smooth", input);
    let x = net.add("conv1", Op::Conv(Conv::new(16, 5).pad(2).bias(0.1)), net.image());
    let x = net.add("tanh", Activation::Tanh, x);
    let x = net.add("pool1", Op::Pool(Pool::new(PoolKind::Avg, 3, 2)), x);
    let x = net.add("lrn", Op::Lrn(Lrn { radius: 2, k: 1.0, alpha: 0.2, beta: 0.75 }), x);
    let x = net.add("conv2", Op::Conv(Conv::new(24, 3).pad(1).bias(0.1)), x);
    let x = net.add("silu", Activation::Silu, x);
    let x = net.add("dropout", Op::from(Dropout(0.3)), x);
    let x = net.add("pool2", Op::Pool(Pool::global()), x);
    net.add("fc", Op::Linear(Linear::new(10)), x);
    net
}

#[test]
fn enqueued_recorded_and_replayed_passes_give_the_same_bits() {
    let _alone = alone();
    let input = Shape::image(3, 32, 32);
    let rows = 4;
    let (images, ids) = (noise(rows * input.elems(), 7, 1.0), [3, 1, 4, 15]);
    let batch = Batch { images: Input::Values(&images), labels: &[1, 0, 7, 2], ids: &ids, epoch: 2 };
    let device = cuda(Precision::F32);
    let net = smooth(input);
    let loss = Loss { smoothing: 0.1, scale: 1.0 / rows as f32 };
    let mut graph = Graph::new(device, net.clone(), rows, Purpose::Train { bucket_bytes: 4_000 }, 3).unwrap();
    let got: Vec<_> = (0..4).map(|_| train(&mut graph, &batch, loss)).collect();
    assert_recorded(graph.backend());
    // the longest sum is the weight gradient of the first convolution: one product per pixel
    let want = expected(&net, &images, &batch, loss, rows * input.plane());
    for (pass, each) in got.iter().enumerate() {
        each.iter().zip(&got[0]).for_each(|(values, first)| assert_eq!(bits(values), bits(first), "pass {pass}"));
        assert_expected(&format!("pass {pass}"), each, &want);
    }
}

#[test]
fn what_changes_between_replayed_passes_reaches_them() {
    let _alone = alone();
    let input = Shape::image(1, 28, 28);
    let device = cuda(Precision::F32);
    let mut net = NetSpec::new("small", input);
    let x = net.add("p", Op::Pool(Pool::new(PoolKind::Avg, 4, 4)), net.image());
    let x = net.add("d", Dropout(0.5), x);
    net.add("fc", Op::Linear(Linear::new(10)), x);
    let mut graph = Graph::new(device, net.clone(), 2, Purpose::Train { bucket_bytes: 1 << 20 }, 3).unwrap();
    let mut oracle = oracle(&net, 2, 1, None);
    for step in 0..6u32 {
        let images = noise(2 * input.elems(), u64::from(step), 1.0);
        let (labels, ids) = ([step, 9 - step], [u64::from(step), 1 << 40]);
        let batch = Batch { images: Input::Values(&images), labels: &labels, ids: &ids, epoch: step };
        let (loss, turn) =
            (Loss { smoothing: 0.0, scale: 0.5 / (step + 1) as f32 }, MicroBatch { worker: 0, last: true });
        // the longest sums are in the linear layer, over 7 x 7 averages
        let want = expected(&net, &images, &batch, loss, 49);
        assert_expected(&format!("step {step}"), &train(&mut graph, &batch, loss), &want);
        let got = graph.train::<Error>(batch, loss, turn, None).unwrap();
        let want = oracle.train::<Error>(batch, loss, turn, None).unwrap();
        assert_eq!((got.top1, got.top5), (want.top1, want.top5), "step {step}");
    }
    assert_recorded(graph.backend());
}

#[test]
fn statistics_over_all_ranks_reach_the_kernels() {
    let _alone = alone();
    let input = Shape::image(3, 6, 5);
    let mut net = NetSpec::new("norms", input);
    let x = net.add("c", Op::Conv(Conv::new(8, 3).pad(1)), net.image());
    let short = net.add("n1", Op::Norm(Norm::new().relu()), x);
    let x = net.add("c2", Op::Conv(Conv::new(8, 3).pad(1)), short);
    let x = net.join("n2", Op::Norm(Norm::new().residual().relu()), &[x, short]);
    let x = net.add("p", Op::Pool(Pool::global()), x);
    net.add("fc", Op::Linear(Linear::new(4)), x);
    // returns the loss, the gradients, then the pooled statistics of each layer
    fn run<B: Backend>(mut graph: Graph<B>, images: &[f32]) -> Vec<Vec<f64>> {
        graph.normalise_across(Box::new(IdenticalRanks(2.0))).unwrap();
        let batch = Batch { images: Input::Values(images), labels: &[1, 2], ids: &[0, 1], epoch: 0 };
        let results = train(&mut graph, &batch, Loss { smoothing: 0.0, scale: 0.25 });
        let mut pooled = vec![0.0; 32];
        graph.pool_statistics(&mut pooled, &mut [0.0; 2]);
        let results = results.into_iter().map(|values| values.into_iter().map(f64::from).collect());
        results.chain(pooled.chunks(8).map(<[f64]>::to_vec)).collect()
    }
    let images = noise(2 * input.elems(), 9, 1.0);
    let device = cuda(Precision::F32);
    let graph = Graph::new(device, net.clone(), 2, Purpose::Train { bucket_bytes: 1 << 20 }, 3).unwrap();
    let got = run(graph, &images);
    // the longest sums are in the second convolution, over 3 x 3 x 8 products
    let want = with_tolerances(|k| {
        let images = k.map_or(images.clone(), |k| shaken(&images, 72, 100 * k + 99));
        run(oracle(&net, 2, 72, k), &images)
    });
    for (i, (got, (want, tolerance))) in got.iter().zip(&want).enumerate() {
        assert!(*tolerance < 1e-2 * magnitude(want), "result {i}: tolerance {tolerance:e} is too large");
        let furthest = largest(got.iter().zip(want).map(|(got, want)| got - want));
        assert!(furthest <= *tolerance, "result {i}: expected {want:?}, got {got:?}, tolerance {tolerance:e}");
    }
}
