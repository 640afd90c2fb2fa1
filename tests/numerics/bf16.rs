//! `precision = "bf16"` on the CPU. Products of rounded factors equal those of the reference on the same factors.
//! Layers without such products stay in f32. Networks learn as in f32, and the number of ranks changes nothing. The last
//! tests are about tensors that are stored in bf16: which these are, their memory, and how readers convert them.
//!
//! Tests for bf16 instructions are skipped if the processor has none. The same computation with f32 instructions runs everywhere.

use std::process::Command;

use backend::cpu::Cpu;
use backend::{Backend, Error, Input, Keeps, PlanRequest, TensorDesc};
use engine::optim::{Optimizer, OptimizerSpec};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose, estimate};
use half::bf16;
use net::{
    Activation, Add, Concat, Conv, Flatten, GroupNorm, Linear, Lrn, NetSpec, Norm, Op, Pool, PoolKind, Shape, Shortcut,
    models,
};

use crate::training::{gradients, optimizer};
use support::images::THINGS;
use support::numerics::{Case, Outcome, assert_close, assert_near, cpu, magnitude, noise, on_reference};
use support::program::{PATIENCE, events, start, trireme};
use support::setting::Setting;
use support::skip;

const RECIPE: &str = r#"
model = "resnet20"
epochs = 1
seed = 7
batch = 8
workers = 4
precision = "bf16"
optimizer.momentum = 0.9
schedule.base_lr = 0.01
augment.train = ["pad_crop(4)", "flip", "normalize"]
reduce.codec = "exact"
"#;

/// A function that creates a backend with the given number of threads.
type MakeBackend = fn(usize) -> Result<Cpu, Error>;

/// Returns the bf16 backends that this processor can run.
fn kinds() -> Vec<(&'static str, MakeBackend)> {
    let mut kinds: Vec<(&str, MakeBackend)> = vec![("bf16 widened to f32", Cpu::in_emulated_bf16)];
    match Cpu::bf16() {
        Ok(()) => kinds.push(("bf16", Cpu::in_bf16)),
        Err(why) => skip(&format!("with bf16 instructions: {why}")),
    }
    kinds
}

fn round(values: &mut [f32]) {
    values.iter_mut().for_each(|v| *v = bf16::from_f32(*v).to_f32());
}

/// Creates a test case for each kind of layer that uses bf16 products: channels that fill blocks and channels that do not, strides, groups,
/// vectors, and images in plain layout. The last three layers, which read images in plain layout, may compute in f32.
fn layers() -> Vec<Case> {
    let conv = |out, k| Conv::new(out, k);
    let image = |c| Shape::image(c, 9, 7);
    let ops = [
        (Op::Conv(conv(32, 3).pad(1)), image(16)),
        (Op::Conv(conv(16, 3).pad(1).bias(0.1).relu()), image(32)),
        (Op::Conv(conv(48, 3).pad(1).stride(2)), image(32)),
        (Op::Conv(conv(64, 1)), image(16)),
        (Op::Conv(conv(32, 1).stride(2)), image(64)),
        (Op::Conv(conv(24, 5).pad(2).relu()), image(20)),
        (Op::Conv(conv(32, 3).pad(1).groups(2)), image(32)),
        // the next two layers have more padding than oneDNN's fast kernels accept
        (Op::Conv(conv(32, 5).pad(4)), image(16)),
        (Op::Conv(conv(16, 1).pad(1).stride(2)), image(32)),
        (Op::Linear(Linear::new(10)), Shape::vector(64)),
        (Op::Linear(Linear::new(33).relu()), Shape::vector(50)),
        (Op::Linear(Linear::new(32)), image(16)),
        (Op::Linear(Linear { bias: false, ..Linear::new(7) }), image(20)),
        (Op::Conv(conv(16, 7).pad(3).stride(2)), Shape::image(3, 20, 18)),
        (Op::Conv(conv(20, 5)), Shape::image(1, 12, 12)),
        (Op::Conv(conv(5, 3)), image(3)),
    ];
    let cases = ops.into_iter().zip(40..).map(|((op, shape), k)| Case::random(op, 5, shape, k));
    cases.map(Case::clear_of_corners).collect()
}

/// Returns the layout of the layer's output and the names of the primitives that compute its passes.
fn plan(backend: &Cpu, case: &Case, block: usize) -> (TensorDesc, String) {
    let block = if block == 0 { case.shape.c } else { block };
    let x = [TensorDesc { block, ..TensorDesc::plain(case.n, case.shape) }];
    let shapes = [if matches!(case.op, Op::Linear(_)) { Shape::vector(case.shape.elems()) } else { case.shape }];
    let request = PlanRequest::alone("case", &case.op, &shapes, &x);
    let plan = backend.plan(&request).unwrap_or_else(|e| panic!("{e}"));
    (plan.output(), plan.implementation())
}

