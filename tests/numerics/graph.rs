//! Whole graphs of small networks on every backend: gradients through branches, smaller batches, more than one worker on a rank, handing
//! over of buckets, evaluation, and networks that a backend cannot run. `ops.rs` and `gradients.rs` test single operations.

use backend::cuda::Precision;
use backend::reference::Reference;
use backend::{Backend, Buffer, Error, Input, LossSums};
use engine::graph::BuildError;
use engine::{Batch, Gather, Graph, Loss, MicroBatch, Purpose};
use net::{Add, Concat, Conv, Flatten, Id, Linear, NetSpec, Norm, Op};

use crate::training::{
    CLASSES, IMAGE, Rows, attentive, bottleneck, branching, check_slopes, competing, dense, everywhere, finish, gated,
    gradients, named_gradients, patches, separable, statistics,
};
use support::numerics::{self, assert_close, cpu, magnitude, noise};

fn rows(n: usize) -> Rows {
    Rows::new(IMAGE, 0.0, CLASSES, n)
}

fn graph<B: Backend>(backend: B, net: NetSpec, batch: usize, bucket_bytes: usize) -> Graph<B> {
    Graph::new(backend, net, batch, Purpose::Train { bucket_bytes }, 7).unwrap_or_else(|e| panic!("{e}"))
}

fn train<B: Backend>(graph: &mut Graph<B>, batch: Batch<'_>, scale: f32, turn: MicroBatch) -> LossSums {
    let loss = Loss { smoothing: 0.1, scale };
    graph.train::<Error>(batch, loss, turn, None).unwrap_or_else(|e| panic!("{e}"))
}

fn assert_gradients<B: Backend>(what: &str, graph: &Graph<B>, want: &[Vec<f32>], relative: f64) {
    assert_eq!(graph.params().len(), want.len(), "{what}");
    for (i, want) in want.iter().enumerate() {
        let what = format!("{what}: gradient of {}", graph.params()[i].name);
        assert_close(&what, &graph.gradient(i).unwrap(), want, relative * magnitude(want) + 1e-7);
    }
}

#[test]
fn gradients_through_branches_are_the_slopes_of_the_loss() {
    [branching(true), dense(), attentive(), patches()].into_iter().for_each(check_net_slopes);
}

/// Compares the gradients of a network without kinks with differences of its loss.
fn check_net_slopes(net: NetSpec) {
    let rows = rows(3);
    let mut graph = graph(Reference, net, 3, 1);
    train(&mut graph, rows.all(), 1.0, MicroBatch::ONLY);
    let gradients = named_gradients(&graph);
    check_slopes(&mut graph, &gradients, 20, |graph| train(graph, rows.all(), 1.0, MicroBatch::ONLY).loss);
}

#[test]
fn networks_with_branches_agree_on_every_backend() {
    let rows = rows(6);
    for net in [branching(false), bottleneck(), competing(), dense(), attentive(), gated(), patches()] {
        let mut reference = graph(Reference, net.clone(), 6, 1);
        let want = train(&mut reference, rows.all(), 0.2, MicroBatch::ONLY);
        let want_gradients = gradients(&reference);
        let want_statistics = checked_statistics(&reference);
        let expected = (want, want_gradients.as_slice(), &want_statistics);
        check_passes(graph(cpu(1), net.clone(), 6, 1), &rows, "1 thread", expected);
        check_passes(graph(cpu(2), net.clone(), 6, 1), &rows, "2 threads", expected);
        check_passes(graph(numerics::cuda(Precision::F32), net.clone(), 6, 1), &rows, "cuda", expected);
    }
}

/// Sums, gradients, and running statistics with their pooled sums.
type ExpectedPass<'a> = (LossSums, &'a [Vec<f32>], &'a (Vec<f32>, Vec<f64>));

/// Runs four passes over the same rows, since a device may run the first, record the second and replay the others. Each
/// must give the expected sums, gradients and statistics.
fn check_passes<B: Backend>(
    mut graph: Graph<B>,
    rows: &Rows,
    name: &str,
    (want, gradients, want_statistics): ExpectedPass<'_>,
) {
    for pass in 1..5 {
        let what = format!("{}, pass {pass} on {name}", graph.net().name);
        let got = train(&mut graph, rows.all(), 0.2, MicroBatch::ONLY);
        assert!((got.loss / want.loss - 1.0).abs() < 1e-5, "{what}: {got:?}, expected {want:?}");
        assert_eq!((got.top1, got.top5, got.count), (want.top1, want.top5, want.count), "{what}");
        assert_gradients(&what, &graph, gradients, 1e-4);
    }
    let ((got, counts), (want, want_counts)) = (checked_statistics(&graph), want_statistics);
    assert_eq!(&counts, want_counts);
    assert_close("statistics", &got, want, 1e-5 * magnitude(want));
}

