//! Fusion on CPUs of a convolution with an adjacent batch normalisation, and of a max pooling with the preceding ReLU.
//!
//! The results equal those without fusion, the statistics are as exact wherever the values lie, and nothing is fused if
//! other layers read the tensor in between.

use backend::cpu::Cpu;
use backend::reference::Reference;
use backend::{Backend, Error, Input};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use net::{Activation, Conv, Flatten, Id, Linear, NetSpec, Norm, Pool, PoolKind, Shape};

use crate::training::{self, named_gradients};
use support::numerics::{IdenticalRanks, assert_close, cpu, has_own_kernels, magnitude, noise, norm};

const CLASSES: usize = 5;

fn conv(channels: usize, kernel: usize) -> Conv {
    Conv::new(channels, kernel).pad(kernel / 2)
}

/// Returns a network with three convolutions, each followed by a norm, the last with a residual. `bend` adds ReLU to the norms.
fn block(image: Shape, channels: [usize; 2], kernel: usize, bend: bool) -> NetSpec {
    block_of(image, [conv(channels[0], 3), conv(channels[1], kernel), conv(channels[0], 3)], bend)
}

fn block_of(image: Shape, [c1, c2, c3]: [Conv; 3], bend: bool) -> NetSpec {
    let bn = || Norm { relu: bend, ..Norm::new() };
    let mut net = NetSpec::new("block", image);
    let channels = c1.out_channels;
    let x = stem(&mut net, channels);
    let x = net.add("c1", c1, x);
    let first = net.add("n1", bn(), x);
    let x = net.add("c2", c2, first);
    let x = net.add("n2", bn(), x);
    let x = net.add("c3", c3, x);
    let x = net.join("n3", bn().residual(), &[x, first]);
    let x = net.add("c4", conv(channels, 3).bias(0.1).relu(), x);
    let x = net.add("n4", bn(), x);
    classifier(net, x)
}

/// Adds a convolution that converts the image to channel blocks.
fn stem(net: &mut NetSpec, channels: usize) -> Id {
    net.add("stem", Conv::new(channels, 1), net.image())
}

fn classifier(mut net: NetSpec, x: Id) -> NetSpec {
    let x = net.add("tanh", Activation::Tanh, x);
    let x = net.add("pool", Pool::global(), x);
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Linear::new(CLASSES), x);
    net
}

