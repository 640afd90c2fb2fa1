//! Helpers of the numerics tests: they run one operation on any backend in any layout and compare results. Also update rules, and bounds
//! for the rounding errors of f32 arithmetic, which depend on the lengths of the sums and on how the result reacts to such errors.

use super::emulator;
pub use super::formula::{Chooser, Example, Formula, noise};
use backend::cpu::Cpu;
use backend::cuda::{Cuda, Precision, Settings};
use backend::reference::Reference;
use backend::update::{AdagradRule, AdamRule, LambRule, LarsRule, LionRule, RmsPropRule, RmsPropVariant, SgdRule};
use backend::{
    Across, Arena, Backend, Buffer, DrawKey, Error, Gradients, Input, Keeps, ParamFormat, Pass, PassInput, PlanRequest,
    Planned, Rule, Slot, TensorDesc,
};
use net::{Conv, Linear, Norm, Op, Shape};
use serde::de::DeserializeOwned;

/// Channel block sizes with which the operations of a backend without blocked layouts are tested.
pub const PLAIN: &[usize] = &[1];
/// Channel block sizes for the CPU: plain, the blocks of AVX2 and AVX-512, and 0 for channels last.
pub const BLOCKED: &[usize] = &[1, 8, 16, 0];
/// Channel block sizes for CUDA: 0 means that all channels of a pixel are stored next to each other.
pub const CHANNELS_LAST: &[usize] = &[0];

pub fn cpu(threads: usize) -> Cpu {
    Cpu::new(threads).unwrap_or_else(|e| panic!("{e}"))
}

/// Creates the CUDA backend on the first GPU with the feature `real-gpu`, otherwise on the emulated GPU.
pub fn cuda(precision: Precision) -> Cuda {
    cuda_with(Settings { precision, ..Settings::default() })
}

/// Works like [`cuda`], but returns `None` if the environment excludes the emulated GPU, which needs x86-64 and does not
/// run under valgrind.
pub fn cuda_unless_left_out() -> Option<Cuda> {
    const LEFT_OUT: &str = "TRIREME_TEST_CPU_ONLY";
    if std::env::var_os(LEFT_OUT).is_some() {
        crate::skip(&format!("on the GPU: {LEFT_OUT} is set"));
        return None;
    }
    Some(cuda(Precision::F32))
}

/// Works like [`cuda`], with these settings.
pub fn cuda_with(settings: Settings) -> Cuda {
    if !emulator::real_gpu() {
        emulator::load();
    }
    // results must be reproducible, so algorithms are not chosen by measuring
    let settings = Settings { deterministic: true, ..settings };
    Cuda::open(0, settings).unwrap_or_else(|e| panic!("{e}; see `trireme doctor`"))
}

/// Calls a function that is generic over the backend as `f(&backend, name, layouts, ...)`: with the reference, the CPU
/// with 1 and 2 threads, and a real or emulated GPU.
#[macro_export]
macro_rules! on_every_backend {
    ($f:ident($($arg:expr),*)) => {
        $f(&backend::reference::Reference, "reference", $crate::numerics::PLAIN $(, $arg)*);
        $f(&$crate::numerics::cpu(1), "cpu, 1 thread", $crate::numerics::BLOCKED $(, $arg)*);
        $f(&$crate::numerics::cpu(2), "cpu, 2 threads", $crate::numerics::BLOCKED $(, $arg)*);
        if let Some(cuda) = $crate::numerics::cuda_unless_left_out() {
            $f(&cuda, "cuda", $crate::numerics::CHANNELS_LAST $(, $arg)*);
        }
    };
}
pub use crate::on_every_backend;

