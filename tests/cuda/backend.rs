//! The CUDA backend compared with the reference, on a real or emulated GPU: 16-bit activations, replayed passes, optimizer steps, passes
//! over flat memory, the transfer of a batch, and loss scaling. `ops.rs` and `gradients.rs` test f32 operations on all backends.

mod passes;

use backend::cuda::{Cuda, CudaBuf, Precision};
use backend::reference::{HostBuf, Reference};
use backend::update::{SgdRule, rates};
use backend::{
    Backend, Buffer, CropRect, DeviceMemory, DrawKey, Error, Input, LossScale, LossScaling, ParamGroup, PassInput,
    Queue, Rule, TensorDesc, Update,
};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use loaders::Dtype;
use net::{
    Activation, Add, Attention, BlurPool, ClassToken, Concat, Conv, DropPath, Dropout, GroupNorm, LayerNorm,
    LayerScale, Linear, Lrn, Multiply, NetSpec, Norm, Op, Pool, PoolKind, PositionBias, PositionEmbedding, Shape,
    Shortcut, SpaceToDepth, Token,
};

use support::gpu::{alone, alone_with};
use support::numerics::{Case, assert_close, cuda, magnitude, noise, on_reference, rules};

pub fn upload(cuda: &Cuda, values: &[f32]) -> CudaBuf {
    let mut buffer = cuda.alloc(values.len()).unwrap();
    buffer.write(0, values).unwrap();
    buffer
}