fn graph<B: Backend>(backend: B, net: &NetSpec, rows: usize) -> Graph<B> {
    let purpose = Purpose::Train { bucket_bytes: 1 << 16 };
    Graph::new(backend, net.clone(), rows, purpose, 7).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns loss, gradients and statistics of a training pass over these images, then the scores of an evaluation.
fn passes<B: Backend>(graph: &mut Graph<B>, images: &[f32], rows: usize) -> Vec<(String, Vec<f32>)> {
    let labels: Vec<u32> = (0..rows as u32).map(|i| i * 3 % CLASSES as u32).collect();
    let ids: Vec<u64> = (0..rows as u64).collect();
    let batch = Batch { images: Input::Values(images), labels: &labels, ids: &ids, epoch: 3 };
    let loss = Loss { smoothing: 0.1, scale: 1.0 / rows as f32 };
    let sums = graph.train::<Error>(batch, loss, MicroBatch::ONLY, None).unwrap_or_else(|e| panic!("{e}"));
    let mut found = vec![("loss".into(), vec![sums.loss as f32])];
    found.extend(named_gradients(graph));
    let (sums, counts) = training::statistics(graph);
    found.push(("statistics".into(), sums.iter().map(|s| *s as f32).collect()));
    found.push(("counts".into(), counts.iter().map(|n| *n as f32).collect()));
    graph.evaluate(batch, 0.0).unwrap_or_else(|e| panic!("{e}"));
    found.push(("scores".into(), graph.output(graph.net().nodes.len()).unwrap()));
    found
}

#[track_caller]
fn assert_same(what: &str, got: &[(String, Vec<f32>)], want: &[(String, Vec<f32>)], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for ((name, got), (_, want)) in got.iter().zip(want) {
        assert_close(&format!("{what}: {name}"), got, want, tolerance * magnitude(want) + 1e-6);
    }
}

/// Checks that the distance of `fused` from the oracle is at most about twice the distance of `apart`.
#[track_caller]
fn assert_as_near(what: &str, [fused, apart]: [&[(String, Vec<f32>)]; 2], oracle: &[(String, Vec<f32>)]) {
    for ((name, fused), ((_, apart), (_, oracle))) in fused.iter().zip(apart.iter().zip(oracle)) {
        let distance = |to: &[f32]| norm(&to.iter().zip(oracle).map(|(a, b)| a - b).collect::<Vec<_>>());
        let (got, most) = (distance(fused), 2.0 * distance(apart) + 1e-5 * norm(oracle) + 1e-6);
        assert!(got <= most, "{what}: {name}: distance from the oracle {got}, expected at most {most}");
    }
}

/// Returns how the named layers are computed, or `None` if the processor cannot run trireme's Winograd kernels.
fn by(backend: Cpu, net: &NetSpec, names: &[&str]) -> Option<Vec<String>> {
    let graph = graph(backend, net, 2);
    let at = |name: &&str| net.nodes.iter().position(|node| node.name == *name).expect("a layer");
    let found: Vec<String> = names.iter().map(|name| graph.implementation(at(name))).collect();
    has_own_kernels().then_some(found)
}

/// Tests planes of whole and partial tiles, channels that fill neither a block nor a group of columns, more channels
/// than the buffer of transformed inputs holds at once, both kernel sizes, and threads without samples.
#[test]
fn fused_operations_equal_separate_operations() {
    let shapes = [
        ((8, 8), [16, 32], 3, 5),
        ((7, 9), [20, 9], 3, 3),
        ((5, 6), [17, 40], 5, 2),
        ((13, 4), [6, 64], 3, 1),
        ((32, 32), [16, 16], 3, 4),
        ((6, 7), [24, 272], 3, 7),
        ((9, 5), [300, 36], 3, 3),
    ];
    for ((h, w), channels, kernel, rows) in shapes {
        for bend in [true, false] {
            let net = block(Shape::image(3, h, w), channels, kernel, bend);
            assert_fused(&format!("{h}x{w}, {channels:?}, {kernel}, {bend}"), &net, rows);
        }
    }
}

/// Tests convolutions with smaller or larger outputs than inputs.
#[test]
fn fused_convolutions_that_change_the_image_size_agree() {
    let shapes = [((8, 8), [16, 32], 5), ((7, 9), [20, 9], 2), ((9, 12), [16, 24], 3), ((6, 7), [24, 272], 4)];
    for ((h, w), [outer, inner], rows) in shapes {
        for pads in [[0, 2], [2, 0]] {
            let convs = [conv(outer, 3), Conv::new(inner, 3).pad(pads[0]), Conv::new(outer, 3).pad(pads[1])];
            let net = block_of(Shape::image(3, h, w), convs, true);
            let names = by(cpu(1), &net, &["c2", "n2", "c3"]);
            let ours = ["own winograd + moments", "own, moments by c2, output by c3", "own winograd of n2 + moments"];
            assert!(names.as_ref().is_none_or(|names| names == &ours), "{names:?}");
            assert_fused(&format!("{h}x{w}, {outer} to {inner}, {pads:?}"), &net, rows);
        }
    }
}

/// Checks that passes give the same results with and without fusion, on any number of threads, and the same bits when repeated.
#[track_caller]
fn assert_fused(what: &str, net: &NetSpec, rows: usize) {
    let images: Vec<f32> = noise(rows * net.input.elems(), 1, 1.0).iter().map(|x| x + 0.5).collect();
    let oracle = passes(&mut graph(Reference, net, rows), &images, rows);
    for threads in 1..5 {
        let what = format!("{what}, {rows} rows, {threads} threads");
        let mut fused = graph(cpu(threads), net, rows);
        let got = passes(&mut fused, &images, rows);
        let want = passes(&mut graph(cpu(threads).unfused(), net, rows), &images, rows);
        assert_same(&what, &got, &want, 2e-4);
        assert_as_near(&what, [&got, &want], &oracle);
        assert!(passes(&mut fused, &images, rows) == got, "{what}: the second pass has other bits");
    }
}

#[test]
fn tensors_with_other_readers_are_not_fused() {
    let net = block(Shape::image(16, 8, 8), [16, 32], 3, true);
    let Some(found) = by(cpu(1), &net, &["c1", "n1", "c2", "n2", "c3", "n3"]) else {
        return support::skip("the processor has no AVX2, so nothing is fused");
    };
    let want = [
        "own winograd + moments",
        "own, moments by c1",
        "own winograd + moments",
        "own, moments by c2, output by c3",
        "own winograd of n2 + moments",
        "own, moments by c3",
    ];
    assert_eq!(found, want);
    let fused = graph(cpu(1), &net, 2);
    let error = fused.output(5).unwrap_err();
    let unstored = matches!(&error, Error::Unsupported { op, why } if op == "n2" && why.contains("stored"));
    assert!(unstored, "{error}");
    assert!(fused.output(4).is_ok());
    let apart = by(cpu(1).unfused(), &net, &["c1", "n1", "c2", "n2", "c3", "n3"]).unwrap();
    assert_eq!(apart, ["own winograd", "own", "own winograd", "own", "own winograd", "own"]);
    // the output of a convolution has another reader
    let mut net = NetSpec::new("readers", Shape::image(16, 8, 8));
    let x = stem(&mut net, 16);
    let y = net.add("c1", conv(16, 3), x);
    let x = net.add("n1", Norm::new(), y);
    let x = net.add("c2", conv(16, 3), x);
    let x = net.join("n2", Norm::new().residual(), &[x, y]);
    let net = classifier(net, x);
    let found = by(cpu(1), &net, &["c1", "n1", "c2", "n2"]).unwrap();
    assert_eq!(found, ["own winograd", "own, output by c2", "own winograd of n1 + moments", "own, moments by c2"]);
    // an auxiliary classifier reads the output of a norm
    let mut net = block(Shape::image(16, 8, 8), [16, 32], 3, true);
    let x = net.add("aux.flatten", Flatten, Id(5));
    let x = net.add("aux.fc", Linear::new(CLASSES), x);
    net.head(x, 0.3);
    let x = net.add("last", Linear::new(CLASSES), Id(13));
    assert_eq!((net.nodes[4].name.as_str(), x.0), ("n2", net.nodes.len()));
    assert_eq!(by(cpu(1), &net, &["n2", "c3"]).unwrap(), ["own, moments by c2", "own winograd + moments"]);
}

/// Uses a graph for batches of 6 rows, alternating with smaller batches. Each batch must give the results of a graph
/// planned for exactly this number of rows. An inference graph must give the scores of the training graph.
#[test]
fn fewer_rows_and_inference_equal_a_graph_planned_for_them() {
    let net = block(Shape::image(3, 9, 8), [20, 32], 3, true);
    let images: Vec<f32> = noise(6 * net.input.elems(), 4, 1.0);
    let mut whole = graph(cpu(2), &net, 6);
    for rows in [6, 2, 6, 1, 5] {
        let images = &images[..rows * net.input.elems()];
        let want = passes(&mut graph(cpu(2), &net, rows), images, rows);
        assert_same(&format!("{rows} rows"), &passes(&mut whole, images, rows), &want, 1e-5);
        let mut inference = Graph::new(cpu(2), net.clone(), rows, Purpose::Infer, 7).unwrap();
        // layers of oneDNN may add in another order for another number of rows
        let (got, want) = (inference.scores(images, rows).unwrap(), whole.output(net.nodes.len()).unwrap());
        assert_close(&format!("inference of {rows} rows"), &got, &want, 1e-5 * magnitude(&want));
    }
}

#[test]
fn frozen_layers_are_the_same_with_fusion() {
    let images: Vec<f32> = noise(4 * Shape::image(3, 9, 8).elems(), 5, 1.0);
    for layers in [&["n2"][..], &["c3"], &["c2", "n2"], &["stem", "c1", "n1", "c2", "n2"], &["n1", "n2", "n3", "n4"]] {
        let mut net = block(Shape::image(3, 9, 8), [20, 32], 3, true);
        let names = net.tensors().unwrap().parameters.into_iter().map(|(name, _)| name);
        net.frozen = names.filter(|name| layers.iter().any(|layer| name.starts_with(&format!("{layer}.")))).collect();
        let [mut fused, mut apart] = [cpu(2), cpu(2).unfused()].map(|cpu| graph(cpu, &net, 4));
        for frozen in [true, false, true] {
            [&mut fused, &mut apart].into_iter().for_each(|graph| graph.set_frozen(frozen));
            let (got, want) = (passes(&mut fused, &images, 4), passes(&mut apart, &images, 4));
            assert_same(&format!("{layers:?}"), &got, &want, 2e-4);
        }
    }
}

/// Returns a network with two convolutions with ReLU, each followed by a pooling. `more` adds other readers of the first one's output.
fn pooled(image: Shape, pool: &Pool, more: impl FnOnce(&mut NetSpec, Id)) -> NetSpec {
    let mut net = NetSpec::new("pooled", image);
    let read = net.add("c1", conv(20, 3).bias(0.1).relu(), net.image());
    let x = net.add("pool1", pool.clone(), read);
    let x = net.add("c2", conv(24, 3).bias(0.1).relu(), x);
    let x = net.add("pool2", Pool::new(PoolKind::Max, 2, 1), x);
    more(&mut net, read);
    classifier(net, x)
}

/// Tests windows that touch, overlap, leave pixels out, or extend over the edge.
#[test]
fn a_max_pooling_stops_the_gradient_of_the_relu_before_it() {
    let max = |window, stride| Pool::new(PoolKind::Max, window, stride);
    let over = Pool { ceil: true, ..max(3, 2) };
    for pool in [max(2, 2), max(3, 2), max(3, 2).pads([1; 4]), over, max(2, 3)] {
        for (h, w) in [(8, 8), (9, 7)] {
            let net = pooled(Shape::image(3, h, w), &pool, |_, _| ());
            let images = noise(3 * net.input.elems(), 8, 1.0);
            let (mut fused, mut apart) = (graph(cpu(2), &net, 3), graph(cpu(2).unfused(), &net, 3));
            assert_eq!([fused.implementation(1), apart.implementation(1)], ["own + ReLU's gradient of c1", "own"]);
            let (got, want) = (passes(&mut fused, &images, 3), passes(&mut apart, &images, 3));
            assert!(got == want, "{pool:?} of {h}x{w}: the bits differ from those without fusion");
            assert!(
                got.iter().any(|(name, values)| name == "c1.weight" && norm(values) > 1e-3),
                "the gradient is too small to compare"
            );
        }
    }
    // average pooling passes gradients to elements where ReLU returned zero, and another reader of the tensor may do so too
    let image = Shape::image(3, 8, 8);
    let mean = pooled(image, &Pool::new(PoolKind::Avg, 2, 2), |_, _| ());
    let twice = pooled(image, &max(2, 2), |net, read| {
        let x = net.add("pool3", Pool::global(), read);
        let x = net.add("flatten3", Flatten, x);
        let scores = net.add("fc3", Linear::new(CLASSES), x);
        net.head(scores, 0.5);
    });
    for net in [mean, twice] {
        assert_eq!(graph(cpu(2), &net, 3).implementation(1), "own");
    }
}

#[test]
fn statistics_over_ranks_are_the_same_with_fusion() {
    let net = block(Shape::image(3, 9, 8), [20, 32], 3, true);
    let images: Vec<f32> = noise(4 * net.input.elems(), 6, 1.0);
    let [mut fused, mut apart] = [cpu(2), cpu(2).unfused()].map(|cpu| graph(cpu, &net, 4));
    let alone = passes(&mut fused, &images, 4);
    [&mut fused, &mut apart]
        .into_iter()
        .for_each(|graph| graph.normalise_across(Box::new(IdenticalRanks(3.0))).unwrap());
    let (got, want) = (passes(&mut fused, &images, 4), passes(&mut apart, &images, 4));
    assert_same("three ranks", &got, &want, 2e-4);
    // identical ranks have the mean and variance of a single rank
    assert_same("one rank", &got, &alone, 2e-4);
}

/// Returns the mean and the sum of squared deviations of each channel of a (rows, channels, pixels) tensor, in f64.
fn statistics(x: &[f32], rows: usize, shape: Shape) -> Vec<[f64; 2]> {
    let values = |c: usize| (0..rows).flat_map(move |n| &x[(n * shape.c + c) * shape.plane()..][..shape.plane()]);
    let n = (rows * shape.plane()) as f64;
    let of = |c| {
        let mean = values(c).map(|x| f64::from(*x)).sum::<f64>() / n;
        [mean, values(c).map(|x| (f64::from(*x) - mean).powi(2)).sum()]
    };
    (0..shape.c).map(of).collect()
}

/// Runs a convolution that copies its image, except for rounding and a bias, followed by a norm. Returns the relative
/// error of the norm's M2 for each channel.
fn errors(backend: Cpu, images: &[f32], rows: usize, image: Shape, bias: f32) -> Vec<f64> {
    let mut net = NetSpec::new("far", image);
    let x = stem(&mut net, image.c);
    let x = net.add("c1", conv(image.c, 3).bias(bias), x);
    let x = net.add("n1", Norm::new(), x);
    let net = classifier(net, x);
    let mut graph = graph(backend, &net, rows);
    for (name, taps, centre) in [("stem.weight", 1, 0), ("c1.weight", 9, 4)] {
        let at = graph.params().iter().position(|p| p.name == name).expect("weights");
        let same = |i: usize| f32::from(i % taps == centre && i / taps / image.c == i / taps % image.c);
        graph.set_param(at, &(0..image.c * image.c * taps).map(same).collect::<Vec<_>>()).unwrap();
    }
    passes(&mut graph, images, rows);
    let want = statistics(&graph.output(2).unwrap(), rows, image);
    let (sums, counts) = training::statistics(&graph);
    let of = |(c, [mean, m2]): (usize, &[f64; 2])| {
        let got = sums[c] / counts[0];
        assert!((got - mean).abs() <= 1e-6 * (m2 / counts[0]).sqrt() + 1e-12 * mean.abs(), "{got}, expected {mean}");
        // the running means are 0, so the pooled sums are of squares, without a shift
        (sums[image.c + c] - counts[0] * got * got - m2) / m2
    };
    want.iter().enumerate().map(of).collect()
}

/// At the first step the running means are 0. Statistics must be as exact if all values are far from 0, or if a single
/// value is far from the others.
#[test]
fn statistics_are_exact_wherever_the_values_lie() {
    let (image, rows) = (Shape::image(16, 32, 32), 8);
    let near = noise(rows * image.elems(), 3, 1.0);
    for threads in [1, 2] {
        for (far, most) in [(0.0, 1e-6), (10.0, 1e-6), (1e3, 1e-6), (1e5, 1e-5)] {
            for error in errors(cpu(threads), &near, rows, image, far) {
                assert!(error.abs() < most, "mean {far}: relative error {error}");
            }
        }
        // tests a single large value in each channel: as the first value of the whole batch, or as the first value of each sample
        for every in [usize::MAX, image.plane()] {
            let mut alone: Vec<f32> = near.iter().map(|x| 1e-3 * x).collect();
            for (i, x) in alone.iter_mut().enumerate() {
                let (sample, pixel) = (i / image.elems(), i % image.plane());
                if pixel == 0 && (sample == 0 || every != usize::MAX) {
                    *x = 100.0;
                }
            }
            let most = |backend| magnitude(&errors(backend, &alone, rows, image, 0.5));
            let (fused, apart) = (most(cpu(threads)), most(cpu(threads).unfused()));
            assert!(fused < 1e-5_f64.max(2.0 * apart), "a large value: {fused} with fusion, {apart} without");
        }
    }
}

#[test]
fn a_constant_channel_has_no_variance() {
    let (image, rows) = (Shape::image(16, 12, 12), 3);
    let mut net = NetSpec::new("constant", image);
    let x = stem(&mut net, 16);
    let x = net.add("c1", conv(16, 3).bias(1e4), x);
    let x = net.add("n1", Norm::new(), x);
    let net = classifier(net, x);
    let mut graph = graph(cpu(2), &net, rows);
    passes(&mut graph, &vec![0.0; rows * image.elems()], rows);
    let (sums, _) = training::statistics(&graph);
    let n = (rows * image.plane()) as f64;
    let (offsets, squares) = sums.split_at(16);
    assert!(offsets.iter().all(|nd| *nd == n * 1e4) && squares.iter().all(|s| *s == n * 1e8), "{sums:?}");
}