/// Reads a JSON file of `tests/golden`.
pub fn golden<T: DeserializeOwned>(file: &str) -> T {
    let path = crate::in_repository("tests/golden").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// One operation with its inputs, for one batch.
#[derive(Clone, Debug)]
pub struct Case {
    pub op: Op,
    pub n: usize,
    /// Shape of one sample of the first input as it is stored. A linear layer may read an image.
    pub shape: Shape,
    /// Shape of one sample of each further input.
    pub others: Vec<Shape>,
    /// Inputs, in plain layout.
    pub x: Vec<Vec<f32>>,
    /// Parameters, in plain layout.
    pub params: Vec<Vec<f32>>,
    /// Running means, then running variances.
    pub running: Vec<f32>,
    /// If true, the pass uses batch statistics and dropout.
    pub training: bool,
    /// Gradient of the output. If absent, there is no backward pass.
    pub dy: Option<Vec<f32>>,
    /// If true, the first input is the network's input, for which no gradient is computed.
    pub first: bool,
    /// Number of groups into which batch normalisation divides the batch.
    pub bn_groups: usize,
    /// Seed, epoch, first sample id and op index for random draws.
    pub draws: (u64, u32, u64, u16),
}

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub y: Vec<f32>,
    pub dx: Vec<Vec<f32>>,
    pub dparams: Vec<Vec<f32>>,
    /// The sums that `pool_statistics` added, and its count.
    pub statistics: (Vec<f64>, u64),
}

impl Case {
    /// Creates a case with random inputs, parameters and output gradient, and random running statistics for batch normalisation.
    pub fn random(op: Op, n: usize, shape: Shape, k: u64) -> Self {
        let others = match op {
            Op::Multiply(_) => vec![Shape::vector(shape.c)],
            Op::Concat(_) => vec![Shape { c: 5, ..shape }, Shape { c: 8, ..shape }],
            _ => vec![shape; op.arity().expect("a number of inputs") - 1],
        };
        Self::joined(op, n, &[vec![shape], others].concat(), k)
    }

    /// Works like `random`, with inputs of these shapes.
    pub fn joined(op: Op, n: usize, shapes: &[Shape], k: u64) -> Self {
        let input = |(i, shape): (u64, &Shape)| noise(n * shape.elems(), 100 * k + i, 1.0);
        let x: Vec<Vec<f32>> = (0..).zip(shapes).map(input).collect();
        let (shape, others) = (shapes[0], shapes[1..].to_vec());
        let all: Vec<Shape> = shapes.iter().map(|shape| logical(&op, *shape)).collect();
        let specs = op.params(all[0]);
        let params = specs.iter().enumerate().map(|(i, spec)| {
            let fan: usize = spec.shape[1..].iter().product();
            let scales = matches!(op, Op::Norm(_) | Op::LayerNorm(_) | Op::GroupNorm(_));
            let shift = if scales && i == 0 { 1.0 } else { 0.0 };
            Formula::new(100 * k + 10 + i as u64, 1.0 / (fan as f64).sqrt(), shift).noise_n(spec.elems())
        });
        let y = op.output(&all).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        let c = if matches!(op, Op::Norm(_)) { shape.c } else { 0 };
        let mut running = noise(c, 100 * k + 20, 0.5);
        running.extend(Formula::new(100 * k + 21, 0.5, 1.0).noise_n(c));
        let params = params.collect();
        let dy = Some(noise(n * y.elems(), 100 * k + 30, 1.0));
        Self {
            op,
            n,
            shape,
            others,
            x,
            params,
            running,
            training: true,
            dy,
            first: false,
            bn_groups: 1,
            draws: (9, 2, 1_000, 5),
        }
    }

    /// Returns the same case without ReLU. Its result shows how close each value is to the kink at 0.
    pub fn without_relu(&self) -> Self {
        let op = match self.op.clone() {
            Op::Conv(c) => Op::Conv(Conv { relu: false, ..c }),
            Op::Linear(l) => Op::Linear(Linear { relu: false, ..l }),
            Op::Norm(n) => Op::Norm(Norm { relu: false, ..n }),
            other => other,
        };
        Self { op, ..self.clone() }
    }

