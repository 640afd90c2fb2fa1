//! Every backend compared with the reference, for many shapes, layouts and numbers of threads.

use backend::cpu::Cpu;
use backend::{Backend, PlanRequest, TensorDesc};
use net::{
    Activation, Add, Attention, BlurPool, Channels, ClassToken, Concat, Conv, DropPath, Dropout, GroupNorm, LayerNorm,
    LayerScale, Linear, Lrn, Multiply, Norm, Op, Pool, PoolKind, PositionBias, PositionEmbedding, Shape, Shortcut,
    SpaceToDepth, Token,
};

use crate::channels::with_plan;
use crate::gradients::{off_corners, wide};
use support::numerics::{
    BLOCKED, CHANNELS_LAST, Case, Chooser, Outcome, assert_close, cpu, cuda_unless_left_out, magnitude, on_reference,
};
use support::skip;

/// Checks that the CPU with one and two threads, in every layout, and CUDA in its own layout agree with the reference.
pub(crate) fn assert_parity(cases: Vec<Case>) {
    assert_parity_in(BLOCKED, cases);
}

/// Works like `assert_parity`, with these layouts on the CPU. Large cases use only the layouts of networks. In other
/// layouts oneDNN has slow plain loops, which the small cases test.
fn assert_parity_in(blocks: &[usize], cases: Vec<Case>) {
    let backends = [(cpu(1), "1 thread"), (cpu(2), "2 threads")];
    let (cuda, last) = (cuda_unless_left_out(), channels_last());
    for case in cases {
        let case = off_corners(case, 1e-4);
        let want = on_reference(&case);
        for (backend, name) in &backends {
            blocks.iter().for_each(|&block| assert_agrees(backend, name, block, &case, &want));
        }
        // the bf16 backend with channels last computes everything except products in f32, so its results must agree, too
        if let (Some(cpu), false) = (&last, matches!(case.op, Op::Conv(_) | Op::Linear(_))) {
            blocks.iter().for_each(|&block| assert_agrees(cpu, "channels last", block, &case, &want));
        }
        if let Some(cuda) = &cuda {
            CHANNELS_LAST.iter().for_each(|&block| assert_agrees(cuda, "cuda", block, &case, &want));
        }
    }
}

/// Returns the CPU backend that keeps images channels last, if the processor has AMX tiles.
fn channels_last() -> Option<Cpu> {
    let cpu = Cpu::in_bf16(2).ok().filter(|cpu| cpu.describe().contains("channels last"));
    if cpu.is_none() {
        skip("on images with channels last: the processor has no tiles (AMX)");
    }
    cpu
}

/// Compares the results of every implementation that the backend has with `want`.
fn assert_agrees<B: Backend>(backend: &B, name: &str, block: usize, case: &Case, want: &Outcome) {
    for number in 0.. {
        let what = format!("{:?} of {} x {} in blocks of {block} on {name}, {number}", case.op, case.n, case.shape);
        let Some(got) = case.run_by(backend, block, true, number) else { break };
        assert_equal(&what, &got, want);
    }
}

fn assert_equal(what: &str, got: &Outcome, want: &Outcome) {
    let close = |of: &str, got: &[f32], want: &[f32]| {
        assert_close(&format!("{what}: {of}"), got, want, 1e-5 * magnitude(want) + 1e-6);
    };
    close("y", &got.y, &want.y);
    got.dx.iter().zip(&want.dx).for_each(|(g, w)| close("dx", g, w));
    got.dparams.iter().zip(&want.dparams).for_each(|(g, w)| close("dparams", g, w));
    assert_eq!(got.statistics.1, want.statistics.1, "{what}: count");
    let sums: Vec<f32> = got.statistics.0.iter().map(|s| *s as f32).collect();
    assert_close(&format!("{what}: statistics"), &sums, &want.statistics.0, 1e-5 * magnitude(&want.statistics.0));
}

const CHANNELS: &[usize] = &[1, 2, 3, 5, 8, 12, 16, 20];

fn random_conv(c: &mut Chooser, k: u64) -> Case {
    let groups = c.one(&[1, 1, 1, 2, 4]);
    let (inputs, outputs) = (groups * c.one(CHANNELS).min(20 / groups), groups * c.one(CHANNELS).min(20 / groups));
    let kernel = [1 + c.below(4), 1 + c.below(4)];
    let stride = [1 + c.below(3), 1 + c.below(3)];
    let pads = [c.below(kernel[0]), c.below(kernel[1]), c.below(kernel[0]), c.below(kernel[1])];
    let plane = [kernel[0] + c.below(6), kernel[1] + c.below(6)];
    let (bias, relu) = (c.below(2) == 0, c.below(2) == 0);
    let op = Conv { kernel, stride, pads, groups, bias, relu, ..Conv::new(outputs, 1) };
    Case::random(Op::Conv(op), 1 + c.below(3), Shape::image(inputs, plane[0], plane[1]), k)
}

