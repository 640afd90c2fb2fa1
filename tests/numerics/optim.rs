//! Every optimizer compared with ten recorded steps of its original (`golden/optim.json`), including clipping and
//! averages. Also tests long ranges on more than one thread, padding, and optimizers that are restored from their slots.
//! The last tests compare schedules step by step with PyTorch's recorded rates (`golden/schedules.json`).

use std::collections::BTreeMap;

use backend::cuda::Precision;
use backend::reference::Reference;
use backend::update::{LarsRule, NormedTensor, rates};
use backend::{Arena, Backend, Buffer, Norms, ParamGroup, Rule, Update};
use base::run_state::PlateauState;
use engine::optim::schedule::ScheduleKind;
use engine::optim::{Averaging, Ema, Optimizer, OptimizerKind, OptimizerSpec, Schedule, ScheduleSpec};
use engine::{Graph, Purpose};
use net::{Conv, Linear, NetSpec, Op, Shape};
use serde::Deserialize;

use crate::training::optimizer;
use support::numerics::{self, Example, Formula, assert_close, assert_near, golden, lamb, noise, rules};

#[derive(Deserialize)]
struct Golden {
    fill_example: Example,
    sizes: BTreeMap<String, usize>,
    start: BTreeMap<String, Formula>,
    gradients: Vec<BTreeMap<String, Formula>>,
    lrs: Vec<f64>,
    emas: Vec<Averages>,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Averages {
    decay: f64,
    averages: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
struct Run {
    name: String,
    optimizer: OptimizerSpec,
    params_after: Vec<Vec<f64>>,
    float32_error: f64,
    slots_after: BTreeMap<String, Vec<f64>>,
    #[serde(default)]
    grad_norms: Vec<f64>,
}

/// Creates a network with two parameters, `a.weight` (1, 7) and `b.weight` (5, 1), in plain layout without padding, each in its own bucket.
fn graph<B: Backend>(backend: B, file: &Golden) -> Graph<B> {
    let linear = |n: usize| Op::Linear(Linear { bias: false, ..Linear::new(n) });
    let mut net = NetSpec::new("two tensors", Shape::vector(file.sizes["a"]));
    let x = net.add("a", linear(1), net.image());
    net.add("b", linear(file.sizes["b"]), x);
    let mut graph = Graph::new(backend, net, 1, Purpose::Train { bucket_bytes: 1 }, 1).unwrap();
    assert_eq!(graph.layout().buckets.len(), 2);
    for i in 0..2 {
        let values = values(file, &file.start, i);
        graph.set_param(i, &values).unwrap();
    }
    graph
}

fn values(file: &Golden, formulas: &BTreeMap<String, Formula>, index: usize) -> Vec<f32> {
    let name = ["a", "b"][index];
    formulas[name].fill_n(file.sizes[name])
}

pub fn set_gradients<B: Backend>(graph: &mut Graph<B>, values: impl Fn(usize) -> Vec<f32>) {
    let mut arena = Arena::new(graph.backend(), &graph.layout().buckets).unwrap();
    for i in 0..graph.params().len() {
        graph.pack(i, &values(i), &mut arena).unwrap();
    }
    arena.buckets.into_iter().enumerate().for_each(|(c, bucket)| graph.put(c, vec![bucket]));
}

pub fn all<B: Backend>(graph: &Graph<B>, arena: &Arena<B>) -> Vec<f32> {
    (0..graph.params().len()).flat_map(|i| graph.unpack(i, arena).unwrap()).collect()
}

fn close(what: &str, got: &[f32], want: &[f64]) {
    assert_close(what, got, want, 1e-6 * numerics::magnitude(want));
}

fn check_run<B: Backend>(backend: B, file: &Golden, run: &Run) {
    let on = format!("{} on {}", run.name, backend.describe());
    let mut graph = graph(backend, file);
    let mut optimizer = optimizer(&graph, &run.optimizer);
    for (t, (formulas, &lr)) in file.gradients.iter().zip(&file.lrs).enumerate() {
        set_gradients(&mut graph, |i| values(file, formulas, i));
        let stepped = optimizer.step(&mut graph, lr, None).unwrap();
        assert!(stepped.finite, "{on}");
        assert_eq!(stepped.grad_norm.is_some(), run.optimizer.clip_norm.is_some(), "{on}");
        if let Some(norm) = stepped.grad_norm {
            assert_near(&format!("{on}: norm of step {}", t + 1), norm, run.grad_norms[t], 1e-6);
        }
        close(&format!("{on}, step {}", t + 1), &all(&graph, graph.weights()), &run.params_after[t]);
    }
    assert_eq!(optimizer.steps(), file.lrs.len() as u64);
    let slots: BTreeMap<&str, Vec<f32>> = optimizer.slots().map(|(name, slot)| (name, all(&graph, slot))).collect();
    for (name, want) in &run.slots_after {
        close(&format!("{on}: {name}"), &slots[name.as_str()], want);
    }
}

#[test]
fn ten_steps_equal_the_original_programs() {
    let file: Golden = golden("optim.json");
    file.fill_example.check(Formula::fill_n);
    for run in &file.runs {
        assert_eq!((run.params_after.len(), file.gradients.len()), (file.lrs.len(), file.lrs.len()), "{}", run.name);
        assert!(run.float32_error < 1e-6, "{}: the original's own float32 error is too large", run.name);
        check_run(Reference, &file, run);
        check_run(numerics::cpu(1), &file, run);
        check_run(numerics::cpu(2), &file, run);
    }
    let recorded = |kind: &str| file.runs.iter().any(|run| run.optimizer.kind.name() == kind);
    assert!(OptimizerKind::WORDS.iter().all(|kind| recorded(kind)));
}

fn check_averages<B: Backend>(backend: B, file: &Golden, wanted: &Averages) {
    let on = format!("averages with decay {} on {}", wanted.decay, backend.describe());
    let mut graph = graph(backend, file);
    let mut ema = Ema::new(&graph, Averaging::Exponential { decay: wanted.decay }).unwrap();
    let mut optimizer = optimizer(&graph, &OptimizerSpec::sgd(0.0, false, 0.0));
    for (t, want) in wanted.averages.iter().enumerate() {
        graph.set_param(0, &values(file, &file.gradients[t], 0)).unwrap();
        set_gradients(&mut graph, |i| vec![0.0; graph_len(file, i)]);
        optimizer.step(&mut graph, 0.1, Some(&mut ema)).unwrap();
        close(&format!("{on}, step {}", t + 1), &graph.unpack(0, &ema.weights).unwrap(), want);
    }
    let own = graph.param(0).unwrap();
    let average = ema.with(&mut graph, |graph| graph.param(0).unwrap());
    close(&format!("{on}, in the graph"), &average, &wanted.averages[wanted.averages.len() - 1]);
    assert_eq!(graph.param(0).unwrap(), own, "{on}: the weights must be restored");
}

#[test]
fn averages_as_in_tensorflow() {
    let file: Golden = golden("optim.json");
    for wanted in &file.emas {
        assert_eq!(wanted.averages.len(), file.gradients.len());
        check_averages(Reference, &file, wanted);
        check_averages(numerics::cpu(2), &file, wanted);
    }
}

/// Compares lookahead with a plain loop over the parameters of a second graph.
fn check_lookahead<B: Backend>(backend: fn() -> B, file: &Golden) {
    let steps = file.gradients.len() as u64;
    let rule = Averaging::Lookahead { period: 3, decay: 0.8, power: 2.0, total: steps };
    let (mut graph, mut plain) = (graph(backend(), file), graph(backend(), file));
    let mut ema = Ema::new(&graph, rule).unwrap();
    let spec = OptimizerSpec::sgd(0.9, true, 1e-3);
    let (mut optimizer, mut plain_optimizer) = (optimizer(&graph, &spec), optimizer(&plain, &spec));
    let mut slow = all(&plain, plain.weights());
    for (t, (formulas, &lr)) in (1..).zip(file.gradients.iter().zip(&file.lrs)) {
        for graph in [&mut graph, &mut plain] {
            set_gradients(graph, |i| values(file, formulas, i));
        }
        optimizer.step(&mut graph, lr, Some(&mut ema)).unwrap();
        plain_optimizer.step(&mut plain, lr, None).unwrap();
        if t % 3 == 0 || t == steps {
            let keeps = if t % 3 == 0 { 0.8 * (t as f32 / steps as f32).powi(2) } else { 1.0 };
            let fast = all(&plain, plain.weights());
            slow.iter_mut().zip(fast).for_each(|(slow, fast)| *slow = keeps * *slow + (1.0 - keeps) * fast);
            let mut rest = &slow[..];
            for i in 0..plain.params().len() {
                let values;
                (values, rest) = rest.split_at(graph_len(file, i));
                plain.set_param(i, values).unwrap();
            }
        }
        let want: Vec<f64> = all(&plain, plain.weights()).into_iter().map(f64::from).collect();
        close(&format!("lookahead, step {t}"), &all(&graph, graph.weights()), &want);
    }
    assert_eq!(all(&graph, &ema.weights), all(&graph, graph.weights()), "the run ends with the averages");
}

#[test]
fn lookahead_as_a_plain_loop() {
    let file: Golden = golden("optim.json");
    assert_ne!(file.gradients.len() % 3, 0, "the last step must not be a multiple of the period");
    check_lookahead(|| Reference, &file);
    check_lookahead(|| numerics::cpu(2), &file);
}

/// Number of elements: more than the minimum share of a thread, and not a multiple of the vector loop's step.
const LONG: usize = 20_003;

fn buffer<B: Backend>(backend: &B, values: &[f32]) -> B::Buf {
    let mut buffer = backend.alloc(values.len()).unwrap();
    buffer.staged().unwrap().copy_from_slice(values);
    buffer.unstage().unwrap();
    buffer
}

/// Runs one step over two groups with a gap between them. Returns the parameters, then the slots, and whether all are finite.
fn long_step<B: Backend>(backend: &B, rule: Rule, spoil: Option<f32>) -> (Vec<Vec<f32>>, bool) {
    let group = |range, weight_decay, rate| ParamGroup { range, weight_decay, rate };
    let groups = [group(0..9_001, 0.1, rates::PLAIN), group(9_016..LONG, 0.0, rates::FIRST)];
    let rates = buffer(backend, &[0.5, 0.0, 1.0, 0.3]);
    let mut w = buffer(backend, &noise(LONG, 1, 1.0));
    let mut gradients = noise(LONG, 2, 1.0);
    gradients[17_000] = spoil.unwrap_or(gradients[17_000]);
    let g = buffer(backend, &gradients);
    // valid slots: mean squares are not negative, and the square of a mean is not larger than the mean square
    let squares: Vec<f32> = noise(LONG, 3, 0.4).iter().map(|x| x + 0.5).collect();
    let small = noise(LONG, 4, 0.1);
    let starts: &[&[f32]] = match rule {
        Rule::Adam(_) => &[&small, &squares],
        Rule::Lamb(_) => &[&small, &squares, &small],
        _ => &[&squares, &small, &small],
    };
    let mut slots: Vec<B::Buf> = starts[..rule.slots()].iter().map(|start| buffer(backend, start)).collect();
    let update = Update { rule, lr: 0.1 };
    let mut borrowed: Vec<&mut B::Buf> = slots.iter_mut().collect();
    let finite = backend.update(&update, &groups, &rates, &mut w, &g, &mut borrowed).unwrap();
    (std::iter::once(&w).chain(&slots).map(|b| b.host().unwrap()[..LONG].to_vec()).collect(), finite)
}

#[test]
fn long_ranges_agree_and_threads_change_nothing() {
    for rule in rules().into_iter().chain([lamb(false)]) {
        let (want, finite) = long_step(&Reference, rule, None);
        assert!(finite);
        let (one, _) = long_step(&numerics::cpu(1), rule, None);
        for (got, want) in one.iter().zip(&want) {
            assert_close(&format!("{rule:?}"), got, want, 1e-6);
            assert_eq!(got[9_001..9_016], want[9_001..9_016], "{rule:?}: elements between the groups changed");
        }
        // the first of two passes does not change the parameters
        assert_eq!(one[0] == noise(LONG, 1, 1.0), rule.second_pass().is_some(), "{rule:?}");
        for threads in [2, 3] {
            assert_eq!(long_step(&numerics::cpu(threads), rule, None).0, one, "{rule:?}, {threads} threads");
        }
    }
}

fn check_not_finite<B: Backend>(backend: &B) {
    for rule in rules() {
        let name = backend.describe();
        assert!(!long_step(backend, rule, Some(f32::NAN)).1, "{rule:?} on {name}: a NaN was not found");
        assert!(!long_step(backend, rule, Some(f32::INFINITY)).1, "{rule:?} on {name}: infinite element not found");
    }
}

#[test]
fn every_rule_detects_non_finite_updates() {
    // only on the CPU: a GPU reports such parameters with its next sums, see tests/cuda/backend.rs
    check_not_finite(&Reference);
    check_not_finite(&numerics::cpu(1));
    check_not_finite(&numerics::cpu(2));
}

/// Returns the rates of a step over two buckets with tensors of many lengths, one of them empty.
fn rates_of<B: Backend>(backend: &B, limit: Option<f64>) -> Vec<f32> {
    let normed = |range, adapts| NormedTensor { range, weight_decay: 0.01, adapts, factor: 1.0 };
    let long = vec![normed(0..16, true), normed(16..16, true), normed(32..12_345, false), normed(12_352..LONG, true)];
    let norms = Norms { tensors: vec![long, vec![normed(0..100, true)]], limit };
    let arena =
        |salt| Arena { buckets: vec![buffer(backend, &noise(LONG, salt, 3.0)), buffer(backend, &noise(100, 9, 1.0))] };
    let update =
        Update { rule: Rule::Lars(LarsRule { momentum: 0.9, eta: 0.1, larc: true, corrected: false }), lr: 0.04 };
    let mut to = buffer(backend, &[7.0; rates::FIRST + 5]);
    backend.queue().iter().for_each(|queue| queue.begin_update(&update, 0.0).unwrap());
    backend.rates(&norms, &update, &arena(5), &arena(6), &mut to).unwrap();
    let mut values = vec![0.0; to.len()];
    to.read(0, &mut values).unwrap();
    values
}

#[test]
fn rates_have_the_same_bits_on_any_threads() {
    for limit in [None, Some(2.0), Some(1e9)] {
        let (want, one) = (rates_of(&Reference, limit), rates_of(&numerics::cpu(1), limit));
        assert_eq!((want[rates::GRADIENT] < 1.0, want[rates::NORM] > 10.0), (limit == Some(2.0), true), "{limit:?}");
        assert_eq!([rates::PLAIN, rates::FIRST + 1, rates::FIRST + 2].map(|i| want[i]), [1.0; 3], "{limit:?}");
        assert_close(&format!("{limit:?}"), &one, &want, 1e-6);
        for threads in [2, 3] {
            assert_eq!(rates_of(&numerics::cpu(threads), limit), one, "{limit:?}, {threads} threads");
        }
    }
}

/// Both kinds of clipping must keep a NaN. Otherwise nothing would detect it.
#[test]
fn clipping_keeps_nan() {
    let file: Golden = golden("optim.json");
    for key in ["clip_norm", "clip_value"] {
        for spoil in [f32::NAN, f32::INFINITY] {
            let mut graph = graph(numerics::cpu(1), &file);
            let mut spec = OptimizerSpec::sgd(0.9, false, 0.0);
            (spec.clip_norm, spec.clip_value) = if key == "clip_norm" { (Some(1.0), None) } else { (None, Some(1.0)) };
            let mut optimizer = optimizer(&graph, &spec);
            set_gradients(&mut graph, |i| vec![spoil; graph_len(&file, i)]);
            let finite = optimizer.step(&mut graph, 0.1, None).unwrap().finite;
            // clipping by value limits an infinite element like any large one
            assert_eq!(finite, key == "clip_value" && spoil.is_infinite(), "{key}, {spoil}");
        }
    }
}

/// The GPU backend records the second step as a CUDA graph and replays it in the later steps. A learning rate, bias
/// correction or weight that the graph contains as a constant would make these steps differ from the CPU's.
#[test]
fn a_gpu_takes_the_same_steps() {
    let file: Golden = golden("optim.json");
    for run in &file.runs {
        check_run(numerics::cuda(Precision::F32), &file, run);
    }
    for wanted in &file.emas {
        check_averages(numerics::cuda(Precision::F32), &file, wanted);
    }
    for limit in [None, Some(2.0), Some(1e9)] {
        let cuda = numerics::cuda(Precision::F32);
        assert_close(&format!("{limit:?}"), &rates_of(&cuda, limit), &rates_of(&Reference, limit), 1e-6);
    }
}

/// As in PyTorch, a step that loss scaling skips does not count in the bias corrections of Adam and LAMB, or in the decay
/// of Adagrad's learning rate.
#[test]
fn steps_that_f16_skips_do_not_count() {
    let file: Golden = golden("optim.json");
    let counts = |run: &&Run| optimizer(&graph(Reference, &file), &run.optimizer).counts_steps();
    let runs: Vec<&Run> = file.runs.iter().filter(counts).collect();
    assert!(runs.len() > 1);
    for run in runs {
        let steps = |skips: bool| {
            let mut graph = graph(numerics::cuda(Precision::F16), &file);
            let mut optimizer = optimizer(&graph, &run.optimizer);
            let start = all(&graph, graph.weights());
            if skips {
                set_gradients(&mut graph, |i| vec![f32::INFINITY; graph_len(&file, i)]);
                optimizer.step(&mut graph, 0.1, None).unwrap();
                assert_eq!(all(&graph, graph.weights()), start, "{}", run.name);
            }
            for t in 0..3 {
                let scale = graph.backend().loss_scaling().unwrap().scale().unwrap().scale;
                let unscaled = |i: usize| values(&file, &file.gradients[t], i);
                set_gradients(&mut graph, |i| unscaled(i).iter().map(|g| g * scale).collect());
                optimizer.step(&mut graph, file.lrs[t], None).unwrap();
            }
            all(&graph, graph.weights())
        };
        let want: Vec<f64> = steps(false).into_iter().map(f64::from).collect();
        close(&run.name, &steps(true), &want);
    }
}

fn graph_len(file: &Golden, index: usize) -> usize {
    file.sizes[["a", "b"][index]]
}

/// Runs the settings of `golden/optim.json` on a network with padded weights. The padding must stay zero.
#[test]
fn padding_stays_zero() {
    let file: Golden = golden("optim.json");
    let mut net = NetSpec::new("padded", Shape::image(3, 4, 4));
    let x = net.add("conv1", Op::Conv(Conv::new(5, 3).pad(1).bias(0.0)), net.image());
    let x = net.add("conv2", Op::Conv(Conv::new(3, 3).pad(1)), x);
    net.add("fc", Op::Linear(Linear::new(2)), x);
    for run in &file.runs {
        let purpose = Purpose::Train { bucket_bytes: 1 << 20 };
        let mut graph = Graph::new(numerics::cpu(1), net.clone(), 1, purpose, 1).unwrap();
        let sizes: Vec<usize> = graph.params().iter().map(|p| p.spec.elems()).collect();
        let (elems, memory) = (sizes.iter().sum::<usize>(), graph.layout().buckets.iter().sum::<usize>());
        assert!(memory > elems + 20, "{memory} elements for {elems}: no padding, nothing to test");
        let mut optimizer = optimizer(&graph, &run.optimizer);
        for step in 0..3 {
            set_gradients(&mut graph, |i| noise(sizes[i], 10 * step + i as u64, 1.0));
            optimizer.step(&mut graph, 0.1, None).unwrap();
        }
        let slots = optimizer.slots();
        for (name, arena) in slots.chain([("the parameters", graph.weights())]) {
            let values: Vec<f32> = arena.buckets.iter().flat_map(|c| c.host().unwrap().to_vec()).collect();
            let nonzero = |values: &[f32]| values.iter().filter(|v| **v != 0.0).count();
            assert!(values.iter().all(|v| v.is_finite()), "{} of {}", name, run.name);
            assert_eq!(nonzero(&values), nonzero(&all(&graph, arena)), "{} of {}", name, run.name);
        }
    }
}

/// A new optimizer with copied slots and step count continues exactly as the old one.
#[test]
fn a_restored_optimizer_continues_exactly() {
    let file: Golden = golden("optim.json");
    for run in &file.runs {
        let mut graph = graph(numerics::cpu(1), &file);
        let mut first = optimizer(&graph, &run.optimizer);
        let go = |optimizer: &mut Optimizer<_>, graph: &mut Graph<_>, steps: std::ops::Range<usize>| {
            for t in steps {
                set_gradients(graph, |i| values(&file, &file.gradients[t], i));
                optimizer.step(graph, file.lrs[t], None).unwrap();
            }
        };
        go(&mut first, &mut graph, 0..5);
        let plain: Vec<Vec<Vec<f32>>> =
            first.slots().map(|(_, slot)| (0..2).map(|i| graph.unpack(i, slot).unwrap()).collect()).collect();
        let mut second = optimizer(&graph, &run.optimizer);
        second.set_steps(first.steps());
        for ((_, slot), plain) in second.slots_mut().zip(&plain) {
            plain.iter().enumerate().for_each(|(i, values)| graph.pack(i, values, slot).unwrap());
        }
        let start: Vec<Vec<f32>> = (0..2).map(|i| graph.param(i).unwrap()).collect();
        go(&mut first, &mut graph, 5..10);
        let want = all(&graph, graph.weights());
        start.iter().enumerate().for_each(|(i, values)| graph.set_param(i, values).unwrap());
        go(&mut second, &mut graph, 5..10);
        assert_eq!(all(&graph, graph.weights()), want, "{}", run.name);
    }
}

#[derive(Deserialize)]
struct Rates {
    steps_per_epoch: u64,
    epochs: u32,
    runs: Vec<RatesRun>,
}

#[derive(Deserialize)]
struct RatesRun {
    name: String,
    schedule: ScheduleSpec,
    lrs: Vec<f64>,
    /// The momentum of each step, if the schedule sets it.
    #[serde(default)]
    momenta: Vec<f64>,
    /// The scores after each epoch that the plateau schedule reads.
    #[serde(default)]
    scores: Vec<f64>,
}

#[track_caller]
fn rate_is(what: &str, got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-12, "{what}: got {got}, want {want}");
}

#[test]
fn rates_equal_pytorchs() {
    let file: Rates = golden("schedules.json");
    for run in &file.runs {
        let mut schedule = Schedule::new(&run.schedule, 64, file.epochs, file.steps_per_epoch).unwrap();
        if let ScheduleKind::Plateau(plateau) = &run.schedule.kind {
            let mut state: Option<PlateauState> = None;
            for (epoch, (want, score)) in run.lrs.iter().zip(&run.scores).enumerate() {
                rate_is(&format!("{}, epoch {epoch}", run.name), schedule.lr(0), *want);
                schedule.set_drops(state.insert(plateau.after(state, *score)).drops);
            }
            assert!(schedule.drops() > 1, "{}: the rate never falls, so nothing is tested", run.name);
            continue;
        }
        assert_eq!(run.lrs.len() as u64, schedule.total_steps());
        for (step, want) in (0..).zip(&run.lrs) {
            rate_is(&format!("{}, step {step}", run.name), schedule.lr(step), *want);
        }
        for step in 0..schedule.total_steps() {
            let (got, want) = (schedule.momentum(step), run.momenta.get(step as usize));
            assert_eq!(got.is_some(), want.is_some(), "{}", run.name);
            rate_is(
                &format!("momentum of {}, step {step}", run.name),
                got.unwrap_or(0.0),
                want.copied().unwrap_or(0.0),
            );
        }
    }
    let cycled = file.runs.iter().filter(|run| !run.momenta.is_empty()).count();
    assert_eq!(cycled, 2, "two schedules must set the momentum");
    let named = |kind: &str| file.runs.iter().any(|run| run.schedule.kind.name() == kind);
    assert!(["one_cycle", "warm_restarts", "plateau"].into_iter().all(named));
}

/// A run limited by steps may end within an epoch. Its schedule ends at the same step.
#[test]
fn a_limit_of_steps_shortens_the_schedule() {
    let spec: ScheduleSpec = toml::from_str("kind = \"cosine\"\nbase_lr = 0.1\nwarmup_epochs = 1").unwrap();
    let schedule = Schedule::over(&spec, 64, 25, 10).unwrap();
    assert_eq!((schedule.total_steps(), schedule.epochs()), (25, 2.5));
    rate_is("start", schedule.lr(10), 0.1);
    rate_is("end", schedule.lr(25), 0.0);
    let error = Schedule::over(&spec, 64, 8, 10).unwrap_err();
    assert_eq!(error.key, "warmup_epochs");
    assert!(error.why.contains("epochs = 0.8") && error.why.contains("got 1"), "{error}");
}