/// Runs a layer in the layout that it has in networks: plain for images with few channels, otherwise the layout of convolution outputs.
fn check(kind: &str, backend: &Cpu, case: &Case, in_f32: bool, [rounded, whole]: [&Outcome; 2]) {
    // depending on the processor, a convolution's output has channel blocks or is channels last
    let (made, _) = plan(backend, &layers()[0], 1);
    let last = made.block == made.shape.c;
    let block = match case.shape.c {
        ..8 => 1,
        _ if last => 0,
        _ => made.block,
    };
    let (_, primitives) = plan(backend, case, block);
    let what = format!("{:?} of {} x {} in blocks of {block}, {kind} ({primitives})", case.op, case.n, case.shape);
    let is_rounded = primitives.contains("bf16:");
    assert!(is_rounded || in_f32, "{what}: bf16 is not used");
    let tiled = last && !in_f32 && matches!(&case.op, Op::Conv(conv) if conv.groups == 1);
    assert!(!tiled || primitives.contains("amx"), "{what}: AMX tiles are not used");
    let (want, got) = (if is_rounded { rounded } else { whole }, case.run(backend, block, false));
    let close = |of: &str, got: &[f32], want: &[f32]| {
        assert_close(&format!("{what}: {of}"), got, want, 1e-5 * magnitude(want) + 1e-6);
    };
    close("y", &got.y, &want.y);
    close("dx", &got.dx[0], &want.dx[0]);
    got.dparams.iter().zip(&want.dparams).for_each(|(g, w)| close("dparams", g, w));
    eprintln!("{} of {} in {kind} agrees: {primitives}", case.op.kind(), case.shape);
}

#[test]
fn products_equal_the_references_on_rounded_factors() {
    let (kinds, layers) = (kinds(), layers());
    for (number, case) in layers.iter().enumerate() {
        let mut factors = case.clone();
        factors.x.iter_mut().chain(&mut factors.params[..1]).chain(&mut factors.dy).for_each(|v| round(v));
        let (rounded, whole) = (on_reference(&factors), on_reference(case));
        for (kind, make) in &kinds {
            for threads in [1, 2] {
                let backend = make(threads).unwrap_or_else(|e| panic!("{e}"));
                check(kind, &backend, case, number + 3 >= layers.len(), [&rounded, &whole]);
            }
        }
    }
}

/// A network and its optimizer, which trains on batches of noise.
struct Net {
    graph: Graph<Cpu>,
    optimizer: Optimizer<Cpu>,
}

const ROWS: usize = 16;

fn catalogued(name: &str) -> NetSpec {
    let (input, classes) = (models::input(name).unwrap(), models::classes(name).unwrap());
    models::build(name, input, classes).unwrap()
}

/// Name of a network that, on a processor with AMX tiles, mixes tensors in channel blocks with channels-last tensors.
const MIXED: &str = "mixed";

/// Grouped convolutions use channel blocks. Their outputs meet channels-last outputs of other convolutions in sums, concatenations and
/// residuals, and in operations that support only blocks. Some numbers of channels do not fill blocks.
fn mixed() -> NetSpec {
    let mut net = NetSpec::new(MIXED, Shape::image(3, 13, 11));
    let conv = |out, k: usize| Conv::new(out, k).pad(k / 2);
    let x = net.add("stem", conv(20, 3), net.image());
    let x = net.add("stem.bn", Norm::new().relu(), x);
    let grouped = net.add("grouped", conv(20, 3).groups(4), x);
    let dense = net.add("dense", conv(20, 3), x);
    let sum = net.join("sum", Add, &[grouped, dense]);
    let x = net.join("join.bn", Norm::new().relu().residual(), &[grouped, sum]);
    let wide = net.add("wide", conv(28, 1), sum);
    let all = net.join("all", Concat, &[x, wide, dense, grouped]);
    let x = net.add("step", conv(24, 1).stride(2), all);
    let x = net.add("lrn", Lrn { radius: 2, k: 1.0, alpha: 0.1, beta: 0.75 }, x);
    let short = net.add("short", Shortcut { out_channels: 40, stride: 2 }, x);
    let x = net.add("narrow", conv(40, 3).stride(2), x);
    let x = net.add("groups", GroupNorm::new(4), x);
    let x = net.join("out", Add, &[x, short]);
    let x = net.add("pool", Pool::new(PoolKind::Max, 2, 2), x);
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Linear::new(10), x);
    net
}