#[test]
fn convolutions_of_any_shape_agree() {
    let mut c = Chooser(1);
    assert_parity((0..60).map(|k| random_conv(&mut c, k)).collect());
}

/// Returns convolutions with kernels of single rows and columns, dilation, groups of any size, and one or more filters per channel.
fn random_special_conv(c: &mut Chooser, k: u64) -> Case {
    let (groups, each) = c.one(&[(1, 3), (8, 1), (16, 1), (20, 1), (8, 2), (8, 4), (4, 8), (3, 16)]);
    let kernel = c.one(&[[1, 7], [7, 1], [3, 3], [5, 5], [1, 3], [3, 2]]);
    let dilation = [1 + c.below(3), 1 + c.below(2)];
    let outputs = groups * each * (1 + c.below(2));
    let stride = [1 + c.below(2), 1 + c.below(2)];
    let conv = Conv { kernel, stride, dilation, groups, bias: c.below(2) == 0, ..Conv::new(outputs, 1) };
    let [h, w] = conv.extent();
    let shape = Shape::image(groups * each, h.max(3) + c.below(6), w.max(3) + c.below(6));
    let conv = if c.below(2) == 0 { conv.same(shape) } else { conv };
    Case::random(Op::Conv(conv), 1 + c.below(3), shape, k)
}

#[test]
fn grouped_asymmetric_and_dilated_convolutions_agree() {
    let mut c = Chooser(3);
    assert_parity((0..60).map(|k| random_special_conv(&mut c, 900 + k)).collect());
}

#[test]
fn convolutions_of_single_channels_agree() {
    let mut cases = Vec::new();
    for (kernel, stride, pad) in
        [(5, 1, 2), (5, 1, 0), (3, 2, 1), (3, 3, 0), (3, 3, 1), (1, 1, 0), (1, 2, 0), (7, 2, 3), (2, 1, 1)]
    {
        for (n, outputs, h, w) in [(1, 20, 9, 8), (4, 8, 7, 10), (3, 5, 7, 7)] {
            let conv = Conv::new(outputs, kernel).stride(stride).pad(pad).bias(0.0).relu();
            cases.push(Case::random(Op::Conv(conv), n, Shape::image(1, h, w), cases.len() as u64));
        }
    }
    let uneven = Conv { kernel: [4, 2], stride: [1, 3], ..Conv::new(9, 1) }.pads([3, 0, 1, 1]);
    cases.push(Case::random(Op::Conv(uneven), 2, Shape::image(1, 6, 8), 99));
    assert_parity(cases);
}

/// Tests the sizes for which Winograd's algorithm is used: planes of whole and partial tiles, whole and partial strips
/// of tiles, channels that fill neither a block nor a group of columns.
#[test]
fn same_sized_3x3_and_5x5_convolutions_agree() {
    let mut cases = Vec::new();
    for (inputs, outputs) in [(8, 8), (16, 24), (20, 50), (3, 16)] {
        for (h, w) in [(4, 4), (5, 7), (6, 10), (8, 9)] {
            for (kernel, n) in [(3, 3), (5, 1)] {
                let conv = Conv::new(outputs, kernel).pad(kernel / 2);
                let conv = if cases.len() % 2 == 0 { conv } else { conv.bias(0.0).relu() };
                cases.push(Case::random(Op::Conv(conv), n, Shape::image(inputs, h, w), 700 + cases.len() as u64));
            }
        }
    }
    // an image with more than one strip of tiles
    cases.push(Case::random(Op::Conv(Conv::new(8, 3).pad(1)), 2, Shape::image(8, 13, 16), 790));
    assert_parity(cases);
}