/// Works like [`statistics`], and checks the numbers of values for a batch of six rows.
fn checked_statistics<B: Backend>(graph: &Graph<B>) -> (Vec<f32>, Vec<f64>) {
    let (sums, counts) = statistics(graph);
    for (place, count) in graph.norms().iter().zip(&counts) {
        let plane = graph.shapes()[place.node + 1].plane();
        assert_eq!(*count, (6 * plane) as f64, "values per channel of node {}", place.node);
    }
    (sums.iter().map(|s| *s as f32).collect(), counts)
}

fn check_smaller_batches<B: Backend>(backend: impl Fn() -> B, name: &str) {
    let rows = rows(8);
    let mut large = graph(backend(), branching(false), 8, 1 << 20);
    let whole = train(&mut large, rows.all(), 0.125, MicroBatch::ONLY);
    let whole_gradients = gradients(&large);
    large.prepare(3).unwrap_or_else(|e| panic!("{name}: {e}"));
    for n in [3, 1, 8, 5] {
        // the graph is prepared for 8 and 3 rows, and plans for 5 and 1 rows when it gets such a batch
        let mut exact = graph(backend(), branching(false), n, 1 << 20);
        let want = train(&mut exact, rows.part(0..n), 0.25, MicroBatch::ONLY);
        let got = train(&mut large, rows.part(0..n), 0.25, MicroBatch::ONLY);
        assert!((got.loss / want.loss - 1.0).abs() < 1e-5, "{n} rows on {name}: {got:?}, expected {want:?}");
        assert_eq!(got.count, n as u64);
        assert_gradients(&format!("{n} rows on {name}"), &large, &gradients(&exact), 1e-4);
        let scores = large.output(large.net().nodes.len()).unwrap();
        assert_eq!(scores.len(), n * CLASSES, "{name}");
        let (got, want) =
            (large.evaluate(rows.part(0..n), 0.0).unwrap(), exact.evaluate(rows.part(0..n), 0.0).unwrap());
        assert!((got.loss / want.loss - 1.0).abs() < 1e-5, "evaluation of {n} rows on {name}");
    }
    assert_eq!(train(&mut large, rows.all(), 0.125, MicroBatch::ONLY), whole, "{name}: the full batch again");
    assert_gradients(&format!("the full batch again on {name}"), &large, &whole_gradients, 0.0);
    let error = large.prepare(9).expect_err("more than was planned");
    let larger =
        matches!(&error, Error::Size { expected, got, .. } if expected.contains("at most 8 images") && got == "9");
    assert!(larger, "{name}: {error}");
    let short = Batch { images: Input::Values(&rows.images[1..]), ..rows.all() };
    assert!(large.evaluate(short, 0.0).is_err(), "{name}: an input with a missing value must be an error");
}

#[test]
fn smaller_batches_equal_a_graph_planned_for_them() {
    everywhere!(check_smaller_batches);
}

fn check_workers<B: Backend>(backend: impl Fn() -> B, name: &str) {
    let rows = rows(8);
    let mut graph = graph(backend(), separable(), 8, 512);
    let want = train(&mut graph, rows.all(), 0.125, MicroBatch::ONLY);
    let want_gradients = gradients(&graph);
    graph.prepare_accumulation(0..8, Gather::Summed).unwrap();
    // the last two have workers without samples, as in the short last step of an epoch
    for cuts in [vec![0, 8], vec![0, 5, 8], vec![0, 2, 4, 6, 8], vec![0, 0, 3, 8], vec![0, 8, 8]] {
        let mut sums = LossSums::default();
        for (worker, cut) in cuts.windows(2).enumerate() {
            let part = train(
                &mut graph,
                rows.part(cut[0]..cut[1]),
                0.125,
                MicroBatch { worker, last: worker + 2 == cuts.len() },
            );
            sums.loss += part.loss;
            sums.top1 += part.top1;
            sums.count += part.count;
        }
        let what = format!("rows cut at {cuts:?} on {name}");
        assert!((sums.loss / want.loss - 1.0).abs() < 1e-6, "{what}: {sums:?}, expected {want:?}");
        assert_eq!((sums.top1, sums.count), (want.top1, want.count), "{what}");
        assert_gradients(&what, &graph, &want_gradients, 1e-5);
    }
}