impl Net {
    fn new(backend: Cpu, name: &str) -> Self {
        let net = match name {
            MIXED => mixed(),
            BRANCHED => branched(),
            name => catalogued(name),
        };
        let graph = Graph::new(backend, net, ROWS, Purpose::Train { bucket_bytes: 1 << 16 }, 3).unwrap();
        let optimizer = optimizer(&graph, &OptimizerSpec::sgd(0.9, false, 1e-4));
        Self { graph, optimizer }
    }

    fn pass(&mut self, batch: u64) -> f64 {
        let images = noise(ROWS * self.graph.net().input.elems(), batch, 1.0);
        let labels: Vec<u32> = (0..ROWS as u64).map(|row| ((row * 7 + batch) % 10) as u32).collect();
        let ids: Vec<u64> = (0..ROWS as u64).map(|row| row + batch * 1000).collect();
        let batch = Batch { images: Input::Values(&images), labels: &labels, ids: &ids, epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 1.0 / ROWS as f32 };
        let sums = self.graph.train::<Error>(batch, loss, MicroBatch::ONLY, None).unwrap_or_else(|e| panic!("{e}"));
        sums.loss / ROWS as f64
    }

    /// Returns the losses of ten steps at this rate, on two alternating batches.
    fn losses(mut self, rate: f64) -> Vec<f64> {
        let step = |step| {
            let loss = self.pass(step % 2);
            assert!(self.optimizer.step(&mut self.graph, rate, None).unwrap().finite);
            loss
        };
        (0..10u64).map(step).collect()
    }

    fn gradients(&self) -> Vec<Vec<u32>> {
        gradients(&self.graph).iter().map(|gradient| gradient.iter().map(|g| g.to_bits()).collect()).collect()
    }
}

#[test]
fn networks_learn_as_in_f32() {
    // the last network sums many residuals, which are large at first, so it needs a small rate
    for (name, rate) in [("lenet", 0.01), ("resnet20", 0.01), (MIXED, 0.01), (BRANCHED, 0.001)] {
        let want = Net::new(cpu(2), name).losses(rate);
        for (kind, make) in kinds() {
            let got = Net::new(make(2).unwrap(), name).losses(rate);
            for (step, (got, want)) in got.iter().zip(&want).enumerate() {
                assert_near(&format!("{name}, {kind}: loss of step {step}"), *got, *want, 1e-2);
            }
            assert_ne!(got, want, "{name}, {kind}: nothing was rounded");
        }
        assert!(want[8] < 0.85 * want[0], "{name}: the loss does not fall: {want:?}");
    }
}

/// A worker's gradient does not depend on what the rank computed before, so it does not matter which rank computes which worker.
#[test]
fn a_workers_gradient_is_the_same_after_others() {
    for (kind, make) in kinds() {
        for name in ["lenet", "resnet20", MIXED, BRANCHED] {
            let mut first = Net::new(make(2).unwrap(), name);
            first.pass(4);
            let mut later = Net::new(make(2).unwrap(), name);
            for batch in [7, 5, 6, 4] {
                later.pass(batch);
            }
            assert_eq!(first.gradients(), later.gradients(), "{name}, {kind}");
        }
    }
}

/// Runs the program with the exact codec, whose sums do not depend on the order.
#[test]
fn ranks_change_no_bit() {
    if let Err(why) = Cpu::bf16() {
        return skip(&why.to_string());
    }
    let setting = Setting::new(RECIPE, THINGS, [28, 4]);
    let one = setting.assert_ranks_change_nothing(&[2, 4], &["--max-steps", "3"]);
    let start = &events(&one, "start")[0];
    assert!(start["facts"]["device"].as_str().unwrap().contains("products in bf16"), "{start}");
}

/// Runs the tests again without AMX tiles, so that images have channel blocks.
#[test]
fn bf16_tests_pass_without_tiles() {
    let backend = Cpu::in_bf16(1);
    if !backend.is_ok_and(|cpu| cpu.describe().contains("channels last")) {
        return skip("the processor has no tiles (AMX), or the environment disables them");
    }
    let mut tests = Command::new(std::env::current_exe().unwrap());
    let names = ["bf16::products", "bf16::networks", "bf16::a_workers", "bf16::tensors_between"];
    tests.args(names).arg("--nocapture");
    let done = tests.env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16").output().unwrap();
    let [out, err] = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success() && out.contains("4 passed"), "{out}{err}");
    assert!(err.contains("bf16: jit_bf16") && !err.contains("amx"), "{err}");
}