/// Tests cases in which threads share output channels: more than one strip of tiles, more channels than the buffer of
/// transformed inputs holds at once, channels that fill neither a block nor a group of columns, a bias and ReLU.
#[test]
fn same_sized_convolutions_of_many_channels_agree() {
    let conv = |outputs, kernel: usize| Conv::new(outputs, kernel).pad(kernel / 2);
    let case = |op, n, shape, k: u64| Case::random(Op::Conv(op), n, shape, 7_000 + k);
    let large = vec![
        case(conv(20, 3), 9, Shape::image(300, 7, 7), 0),
        case(conv(280, 3).bias(0.0).relu(), 3, Shape::image(12, 7, 7), 1),
        case(conv(3, 3), 4, Shape::image(260, 20, 32), 2),
        case(conv(40, 5), 2, Shape::image(264, 6, 6), 3),
        // in the next cases, threads share output channels only in the weight gradient
        case(conv(20, 3), 9, Shape::image(140, 7, 7), 4),
        case(conv(180, 3).bias(0.0).relu(), 3, Shape::image(12, 7, 9), 5),
        case(conv(40, 5), 2, Shape::image(136, 6, 6), 6),
    ];
    assert_parity_in(&[cpu_block()], large);
}

/// Tests strided convolutions, which are computed by phases: planes of odd and even sizes, single rows and columns,
/// tiles of every size at the edges, channels that fill neither a block nor a group of columns, more than one strip.
#[test]
fn strided_3x3_convolutions_agree() {
    let mut cases = Vec::new();
    let planes = [(1, 1), (1, 9), (9, 1), (2, 3), (4, 4), (7, 7), (9, 5), (8, 10), (6, 12), (14, 14), (13, 27)];
    for (inputs, outputs) in [(8, 8), (16, 24), (20, 50), (3, 16)] {
        for (h, w) in planes {
            let conv = Conv::new(outputs, 3).pad(1).stride(2);
            let conv = if cases.len() % 2 == 0 { conv } else { conv.bias(0.0).relu() };
            cases.push(Case::random(Op::Conv(conv), 3, Shape::image(inputs, h, w), 7_100 + cases.len() as u64));
        }
    }
    let case =
        |outputs, n, shape, k: u64| Case::random(Op::Conv(Conv::new(outputs, 3).pad(1).stride(2)), n, shape, 7_190 + k);
    cases.push(case(8, 5, Shape::image(8, 34, 30), 1));
    assert_parity(cases);
    // a convolution as in the first layer of a network
    assert_parity_in(&[1, cpu_block()], vec![case(8, 1, Shape::image(3, 224, 224), 0)]);
    let large = vec![
        // threads share output channels, and there are more tiles than the buffer of transformed inputs holds at once
        case(20, 9, Shape::image(300, 7, 7), 2),
        case(280, 3, Shape::image(12, 14, 13), 3),
        case(32, 4, Shape::image(260, 40, 56), 4),
    ];
    assert_parity_in(&[cpu_block()], large);
}

/// Tests more threads than samples, and numbers of threads that do not divide the samples.
#[test]
fn strided_3x3_convolutions_agree_on_more_threads() {
    let conv = |outputs| Op::Conv(Conv::new(outputs, 3).pad(1).stride(2).bias(0.0));
    let cases = [(16, 5, 24, 13), (32, 2, 16, 18), (48, 3, 272, 9)];
    for (case, k) in cases.into_iter().zip(7_200..) {
        let (outputs, n, inputs, size) = case;
        let case = Case::random(conv(outputs), n, Shape::image(inputs, size, size), k);
        let want = on_reference(&case);
        for threads in [3, 4] {
            assert_agrees(&cpu(threads), &format!("{threads} threads"), 0, &case, &want);
        }
    }
}

#[test]
fn single_positions_and_single_rows_agree() {
    let mut cases = Vec::new();
    for n in [1, 2, 5] {
        for channels in [1, 3, 8, 20, 32] {
            let point = Shape::image(channels, 1, 1);
            let ops = [
                Op::Conv(Conv::new(12, 1).bias(0.0)),
                Op::Conv(Conv::new(8, 3).pad(1).relu()),
                Op::Linear(Linear::new(10)),
                Op::Norm(Norm::new().relu()),
                Op::Norm(Norm::new().residual()),
                Op::Pool(Pool::global()),
                Op::Pool(Pool::new(PoolKind::Max, 3, 2).pads([1; 4])),
                Op::Lrn(Lrn { radius: 4, k: 1.0, alpha: 0.1, beta: 0.75 }),
                Op::Shortcut(Shortcut { out_channels: 2 * channels, stride: 2 }),
                Op::Activation(Activation::Relu),
                Op::Activation(Activation::Sigmoid),
                Op::from(Multiply),
                Op::from(Add),
            ];
            cases.extend(ops.into_iter().zip(200..).map(|(op, k)| Case::random(op, n, point, k)));
        }
    }
    // with one or two values per channel, a normalised result consists of rounding errors, and gradients cannot be compared
    cases.retain(|c| c.n > 2 || !matches!(c.op, Op::Norm(_)));
    assert_parity(cases);
}

