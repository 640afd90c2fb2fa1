//! Graphs that accept images of more than one size. Each size gives the results of its own graph on every backend, and
//! the sizes do not affect each other.

use backend::cpu::Cpu;
use backend::cuda::Precision;
use backend::reference::Reference;
use backend::{Backend, Error, Input};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use net::{Conv, Flatten, Linear, NetSpec, Norm, Op, Pool, PoolKind, Shape};

use crate::training::gradients;
use support::numerics::{assert_close, cpu, cuda, magnitude, noise};

const ROWS: usize = 5;
const CLASSES: usize = 4;
const FULL: Shape = Shape::image(3, 16, 14);
/// The image sizes of a graph. With the smallest, the last convolution sees 2 x 2 pixels.
const SIZES: [Shape; 3] = [Shape::image(3, 12, 10), FULL, Shape::image(3, 8, 7)];

/// Returns a network of convolutions with different fast implementations, with and without groups, a norm, a pool, and a
/// global pool at the end.
fn net(input: Shape) -> NetSpec {
    let mut net = NetSpec::new("sizes", input);
    let x = net.add("c1", Op::Conv(Conv::new(32, 3).pad(1).bias(0.0).relu()), net.image());
    let x = net.add("c2", Op::Conv(Conv::new(32, 3).pad(1)), x);
    let x = net.add("n2", Norm::new().relu(), x);
    let x = net.add("p2", Op::Pool(Pool::new(PoolKind::Max, 2, 2)), x);
    let x = net.add("c3", Op::Conv(Conv::new(48, 3).pad(1).groups(4)), x);
    let x = net.add("c4", Op::Conv(Conv::new(32, 3).pad(1).stride(2)), x);
    let x = net.add("n4", Norm::new().relu(), x);
    let x = net.add("c5", Op::Conv(Conv::new(32, 3).pad(1).bias(0.0).relu()), x);
    let x = net.add("mean", Pool::global(), x);
    net.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    net
}

/// Returns a network with a dilated kernel over channels that do not fill a block. For large images its weights are spread among zeros.
fn gaps(input: Shape) -> NetSpec {
    let mut net = NetSpec::new("gaps", input);
    let x = net.add("c1", Op::Conv(Conv::new(17, 3).pad(1).bias(0.0).relu()), net.image());
    let x = net.add("c2", Op::Conv(Conv::new(17, 3).pad(2).dilation(2).bias(0.0).relu()), x);
    let x = net.add("c3", Op::Conv(Conv::new(1, 3).pad(2).dilation(2)), x);
    let x = net.add("mean", Pool::global(), x);
    net.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    net
}

/// Returns a network with padding too wide for the kernel, combined with dilation, groups, ReLU and a pool that computes ReLU's gradient.
fn wide(input: Shape) -> NetSpec {
    let mut net = NetSpec::new("wide", input);
    let x = net.add("c1", Op::Conv(Conv::new(16, 5).pad(4).bias(0.0).relu()), net.image());
    let x = net.add("p1", Op::Pool(Pool::new(PoolKind::Max, 2, 2)), x);
    let x = net.add("c2", Op::Conv(Conv::new(17, 7).pad(6)), x);
    let x = net.add("n2", Norm::new().relu(), x);
    let x = net.add("c3", Op::Conv(Conv::new(32, 5).pads([4, 1, 0, 5]).stride(2).bias(0.0).relu()), x);
    let x = net.add("p3", Op::Pool(Pool::new(PoolKind::Max, 2, 2)), x);
    let x = net.add("c4", Op::Conv(Conv::new(32, 3).pad(6).dilation(2).groups(4)), x);
    let x = net.add("c5", Op::Conv(Conv::new(16, 1).pad(1).bias(0.0).relu()), x);
    let x = net.add("mean", Pool::global(), x);
    net.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    net
}

