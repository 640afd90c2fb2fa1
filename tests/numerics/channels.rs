//! oneDNN has only plain loops for images with 16 or more bands (8 with AVX2), for images with fewer channels than a
//! block, for groups that do not fill blocks, and for very wide padding. The CPU backend copies the images into channel
//! blocks, adds zeros to the weights, or surrounds the images by zeros (a frame).

use std::process::Command;

use backend::cpu::Cpu;
use backend::{Backend, PlanRequest, Planned, TensorDesc};
use net::{Conv, Op, Shape};

use crate::parity::{assert_parity, cpu_block, in_blocks};
use support::numerics::{Case, Chooser, cpu, has_own_kernels};
use support::skip;

/// Kernel size, stride and padding.
const WINDOWS: [[usize; 3]; 8] =
    [[1, 1, 0], [3, 1, 1], [3, 2, 1], [5, 1, 2], [5, 1, 0], [7, 2, 3], [11, 4, 2], [4, 4, 0]];

/// Groups, input channels and output channels.
const GROUPS: [[usize; 3]; 14] = [
    [3, 12, 12],
    [5, 20, 20],
    [7, 21, 14],
    [2, 26, 26],
    [13, 13, 26],
    [4, 20, 12],
    [2, 10, 6],
    // a group of zeros is added, in the padding of the last block or in an additional block
    [3, 24, 24],
    [5, 40, 40],
    [3, 24, 12],
    [5, 120, 120],
    [5, 120, 40],
    [5, 40, 120],
    [5, 60, 120],
];

fn conv([kernel, stride, pad]: [usize; 3], outputs: usize) -> Conv {
    Conv::new(outputs, kernel).stride(stride).pad(pad).bias(0.1)
}

fn case(conv: Conv, n: usize, x: Shape, k: usize) -> Case {
    Case::random(Op::Conv(conv), n, x, 12_000 + k as u64)
}

#[test]
fn images_of_many_bands_agree() {
    let bands = [7, 8, 9, 13, 15, 16, 17, 20, 33];
    let layers = bands.into_iter().enumerate().flat_map(|(i, bands)| {
        // four windows for each number of bands
        WINDOWS.into_iter().skip(i % 2).step_by(2).map(move |window| (bands, window))
    });
    let cases = layers.enumerate().map(|(k, (bands, window))| {
        let conv = conv(window, [9, 16, 24][k % 3]);
        let conv = if k % 2 == 0 { conv.relu() } else { conv };
        Case { first: true, ..case(conv, 2, Shape::image(bands, 12, 11), k) }
    });
    assert_parity(cases.collect());
}

#[test]
fn images_with_parts_of_blocks_agree() {
    let few = [1, 2, 3, 5, 6, 7, 9, 12, 15].into_iter().enumerate();
    let ungrouped = few.map(|(k, inputs)| {
        let conv = conv(WINDOWS[k % WINDOWS.len()], [17, 8, 32][k % 3]);
        case(conv, 2, Shape::image(inputs, 12, 11), 100 + k)
    });
    let grouped = GROUPS.into_iter().enumerate().map(|(k, [groups, inputs, outputs])| {
        let conv = conv(WINDOWS[1 + k % 4], outputs).groups(groups);
        case(conv, 2, Shape::image(inputs, 9, 8), 200 + k)
    });
    // oneDNN has only plain loops for the gradients of such large kernels
    let large = case(conv([16, 16, 0], 24), 2, Shape::image(20, 32, 32), 300);
    let first = Case { first: true, ..large.clone() };
    assert_parity(ungrouped.chain(grouped).chain([large, first]).collect());
}

#[test]
fn no_number_of_channels_uses_plain_loops() {
    let check = |conv: Conv, x: TensorDesc| {
        let what = format!("{conv:?} of {x:?}");
        let names = with_plan(conv, x, |plan| plan.implementation());
        assert!(!names.contains("ref"), "{what}: {names}");
    };
    let plain = |c| TensorDesc::plain(2, Shape::image(c, 32, 32));
    let blocks = |c| in_blocks(2, Shape::image(c, 32, 32));
    for window in WINDOWS {
        for channels in [1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 20, 24, 33, 40, 64] {
            check(conv(window, 20), plain(channels));
            check(conv(window, 64), blocks(channels));
        }
        for [groups, inputs, outputs] in GROUPS {
            check(conv(window, outputs).groups(groups), blocks(inputs));
        }
    }
    for bands in [3, 13, 20] {
        check(conv([16, 16, 0], 48), plain(bands));
    }
}

/// Runs the tests again with AVX2, for which oneDNN has other primitives.
#[test]
fn channels_agree_with_avx2() {
    if cpu_block() != 16 {
        return skip("AVX-512 is not in use, so the other tests do not use it either");
    }
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(["channels::images", "channels::no_number"]).env("ONEDNN_MAX_CPU_ISA", "AVX2");
    let done = tests.env("TRIREME_TEST_CPU_ONLY", "1").output().unwrap();
    let [out, err] = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success() && out.contains("3 passed"), "{out}{err}");
}

/// Kernel sizes and paddings that place some kernels partly or completely outside the image.
const WIDE: [(usize, usize); 6] = [(5, 4), (7, 6), (1, 1), (1, 2), (3, 3), (4, 5)];

fn wide_case(conv: Conv, n: usize, x: Shape, k: usize) -> Case {
    Case::random(Op::Conv(conv), n, x, 8_000 + k as u64)
}

/// Tests strides that leave pixels at the end, dilation, channels that fill a block or not, and images with one or more channels.
#[test]
fn widely_padded_convolutions_agree() {
    let mut cases = Vec::new();
    for (kernel, pad) in WIDE {
        for (inputs, outputs, stride, dilation) in [(16, 32, 1, 1), (20, 17, 2, 1), (8, 16, 1, 2), (3, 9, 2, 2)] {
            let conv = Conv::new(outputs, kernel).pad(pad * dilation).stride(stride).dilation(dilation);
            let conv = if cases.len() % 2 == 0 { conv.bias(0.0).relu() } else { conv };
            cases.push(wide_case(conv, 3, Shape::image(inputs, 6, 5), cases.len()));
        }
        // convolutions that read the network's images do not compute the images' gradient
        for inputs in [1, 3] {
            let conv = Conv::new(16, kernel).pad(pad).bias(0.0);
            cases.push(Case { first: true, ..wide_case(conv, 2, Shape::image(inputs, 7, 6), cases.len()) });
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
            cases.push(wide_case(conv, 2, Shape::image(inputs, 5, 6), 100 + cases.len()));
        }
    }
    let gaps = Conv::new(32, 3).pad(6).dilation(2);
    cases.push(wide_case(gaps.clone().groups(2), 2, Shape::image(32, 5, 6), 190));
    cases.push(wide_case(gaps.groups(32), 2, Shape::image(32, 5, 6), 191));
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
        wide_case(conv.pads(pads), 1 + c.below(3), x, k)
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
            cases.push(wide_case(conv, n, x.shape, 300 + cases.len()));
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