/// Tests sizes for which the CPU backend uses its own matrix products, and sizes for which it uses oneDNN.
#[test]
fn large_linear_layers_agree() {
    let image = |c| Shape::image(c, 3, 5);
    let cases = [
        (1, Linear::new(304), image(16)),
        (7, Linear::new(280).relu(), image(24)),
        (3, Linear { bias: false, ..Linear::new(568) }, image(8)),
        (130, Linear::new(264).relu(), Shape::vector(256)),
        (2, Linear::new(1000), Shape::vector(72)),
        // the next layers have channels or outputs that do not fill their blocks
        (2, Linear::new(301), image(16)),
        (2, Linear::new(312), image(20)),
    ];
    assert_parity(cases.into_iter().zip(700..).map(|((n, op, x), k)| Case::random(Op::Linear(op), n, x, k)).collect());
}

#[test]
fn layers_of_any_shape_agree() {
    let mut c = Chooser(2);
    let elementwise = [Op::from(Add), Op::from(Dropout(0.5))];
    let mut cases = Vec::new();
    for k in 300..340 {
        let shape = Shape::image(c.one(CHANNELS), 2 + c.below(7), 2 + c.below(7));
        let n = 1 + c.below(5);
        let kind = c.one(&[PoolKind::Max, PoolKind::Avg, PoolKind::AvgCountPad]);
        let window = 1 + c.below(shape.h.min(shape.w).min(4));
        let pads = [c.below(window), c.below(window), c.below(window), c.below(window)];
        let pool = Pool { ceil: c.below(2) == 0, ..Pool::new(kind, window, 1 + c.below(3)).pads(pads) };
        let norm = Norm { residual: c.below(2) == 0, relu: c.below(2) == 0, ..Norm::new() };
        let (radius, beta) = (c.below(6), c.one(&[0.75, 0.5, 1.0]));
        let shortcut = Shortcut { out_channels: shape.c + c.below(30), stride: 1 + c.below(3) };
        let groups = 1 + c.below(shape.c.min(3));
        let count = groups * (1 + c.below(shape.c / groups));
        let channels = Channels { first: c.below(shape.c - count + 1), count, groups };
        let linear = Linear { bias: c.below(2) == 0, relu: c.below(2) == 0, ..Linear::new(1 + c.below(40)) };
        let ops = [
            Op::Pool(pool),
            Op::Norm(norm),
            Op::Lrn(Lrn { radius, k: 1.0, alpha: 0.3, beta }),
            Op::Shortcut(shortcut),
            Op::Channels(channels),
            Op::Linear(linear),
            elementwise[c.below(elementwise.len())].clone(),
        ];
        cases.extend(ops.into_iter().map(|op| Case::random(op, n, shape, k)));
    }
    assert_parity(cases);
}

/// Tests equal and unequal group sizes and different channel counts, with every form of batch normalisation.
#[test]
fn batch_norm_in_groups_agrees() {
    let mut c = Chooser(6);
    let mut case = |k: u64| {
        let (n, shape) = (2 + c.below(7), Shape::image(c.one(CHANNELS), 3 + c.below(6), 2 + c.below(7)));
        let norm = Norm { residual: c.below(2) == 0, relu: c.below(2) == 0, scale: c.below(3) > 0, ..Norm::new() };
        Case { bn_groups: 1 + c.below(n), ..Case::random(Op::Norm(norm), n, shape, k) }
    };
    assert_parity((1500..1530).map(&mut case).collect());
}

#[test]
fn functions_of_one_element_agree() {
    let shapes = [Shape::image(20, 9, 8), Shape::image(5, 16, 16), Shape::vector(37), Shape::image(16, 3, 3)];
    let cases = Activation::ALL.iter().flat_map(|f| shapes.map(|shape| (*f, shape)));
    let case = |((f, shape), k)| wide(Case::random(Op::Activation(f), 3, shape, k));
    assert_parity(cases.zip(1000..).map(case).collect());
}