/// If instruction sets are disabled, the log names the remaining set and the memory layout that follows from it.
#[test]
fn disabled_instruction_sets_are_reported() {
    if let Err(why) = Cpu::bf16() {
        return skip(&why.to_string());
    }
    let step = ["bench", "step", "--device", "cpu", "--model", "lenet", "--seconds", "0.1", "--precision", "bf16"];
    let mut program = trireme(0, &[&step[..], &["--threads", "2"]].concat());
    program.env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16");
    let out = start(program).wait(PATIENCE).succeeded().stdout;
    assert!(out.contains(", avx512-bf16, ") && out.contains(", products in bf16)"), "{out}");
}

#[test]
fn refusals_say_what_is_missing() {
    let bench = |precision: &str| {
        let mut program =
            trireme(0, &["bench", "step", "--device", "cpu", "--seconds", "0.1", "--precision", precision]);
        // disables the instructions if the processor has them
        program.env("ONEDNN_MAX_CPU_ISA", "AVX2");
        start(program).wait(PATIENCE)
    };
    bench("bf16").failed(1, &["precision = \"bf16\"", "AVX512-BF16", "uses avx2 ", "\"f32\"", "--device cuda"]);
    bench("f16").failed(1, &["precision = \"f16\"", "f32", "bf16", "--device cuda"]);
}

const ROWS_OF_TENSORS: usize = 4;

/// Name of a network with a tensor that three layers read in bf16 and whose gradients are summed. It has norms with f32
/// inputs, f32 outputs or both, residuals that are copied for them, and a grouped convolution, which reads f32.
const BRANCHED: &str = "branched";

fn branched() -> NetSpec {
    let mut net = NetSpec::new(BRANCHED, Shape::image(3, 13, 11));
    let conv = |out, k: usize| Conv::new(out, k).pad(k / 2);
    let x = net.add("stem", conv(24, 3), net.image());
    let x = net.add("stem.bn", Norm::new().relu(), x);
    let branches = ["one", "two", "three"].map(|name| net.add(name, conv(24, 3), x));
    let one = net.add("one.bn", Norm::new(), branches[0]);
    let joined = net.join("join.bn", Norm::new().relu().residual(), &[branches[1], one]);
    let joined = net.join("again.bn", Norm::new().relu().residual(), &[branches[2], joined]);
    let y = net.add("mix", conv(24, 1), joined);
    let y = net.join("mix.bn", Norm::new().relu().residual(), &[y, joined]);
    let grouped = net.add("grouped", conv(24, 3).groups(3), y);
    let y = net.add("grouped.bn", Norm::new(), grouped);
    let y = net.add("last", conv(24, 1), y);
    let y = net.join("last.bn", Norm::new().relu().residual(), &[y, grouped]);
    let pooled = net.add("pool", Pool::new(PoolKind::Max, 2, 2), y);
    let y = net.add("end", conv(24, 1), pooled);
    let y = net.join("end.bn", Norm::new().relu().residual(), &[y, pooled]);
    let y = net.add("narrow", conv(8, 1), y);
    let y = net.add("flatten", Flatten, y);
    net.add("fc", Linear::new(10), y);
    net
}

/// Tensors between convolutions and norms take half the memory, tensors with other readers stay in f32. With the
/// channels-last layout of AMX tiles, all tensors stay in f32.
#[test]
fn tensors_between_convolutions_and_norms_are_in_bf16() {
    let (net, whole) = (branched(), cpu(1));
    let shapes = net.shapes().unwrap();
    let place = |name: &str| net.nodes.iter().position(|node| node.name == name).unwrap();
    let elems = |backend: &Cpu, name: &str| {
        let (facts, ..) = estimate::memory(backend, &net, ROWS_OF_TENSORS).unwrap_or_else(|e| panic!("{e}"));
        facts[place(name)].elems
    };
    let narrows = |name: &str, backend: &Cpu| {
        // channels last has no padding channels
        let (blocked, exact) = (elems(&whole, name), ROWS_OF_TENSORS * shapes[place(name) + 1].elems());
        let last = backend.describe().contains("channels last");
        let wide = [blocked, if last { exact } else { blocked }];
        match elems(backend, name) {
            got if wide.contains(&got) => false,
            got => wide.contains(&(2 * got)) || panic!("{name}: {got} of {wide:?} words"),
        }
    };
    for (kind, make) in kinds() {
        let backend = make(1).unwrap();
        let in_blocks = !backend.describe().contains("channels last");
        for name in ["stem.bn", "one.bn", "join.bn", "again.bn", "grouped.bn", "end.bn"] {
            assert_eq!(narrows(name, &backend), in_blocks, "{name}, {kind}");
        }
        for name in ["one", "two", "three", "mix", "grouped", "last", "end"] {
            // if products are computed in f32, results are in f32 too
            assert_eq!(narrows(name, &backend), in_blocks && kind == "bf16", "{name}, {kind}");
        }
        for name in ["mix.bn", "last.bn", "pool", "narrow", "fc"] {
            assert!(!narrows(name, &backend), "{name}, {kind}");
        }
    }
}