#[test]
fn workers_of_one_rank_add_up_to_the_whole_batch() {
    everywhere!(check_workers);
}

fn check_buckets<B: Backend>(backend: impl Fn() -> B, name: &str) {
    let rows = rows(8);
    let mut graph = graph(backend(), separable(), 8, 64);
    train(&mut graph, rows.all(), 0.125, MicroBatch::ONLY);
    let want = gradients(&graph);
    graph.prepare_accumulation(0..8, Gather::Summed).unwrap();
    let buckets = graph.layout().buckets.clone();
    assert!(buckets.len() > 2, "{name}: {buckets:?}");
    // tests one worker, two workers, and a second worker without samples
    for cuts in [vec![0, 8], vec![0, 5, 8], vec![0, 8, 8]] {
        let mut given = Vec::new();
        let last = cuts.len() - 2;
        for (worker, cut) in cuts.windows(2).enumerate() {
            let batch = rows.part(cut[0]..cut[1]);
            let mut take = |bucket: usize, buffer: Vec<B::Buf>| {
                assert_eq!(buffer.len(), 1, "{name}");
                assert_eq!(buffer[0].len(), buckets[bucket], "{name}: bucket {bucket}");
                given.push((bucket, buffer));
                Ok::<(), Error>(())
            };
            let loss = Loss { smoothing: 0.1, scale: 0.125 };
            let hook: &mut dyn FnMut(usize, Vec<B::Buf>) -> Result<(), Error> = &mut take;
            graph
                .train(batch, loss, MicroBatch { worker, last: worker == last }, (worker == last).then_some(hook))
                .unwrap();
        }
        let order: Vec<usize> = given.iter().map(|g| g.0).collect();
        assert_eq!(
            order,
            (0..buckets.len()).collect::<Vec<_>>(),
            "{name}: each bucket must be handed over once, in the order of backward"
        );
        given.into_iter().for_each(|(bucket, buffer)| graph.put(bucket, buffer));
        assert_gradients(&format!("buckets of {cuts:?} on {name}"), &graph, &want, 1e-5);
    }
}

#[test]
fn finished_chunks_are_handed_over_once_and_in_order() {
    everywhere!(check_buckets);
}

fn check_hook_error<B: Backend>(backend: impl Fn() -> B, name: &str) {
    let rows = rows(2);
    let mut graph = graph(backend(), separable(), 2, 64);
    let mut refuse = |bucket: usize, _: Vec<B::Buf>| {
        Err::<(), Error>(Error::Unsupported { op: format!("bucket {bucket}"), why: "no peer".into() })
    };
    let loss = Loss { smoothing: 0.0, scale: 1.0 };
    let error = graph.train(rows.all(), loss, MicroBatch::ONLY, Some(&mut refuse)).expect_err("the hook failed");
    let own = matches!(&error, Error::Unsupported { op, why } if op == "bucket 0" && why == "no peer");
    assert!(own, "{name}: {error}");
    let labels = [0, CLASSES as u32];
    let wrong = graph.evaluate(Batch { labels: &labels, ..rows.all() }, 0.0);
    assert!(matches!(wrong, Err(Error::Size { .. })), "{name}: a label out of range must be an error");
}

#[test]
fn errors_of_hooks_and_labels_are_returned() {
    everywhere!(check_hook_error);
}

fn check_inference<B: Backend>(backend: impl Fn() -> B, name: &str) {
    let rows = rows(4);
    for net in [branching(false), separable(), dense(), attentive(), patches()] {
        let what = format!("{} on {name}", net.name);
        let mut training = graph(backend(), net.clone(), 4, 1);
        let mut inference = Graph::new(backend(), net, 4, Purpose::Infer, 7).unwrap_or_else(|e| panic!("{what}: {e}"));
        let running = noise(training.running().len(), 5, 0.4).iter().map(|v| v + 0.5).collect::<Vec<f32>>();
        training.running_mut().copy_from_slice(&running);
        inference.running_mut().copy_from_slice(&running);
        let want = training.evaluate(rows.all(), 0.0).unwrap();
        let got = inference.evaluate(rows.all(), 0.0).unwrap();
        assert!((got.loss / want.loss - 1.0).abs() < 1e-6, "{what}: {got:?}, expected {want:?}");
        let scores = inference.scores(&rows.images, 4).unwrap();
        assert_close(&what, &scores, &training.output(training.net().nodes.len()).unwrap(), 1e-5);
        let elems = |g: &Graph<B>| g.memory().elems;
        assert!(elems(&inference) < elems(&training), "{what}: inference must need less memory than training");
    }
}

