//! Group normalisation. ONNX has an operator for it only since opset 18, so it is exported as an instance normalisation
//! of reshaped channels.

use std::rc::Rc;

use net::GroupNorm;
use serde_json::json;

use super::Attribute::Float;
use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::export::keras::layers::exact;
use crate::interop::onnx::build::{Build, Operator, Value, View};
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::tensor::Constant;

impl OpMapping for GroupNorm {
    fn onnx_operators() -> &'static [Operator] {
        &[("GroupNormalization", 3, group), ("InstanceNormalization", 3, instance)]
    }

    /// Writes an instance normalisation in which each group is one channel.
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let Self { groups, eps } = *self;
        let shape = writer.layer.x[0];
        let grouped = writer.ints("grouped", &[0, groups as i64, -1]);
        let image = [0, shape.c as i64, shape.h as i64, shape.w as i64];
        let own = writer.ints("own", if writer.layer.flat { &[0, -1] } else { &image });
        let ones = writer.floats("ones", &[groups], &vec![1.0; groups]);
        let zeros = writer.floats("zeros", &[groups], &vec![0.0; groups]);
        let joined = writer.node("Reshape", &[&x[0], &grouped], "joined", &[]);
        let attributes = [("epsilon", Float(eps))];
        let normed = writer.node("InstanceNormalization", &[joined, ones, zeros], "normed", &attributes);
        let parted = writer.node("Reshape", &[normed, own], "parted", &[]);
        let (weight, bias) = (writer.per_channel("weight"), writer.per_channel("bias"));
        let scaled = writer.node("Mul", &[parted, weight], "scaled", &[]);
        Ok(writer.output("Add", &[scaled, bias], &[]))
    }

    fn to_torch(&self, layer: &Layer<'_>, path: &str, v: &[String]) -> Result<Code, String> {
        let Self { groups, eps } = self;
        let module = format!("nn.GroupNorm({groups}, {}, eps={eps})", layer.x[0].c);
        Ok(Code::module(module, format!("{path}({})", v[0])))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let Self { groups, eps } = self;
        let settings = json!({"groups": groups, "axis": -1, "epsilon": exact(*eps)});
        layers.add_weighted(&layer.node.name, "GroupNormalization", settings, x)
    }
}

/// Reads a normalisation of each channel, or of groups of channels if a reshape has joined them.
fn instance<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["epsilon"])?;
    let (scale, bias) = (build.constant(node, 1)?, build.constant(node, 2)?);
    if let Value::Arranged(x, axes) = build.value(node, 0)? {
        let shape = build.shapes[x.0];
        let count = axes.groups(shape).ok_or_else(|| {
            format!("it normalises a tensor of {shape} with rearranged dimensions; supported is (N, groups, -1)")
        })?;
        let all = |constant: &Rc<Constant>, wanted: f32| {
            let values = constant.floats();
            values.len() == count && values.iter().all(|value| *value == wanted)
        };
        if !all(&scale, 1.0) || !all(&bias, 0.0) {
            return Err(
                "it has a scale or bias for each group of channels; only weights for each channel are supported".into(),
            );
        }
        let [scale, bias] = [("weight", 1.0), ("bias", 0.0)].map(|(field, n)| (field, vec![shape.c], vec![n; shape.c]));
        let norm = GroupNorm { groups: count, eps: node.eps()? };
        let id = build.layer((None, node.label()), norm, &[x], vec![scale, bias])?;
        return Ok(Value::Arranged(id, axes));
    }
    let x = build.image(node, 0)?;
    let groups = build.shapes[x.id.0].c;
    normalized(build, node, x, GroupNorm { groups, eps: node.eps()? }, [scale.vector(), bias.vector()])
}

fn group<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["epsilon", "num_groups", "stash_type"])?;
    let x = build.image(node, 0)?;
    let channels = build.shapes[x.id.0].c;
    let groups = usize::try_from(node.int("num_groups", 0)).ok().filter(|n| *n > 0 && channels.is_multiple_of(*n));
    let groups = groups.ok_or_else(|| {
        format!("its num_groups must divide the {channels} channels of its input, got {}", node.int("num_groups", 0))
    })?;
    // before opset 21, scale and bias have one number per group
    let each = |(shape, values): (Vec<usize>, Vec<f32>)| match shape[..] {
        [n] if n == groups && n != channels => {
            (vec![channels], values.iter().flat_map(|value| vec![*value; channels / groups]).collect())
        }
        _ => (shape, values),
    };
    let weights = [1, 2].map(|at| build.constant(node, at).map(|constant| each(constant.vector())));
    let [scale, bias] = weights;
    normalized(build, node, x, GroupNorm { groups, eps: node.eps()? }, [scale?, bias?])
}

fn normalized<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    x: View,
    norm: GroupNorm,
    [scale, bias]: [(Vec<usize>, Vec<f32>); 2],
) -> Result<Value, String> {
    let weights = vec![("weight", scale.0, scale.1), ("bias", bias.0, bias.1)];
    build.layer_on((Some(node.inputs[1]), node.label()), norm, x, weights).map(Value::Tensor)
}