/// A layer's backward pass reads its own rounded copy of an f32 input, so the memory plan does not keep the input.
#[test]
fn f32_inputs_of_bf16_layers_are_not_kept() {
    let mut net = NetSpec::new("mlp", Shape::image(16, 8, 8));
    let x = net.add("fc1", Conv::new(64, 1), net.image());
    let x = net.add("gelu", Activation::Gelu, x);
    let x = net.add("fc2", Conv::new(16, 1), x);
    let x = net.add("flatten", Flatten, x);
    net.add("head", Linear::new(10), x);
    let fc2 = net.nodes.iter().position(|node| node.name == "fc2").unwrap();
    let (facts, whole, _) = estimate::memory(&cpu(1), &net, ROWS_OF_TENSORS).unwrap();
    assert_eq!(facts[fc2].tensors_for_backward, Keeps::INPUT);
    for (kind, make) in kinds() {
        let (facts, memory, _) = estimate::memory(&make(1).unwrap(), &net, ROWS_OF_TENSORS).unwrap();
        let purpose = Purpose::Train { bucket_bytes: usize::MAX };
        let graph = Graph::new(make(1).unwrap(), net.clone(), ROWS_OF_TENSORS, purpose, 3).unwrap();
        let primitives = graph.implementation(fc2);
        assert!(primitives.starts_with("bf16:"), "{kind}: {primitives}");
        assert_eq!(facts[fc2].tensors_for_backward, Keeps::NOTHING, "{kind}: {primitives}");
        assert!(memory.elems < whole.elems, "{kind}: {} and {} words", memory.elems, whole.elems);
    }
}

/// Returns the scores of a network in inference on noise.
fn inferred(backend: Cpu, net: NetSpec) -> Vec<f32> {
    let images = noise(ROWS_OF_TENSORS * net.input.elems(), 5, 1.0);
    let mut graph = Graph::new(backend, net, ROWS_OF_TENSORS, Purpose::Infer, 3).unwrap_or_else(|e| panic!("{e}"));
    graph.scores(&images, ROWS_OF_TENSORS).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns a network with a convolution that oneDNN 2.x cannot pad itself, after a norm of the image. Its input is converted back to f32.
fn padded_by_hand() -> NetSpec {
    let mut net = NetSpec::new("padded", Shape::image(3, 31, 27));
    let x = net.add("norm", Norm::new(), net.image());
    let x = net.add("wide", Conv::new(16, 11).pad(2).stride(4), x);
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Linear::new(10), x);
    net
}

#[test]
fn bf16_tensors_are_read_correctly() {
    for net in [branched as fn() -> NetSpec, padded_by_hand] {
        let want = inferred(cpu(2), net());
        for (kind, make) in kinds() {
            let got = inferred(make(2).unwrap(), net());
            assert_close(&format!("{}, {kind}", net().name), &got, &want, 2e-2 * magnitude(&want));
        }
    }
}

/// The image itself is a residual here. It is in plain layout and must be copied to channel blocks.
#[test]
fn an_image_may_be_a_residual() {
    for (channels, reads) in [(3, "conv"), (16, "conv"), (16, "pool")] {
        let net = || {
            let mut net = NetSpec::new("residual", Shape::image(channels, 8, 8));
            let image = net.image();
            let x = net.add("one", Conv::new(channels, 3).pad(1), image);
            let x = net.join("bn", Norm::new().relu().residual(), &[x, image]);
            let x = match reads {
                "conv" => net.add("two", Conv::new(16, 3), x),
                _ => net.add("two", Pool::new(PoolKind::Max, 2, 2), x),
            };
            let x = net.add("flatten", Flatten, x);
            net.add("fc", Linear::new(10), x);
            net
        };
        let want = inferred(cpu(2), net());
        for (kind, make) in kinds() {
            let got = inferred(make(2).unwrap(), net());
            assert_close(&format!("{channels} channels, {reads}, {kind}"), &got, &want, 2e-2 * magnitude(&want));
        }
    }
}
