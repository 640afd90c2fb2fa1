//! Pooling, and means over height and width.

use net::{Flatten, OpSpec, Pool, PoolKind};
use serde_json::json;

use super::Attribute::{Int, Ints};
use super::{Code, Layer, LayerWriter, Layers, OpMapping, Padded, Windows, pair, windows};
use crate::interop::export::keras::layers::zeros;
use crate::interop::onnx::axes::from_front;
use crate::interop::onnx::build::{Build, Fill, Layout, Operator, Padding, Value, View};
use crate::interop::onnx::channels;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::windows::{Sizes, pads};

impl OpMapping for Pool {
    fn onnx_operators() -> &'static [Operator] {
        &[
            ("AveragePool", 1, average),
            ("GlobalAveragePool", 1, |build, node| whole(build, node, PoolKind::Avg)),
            ("GlobalMaxPool", 1, |build, node| whole(build, node, PoolKind::Max)),
            ("MaxPool", 1, max),
            ("ReduceMean", 2, mean),
        ]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let max = self.kind == PoolKind::Max;
        let Padded { window, stride, pads } = match windows(self, writer.layer.x[0], writer.layer.y)? {
            Windows::All if max => return Ok(writer.output("GlobalMaxPool", x, &[])),
            Windows::All => return Ok(writer.output("GlobalAveragePool", x, &[])),
            Windows::Bins(_) if max => {
                return Err("its bins differ in size, which ONNX's max pools do not support".into());
            }
            Windows::Bins(_) => return stretches(self, writer, &x[0]),
            Windows::Equal(padded) => padded,
        };
        let mut attributes = vec![("kernel_shape", Ints(&window)), ("pads", Ints(&pads)), ("strides", Ints(&stride))];
        if self.kind == PoolKind::AvgCountPad {
            attributes.push(("count_include_pad", Int(1)));
        }
        Ok(writer.output(if max { "MaxPool" } else { "AveragePool" }, x, &attributes))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (a, name) = (&v[0], if self.kind == PoolKind::Max { "max" } else { "avg" });
        let padded = match windows(self, layer.x[0], layer.y)? {
            Windows::All => return Ok(Code::plain(format!("F.adaptive_{name}_pool2d({a}, 1)"))),
            Windows::Bins(bins) => return Ok(Code::plain(format!("F.adaptive_{name}_pool2d({a}, {})", pair(bins)))),
            Windows::Equal(padded) => padded,
        };
        let Padded { window, stride, pads: [top, left, bottom, right] } = padded;
        let sizes = format!("{}, {}", pair(window), pair(stride));
        let around = format!("({left}, {right}, {top}, {bottom})");
        Ok(Code::plain(match self.kind {
            _ if padded.is_bare() => format!("F.{name}_pool2d({a}, {sizes})"),
            PoolKind::Max if padded.is_even() => format!("F.max_pool2d({a}, {sizes}, {})", pair([top, left])),
            PoolKind::Max => format!("F.max_pool2d(F.pad({a}, {around}, value=float(\"-inf\")), {sizes})"),
            PoolKind::AvgCountPad => format!("F.avg_pool2d(F.pad({a}, {around}), {sizes})"),
            PoolKind::Avg if padded.is_even() => {
                format!("F.avg_pool2d({a}, {sizes}, {}, count_include_pad=False)", pair([top, left]))
            }
            // PyTorch cannot leave unequal padding out of averages. So the code divides the mean over the whole window
            // by the fraction of its cells that are inside the image.
            PoolKind::Avg => {
                let of = |value: &str| format!("F.avg_pool2d(F.pad({value}, {around}), {sizes})");
                format!("{} / {}", of(a), of(&format!("torch.ones_like({a})")))
            }
        }))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let (name, shape) = (&layer.node.name, layer.x[0]);
        let max = self.kind == PoolKind::Max;
        let padded = match windows(self, shape, layer.y)? {
            Windows::All => {
                let class = if max { "GlobalMaxPooling2D" } else { "GlobalAveragePooling2D" };
                return Ok(layers.add(name, class, json!({"keepdims": true}), x));
            }
            Windows::Bins(_) => {
                return Err(
                    "its bins differ in size, which Keras's pools do not support. Use --to onnx or safetensors".into(),
                );
            }
            Windows::Equal(padded) => padded,
        };
        // Keras's own padding never changes a maximum and is not counted in averages
        let same = padded.is_same(shape) && self.kind != PoolKind::AvgCountPad;
        let with_zeros = match self.kind {
            PoolKind::Max => layer.network.is_non_negative(layer.node.inputs[0]),
            PoolKind::AvgCountPad => true,
            PoolKind::Avg => false,
        };
        let from = match same || padded.is_bare() {
            true => x[0],
            false if with_zeros => zeros(layers, layer, padded.pads, x[0]),
            false => {
                return Err(
                    "Keras can only pad it with zeros, which would change its output. Use --to onnx or safetensors"
                        .into(),
                );
            }
        };
        let Padded { window, stride, .. } = padded;
        let settings = json!({"pool_size": window, "strides": stride, "padding": if same { "same" } else { "valid" }});
        let class = if max { "MaxPooling2D" } else { "AveragePooling2D" };
        Ok(layers.add(name, class, settings, &[from]))
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}