fn graph<B: Backend>(backend: B, net: NetSpec) -> Graph<B> {
    let purpose = Purpose::Train { bucket_bytes: 1 << 12 };
    Graph::new(backend, net, ROWS, purpose, 11).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns loss, gradients and scores of a training pass and an evaluation pass over images of this size.
fn passes<B: Backend>(graph: &mut Graph<B>, input: Shape, rows: usize) -> Vec<Vec<f32>> {
    let images = noise(rows * input.elems(), input.h as u64, 1.0);
    let labels: Vec<u32> = (0..rows as u32).map(|row| row % CLASSES as u32).collect();
    let ids: Vec<u64> = (0..rows as u64).collect();
    let batch = Batch { images: Input::Values(&images), labels: &labels, ids: &ids, epoch: 2 };
    let loss = Loss { smoothing: 0.1, scale: 1.0 / rows as f32 };
    let sums = graph.train::<Error>(batch, loss, MicroBatch::ONLY, None).unwrap_or_else(|e| panic!("{e}"));
    let found: Vec<Vec<f32>> = std::iter::once(vec![sums.loss as f32]).chain(gradients(graph)).collect();
    graph.evaluate(batch, 0.0).unwrap_or_else(|e| panic!("{e}"));
    let scores = graph.output(graph.net().nodes.len()).unwrap();
    found.into_iter().chain([scores]).collect()
}

#[track_caller]
fn check<B: Backend, R: Backend>(
    name: &str,
    net: impl Fn(Shape) -> NetSpec,
    sizes: [Shape; 3],
    (backend, alone): (impl Fn() -> B, impl Fn() -> R),
) {
    let mut all = graph(backend(), net(FULL));
    for size in sizes {
        all.add_size(size, ROWS).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let before = passes(&mut all, FULL, ROWS);
    // alternate between sizes, so that a device records and replays the passes of each size
    for (turn, size) in sizes.into_iter().cycle().take(4 * sizes.len()).enumerate() {
        all.set_size(size).unwrap();
        assert_eq!(all.input(), size);
        let rows = if turn % 2 == 0 { ROWS } else { 2 };
        let got = passes(&mut all, size, rows);
        let want = passes(&mut graph(alone(), net(size)), size, rows);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_close(&format!("{name}, {size}, {i}"), got, want, 2e-4 * magnitude(want) + 1e-6);
        }
        assert_eq!(got.len(), want.len());
    }
    all.set_size(FULL).unwrap();
    assert_eq!(passes(&mut all, FULL, ROWS), before, "{name}: passes of other sizes changed the result");
    let error = all.set_size(Shape::image(3, 9, 9)).unwrap_err();
    let Error::Size { expected, got, .. } = &error else { panic!("{name}: {error}") };
    assert!(expected.contains("3x16x14") && got == "3x9x9", "{name}: {error}");
}

fn in_bf16() -> Cpu {
    Cpu::in_bf16(2).or_else(|_| Cpu::in_emulated_bf16(2)).unwrap()
}

fn check_in_f32(net: fn(Shape) -> NetSpec, sizes: [Shape; 3]) {
    check("reference", net, sizes, (|| Reference, || Reference));
    check("cpu, 1 thread", net, sizes, (|| cpu(1), || Reference));
    check("cpu, 2 threads", net, sizes, (|| cpu(2), || Reference));
}

#[test]
fn each_size_equals_its_own_graph() {
    check_in_f32(net, SIZES);
    check("cpu in bf16", net, SIZES, (in_bf16, in_bf16));
    check("cuda", net, SIZES, (|| cuda(Precision::F32), || Reference));
}

/// For 4 x 4 pixels and fewer, oneDNN has no fast dilated convolution, whether weights are spread among zeros or not.
#[test]
fn weights_that_the_largest_size_has_in_plain_order_stay_there() {
    let sizes = [Shape::image(3, 4, 4), FULL, Shape::image(3, 3, 2)];
    check_in_f32(gaps, sizes);
}

/// Frames of zeros remain zero from step to step and for images of all sizes.
#[test]
fn widely_padded_layers_take_several_sizes() {
    check_in_f32(wide, SIZES);
    check("cpu in bf16", wide, SIZES, (in_bf16, in_bf16));
}

#[test]
fn parameters_that_depend_on_the_size_are_named() {
    let mut flat = NetSpec::new("flat", FULL);
    let x = flat.add("c", Op::Conv(Conv::new(16, 3).pad(1)), flat.image());
    let x = flat.add("flatten", Flatten, x);
    flat.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    let mut graph = Graph::new(Reference, flat, 2, Purpose::Infer, 1).unwrap();
    let error = graph.add_size(Shape::image(3, 8, 7), 2).unwrap_err().to_string();
    for part in ["fc.weight", "[4, 896]", "3x8x7", "3x16x14", "global pool"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let larger = graph.add_size(Shape::image(3, 32, 32), 2).unwrap_err().to_string();
    assert!(larger.contains("fc"), "{larger}");
    let mut graph = self::graph(Reference, net(FULL));
    let larger = graph.add_size(Shape::image(3, 32, 32), 2).unwrap_err().to_string();
    assert!(larger.contains("2 images of 3x32x32") && larger.contains("5 images of 3x16x14"), "{larger}");
}
