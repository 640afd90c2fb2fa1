//! Activation functions. `interop/onnx/function.rs` recognises activations that an ONNX file stores as several nodes.

use net::Activation;
use serde_json::json;

use super::Attribute::Float;
use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::export::keras::layers::{exact, inner};
use crate::interop::onnx::build::{Build, Operator, Value};
use crate::interop::onnx::function::Unary;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::operators::element::unary;
use crate::interop::onnx::scores::limited;

impl OpMapping for Activation {
    fn onnx_operators() -> &'static [Operator] {
        &[
            ("Clip", 3, clip),
            ("Gelu", 1, gelu),
            ("HardSigmoid", 1, |build, node| {
                let [alpha, beta] =
                    [("alpha", 0.2), ("beta", 0.5)].map(|(name, usual)| f64::from(node.float(name, usual)));
                unary(build, node, Unary::HardSigmoid(alpha, beta), &["alpha", "beta"])
            }),
            ("HardSwish", 1, |build, node| unary(build, node, Unary::HardSwish, &[])),
            ("LeakyRelu", 1, |build, node| {
                let slope = f64::from(node.float("alpha", 0.01));
                unary(build, node, Unary::LeakyRelu(slope), &["alpha"])
            }),
            ("Relu", 1, |build, node| unary(build, node, Unary::Relu, &[])),
            ("Sigmoid", 1, |build, node| unary(build, node, Unary::Sigmoid, &[])),
            ("Tanh", 1, |build, node| unary(build, node, Unary::Tanh, &[])),
        ]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let a = x[0].as_str();
        Ok(match *self {
            Self::Identity => writer.output("Identity", x, &[]),
            Self::Relu => writer.output("Relu", x, &[]),
            Self::Relu6 => {
                let [least, most] = [("least", 0.0), ("most", 6.0)].map(|(what, n)| writer.floats(what, &[], &[n]));
                writer.output("Clip", &[a, &least, &most], &[])
            }
            Self::LeakyRelu(slope) => writer.output("LeakyRelu", x, &[("alpha", Float(slope))]),
            Self::Tanh => writer.output("Tanh", x, &[]),
            Self::Sigmoid => writer.output("Sigmoid", x, &[]),
            Self::HardSigmoid => writer.output("HardSigmoid", x, &[("alpha", Float(1.0 / 6.0)), ("beta", Float(0.5))]),
            Self::HardSwish => writer.output("HardSwish", x, &[]),
            Self::Silu => {
                let gate = writer.node("Sigmoid", x, "gate", &[]);
                writer.output("Mul", &[a, &gate], &[])
            }
            Self::Scale(factor) => {
                let factor = writer.floats("factor", &[], &[factor]);
                writer.output("Mul", &[a, &factor], &[])
            }
            Self::Gelu => gelu_of(writer, "Erf", a, a, std::f32::consts::FRAC_1_SQRT_2),
            Self::GeluTanh => {
                let square = writer.node("Mul", &[a, a], "square", &[]);
                let cube = writer.node("Mul", &[&square, a], "cube", &[]);
                let factor = writer.floats("cube.factor", &[], &[0.044_715]);
                let cubic = writer.node("Mul", &[cube, factor], "cubic", &[]);
                let argument = writer.node("Add", &[a, &cubic], "argument", &[]);
                gelu_of(writer, "Tanh", a, &argument, (2.0 / std::f32::consts::PI).sqrt())
            }
        })
    }

    fn to_torch(&self, _: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let a = &v[0];
        Ok(Code::plain(match self {
            Self::Identity => a.to_string(),
            Self::Relu => format!("F.relu({a})"),
            Self::Relu6 => format!("F.relu6({a})"),
            Self::LeakyRelu(slope) => format!("F.leaky_relu({a}, {slope})"),
            Self::Tanh => format!("torch.tanh({a})"),
            Self::Sigmoid => format!("torch.sigmoid({a})"),
            Self::HardSigmoid => format!("F.hardsigmoid({a})"),
            Self::HardSwish => format!("F.hardswish({a})"),
            Self::Silu => format!("F.silu({a})"),
            Self::Gelu => format!("F.gelu({a})"),
            Self::Scale(factor) => format!("{factor} * {a}"),
            Self::GeluTanh => format!("F.gelu({a}, approximate=\"tanh\")"),
        }))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let name = &layer.node.name;
        let mut known = |kind: &str| Ok(layers.add(name, "Activation", json!({"activation": kind}), x));
        match *self {
            Self::Identity => known("linear"),
            Self::Relu => known("relu"),
            Self::Tanh => known("tanh"),
            Self::Sigmoid => known("sigmoid"),
            Self::Silu => known("swish"),
            Self::Gelu => known("gelu"),
            Self::Relu6 => Ok(layers.add(name, "ReLU", json!({"max_value": 6.0}), x)),
            Self::LeakyRelu(slope) if slope < 0.0 => Err(format!(
                "Keras's leaky ReLU does not allow a negative slope, found {slope}. Use --to onnx or safetensors"
            )),
            Self::LeakyRelu(slope) => Ok(layers.add(name, "ReLU", json!({"negative_slope": exact(slope)}), x)),
            Self::HardSigmoid => Ok(hard_sigmoid(layers, name, layer, x[0])),
            Self::HardSwish => {
                let gate = hard_sigmoid(layers, &inner(layer, "gate"), layer, x[0]);
                Ok(layers.add(name, "Multiply", json!({}), &[x[0], gate]))
            }
            Self::Scale(factor) => Ok(layers.add(name, "Rescaling", json!({"scale": exact(factor), "offset": 0.0}), x)),
            Self::GeluTanh => {
                Err("Keras's layers only have the exact GELU, not its tanh approximation. Use --to onnx or safetensors"
                    .into())
            }
        }
    }

    fn is_non_negative(&self, _: &[bool]) -> bool {
        matches!(self, Self::Relu | Self::Relu6 | Self::Sigmoid | Self::HardSigmoid)
    }
}