    /// Sets the gradient to zero where rounding a factor could move a value to the other side of ReLU.
    pub fn clear_of_corners(mut self) -> Self {
        let before = on_reference(&Self { dy: None, ..self.without_relu() }).y;
        let dy = self.dy.iter_mut().flatten();
        dy.zip(before).filter(|(_, y)| y.abs() < 0.05).for_each(|(dy, _)| *dy = 0.0);
        self
    }

    /// Runs the operation on inputs with channel blocks of `block`. All buffers are longer than needed and filled with
    /// large values. As in training, backward gets empty buffers for the tensors that the plan does not keep.
    ///
    /// If `split` is set and the plan can add gradients, the gradient of the output is passed as two summands. Panics
    /// if padding channels of a result are not zero.
    pub fn run<B: Backend>(&self, backend: &B, block: usize, split: bool) -> Outcome {
        self.run_by(backend, block, split, 0).expect("a plan")
    }

    /// Works like `run`, but with the backend's implementation `number`. Number 0 is the one that the backend chooses.
    /// Returns `None` if there are not that many implementations.
    pub fn run_by<B: Backend>(&self, backend: &B, block: usize, split: bool, number: usize) -> Option<Outcome> {
        let what = format!("{:?} of {} x {} in blocks of {block}", self.op, self.n, self.shape);
        let shapes = [vec![self.shape], self.others.clone()].concat();
        let desc = |shape: &Shape| {
            let block = if block == 0 { shape.c } else { block };
            TensorDesc { block, ..TensorDesc::plain(self.n, *shape) }
        };
        let descs: Vec<TensorDesc> = shapes.iter().map(desc).collect();
        let shapes: Vec<Shape> = shapes.iter().map(|shape| logical(&self.op, *shape)).collect();
        let alone = PlanRequest::alone("case", &self.op, &shapes, &descs);
        let (train, wants_dx, bn_groups, index) = (self.dy.is_some(), !self.first, self.bn_groups, self.draws.3);
        let request = PlanRequest { train, wants_dx, bn_groups, index, ..alone };
        let mut plan = match number {
            0 => backend.plan(&request).unwrap_or_else(|e| panic!("{what}: {e}")),
            _ => {
                let all = backend.implementations()?.all(&request).unwrap_or_else(|e| panic!("{what}: {e}"));
                let taken = backend.plan(&request).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(
                    all[0].plan.implementation(),
                    taken.implementation(),
                    "{what}: the chosen implementation must be the first"
                );
                all.into_iter().nth(number)?.plan
            }
        };
        let (arena, slots) = self.pack(backend, plan.as_ref());
        let ids: Vec<u64> = (self.draws.2..).take(self.n).collect();
        let key = DrawKey { seed: self.draws.0, epoch: self.draws.1, ids: &ids };
        let (running, training) = (self.running.as_slice(), self.training);
        let start = PassInput {
            images: Input::Values(&self.x[0]),
            images_again: false,
            key,
            loss: None,
            targets: None,
            running,
            training,
        };
        backend
            .begin(&start, &descs[0], &mut rubbish(backend, self.x[0].len()))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        backend.weights_changed(&arena).unwrap_or_else(|e| panic!("{what}: {e}"));
        let pass = Pass {
            backend,
            params: &arena,
            slots: &slots,
            running,
            running_at: 0,
            training,
            frozen: false,
            key,
            across: None,
        };
        let inputs: Vec<B::Buf> = self.x.iter().zip(&descs).map(|(x, desc)| place(backend, desc, x)).collect();
        let inputs: Vec<&B::Buf> = inputs.iter().collect();
        let y_desc = plan.output();
        let mut y = rubbish(backend, y_desc.elems());
        plan.forward(&pass, &inputs, &mut y).unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut out = Outcome { y: read(backend, &y_desc, &y, &what), ..Outcome::default() };
        let Some(dy) = &self.dy else { return Some(out) };

        let two = split && plan.adds_two_gradients();
        let second = noise(dy.len(), 4_242, 0.5);
        let first: Vec<f32> = dy.iter().zip(&second).map(|(d, s)| if two { d - s } else { *d }).collect();
        let mut dy = place(backend, &y_desc, &first);
        let dy2 = two.then(|| place(backend, &y_desc, &second));
        let mut dparams = Arena::new(backend, &[arena.buckets[0].len()]).unwrap_or_else(|e| panic!("{what}: {e}"));
        dparams.buckets[0] = rubbish(backend, arena.buckets[0].len());
        let mut dx: Vec<B::Buf> = descs.iter().map(|desc| rubbish(backend, desc.elems())).collect();
        let wanted = dx
            .iter_mut()
            .enumerate()
            .map(|(i, dx)| (plan.input_with_gradient_in_dy() != Some(i) && !(self.first && i == 0)).then_some(dx));
        let (Keeps { inputs: kept, output }, nothing) = (plan.tensors_for_backward(), B::Buf::default());
        let inputs: Vec<&B::Buf> = (0..).zip(inputs).map(|(i, x)| if i < kept { x } else { &nothing }).collect();
        let g = Gradients {
            x: &inputs,
            y: if output { &y } else { &nothing },
            dy: &mut dy,
            dy2: dy2.as_ref(),
            dx: wanted.collect(),
            dparams: &mut dparams,
        };
        plan.backward(&pass, g).unwrap_or_else(|e| panic!("{what}: {e}"));
        backend.gradients_done(0, &mut dparams.buckets[0]).unwrap_or_else(|e| panic!("{what}: {e}"));
        for (i, desc) in descs.iter().enumerate() {
            let from = if plan.input_with_gradient_in_dy() == Some(i) { &dy } else { &dx[i] };
            out.dx.push(if self.first && i == 0 { Vec::new() } else { read(backend, desc, from, &what) });
        }
        for ((format, slot), plain) in plan.formats().iter().zip(&slots).zip(&self.params) {
            let mut d = vec![0.0; plain.len()];
            dparams.unpack(format, *slot, &mut d).unwrap_or_else(|e| panic!("{what}: {e}"));
            out.dparams.push(d);
        }
        let mut sums = vec![0.0; self.running.len()];
        if let Some(queue) = backend.queue() {
            // this call also fetches the statistics; there is no loss
            queue.loss_sums().unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        let count = plan.pool_statistics(&self.running, &mut sums);
        out.statistics = (sums, count);
        Some(out)
    }

    /// Packs the parameters into one bucket. Each parameter starts on a cache line.
    fn pack<B: Backend>(&self, backend: &B, plan: &dyn Planned<B>) -> (Arena<B>, Vec<Slot>) {
        let mut slots = Vec::new();
        let mut end = 0;
        for format in plan.formats() {
            let len = format.elems();
            slots.push(Slot { bucket: 0, offset: end, len });
            end = (end + len).next_multiple_of(16);
        }
        let mut arena = Arena::new(backend, &[end]).unwrap_or_else(|e| panic!("{e}"));
        for ((format, slot), plain) in plan.formats().iter().zip(&slots).zip(&self.params) {
            arena.pack(format, plain, *slot).unwrap_or_else(|e| panic!("{e}"));
        }
        (arena, slots)
    }
}

/// Returns the shape for which the operation is planned: a linear layer reads an image as a vector.
fn logical(op: &Op, shape: Shape) -> Shape {
    if matches!(op, Op::Linear(_)) { Shape::vector(shape.elems()) } else { shape }
}

/// Returns a buffer that is longer than needed and filled with 1e30.
fn rubbish<B: Backend>(backend: &B, elems: usize) -> B::Buf {
    let mut buffer = backend.alloc(elems + 40).unwrap_or_else(|e| panic!("{e}"));
    backend.upload(&vec![1e30; elems + 40], &mut buffer).unwrap_or_else(|e| panic!("{e}"));
    buffer
}

/// Uploads a plain tensor in the layout `desc`, to a buffer that is longer than needed.
fn place<B: Backend>(backend: &B, desc: &TensorDesc, plain: &[f32]) -> B::Buf {
    let mut laid_out = vec![0.0; desc.elems()];
    desc.from_plain(plain, &mut laid_out);
    let mut buffer = rubbish(backend, desc.elems());
    backend.upload(&laid_out, &mut buffer).unwrap_or_else(|e| panic!("{e}"));
    buffer
}

/// Downloads a tensor in plain layout. Panics if padding channels are not zero.
fn read<B: Backend>(backend: &B, desc: &TensorDesc, from: &B::Buf, what: &str) -> Vec<f32> {
    let plain = backend.download(desc, from).unwrap_or_else(|e| panic!("{what}: {e}"));
    if let Some(host) = from.host() {
        let mut real = vec![false; desc.sample_elems()];
        for (c, p) in (0..desc.shape.c).flat_map(|c| (0..desc.shape.plane()).map(move |p| (c, p))) {
            real[desc.at(c, p)] = true;
        }
        let padding = host[..desc.elems()].iter().zip(real.iter().cycle()).filter(|(_, real)| !**real);
        // a NaN input times the zero weights of the padding is NaN too
        let dirty = padding.filter(|(v, _)| **v != 0.0 && !v.is_nan()).count();
        assert_eq!(dirty, 0, "{what}: values in the padding between channels");
    }
    plain
}

/// Returns the running means, then the running variances, after a step. `sums` and `count` (n) come from
/// `pool_statistics`: S1 = S(n d) and S2 = S(M2 + n d^2) per channel. The new mean r + S1/n and the new variance
/// (S2/n - (S1/n)^2) n / (n - 1) are blended into the running values r with weight `momentum`.
pub fn blend(running: &[f32], sums: &[f64], count: f64, momentum: f64) -> Vec<f32> {
    let c = running.len() / 2;
    let old = |i: usize| f64::from(running[i]);
    let value = |i: usize| {
        let shift = sums[i % c] / count;
        if i < c { old(i) + shift } else { (sums[i] / count - shift * shift) * count / (count - 1.0) }
    };
    (0..2 * c).map(|i| ((1.0 - momentum) * old(i) + momentum * value(i)) as f32).collect()
}

pub fn magnitude<T: Copy + Into<f64>>(values: &[T]) -> f64 {
    largest(values.iter().map(|v| (*v).into()))
}

/// Returns the largest absolute value, or NaN if there is one. `f64::max` would ignore it.
pub fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |most, value| if value.is_nan() || value.abs() > most { value.abs() } else { most })
}