/// Writes means over bins of different sizes as two matrix products, first over rows and then over columns.
fn stretches(pool: &Pool, writer: &mut LayerWriter<'_>, a: &str) -> Result<String, String> {
    let (x, y) = (writer.layer.x[0], writer.layer.y);
    let [mut rows, mut columns] = [vec![0.0; y.h * x.h], vec![0.0; x.w * y.w]];
    for (i, window) in pool.windows(x, 0)?.into_iter().enumerate() {
        rows[i * x.h..][window.from..window.to].fill(1.0 / (window.to - window.from) as f32);
    }
    for (j, window) in pool.windows(x, 1)?.into_iter().enumerate() {
        let share = 1.0 / (window.to - window.from) as f32;
        (window.from..window.to).for_each(|cell| columns[cell * y.w + j] = share);
    }
    let down = writer.floats("rows", &[y.h, x.h], &rows);
    let across = writer.floats("columns", &[x.w, y.w], &columns);
    let half = writer.node("MatMul", &[&down, a], "down", &[]);
    Ok(writer.output("MatMul", &[half, across], &[]))
}

fn average<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"])?;
    let counts = node.int("count_include_pad", 0) != 0;
    let (x, before) = match build.value(node, 0)? {
        Value::Padded(view, padding) if view.layout == Layout::Image && padding.fill == Fill::Zeros => (view, padding),
        _ => (build.image(node, 0)?, Padding::NONE),
    };
    let (image, sizes) = (before.around(build.shapes[x.id.0]), Sizes::of_pool(node)?);
    let own = pads(node, image, &sizes)?;
    // zeros from an earlier Pad node count as cells of the image
    if before != Padding::NONE && own != [0; 4] && !counts {
        return Err(
            "the zeros of the Pad node before it count in averages, but its own padding does not (count_include_pad=0). Pad in one node \
             only"
                .into(),
        );
    }
    let all: [usize; 4] = std::array::from_fn(|side| own[side] + before.cells[side]);
    let counted = all != [0; 4] && (counts || before != Padding::NONE);
    let kind = if counted { PoolKind::AvgCountPad } else { PoolKind::Avg };
    let pool = pool(node, kind, &sizes, all)?;
    merged(build, node, (x, before), pool, own)
}