#[test]
fn inference_over_shared_memory_gives_the_same_scores() {
    everywhere!(check_inference);
}

/// Returns a network that adds the image itself (plain layout) to the output of a convolution (in channel blocks on the CPU).
fn image_again() -> NetSpec {
    let mut net = NetSpec::new("image again", IMAGE);
    let x = net.add("c1", Op::Conv(Conv::new(3, 3).pad(1)), net.image());
    let x = net.join("add", Add, &[x, Id(0)]);
    let x = net.join("n", Op::Norm(Norm::new().residual()), &[Id(0), x]);
    finish(net, x)
}

/// Returns a network with batch normalisation of vectors after a flattened image. Each feature has its own statistics.
fn features() -> NetSpec {
    let mut net = NetSpec::new("features", IMAGE);
    let x = net.add("c1", Op::Conv(Conv::new(6, 3)), net.image());
    let x = net.add("flatten", Flatten, x);
    let x = net.add("n", Op::Norm(Norm::new().relu()), x);
    net.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    net
}

/// Returns a network that concatenates features of two flattened images of different sizes with the sum of a flattened
/// image and the output of a linear layer.
fn side_by_side() -> NetSpec {
    let mut net = NetSpec::new("side by side", IMAGE);
    let x = net.add("c1", Op::Conv(Conv::new(6, 3)), net.image());
    let first = net.add("f1", Flatten, x);
    let x = net.add("c2", Op::Conv(Conv::new(10, 3).stride(2)), net.image());
    let second = net.add("f2", Flatten, x);
    let whole = net.add("f3", Flatten, net.image());
    let third = net.add("fc1", Op::Linear(Linear::new(126)), second);
    let sum = net.join("add", Add, &[whole, third]);
    let x = net.join("cat", Concat, &[first, second, sum]);
    net.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    net
}

#[test]
fn inputs_of_different_layouts_are_copied_into_one() {
    let rows = rows(4);
    for net in [image_again(), features(), side_by_side()] {
        let mut reference = graph(Reference, net.clone(), 4, 1);
        let want = train(&mut reference, rows.all(), 0.25, MicroBatch::ONLY);
        for threads in [1, 2] {
            let mut graph = graph(cpu(threads), net.clone(), 4, 1);
            for _ in 0..2 {
                let got = train(&mut graph, rows.all(), 0.25, MicroBatch::ONLY);
                assert!((got.loss / want.loss - 1.0).abs() < 1e-5, "{}: {got:?}, expected {want:?}", net.name);
                assert_gradients(&net.name, &graph, &gradients(&reference), 1e-4);
            }
        }
        // a GPU reports what it cannot run
        let gpu = numerics::cuda(Precision::F32);
        match Graph::new(gpu, net.clone(), 4, Purpose::Train { bucket_bytes: 1 }, 7) {
            Ok(mut graph) => {
                train(&mut graph, rows.all(), 0.25, MicroBatch::ONLY);
                assert_gradients(&net.name, &graph, &gradients(&reference), 1e-4);
            }
            Err(BuildError::Backend(Error::Unsupported { op, why })) => {
                assert!(why.contains("linear layer"), "{}, {op}: {why}", net.name);
            }
            Err(other) => panic!("{}: {other}", net.name),
        }
    }
}

#[test]
fn a_network_without_scores_is_refused() {
    let mut net = NetSpec::new("no scores", IMAGE);
    net.add("c1", Op::Conv(Conv::new(5, 3)), net.image());
    let plain = Graph::new(Reference, net.clone(), 2, Purpose::Infer, 1).err();
    let blocked = Graph::new(cpu(1), net, 2, Purpose::Infer, 1).err();
    for error in [plain, blocked] {
        let Some(BuildError::Backend(Error::Unsupported { op, why })) = &error else { panic!("{error:?}") };
        assert!(op == "no scores" && why.contains("vector of scores"), "{op}: {why}");
    }
}

#[test]
fn two_layers_of_one_name_are_refused() {
    let mut net = NetSpec::new("two alike", IMAGE);
    let x = net.add("same", Op::Conv(Conv::new(6, 3)), net.image());
    net.add("same", Op::Linear(Linear::new(CLASSES)), x);
    let error = Graph::new(Reference, net, 2, Purpose::Infer, 1).err();
    let Some(BuildError::Spec(error)) = &error else { panic!("{error:?}") };
    assert!(error.net == "two alike" && error.layer == "same" && error.why.contains("same name"), "{error}");
}