/// Tests aligned and unaligned blocks, a single input, many inputs, and vectors.
#[test]
fn concatenations_of_any_shape_agree() {
    let channels: [&[usize]; 8] =
        [&[16, 16], &[8, 24, 16], &[3, 5], &[20, 12], &[7], &[16, 3, 16], &[32, 16, 5], &[4, 4, 4, 4, 1]];
    let mut cases = Vec::new();
    for (channels, k) in channels.iter().zip(1100..) {
        for (n, plane) in [(1, [1, 1]), (3, [3, 4])] {
            let shapes: Vec<Shape> = channels.iter().map(|&c| Shape::image(c, plane[0], plane[1])).collect();
            cases.push(Case::joined(Op::from(Concat), n, &shapes, k));
        }
    }
    assert_parity(cases);
}

#[test]
fn normalisations_of_samples_agree() {
    let mut c = Chooser(4);
    let mut cases = Vec::new();
    for k in 1300..1330 {
        let (groups, each) = (c.one(&[1, 2, 3, 8]), 1 + c.below(12));
        let shape = Shape::image(groups * each, 1 + c.below(13), 2 + c.below(12));
        let n = 1 + c.below(4);
        let ops = [
            Op::from(GroupNorm::new(groups)),
            Op::from(LayerNorm { eps: 1e-2 }),
            Op::from(LayerScale(0.1)),
            Op::from(DropPath(0.5)),
        ];
        cases.extend(ops.into_iter().map(|op| Case::random(op, n, shape, k)));
    }
    // a layer norm as wide as in ConvNeXt, with a mean that is much larger than the spread, and a group norm with groups
    // that are so large that a block of GPU threads shares each
    let mut far = Case::random(Op::from(LayerNorm::new()), 2, Shape::image(384, 5, 5), 1330);
    far.x[0].iter_mut().for_each(|x| *x += 8.0);
    let large = Case::random(Op::from(GroupNorm::new(2)), 2, Shape::image(64, 13, 13), 1331);
    assert_parity([cases, vec![far, large]].concat());
}

/// Tests heads that share a channel block, more positions than a thread processes at a time, and a head as wide as in ViT-B.
#[test]
fn layers_of_sequences_agree() {
    let mut c = Chooser(6);
    let mut cases = Vec::new();
    for k in 1500..1520 {
        let (heads, each) = (1 + c.below(4), c.one(&[1, 3, 4, 8, 16, 20, 64]));
        let (h, w, n) = (1 + c.below(5), 1 + c.below(20), 1 + c.below(3));
        let image = Shape::image(heads * each, h, w);
        let products = Shape::image(3 * heads * each, h, w);
        let ops = [
            (Op::from(ClassToken), image),
            (Op::from(PositionEmbedding::default()), image),
            (Op::from(Token(c.below(h * w))), image),
            (Op::from(Attention::new(heads)), products),
        ];
        cases.extend(ops.into_iter().map(|(op, shape)| Case::random(op, n, shape, k)));
    }
    // larger inputs, so that products differ so strongly that most attention weights are 0
    let mut sharp = Case::random(Op::from(Attention::new(3)), 2, Shape::image(576, 1, 197), 1520);
    sharp.x[0].iter_mut().for_each(|x| *x *= 4.0);
    cases.push(sharp);
    assert_parity(cases);
}

/// Windows of all kinds: with a shift along one or both axes, windows that span the plane, grids, a cropped output,
/// cosines with factors on both sides of the limit, and masks without a bias.
#[test]
fn attention_in_windows_agrees() {
    let mut c = Chooser(8);
    let mut cases = Vec::new();
    for k in 1530..1560 {
        let (heads, each) = (1 + c.below(3), c.one(&[8, 16, 20, 32]));
        let (window, counts) = ([2 + c.below(6), 2 + c.below(4)], [1 + c.below(3), 1 + c.below(3)]);
        let plane = [window[0] * counts[0], window[1] * counts[1]];
        let (grid, cosine) = (c.below(3) == 0, c.below(2) == 0);
        let shift = if grid { [0, 0] } else { [c.below(window[0]), c.below(window[1])] };
        let op = Attention {
            window: Some(window),
            shift,
            grid,
            crop: [c.below(window[0]), c.below(window[1])],
            scale: (!cosine && c.below(2) == 0).then_some(0.3),
            cosine,
            position_bias: c.one(&[None, Some(PositionBias::Table), Some(PositionBias::Continuous(7))]),
            ..Attention::new(heads)
        };
        let mut case =
            Case::random(Op::from(op), 1 + c.below(3), Shape::image(3 * heads * each, plane[0], plane[1]), k);
        if cosine {
            case.params[op.leading_parameters() - 1][0] = c.one(&[2.3, 5.0]);
        }
        cases.push(case);
    }
    // a bias over the whole plane, and nine images
    let whole = Attention { position_bias: Some(PositionBias::Table), ..Attention::new(2) };
    cases.push(Case::random(Op::from(whole), 9, Shape::image(96, 5, 9), 1560));
    // cosines, and more positions than a block of GPU threads sums at a time
    let cosines = Attention { window: Some([4, 4]), cosine: true, ..Attention::new(2) };
    cases.push(Case::random(Op::from(cosines), 2, Shape::image(48, 20, 16), 1561));
    assert_parity(cases);
}

