//! Convolutions with so much padding that oneDNN has only plain loops for them. On the CPU they read images surrounded
//! by zeros instead (a frame).

use backend::cpu::Cpu;
use backend::{Backend, PlanRequest, Planned, TensorDesc};
use net::{Conv, Op, Shape};

use crate::parity::{assert_parity, in_blocks};
use support::numerics::{Case, Chooser, cpu, has_own_kernels};

/// Kernel size and padding. At the edges, part of the kernel or all of it lies outside the image.
const WIDE: [(usize, usize); 6] = [(5, 4), (7, 6), (1, 1), (1, 2), (3, 3), (4, 5)];

fn case(conv: Conv, n: usize, x: Shape, k: usize) -> Case {
    Case::random(Op::Conv(conv), n, x, 8_000 + k as u64)
}

/// Tests strides that leave pixels at the end, dilation, channels that fill a block or not, and images with one or more
/// channels.
#[test]
fn widely_padded_convolutions_agree() {
    let mut cases = Vec::new();
    for (kernel, pad) in WIDE {
        for (inputs, outputs, stride, dilation) in [(16, 32, 1, 1), (20, 17, 2, 1), (8, 16, 1, 2), (3, 9, 2, 2)] {
            let conv = Conv::new(outputs, kernel).pad(pad * dilation).stride(stride).dilation(dilation);
            let conv = if cases.len() % 2 == 0 { conv.bias(0.0).relu() } else { conv };
            cases.push(case(conv, 3, Shape::image(inputs, 6, 5), cases.len()));
        }
        // convolutions that read the network's images do not compute the images' gradient
        for inputs in [1, 3] {
            let conv = Conv::new(16, kernel).pad(pad).bias(0.0);
            cases.push(Case { first: true, ..case(conv, 2, Shape::image(inputs, 7, 6), cases.len()) });
        }
    }
    assert_parity(cases);
}

/// Tests few and many channels per group, and one or two filters per channel.
#[test]
fn widely_padded_groups_agree() {
    let mut cases = Vec::new();
    for (kernel, pad) in WIDE {
        for (groups, inputs, outputs) in [(2, 32, 32), (8, 32, 16), (16, 16, 16), (12, 12, 24)] {
            let conv = Conv::new(outputs, kernel).pad(pad).groups(groups).stride(1 + cases.len() % 2);
            cases.push(case(conv, 2, Shape::image(inputs, 5, 6), 100 + cases.len()));
        }
    }
    let gaps = Conv::new(32, 3).pad(6).dilation(2);
    cases.push(case(gaps.clone().groups(2), 2, Shape::image(32, 5, 6), 190));
    cases.push(case(gaps.groups(32), 2, Shape::image(32, 5, 6), 191));
    assert_parity(cases);
}

#[test]
fn other_padding_on_each_side_agrees() {
    let mut c = Chooser(6);
    let mut random = |k| {
        let kernel = [1 + c.below(5), 1 + c.below(5)];
        let (stride, dilation) = ([1 + c.below(2), 1 + c.below(3)], [1 + c.below(2), 1]);
        let groups = c.one(&[1, 1, 2, 8]);
        let conv = Conv { stride, dilation, groups, ..Conv::new(c.one(&[8, 16, 24]), 1).kernel(kernel) };
        let pads = [0, 1, 0, 1].map(|axis| c.below(conv.extent()[axis] + 3));
        let x = Shape::image(c.one(&[8, 16]), conv.extent()[0] + c.below(4), conv.extent()[1] + c.below(4));
        case(conv.pads(pads), 1 + c.below(3), x, k)
    };
    assert_parity((200..230).map(&mut random).collect());
}

