//! Optimizer steps that a GPU replays take one call each and have the same bits as steps that are enqueued operation by operation.

use backend::cuda::{Cuda, Precision};
use backend::{Arena, Backend, Buffer, DeviceMemory};
use engine::optim::{
    Adagrad, Adam, AdamW, Averaging, Ema, Lars, Optimizer, OptimizerKind, OptimizerSpec, RmsProp, Sgd,
};
use engine::{Graph, Purpose};
use net::{Linear, NetSpec, Op, Shape};

use support::emulator;
use support::gpu::{alone, assert_recorded};
use support::numerics::{cuda, noise};

/// Number of layers. Each has its own bucket.
const BUCKETS: usize = 5;

pub fn graph(cuda: Cuda) -> Graph<Cuda> {
    let mut net = NetSpec::new("five layers", Shape::vector(70));
    let mut x = net.image();
    for (i, n) in [90, 33, 64, 128, 10].into_iter().enumerate() {
        x = net.add(&format!("fc{i}"), Op::Linear(Linear::new(n)), x);
    }
    let graph = Graph::new(cuda, net, 1, Purpose::Train { bucket_bytes: 1 }, 5).unwrap();
    assert_eq!(graph.layout().buckets.len(), BUCKETS);
    graph
}

pub fn optimizer<B: Backend>(graph: &Graph<B>, spec: &OptimizerSpec) -> Optimizer<B> {
    spec.check().unwrap();
    Optimizer::new(graph, spec).unwrap()
}

pub fn set_gradients(graph: &mut Graph<Cuda>, step: usize) {
    // the gradients of every third step exceed the clipping limits
    let size = if step.is_multiple_of(3) { 3.0 } else { 0.01 };
    for (i, bucket) in graph.to_update().2.buckets.iter_mut().enumerate() {
        bucket.write(0, &noise(bucket.len(), (20 * step + i) as u64, size)).unwrap();
    }
}

pub fn bits(graph: &Graph<Cuda>, arena: &Arena<Cuda>) -> Vec<u32> {
    let params = 0..graph.params().len();
    params.flat_map(|i| graph.unpack(i, arena).unwrap()).map(f32::to_bits).collect()
}

/// Returns a learning rate that warms up and then decays.
fn rate(step: usize) -> f64 {
    0.05 * (step as f64 + 1.0).min(4.0) / (1.0 + 0.3 * step as f64)
}

fn specs() -> Vec<OptimizerSpec> {
    let base = |kind| OptimizerSpec { weight_decay: 1e-2, ..OptimizerSpec::new(kind) };
    let lars = |larc| base(OptimizerKind::Lars(Lars { eta: Some(0.02), larc, ..Lars::default() }));
    let rmsprop = RmsProp { momentum: Some(0.9), centered: Some(true), ..RmsProp::default() };
    vec![
        OptimizerSpec { clip_value: Some(0.5), ..base(OptimizerKind::Sgd(Sgd::new(0.9, true))) },
        OptimizerSpec { clip_norm: Some(1.0), ..base(OptimizerKind::Adam(Adam::default())) },
        OptimizerSpec { no_decay: Some(vec!["*.bias".into()]), ..base(OptimizerKind::AdamW(AdamW(Adam::default()))) },
        base(OptimizerKind::RmsProp(rmsprop)),
        OptimizerSpec { clip_norm: Some(2.0), ..lars(None) },
        lars(Some(true)),
        base(OptimizerKind::Adagrad(Adagrad { lr_decay: Some(0.1), ..Adagrad::default() })),
    ]
}

const STEPS: usize = 8;

const AVERAGING: Averaging = Averaging::Exponential { decay: 0.8 };

/// Bits of parameters, averages and slots after a step, and the norm of the step's gradients.
type After = (Vec<u32>, Vec<u32>, Vec<Vec<u32>>, Option<f64>);

/// Runs all steps and returns their results. If `fresh` is set, each step has a new optimizer, so that no step is replayed.
fn run(spec: &OptimizerSpec, fresh: bool) -> Vec<After> {
    let mut graph = graph(cuda(Precision::F32));
    let mut ema = Ema::new(&graph, AVERAGING).unwrap();
    // all optimizers are kept, so that each has its own memory
    let mut optimizers = vec![optimizer(&graph, spec)];
    let mut course = Vec::new();
    for step in 0..STEPS {
        if fresh {
            let mut next = optimizer(&graph, spec);
            let last = optimizers.last().unwrap();
            next.set_steps(last.steps());
            for ((_, to), (_, from)) in next.slots_mut().zip(last.slots()) {
                to.buckets.iter_mut().zip(&from.buckets).for_each(|(to, from)| graph.backend().copy(to, from).unwrap());
            }
            optimizers.push(next);
        }
        set_gradients(&mut graph, step);
        let optimizer = optimizers.last_mut().unwrap();
        let stepped = optimizer.step(&mut graph, rate(step), Some(&mut ema)).unwrap();
        let slots = optimizer.slots().map(|(_, slot)| bits(&graph, slot)).collect();
        course.push((bits(&graph, graph.weights()), bits(&graph, &ema.weights), slots, stepped.grad_norm));
    }
    assert_recorded(graph.backend());
    course
}