/// Adds a pool whose padding includes the cells of the Pad node before it, if there is one. `own` is the padding of the
/// pool itself.
///
/// With `ceil_mode`, a pool drops windows that begin in its own padding, but not windows that begin in the cells of a
/// Pad node. So merging is correct only if the output has the shape that it would have without merging.
fn merged<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    (x, before): (View, Padding),
    pool: Pool,
    own: [usize; 4],
) -> Result<Value, String> {
    let shape = build.shapes[x.id.0];
    if before != Padding::NONE {
        let apart = Pool { pads: own, ..pool.clone() }.output(&[before.around(shape)])?;
        let y = pool.output(&[shape])?;
        if y != apart {
            return Err(format!(
                "its ceil_mode has windows that begin in the padding of the Pad node before it (output {apart}). A pool with this \
                 padding as its own drops them (output {y}). Export the network with ceil_mode=False"
            ));
        }
    }
    made(build, node, x, pool)
}

fn max<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"])?;
    if node.outputs.len() > 1 {
        return Err("its second output, the indices of the maxima, is not supported".into());
    }
    let (x, before) = match build.value(node, 0)? {
        Value::Padded(view, padding) if view.layout == Layout::Image && is_neutral(build, view, padding) => {
            (view, padding)
        }
        _ => (build.image(node, 0)?, Padding::NONE),
    };
    let (image, sizes) = (before.around(build.shapes[x.id.0]), Sizes::of_pool(node)?);
    let own = pads(node, image, &sizes)?;
    let all = std::array::from_fn(|side| own[side] + before.cells[side]);
    let pool = pool(node, PoolKind::Max, &sizes, all)?;
    merged(build, node, (x, before), pool, own)
}

/// Returns true if the cells never change a maximum, like a pool's own padding.
fn is_neutral(build: &Build<'_>, x: View, padding: Padding) -> bool {
    match padding.fill {
        Fill::Lowest => true,
        Fill::Zeros => build.is_non_negative(x.id),
        Fill::Mirrored => false,
    }
}

fn pool(node: &Node<'_>, kind: PoolKind, sizes: &Sizes, pads: [usize; 4]) -> Result<Pool, String> {
    if sizes.dilation != [1, 1] {
        return Err(format!("dilations {:?} of a pool are not supported", sizes.dilation));
    }
    let ceil = node.int("ceil_mode", 0) != 0;
    Ok(Pool { kind, window: Some(sizes.kernel), stride: sizes.stride, pads, ceil, bins: None })
}

fn made<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, pool: Pool) -> Result<Value, String> {
    build.layer_on((None, node.label()), pool, x, Vec::new()).map(Value::Tensor)
}

fn whole<'a>(build: &mut Build<'a>, node: &Node<'a>, kind: PoolKind) -> Result<Value, String> {
    node.only(&[])?;
    let x = build.image(node, 0)?;
    made(build, node, x, Pool { kind, ..Pool::global() })
}

/// Reads a mean over height and width, or a mean over channels that is a part of a layer normalisation.
fn mean<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes", "keepdims", "noop_with_empty_axes"])?;
    let axes = build.numbers(node, 1, "axes")?.unwrap_or_default();
    let (x, part) = match build.value(node, 0)? {
        Value::Moment(view, of) => (view, Some(of)),
        _ => (build.view(node, 0)?, None),
    };
    let rank = x.layout.rank();
    let mut axes: Vec<i64> = axes.iter().map(|axis| from_front(*axis, rank)).collect();
    axes.sort_unstable();
    let channels = axes == [rank as i64 - 1] && node.int("keepdims", 1) == 1;
    if channels || part.is_some() {
        return channels::mean(x, part, channels);
    }
    let plane = match x.layout {
        Layout::Image => axes == [2, 3],
        Layout::Last => axes == [1, 2],
        Layout::Tokens => axes == [1],
        Layout::Flat | Layout::FlatLast(_) | Layout::Arranged(_) => false,
    };
    if !plane {
        return Err(format!(
            "means over axes {axes:?} of {} are not supported, only means over height and width",
            x.layout.text()
        ));
    }
    let mut id = build.layer((None, node.label()), Pool::global(), &[x.id], Vec::new())?;
    let mut layout = x.layout;
    if node.int("keepdims", 1) == 0 {
        id = build.layer((None, node.label()), Flatten, &[id], Vec::new())?;
        layout = Layout::Flat;
    }
    Ok(Value::Tensor(View { id, layout }))
}
