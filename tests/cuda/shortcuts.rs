//! Batch normalisation can read directly through a shortcut. The result has the same bits as with a separate pass for
//! the shortcut.

use backend::cuda::Precision;
use backend::{Error, Input};
use engine::{Batch, Graph, Loss, MicroBatch, Purpose};
use net::{Conv, Dropout, Id, Linear, NetSpec, Norm, Op, Pool, Shape, Shortcut};

use support::gpu::{alone, assert_recorded};
use support::numerics::{cuda, noise};

const ROWS: usize = 3;

/// Returns an image size with which the layers of stride 2 meet odd sides: 9 x 14, then 5 x 7.
fn input() -> Shape {
    Shape::image(3, 9, 14)
}

/// Creates a network of two blocks that halve height and width. The norm before the first block has no residual, the
/// norm before the second has one.
///
/// If `apart` is set, a layer that changes nothing separates each shortcut from the following norm.
fn net(widths: [usize; 3], apart: bool) -> NetSpec {
    let mut net = NetSpec::new("blocks", input());
    let conv = |channels, stride| Op::Conv(Conv::new(channels, 3).pad(1).stride(stride));
    let x = net.add("conv1", conv(widths[0], 1), net.image());
    let mut x = net.add("bn1", Norm::new().relu(), x);
    for width in &widths[1..] {
        x = block(&mut net, x, *width, apart);
    }
    let x = net.add("pool", Pool::global(), x);
    net.add("fc", Linear::new(4), x);
    net
}

fn block(net: &mut NetSpec, x: Id, width: usize, apart: bool) -> Id {
    let name = |layer: &str| format!("block{width}.{layer}");
    let y = net.add(&name("conv1"), Conv::new(width, 3).pad(1).stride(2), x);
    let y = net.add(&name("bn1"), Norm::new().relu(), y);
    let y = net.add(&name("conv2"), Conv::new(width, 3).pad(1), y);
    let mut x = net.add(&name("shortcut"), Shortcut { out_channels: width, stride: 2 }, x);
    if apart {
        x = net.add(&name("nothing"), Op::from(Dropout(0.0)), x);
    }
    net.join(&name("bn2"), Norm::new().residual().relu(), &[y, x])
}

struct Ran {
    /// For each pass, the bits of all gradients, followed by the bits of the scores in evaluation.
    bits: Vec<u32>,
    /// The implementation of each shortcut.
    shortcuts: Vec<String>,
}

fn run(precision: Precision, widths: [usize; 3], apart: bool) -> Ran {
    let net = net(widths, apart);
    let shortcuts: Vec<usize> = (0..net.nodes.len()).filter(|&n| net.nodes[n].name.ends_with("shortcut")).collect();
    let mut graph = Graph::new(cuda(precision), net, ROWS, Purpose::Train { bucket_bytes: usize::MAX }, 5).unwrap();
    let mut bits = Vec::new();
    // the last batch of an epoch is smaller
    for (pass, rows) in [ROWS, ROWS, ROWS, ROWS - 1].into_iter().enumerate() {
        let images = noise(rows * input().elems(), pass as u64, 1.0);
        let batch =
            Batch { images: Input::Values(&images), labels: &[1, 3, 0][..rows], ids: &[0, 1, 2][..rows], epoch: 0 };
        let loss = Loss { smoothing: 0.0, scale: 1.0 / rows as f32 };
        let sums = graph.train::<Error>(batch, loss, MicroBatch { worker: 0, last: true }, None).unwrap();
        assert!(sums.loss.is_finite());
        let gradients = (0..graph.params().len()).flat_map(|i| graph.gradient(i).unwrap());
        bits.extend(gradients.map(f32::to_bits));
        bits.extend(graph.scores(&images, rows).unwrap().into_iter().map(f32::to_bits));
    }
    assert_recorded(graph.backend());
    Ran { bits, shortcuts: shortcuts.into_iter().map(|node| graph.implementation(node)).collect() }
}

#[test]
fn a_shortcut_that_is_read_through_changes_no_bit() {
    let _alone = alone();
    for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
        let widths = [16, 32, 64];
        let (through, apart) = (run(precision, widths, false), run(precision, widths, true));
        assert_eq!(apart.shortcuts, ["own"; 2], "{precision}");
        assert!(through.shortcuts.iter().all(|how| how.contains("fused into")), "{:?}", through.shortcuts);
        let differ = through.bits.iter().zip(&apart.bits).filter(|(a, b)| a != b).count();
        assert_eq!((differ, through.bits.len()), (0, apart.bits.len()), "{precision}");
    }
}

/// If the channels do not fill whole packs of 16 bytes, the shortcut has its own pass.
#[test]
fn shortcuts_with_incomplete_16_byte_packs_have_a_pass_of_their_own() {
    let _alone = alone();
    for (precision, widths) in [(Precision::F32, [6, 12, 24]), (Precision::Bf16, [8, 16, 24])] {
        let ran = run(precision, widths, false);
        assert_eq!(ran.shortcuts, ["own"; 2], "{precision}, {widths:?}");
    }
}

/// If batch norms do the work of a shortcut, its output is never computed and cannot be read.
#[test]
fn the_output_of_a_shortcut_without_a_pass_is_refused() {
    let _alone = alone();
    let cuda = cuda(Precision::F32);
    let net = net([16, 32, 64], false);
    let node = net.nodes.iter().position(|node| node.name == "block32.shortcut").unwrap();
    let graph = Graph::new(cuda, net, ROWS, Purpose::Infer, 5).unwrap();
    let said = graph.output(node + 1).unwrap_err().to_string();
    assert!(said.contains("block32.shortcut") && said.contains("not stored"), "{said}");
    assert!(graph.output(node + 2).is_ok());
}