pub fn values(buffer: &CudaBuf) -> Vec<f32> {
    let mut values = vec![0.0; buffer.len()];
    buffer.read(0, &mut values).unwrap();
    values
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn bf16(v: &f32) -> f32 {
    let bits = v.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

#[test]
fn operations_in_16_bits_are_near_those_in_32() {
    let _alone = alone();
    let image = Shape::image(8, 9, 7);
    let windows = |bias| Attention { window: Some([5, 4]), position_bias: Some(bias), ..Attention::new(2) };
    let cases = [
        (Op::Conv(Conv::new(16, 3).pad(1).bias(0.1).relu()), image),
        (Op::Conv(Conv::new(12, 3).pad(1).stride(2).groups(2)), image),
        (Op::Linear(Linear::new(10).relu()), image),
        (Op::Norm(Norm::new().relu()), image),
        (Op::Norm(Norm::new().residual().relu()), Shape::image(5, 4, 4)),
        (Op::Pool(Pool::new(PoolKind::Max, 3, 2).pads([1; 4])), image),
        (Op::Pool(Pool::global()), Shape::image(5, 4, 4)),
        (Op::Lrn(Lrn { radius: 2, k: 1.0, alpha: 0.2, beta: 0.75 }), image),
        (Op::Shortcut(Shortcut { out_channels: 12, stride: 2 }), image),
        (Op::from(Add), image),
        (Op::from(Dropout(0.4)), image),
        (Op::from(Concat), image),
        (Op::from(Multiply), image),
        (Op::from(LayerNorm::new()), image),
        (Op::from(GroupNorm::new(2)), image),
        (Op::from(LayerScale(0.1)), image),
        (Op::from(DropPath(0.4)), image),
        (Op::from(ClassToken), image),
        (Op::from(PositionEmbedding::default()), image),
        (Op::from(Token(3)), image),
        (Op::from(Attention::new(2)), Shape::image(24, 5, 8)),
        (Op::from(Attention { shift: [2, 1], ..windows(PositionBias::Table) }), Shape::image(24, 5, 8)),
        (Op::from(Attention { cosine: true, ..windows(PositionBias::Continuous(5)) }), Shape::image(24, 5, 8)),
        (Op::from(SpaceToDepth(2)), image),
        (Op::from(BlurPool::default()), image),
    ];
    let functions = Activation::ALL.map(|function| (Op::Activation(function), image));
    let cases: Vec<_> = cases.into_iter().chain(functions).collect();
    // relative tolerances: bf16 has 8 bits of mantissa and f16 has 11, and the results are sums of rounded terms
    for (precision, relative) in [(Precision::Bf16, 1e-2), (Precision::F16, 2e-3)] {
        let cuda = cuda(precision);
        for (op, shape) in cases.clone() {
            let mut case = Case::random(op, 3, shape, 5);
            // round all inputs to values that bf16 and f16 hold exactly, so that maxima and signs at ReLU are the same
            let exact = |v: &mut Vec<f32>| v.iter_mut().for_each(|v| *v = bf16(v));
            case.x.iter_mut().chain(&mut case.params).chain(&mut case.dy).for_each(exact);
            let case = case.clear_of_corners();
            let (want, got) = (on_reference(&case), case.run(&cuda, 0, false));
            let near = |what: &str, got: &[f32], want: &[f32]| {
                let tolerance = relative * magnitude(want).max(0.1);
                // NaN is never within the tolerance
                let is_near = |(g, w): (&f32, &f32)| f64::from((g - w).abs()) <= tolerance;
                let far = got.iter().zip(want).filter(|pair| !is_near(*pair)).count();
                assert!(far == 0, "{:?} in {precision}: {what}: {far} of {} differ", case.op, got.len());
            };
            near("y", &got.y, &want.y);
            got.dx.iter().zip(&want.dx).for_each(|(g, w)| near("dx", g, w));
            got.dparams.iter().zip(&want.dparams).for_each(|(g, w)| near("a parameter's gradient", g, w));
        }
    }
}

#[test]
fn optimizer_steps_are_the_references() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let n = 9_000;
    let groups = [
        ParamGroup { range: 0..5_000, weight_decay: 0.01, rate: rates::PLAIN },
        ParamGroup { range: 5_000..8_999, weight_decay: 0.0, rate: rates::FIRST },
    ];
    let factors = [0.5, 0.0, 1.0, 0.3];
    let own_factors = upload(&cuda, &factors);
    for rule in rules() {
        let update = Update { rule, lr: 0.05 };
        let g = noise(n, 2, 1.0);
        let mut host = [HostBuf(noise(n, 1, 1.0)), HostBuf(vec![0.0; n]), HostBuf(vec![0.0; n]), HostBuf(vec![0.0; n])];
        let mut own: Vec<CudaBuf> = host.iter().map(|b| upload(&cuda, &b.0)).collect();
        let device_g = upload(&cuda, &g);
        for _ in 0..3 {
            let [w, slots @ ..] = &mut host;
            let mut slots: Vec<&mut HostBuf> = slots.iter_mut().take(rule.slots()).collect();
            let (factors, g) = (HostBuf(factors.to_vec()), HostBuf(g.clone()));
            Reference.update(&update, &groups, &factors, w, &g, &mut slots).unwrap();
            let [w, slots @ ..] = &mut own[..] else { unreachable!() };
            let mut slots: Vec<&mut CudaBuf> = slots.iter_mut().take(rule.slots()).collect();
            cuda.begin_update(&update, 0.0).unwrap();
            cuda.update(&update, &groups, &own_factors, w, &device_g, &mut slots).unwrap();
        }
        for (i, (got, want)) in own.iter().zip(&host).enumerate() {
            assert_close(&format!("{rule:?}, buffer {i}"), &values(got), &want.0, 2e-6 * magnitude(&want.0).max(1.0));
        }
        // an element outside the groups does not change
        assert_eq!(values(&own[0])[8_999], noise(n, 1, 1.0)[8_999]);
    }
}

#[test]
fn a_parameter_that_is_not_finite_shows_in_the_next_sums() {
    let _alone = alone();
    let desc = TensorDesc::plain(1, Shape::vector(2));
    let ask = || backend::CrossEntropy { labels: &[1], smoothing: 0.0, scale: 1.0, weight: 1.0 };
    let loss = |cuda: &Cuda| {
        assert_eq!(cuda.cross_entropy(&desc, ask(), &upload(cuda, &[0.0, 0.0]), None).unwrap(), None);
        cuda.loss_sums().unwrap().loss
    };
    let group = [ParamGroup { range: 0..2, weight_decay: 0.0, rate: rates::PLAIN }];
    for rule in rules() {
        for spoilt in [f32::NAN, f32::INFINITY] {
            let cuda = cuda(Precision::F32);
            let step = |gradient: f32| {
                let mut slots: Vec<CudaBuf> = (0..rule.slots()).map(|_| upload(&cuda, &[0.0, 0.0])).collect();
                let mut slots: Vec<&mut CudaBuf> = slots.iter_mut().collect();
                let (update, mut w) = (Update { rule, lr: 1.0 }, upload(&cuda, &[1.0, 1.0]));
                let plain = upload(&cuda, &rates::plain([].into_iter()));
                cuda.begin_update(&update, 0.0).unwrap();
                cuda.update(&update, &group, &plain, &mut w, &upload(&cuda, &[0.0, gradient]), &mut slots).unwrap();
                loss(&cuda)
            };
            assert!((step(1.0) - std::f64::consts::LN_2).abs() < 1e-12, "{rule:?}");
            assert!(step(spoilt).is_nan(), "{rule:?}: {spoilt}");
        }
    }
}

#[test]
fn passes_over_flat_memory_are_the_references() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (a, b) = (noise(70_001, 1, 2.0), noise(70_001, 2, 2.0));
    let other = upload(&cuda, &b);
    let check = |what: &str, on_gpu: &dyn Fn(&mut CudaBuf), on_host: &dyn Fn(&mut HostBuf)| {
        let (mut got, mut want) = (upload(&cuda, &a), HostBuf(a.clone()));
        on_gpu(&mut got);
        on_host(&mut want);
        assert_close(what, &values(&got), &want.0, 5e-7);
    };
    let plain = HostBuf(b.clone());
    check("add", &|x| cuda.add(x, &other).unwrap(), &|x| Reference.add(x, &plain).unwrap());
    check("scale", &|x| DeviceMemory::scale(&cuda, x, 0.7).unwrap(), &|x| Reference.scale(x, 0.7).unwrap());
    check("clamp", &|x| DeviceMemory::clamp(&cuda, x, 0.5).unwrap(), &|x| {
        DeviceMemory::clamp(&Reference, x, 0.5).unwrap()
    });
    let sgd = Update { rule: Rule::Sgd(SgdRule { momentum: 0.0, nesterov: false }), lr: 1.0 };
    assert!(cuda.lerp(&mut upload(&cuda, &a), &other, 0.1).is_err(), "lerp must fail without begin_update");
    cuda.begin_update(&sgd, 0.1).unwrap();
    check("lerp", &|x| cuda.lerp(x, &other, 0.1).unwrap(), &|x| Reference.lerp(x, &plain, 0.1).unwrap());
    check("copy", &|x| cuda.copy(x, &other).unwrap(), &|x| Reference.copy(x, &plain).unwrap());
    check("zero", &|x| cuda.zero(x).unwrap(), &|x| Reference.zero(x).unwrap());
    let mut nan = upload(&cuda, &[f32::NAN, 3.0, -3.0]);
    cuda.clamp(&mut nan, 1.0).unwrap();
    let clamped = values(&nan);
    assert!(clamped[0].is_nan() && clamped[1..] == [1.0, -1.0], "{clamped:?}");
}