/// Returns true if the CPU backend has kernels of its own for this processor, such as Winograd's, instead of oneDNN only.
pub fn has_own_kernels() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let has = cfg!(target_arch = "aarch64");
    has
}

pub fn norm(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

/// Checks that both have the same length and that no elements differ by more than `tolerance`. NaN differs from everything.
pub fn assert_close<T: Copy + Into<f64>>(what: &str, got: &[f32], want: &[T], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}: number of elements");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let (g, w) = (f64::from(*g), (*w).into());
        let near = (g - w).abs() <= tolerance;
        assert!(near, "{what}, element {i} of {}: expected {w}, got {g}, tolerance {tolerance:e}", got.len());
    }
}

/// Checks that `got` differs from `want` by at most `relative` times `want`.
#[track_caller]
pub fn assert_near(what: &str, got: f64, want: f64, relative: f64) {
    let near = (got - want).abs() <= relative * want.abs();
    assert!(near, "{what}: expected {want}, got {got}, relative tolerance {relative:e}");
}

pub fn on_reference(case: &Case) -> Outcome {
    case.run(&Reference, 1, false)
}

/// Simulates this many ranks that all have the same rows.
pub struct IdenticalRanks(pub f64);

impl Across for IdenticalRanks {
    fn sum(&self, values: &mut [f64]) -> Result<(), Error> {
        values.iter_mut().for_each(|value| *value *= self.0);
        Ok(())
    }
}

