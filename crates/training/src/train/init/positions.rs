//! Adapts position embeddings in a weight file to the run's image size.

use engine::graph::BuildError;
use formats::interop::Weights;
use net::{NetSpec, Op};
use recipe::Init;

use super::matching;
use crate::error::Error;

/// Interpolates position embeddings if the file has them for another image size, as torchvision's
/// `interpolate_embeddings` does. The class token's embedding is kept. Leaves embeddings unchanged if their positions
/// do not form a square grid. Returns a log message for each change. Returns the same errors as [`matching::renamed`].
pub fn adapt(net: &NetSpec, weights: &mut Weights, init: &Init) -> Result<Vec<String>, Error> {
    let (mut notes, found) = (Vec::new(), matching::renamed(weights, init)?);
    let shapes = net.shapes().map_err(BuildError::from)?;
    for node in net.nodes.iter().filter(|node| matches!(node.op, Op::PositionEmbedding(_))) {
        let name = format!("{}.pos_embedding", node.name);
        let index = net::torch_name(&name).and_then(|other| found.get(&other)).or(found.get(&name));
        let Some((_, shape, values)) = index.map(|index| &mut weights.tensors[*index]) else { continue };
        let input = node.inputs[0].0;
        // the image before the class token, if the network has a class token
        let before = input.checked_sub(1).map(|at| &net.nodes[at]).filter(|node| matches!(node.op, Op::ClassToken(_)));
        let (image, classes) = before.map_or((shapes[input], 0), |node| (shapes[node.inputs[0].0], 1));
        let &[.., given, channels] = &shape[..] else { continue };
        let side = given.saturating_sub(classes).isqrt();
        let fits =
            channels == image.c && side > 0 && side * side + classes == given && values.len() == given * channels;
        if !fits || given == image.plane() + classes {
            continue;
        }
        let (kept, grid) = values.split_at(classes * channels);
        let resized = bicubic(grid, [side, side], [image.h, image.w], channels);
        *values = [kept, &resized].concat();
        *shape = vec![image.plane() + classes, channels];
        notes.push(format!(
            "{name} was interpolated from {side} x {side} to {} x {} positions, because the images have another size",
            image.h, image.w
        ));
    }
    Ok(notes)
}

/// Resizes a grid of vectors with layout (rows, columns, channels), with Keys's cubic convolution (a = -0.75). The
/// corners keep their values. This is PyTorch's `interpolate(mode="bicubic", align_corners=True)`.
fn bicubic(from: &[f32], size: [usize; 2], to: [usize; 2], channels: usize) -> Vec<f32> {
    let [rows, columns] = [0, 1].map(|axis| (0..to[axis]).map(|at| taps(at, size[axis], to[axis])).collect::<Vec<_>>());
    let mut resized = Vec::with_capacity(to[0] * to[1] * channels);
    for row in &rows {
        for column in &columns {
            for channel in 0..channels {
                let value = |y: usize, x: usize| f64::from(from[(y * size[1] + x) * channels + channel]);
                let line = |y: usize| column.iter().map(|(x, weight)| weight * value(y, *x)).sum::<f64>();
                resized.push(row.iter().map(|(y, weight)| weight * line(*y)).sum::<f64>() as f32);
            }
        }
    }
    resized
}

/// Returns the four source positions that determine a resized position, and their weights. A position outside the grid
/// is replaced by the nearest position at the edge.
fn taps(at: usize, from: usize, to: usize) -> [(usize, f64); 4] {
    const A: f64 = -0.75;
    let place = if to > 1 { at as f64 * (from - 1) as f64 / (to - 1) as f64 } else { 0.0 };
    let (first, t) = (place.floor(), place.fract());
    let near = |d: f64| ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0;
    let far = |d: f64| ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A;
    let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
    std::array::from_fn(|tap| {
        let position = (first as i64 + tap as i64 - 1).clamp(0, from as i64 - 1);
        (position as usize, weights[tap])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::{Shape, models};

    /// torch 2.15: `F.interpolate(t, size, mode="bicubic", align_corners=True)` for the numbers 0, 1, 4, 9, ... in a
    /// 3x3 grid.
    #[test]
    fn values_are_those_of_pytorch() {
        let grid: Vec<f32> = (0..9).map(|i| (i * i) as f32).collect();
        let expected = [0.0, 4.0, 3.1667, 14.0556, 18.5, 39.6111, 36.0, 64.0];
        let got = bicubic(&grid, [3, 3], [4, 2], 1);
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-4, "{got} instead of {expected}");
        }
        assert_eq!(bicubic(&grid, [3, 3], [3, 3], 1), grid);
    }

    /// The class token's vector stays, and the other positions are interpolated.
    #[test]
    fn embeddings_of_other_sizes_fit() {
        let net = models::build("vit_b_32", Shape::image(3, 64, 96), 10).unwrap();
        let tensor =
            ("encoder.pos_embedding".to_string(), vec![1, 5, 768], (0..5 * 768).map(|i| (i / 768) as f32).collect());
        let mut weights =
            Weights { path: "a.pth".into(), format: "PyTorch", tensors: vec![tensor], ..Weights::default() };
        let notes = adapt(&net, &mut weights, &Init::default()).unwrap();
        assert_eq!(notes.len(), 1);
        let (_, shape, values) = &weights.tensors[0];
        assert_eq!(shape[..], [7, 768]);
        let first: Vec<f32> = values.iter().step_by(768).copied().collect();
        assert_eq!([first[0], first[1], first[3], first[4], first[6]], [0.0, 1.0, 2.0, 3.0, 4.0]);
        let fit = matching::match_tensors(&net, &weights, &Init::default()).unwrap();
        assert_eq!(fit.with(matching::MatchResult::Taken).count(), 1);
    }
}