#[test]
fn neighbouring_pixels_as_channels_agree() {
    let shapes = [(16, 6, 8), (8, 5, 7), (5, 4, 4), (20, 7, 3), (32, 2, 2)];
    let ops = shapes.into_iter().flat_map(|shape| [2, 3].map(|size| (size, shape)));
    let fits = |(size, (_, h, w)): &(usize, (usize, usize, usize))| *size <= *h.max(w);
    let case = |((size, (c, h, w)), k)| Case::random(Op::from(SpaceToDepth(size)), 3, Shape::image(c, h, w), k);
    assert_parity(ops.filter(fits).zip(1570..).map(case).collect());
}

#[test]
fn blurs_agree() {
    let mut c = Chooser(5);
    let mut blur = |k| {
        let op = BlurPool { size: 2 + c.below(4), stride: 1 + c.below(3) };
        Case::random(Op::from(op), 2, Shape::image(c.one(CHANNELS), 5 + c.below(7), 5 + c.below(7)), k)
    };
    assert_parity((1400..1420).map(&mut blur).collect());
}

#[test]
fn products_with_factors_of_channels_agree() {
    let shapes = [(1, 1, 1), (16, 5, 5), (20, 7, 3), (37, 4, 9), (96, 11, 11), (8, 1, 1)];
    let case = |((c, h, w), k)| Case::random(Op::from(Multiply), 3, Shape::image(c, h, w), k);
    assert_parity(shapes.into_iter().zip(1200..).map(case).collect());
}

/// Checks layers of MobileNet v2, EfficientNet, ConvNeXt, ResNeXt, AlexNet in two columns and Inception, and one with dilation. Each is
/// given as input channels, output channels, groups, kernel, stride, dilation. oneDNN's plain loops would be up to a hundred times slower.
#[test]
fn convolutions_of_known_networks_use_no_plain_loops() {
    let layers = [
        ([96, 96, 96], [3, 3], 2, 1),
        ([240, 240, 240], [5, 5], 1, 1),
        ([72, 72, 72], [5, 5], 2, 1),
        ([96, 96, 96], [7, 7], 1, 1),
        ([128, 128, 32], [3, 3], 1, 1),
        ([256, 256, 32], [3, 3], 2, 1),
        ([96, 256, 2], [5, 5], 1, 1),
        ([128, 128, 1], [1, 7], 1, 1),
        ([128, 192, 1], [7, 1], 1, 1),
        ([64, 64, 1], [3, 3], 1, 2),
    ];
    for ([inputs, outputs, groups], kernel, stride, dilation) in layers {
        let x = in_blocks(2, Shape::image(inputs, 14, 14));
        let conv = Conv::new(outputs, 1).kernel(kernel).stride(stride).groups(groups).dilation(dilation).same(x.shape);
        let (what, plan) = (format!("{conv:?}"), with_plan(conv, x, |plan| plan.implementation()));
        assert!(!plan.contains("ref"), "{what}: {plan}");
        // "spread" means weights with zeros between them, for a kernel without groups or dilation; depthwise convolutions have
        // faster kernels
        assert!(groups < inputs || !plan.contains("spread"), "{what}: {plan}");
    }
}

/// Returns the layout of convolution outputs on this processor.
pub(crate) fn in_blocks(n: usize, shape: Shape) -> TensorDesc {
    TensorDesc { block: cpu_block(), ..TensorDesc::plain(n, shape) }
}

pub(crate) fn cpu_block() -> usize {
    let (op, shape) = (Op::Conv(Conv::new(16, 1)), [Shape::image(16, 2, 2)]);
    let x = [TensorDesc::plain(1, shape[0])];
    let alone = PlanRequest::alone("x", &op, &shape, &x);
    let request = PlanRequest { train: false, wants_dx: false, ..alone };
    cpu(1).plan(&request).expect("a convolution").output().block
}