/// Returns the rule for the first or the second pass of LAMB.
pub fn lamb(second_pass: bool) -> Rule {
    let (beta1, beta2, eps) = (0.9, 0.999, 1e-6);
    Rule::Lamb(LambRule { beta1, beta2, eps, correction1: 1.5, correction2: 20.0, step: 3, second_pass })
}

/// Returns update rules of every optimizer. The one of LAMB is for its second pass, which changes the parameters.
pub fn rules() -> Vec<Rule> {
    let adam = |decoupled| {
        let (beta1, beta2, eps) = (0.9, 0.999, 1e-8);
        Rule::Adam(AdamRule { beta1, beta2, eps, correction1: 1.5, correction2: 20.0, step: 3, decoupled })
    };
    let rms = |variant, centered| {
        Rule::RmsProp(RmsPropRule { variant, alpha: 0.9, eps: 1e-3, momentum: 0.9, centered, corrected: false })
    };
    vec![
        Rule::Sgd(SgdRule { momentum: 0.9, nesterov: false }),
        Rule::Sgd(SgdRule { momentum: 0.9, nesterov: true }),
        Rule::Lars(LarsRule { momentum: 0.9, eta: 0.001, larc: false, corrected: false }),
        adam(false),
        adam(true),
        rms(RmsPropVariant::Torch, false),
        rms(RmsPropVariant::Torch, true),
        rms(RmsPropVariant::Tf, false),
        rms(RmsPropVariant::Tf, true),
        Rule::Adagrad(AdagradRule { eps: 1e-10, lr_factor: 0.5, lr_decay: 0.5 }),
        Rule::Lion(LionRule { beta1: 0.9, beta2: 0.99 }),
        lamb(true),
    ]
}