/// Calls `of` with the plan that a network would have: for channel blocks, or for plain images without gradient.
pub(crate) fn with_plan<T>(conv: Conv, x: TensorDesc, of: impl FnOnce(&dyn Planned<Cpu>) -> T) -> T {
    let (op, shapes, x) = (Op::Conv(conv), [x.shape], [x]);
    let alone = PlanRequest::alone("conv", &op, &shapes, &x);
    let request = PlanRequest { wants_dx: x[0].block != 1, ..alone };
    of(cpu(1).plan(&request).unwrap_or_else(|e| panic!("{op:?}: {e}")).as_ref())
}

#[test]
fn widely_padded_convolutions_use_no_plain_loops() {
    let image = TensorDesc::plain(2, Shape::image(3, 14, 14));
    let blocks = |c| in_blocks(2, Shape::image(c, 14, 14));
    for (kernel, pad) in WIDE {
        let conv = Conv::new(32, kernel).pad(pad);
        let mut layers = vec![
            (conv.clone(), image),
            (conv.clone(), blocks(32)),
            (conv.clone(), blocks(20)),
            (conv.clone().stride(2), blocks(32)),
            (conv.clone().pads([pad, 0, 1, pad]), blocks(32)),
            (conv.clone().groups(2), blocks(32)),
            (conv.clone().groups(8), blocks(32)),
            (conv.clone().groups(32), blocks(32)),
        ];
        // a larger kernel with dilation is too wide for oneDNN, regardless of the padding
        if kernel < 5 {
            layers.push((conv.dilation(2).pad(2 * pad), blocks(32)));
        }
        for (conv, x) in layers {
            let what = format!("kernel {kernel}, pads {:?}, {} groups, {x:?}", conv.pads, conv.groups);
            let (names, bytes) = with_plan(conv, x, |plan| (plan.implementation(), plan.state_bytes()));
            assert!(!names.contains("ref"), "{what}: {names}");
            eprintln!("{what}: {names}");
            // the plan's memory includes the frame, which is larger than the image, and the frame of the gradient
            let copies = if x.block == 1 { 1 } else { 2 };
            assert!(!names.ends_with("in a frame") || bytes > copies * 4 * x.elems(), "{what}: {bytes} bytes");
        }
    }
}

/// Tests 3x3 convolutions with stride 1 that use Winograd's algorithm: the smallest images, partial tiles, few channels,
/// and more channels than the buffer of transformed inputs holds at once.
#[test]
fn padding_of_less_than_three_agrees() {
    let is_ours = |conv: &Conv, x| with_plan(conv.clone(), x, |plan| plan.implementation().starts_with("own winograd"));
    let mut cases = Vec::new();
    for pad in 0..3 {
        for ([inputs, outputs], h, w, n) in [
            ([16, 16], 4, 4, 3),
            ([20, 17], 3, 6, 2),
            ([16, 24], 7, 8, 2),
            ([64, 16], 9, 12, 2),
            ([272, 40], 6, 7, 2),
            ([24, 288], 7, 5, 3),
        ] {
            let conv = Conv::new(outputs, 3).pad(pad);
            let conv = if cases.len() % 2 == 0 { conv.bias(0.1).relu() } else { conv };
            let x = in_blocks(n, Shape::image(inputs, h, w));
            assert_eq!(is_ours(&conv, x), has_own_kernels(), "{conv:?} of {x:?}");
            cases.push(case(conv, n, x.shape, 300 + cases.len()));
        }
    }
    assert_parity(cases);
}

/// Frames are only for convolutions that are slow without them. With padding 2, 3x3 is slow on AVX-512 (oneDNN 2.6) but
/// not on AVX2. Padding of half the kernel is fast on both.
#[test]
fn convolutions_that_are_fast_have_no_frame() {
    let x = in_blocks(2, Shape::image(32, 14, 14));
    for (kernel, pad) in [(1, 0), (3, 1), (5, 2), (7, 3)] {
        let names = with_plan(Conv::new(32, kernel).pad(pad), x, |plan| plan.implementation());
        assert!(!names.contains("frame"), "kernel {kernel}, padding {pad}: {names}");
    }
}
