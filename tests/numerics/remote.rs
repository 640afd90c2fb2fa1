//! Training on a device with memory that the host cannot read and with delayed operations. After each step, the results
//! are bit-identical to those of the reference backend.

use backend::reference::Reference;
use backend::{Backend, Buffer, Input, LossSums};
use engine::optim::{Averaging, Ema, OptimizerSpec};
use engine::{Batch, Gather, Graph, Loss, MicroBatch, Purpose};
use net::{Conv, Dropout, Flatten, Linear, NetSpec, Norm, Op, Pool, PoolKind, Shape, Shortcut};

use crate::training::optimizer;
use support::numerics::noise;
use support::remote::Remote;

const IMAGE: Shape = Shape { c: 2, h: 6, w: 6 };
const CLASSES: usize = 5;

/// Returns a network with a residual block, batch normalisation, dropout, and at least three buckets of gradients.
fn net() -> NetSpec {
    let mut net = NetSpec::new("late", IMAGE);
    let x = net.add("conv1", Op::Conv(Conv::new(4, 3).pad(1)), net.image());
    let trunk = net.add("bn1", Op::Norm(Norm::new().relu()), x);
    let x = net.add("conv2", Op::Conv(Conv::new(8, 3).stride(2).pad(1)), trunk);
    let skip = net.add("short", Op::Shortcut(Shortcut { out_channels: 8, stride: 2 }), trunk);
    let x = net.join("bn2", Op::Norm(Norm::new().relu().residual()), &[x, skip]);
    let x = net.add("pool", Op::Pool(Pool::new(PoolKind::Avg, 3, 3)), x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("drop", Dropout(0.25), x);
    net.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    net
}

struct Rows {
    images: Vec<f32>,
    labels: Vec<u32>,
    ids: Vec<u64>,
}

impl Rows {
    fn new(step: u64, worker: u64, n: usize) -> Self {
        let seed = 100 * step + worker;
        let labels = (0..n as u32).map(|i| (i * 3 + step as u32) % CLASSES as u32).collect();
        Self { images: noise(n * IMAGE.elems(), seed, 1.0), labels, ids: (seed..seed + n as u64).collect() }
    }

    fn batch(&self) -> Batch<'_> {
        Batch { images: Input::Values(&self.images), labels: &self.labels, ids: &self.ids, epoch: 2 }
    }
}

/// Everything that training returns or changes.
#[derive(Debug, PartialEq)]
struct TrainingResult {
    sums: Vec<LossSums>,
    handed: Vec<Vec<usize>>,
    weights: Vec<Vec<f32>>,
    averages: Vec<Vec<f32>>,
    statistics: Vec<f64>,
}

/// Runs nine steps of `workers` workers. Buckets go to another thread, as to the thread that owns MPI, are changed there, and come back.
fn run_training<B: Backend>(backend: B, workers: usize, gather: Gather) -> (TrainingResult, Graph<B>) {
    let mut graph = Graph::new(backend, net(), 4, Purpose::Train { bucket_bytes: 200 }, 3).unwrap();
    graph.prepare_accumulation(0..workers, gather).unwrap();
    let mut spec = OptimizerSpec::sgd(0.9, true, 1e-3);
    spec.clip_norm = Some(0.5);
    let mut optimizer = optimizer(&graph, &spec);
    let mut ema = Ema::new(&graph, Averaging::Exponential { decay: 0.9 }).unwrap();
    let (mut sums, mut handed) = (Vec::new(), Vec::new());
    let mut statistics = vec![0.0; graph.running().len()];
    for step in 0..9 {
        let mut buckets = Vec::new();
        for worker in 0..workers {
            // some batches are shorter, and one is empty
            let rows = if step % 4 == 3 { 3 - (worker + 2) % 4 } else { 4 };
            let rows = Rows::new(step, worker as u64, rows);
            let turn = MicroBatch { worker, last: worker + 1 == workers };
            let loss = Loss { smoothing: 0.1, scale: 1.0 / (4.0 + step as f32) };
            let mut ready = |bucket: usize, mut all: Vec<B::Buf>| {
                all.iter_mut().for_each(|buffer| buffer.fetch().unwrap());
                buckets.push((bucket, all));
                Ok::<(), backend::Error>(())
            };
            graph.start(rows.batch(), loss, turn, Some(&mut ready)).unwrap();
            sums.push(graph.sums().unwrap());
            graph.pool_statistics(&mut statistics, &mut [0.0; 2]);
        }
        handed.push(buckets.iter().map(|(bucket, all)| 10 * bucket + all.len()).collect());
        let changed = std::thread::spawn(move || {
            for (_, all) in &mut buckets {
                let earlier: Vec<Vec<f32>> = all.iter_mut().map(|b| b.staged().unwrap().to_vec()).collect();
                let last = all.last_mut().unwrap();
                let sum = |i: usize| earlier.iter().map(|values| values[i]).sum::<f32>() * 0.5;
                last.staged().unwrap().iter_mut().enumerate().for_each(|(i, value)| *value = sum(i));
                last.unstage().unwrap();
            }
            buckets
        });
        changed.join().unwrap().into_iter().for_each(|(bucket, all)| graph.put(bucket, all));
        assert!(optimizer.step(&mut graph, 0.05 / (1.0 + step as f64), Some(&mut ema)).unwrap().finite);
        ema.update_running(graph.running_mut(), step + 1);
        graph.running_mut().iter_mut().for_each(|value| *value += 0.01);
        if step % 3 == 0 {
            let rows = Rows::new(1000, 0, 4);
            sums.push(graph.evaluate(rows.batch(), 0.0).unwrap());
            sums.push(ema.with(&mut graph, |graph| graph.evaluate(rows.batch(), 0.0)).unwrap());
        }
    }
    let all = |f: &dyn Fn(usize) -> Vec<f32>| (0..graph.params().len()).map(f).collect();
    let weights = all(&|i| graph.param(i).unwrap());
    let averages = all(&|i| graph.unpack(i, &ema.weights).unwrap());
    (TrainingResult { sums, handed, weights, averages, statistics }, graph)
}

#[test]
fn a_remote_device_computes_the_same_bits() {
    for (workers, gather) in [(1, Gather::Summed), (3, Gather::Summed), (3, Gather::PerWorker)] {
        let (expected, _) = run_training(Reference, workers, gather);
        let (got, graph) = run_training(Remote::new(), workers, gather);
        assert_eq!(got, expected, "{workers} workers, {gather:?}");
        assert!(expected.sums.iter().all(|sums| sums.loss.is_finite()));
        let replayed = graph.backend().replayed();
        assert!(replayed >= 5, "only {replayed} passes of {workers} workers were replayed");
    }
}

/// The host learns that a parameter is not finite from the sums of the pass after the update.
#[test]
fn a_non_finite_update_is_reported_by_the_next_pass() {
    let mut graph = Graph::new(Remote::new(), net(), 4, Purpose::Train { bucket_bytes: 1 << 20 }, 3).unwrap();
    let mut optimizer = optimizer(&graph, &OptimizerSpec::sgd(0.0, false, 0.0));
    let rows = Rows::new(0, 0, 4);
    let loss = Loss { smoothing: 0.0, scale: 0.25 };
    assert!(graph.train::<backend::Error>(rows.batch(), loss, MicroBatch::ONLY, None).unwrap().loss.is_finite());
    assert!(optimizer.step(&mut graph, f64::INFINITY, None).unwrap().finite, "the host cannot know this yet");
    assert!(graph.train::<backend::Error>(rows.batch(), loss, MicroBatch::ONLY, None).unwrap().loss.is_nan());
}