/// Writes `a / 2 * (1 + function(factor * x))`.
fn gelu_of(writer: &mut LayerWriter<'_>, function: &str, a: &str, x: &str, factor: f32) -> String {
    let factor = writer.floats("factor", &[], &[factor]);
    let [one, half] = [("one", 1.0), ("half", 0.5)].map(|(what, n)| writer.floats(what, &[], &[n]));
    let scaled = writer.node("Mul", &[x, &factor], "scaled", &[]);
    let made = writer.node(function, &[scaled], "function", &[]);
    let sum = writer.node("Add", &[made, one], "sum", &[]);
    let share = writer.node("Mul", &[sum, half], "share", &[]);
    writer.output("Mul", &[a, &share], &[])
}

/// Writes a hard sigmoid as two layers, because the function with this name differs between Keras 2 and Keras 3.
fn hard_sigmoid(layers: &mut Layers, name: &str, layer: &Layer<'_>, from: usize) -> usize {
    let line = layers.add(&inner(layer, "line"), "Rescaling", json!({"scale": 1.0 / 6.0, "offset": 0.5}), &[from]);
    layers.add(name, "ReLU", json!({"max_value": 1.0}), &[line])
}

fn gelu<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let of = if node.text("approximate") == "tanh" { Unary::GeluTanh } else { Unary::Gelu };
    unary(build, node, of, &["approximate"])
}

/// Reads a clip. Both bounds are optional.
fn clip<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let mut bounds = [f64::NEG_INFINITY, f64::INFINITY];
    // the bounds were attributes before opset 11
    for (at, (bound, name)) in bounds.iter_mut().zip(["min", "max"]).enumerate() {
        if let Some(given) = build.given(node, at + 1)? {
            *bound = given.scalar().ok_or("its bounds must be single numbers")?;
        } else if node.has(name) {
            *bound = f64::from(node.float(name, 0.0));
        }
    }
    if let norms @ Value::Norms(..) = build.value(node, 0)? {
        return limited(&norms, (bounds[1] == f64::INFINITY).then_some(bounds[0]));
    }
    unary(build, node, Unary::Clip(bounds[0], bounds[1]), &["max", "min"])
}