#[test]
fn values_bytes_and_kept_pictures_make_the_same_input() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (n, shape) = (3, Shape::image(3, 4, 5));
    let desc = cuda.input(n, shape);
    let pixels: Vec<u8> = (0..n * shape.elems()).map(|i| (i * 37 % 256) as u8).collect();
    let tables: Vec<[f32; 256]> =
        (0..3).map(|c| std::array::from_fn(|b| (b as f32 / 255.0 - 0.3) / (0.2 + c as f32))).collect();
    // the expected images, computed on the host in NCHW
    let mut want = vec![0.0; n * shape.elems()];
    for (i, &byte) in pixels.iter().enumerate() {
        let (row, p, c) = (i / shape.elems(), i / 3 % shape.plane(), i % 3);
        want[(row * 3 + c) * shape.plane() + p] = tables[c][byte as usize];
    }
    let ids = [0, 1, 2];
    let feed = |images: Input<'_>, ahead: bool| {
        let key = DrawKey { seed: 1, epoch: 0, ids: &ids };
        let start =
            PassInput { images, images_again: false, key, loss: None, targets: None, running: &[], training: true };
        let mut to = cuda.alloc(desc.elems()).unwrap();
        if ahead {
            cuda.prefetch(&images).unwrap();
        }
        cuda.begin(&start, &desc, &mut to).unwrap();
        bits(&cuda.download(&desc, &to).unwrap())
    };
    for ahead in [false, true, true, true] {
        assert_eq!(feed(Input::Values(&want), ahead), bits(&want));
        assert_eq!(feed(Input::Bytes { pixels: &pixels, tables: &tables, mix: None }, ahead), bits(&want));
    }
    // values of other types, normalised on the device
    let pairs: Vec<[f32; 2]> = (0..3).map(|c| [1000.0 + 37.1 * c as f32, 0.3 + 211.7 * c as f32]).collect();
    for dtype in [Dtype::U16, Dtype::I16, Dtype::F32] {
        let mut stored = Vec::new();
        let mut want = vec![0.0; pixels.len()];
        for i in 0..pixels.len() {
            let bits = (i as u32).wrapping_mul(2_654_435_761) >> 16;
            let (value, bytes) = match dtype {
                Dtype::U16 => (f32::from(bits as u16), (bits as u16).to_le_bytes().to_vec()),
                Dtype::I16 => (f32::from(bits as i16), (bits as i16).to_le_bytes().to_vec()),
                _ => (bits as f32 / 7.0 - 1e3, (bits as f32 / 7.0 - 1e3).to_le_bytes().to_vec()),
            };
            stored.extend(bytes);
            let (row, p, c) = (i / shape.elems(), i / 3 % shape.plane(), i % 3);
            want[(row * 3 + c) * shape.plane() + p] = (value - pairs[c][0]) / pairs[c][1];
        }
        for ahead in [false, true] {
            let images = Input::Stored { pixels: &stored, dtype, pairs: &pairs, mix: None };
            assert_eq!(feed(images, ahead), bits(&want), "{dtype}");
        }
    }
    assert!(cuda.keep(&pixels, 4, 5).unwrap());
    let view = |picture, top, left, mirrored| CropRect { picture, top, left, mirrored };
    let views = [view(0, 0, 0, 0), view(1, 0, 0, 0), view(2, 0, 0, 0)];
    assert_eq!(feed(Input::Kept { views: &views, tables: &tables, mix: None }, false), bits(&want));
    // the first view is mirrored, the second is shifted by -1 rows and -2 columns, the third is shifted by 1 row and 2 columns and mirrored
    let views = [view(2, 0, 0, 1), view(1, -1, -2, 0), view(0, 1, 2, 1)];
    let got = feed(Input::Kept { views: &views, tables: &tables, mix: None }, false);
    for (row, v) in views.iter().enumerate() {
        for (c, h, w) in (0..3).flat_map(|c| (0..4).flat_map(move |h| (0..5).map(move |w| (c, h, w)))) {
            let (from_h, from_w) = (h + v.top, v.left + if v.mirrored == 1 { 4 - w } else { w });
            let inside = (0..4).contains(&from_h) && (0..5).contains(&from_w);
            let at = || v.picture as usize * 60 + (from_h * 5 + from_w) as usize * 3 + c;
            let want = tables[c][if inside { pixels[at()] as usize } else { 0 }];
            assert_eq!(got[(row * 3 + c) * 20 + (h * 5 + w) as usize], want.to_bits(), "{v:?}, {c}, {h}, {w}");
        }
    }
    let beyond = [view(0, 0, 0, 0), view(3, 0, 0, 0), view(0, 0, 0, 0)];
    let key = DrawKey { seed: 1, epoch: 0, ids: &ids };
    let images = Input::Kept { views: &beyond, tables: &tables, mix: None };
    let start = PassInput { images, images_again: false, key, loss: None, targets: None, running: &[], training: true };
    assert!(cuda.begin(&start, &desc, &mut cuda.alloc(desc.elems()).unwrap()).is_err());
}