#[test]
fn replayed_steps_have_the_bits_of_those_that_are_enqueued() {
    let _alone = alone();
    for spec in specs() {
        let (replayed, enqueued) = (run(&spec, false), run(&spec, true));
        for (step, (got, want)) in replayed.iter().zip(&enqueued).enumerate() {
            assert!(got == want, "{spec:?}: step {step} differs");
        }
        assert_eq!(replayed[0].3.is_some(), spec.clip_norm.is_some());
        assert!(replayed.windows(2).all(|pair| pair[0].0 != pair[1].0 && pair[0].1 != pair[1].1), "{spec:?}");
    }
}

/// With 16-bit precision, the libraries read copies of the weights. The update must write the same copies as a
/// conversion of the parameters.
#[test]
fn an_update_also_writes_the_16_bit_weights() {
    let _alone = alone();
    for precision in [Precision::Bf16, Precision::F16] {
        for spec in specs() {
            let cuda = cuda(precision);
            let (mut graph, images) = (graph(cuda), noise(70, 3, 1.0));
            let mut optimizer = optimizer(&graph, &spec);
            let scores = |graph: &mut Graph<Cuda>| {
                graph.scores(&images, 1).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let first = scores(&mut graph);
            for step in 0..3 {
                let scale = graph.backend().loss_scaling().map_or(1.0, |scaling| scaling.scale().unwrap().scale);
                for (i, bucket) in graph.to_update().2.buckets.iter_mut().enumerate() {
                    bucket.write(0, &noise(bucket.len(), (20 * step + i) as u64, f64::from(scale))).unwrap();
                }
                optimizer.step(&mut graph, rate(step), None).unwrap();
            }
            let updated = scores(&mut graph);
            // makes the backend convert the weights again, as if something else had changed them
            graph.arenas();
            assert!(updated == scores(&mut graph), "{precision}, {spec:?}: other weights than parameters");
            assert!(updated != first, "{precision}, {spec:?}: the steps changed nothing");
        }
    }
}

/// With f16, gradients are multiplied by the loss scale. The clipping limits apply to the unscaled gradients and must
/// not hide infinite ones.
#[test]
fn limits_come_after_the_scale_of_the_losses() {
    let _alone = alone();
    let by_value = OptimizerSpec { clip_value: Some(0.5), ..OptimizerSpec::sgd(0.0, false, 0.0) };
    let by_norm = OptimizerSpec { clip_norm: Some(0.5), ..OptimizerSpec::sgd(0.0, false, 0.0) };
    for spec in [by_value, by_norm] {
        let after = |precision: Precision, gradient: f32| {
            let mut graph = graph(cuda(precision));
            let scale = graph.backend().loss_scaling().map_or(1.0, |scaling| scaling.scale().unwrap().scale);
            let before = bits(&graph, graph.weights());
            for bucket in &mut graph.arenas().2.buckets {
                bucket.write(0, &vec![scale * gradient; bucket.len()]).unwrap();
            }
            optimizer(&graph, &spec).step(&mut graph, 0.1, None).unwrap();
            (before, bits(&graph, graph.weights()))
        };
        for gradient in [0.25, 4.0] {
            let (whole, half) = (after(Precision::F32, gradient), after(Precision::F16, gradient));
            assert!(half == whole && half.0 != half.1, "{spec:?}, {gradient}");
        }
        let (before, lost) = after(Precision::F16, f32::INFINITY);
        assert!(before == lost, "{spec:?}: a step with infinite gradients was not skipped");
    }
}

/// A step that is not replayed launches a kernel for every operation on every bucket, and small networks wait for the
/// host. A replayed step is a single launch.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "only the emulated GPU counts calls")]
fn a_replayed_step_is_one_call() {
    let _alone = alone();
    let made = || ["cuLaunchKernel", "cuGraphLaunch"].map(|name| emulator::calls(name).expect("the emulated GPU"));
    for spec in specs() {
        let cuda = cuda(Precision::F32);
        let mut graph = graph(cuda);
        let (mut optimizer, mut ema) = (optimizer(&graph, &spec), Ema::new(&graph, AVERAGING).unwrap());
        let mut counts = Vec::new();
        for step in 0..5 {
            set_gradients(&mut graph, step);
            let before = made();
            optimizer.step(&mut graph, rate(step), Some(&mut ema)).unwrap();
            let after = made();
            counts.push([0, 1].map(|i| after[i] - before[i]));
        }
        // at least one update and one average per bucket; the second step is recorded, and all later steps are replayed
        assert!(counts[0][0] >= 2 * BUCKETS as u64 && counts[0][1] == 0, "{spec:?}: {counts:?}");
        assert_eq!(counts[2..], [[0, 1]; 3], "{spec:?}: {counts:?}");
        println!("{}: {} kernels in one call", spec.kind.name(), counts[0][0]);
    }
}
