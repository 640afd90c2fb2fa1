//! oneDNN has only plain loops for images with 16 or more bands (8 with AVX2), for images with fewer channels than a
//! block, and for groups that do not fill blocks. The CPU backend copies the images into channel blocks, or adds zeros to
//! the weights.

use std::process::Command;

use backend::TensorDesc;
use net::{Conv, Op, Shape};

use crate::padding::with_plan;
use crate::parity::{assert_parity, cpu_block, in_blocks};
use support::numerics::Case;
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