#[test]
fn loss_scaling_leaves_bad_steps_out_and_counts_them() {
    let (_alone, cuda) = alone_with(Precision::F16);
    let desc = TensorDesc::plain(1, Shape::vector(2));
    let update = Update { rule: Rule::Sgd(SgdRule { momentum: 0.0, nesterov: false }), lr: 1.0 };
    let group = [ParamGroup { range: 0..1, weight_decay: 0.0, rate: rates::PLAIN }];
    let plain = upload(&cuda, &rates::plain([].into_iter()));
    cuda.begin_update(&update, 0.0).unwrap();
    let (mut w, mut slot) = (upload(&cuda, &[1.0]), upload(&cuda, &[0.0]));
    let mut scores = cuda.alloc(1).unwrap();
    cuda.upload(&[0.0, 0.0], &mut scores).unwrap();
    let scaled = |cuda: &Cuda| {
        let mut dx = cuda.alloc(1).unwrap();
        let ask = backend::CrossEntropy { labels: &[1], smoothing: 0.0, scale: 1.0, weight: 1.0 };
        cuda.cross_entropy(&desc, ask, &scores, Some(&mut dx)).unwrap();
        cuda.loss_sums().unwrap();
        cuda.download(&desc, &dx).unwrap()[0]
    };
    let mut step = |gradient: f32| {
        let g = [upload(&cuda, &[gradient])];
        cuda.count_update();
        cuda.inspect(&[&g[0]]).unwrap();
        cuda.update(&update, &group, &plain, &mut w, &g[0], &mut [&mut slot]).unwrap();
        values(&w)[0]
    };
    // both scores are equal, so the gradient is the probability 0.5 times the loss scale 2^16
    assert_eq!(scaled(&cuda), 32_768.0);
    assert_eq!(step(0.25 * 65_536.0), 0.75);
    assert_eq!(step(f32::INFINITY), 0.75, "a step with infinite gradients is skipped");
    assert_eq!(scaled(&cuda), 16_384.0);
    assert_eq!(step(0.25 * 32_768.0), 0.5);
    let state = || cuda.loss_scaling().expect("f16 has a scale").scale().unwrap();
    assert_eq!(state(), LossScale { scale: 32_768.0, good: 1, bad: 0, lost: 1 });
    for _ in 0..25 {
        assert_eq!(step(f32::NAN), 0.5);
    }
    assert_eq!(state(), LossScale { scale: LossScale::LEAST, good: 0, bad: 25, lost: 26 });
    assert_eq!([0, 1, 2].map(|updates| cuda.scale_before(updates).bad), [25, 24, 23]);
    // after setting a scale, training continues with it
    cuda.set_scale(LossScale { scale: 64.0, good: 1_999, bad: 3, lost: 7 }).unwrap();
    assert_eq!(scaled(&cuda), 32.0);
    assert_eq!(step(0.25 * 64.0), 0.25);
    assert_eq!(state(), LossScale { scale: 128.0, good: 0, bad: 0, lost: 7 });
}

#[test]
fn more_memory_than_there_is_says_how_much_is_free() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let error = cuda.alloc(1 << 44).err().expect("64 TB");
    assert!(matches!(&error, Error::DeviceMemory { have, .. } if have.contains("are free on")), "{error}");
}