/// The unit roundoff of f32: half the distance from 1 to the next value.
const U: f64 = 1.0 / (1 << 24) as f64;

/// Number of random draws of errors.
const DRAWS: u64 = 3;

/// Returns the relative error of a sum of `n` products in f32, in any order: 4 sqrt(n) u.
///
/// Rounding errors behave as if they were independent, so only one in thousands of sums has a larger error (Higham and
/// Mary 2019, theorem 2.4). The worst case n u would hide the errors that the tests look for.
pub fn spread(n: usize) -> f64 {
    4.0 * (n as f64).sqrt() * U
}

/// Returns the values with random errors, as if each were a sum of `n` products: each value times 1 ± [`spread`], from draw `k`.
pub fn shaken(values: &[f32], n: usize, k: u64) -> Vec<f32> {
    let errors = noise(values.len(), 7_000 + k, spread(n));
    values
        .iter()
        .zip(errors)
        .map(|(value, error)| (f64::from(*value) * (1.0 + f64::from(error.signum()) * spread(n))) as f32)
        .collect()
}

/// Returns each group of results of a computation with the tolerance for f32.
///
/// The tolerance is twice the largest effect of errors in the inputs, which stand for errors in the sums. `compute(None)` returns the exact
/// results, `compute(Some(k))` the results for inputs that [`shaken`] has changed with draw `k`.
pub fn with_tolerances(compute: impl Fn(Option<u64>) -> Vec<Vec<f64>>) -> Vec<(Vec<f64>, f64)> {
    let exact = compute(None);
    let mut furthest = vec![0.0f64; exact.len()];
    for k in 0..DRAWS {
        for (furthest, (got, want)) in furthest.iter_mut().zip(compute(Some(k)).iter().zip(&exact)) {
            let distance = largest(got.iter().zip(want).map(|(got, want)| got - want));
            *furthest = furthest.max(distance);
        }
    }
    let with = |(results, furthest): (Vec<f64>, f64)| {
        // the results themselves are rounded to f32
        let tolerance = 2.0 * (furthest + U * magnitude(&results));
        (results, tolerance)
    };
    exact.into_iter().zip(furthest).map(with).collect()
}
