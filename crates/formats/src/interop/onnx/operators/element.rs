//! Element-wise functions of one or two tensors that are only parts of formulas. Functions that are layers are in
//! `interop/ops`.

use std::rc::Rc;

use super::size;
use crate::interop::onnx::axes::Axes;
use crate::interop::onnx::build::{Build, Operator, Value, View};
use crate::interop::onnx::channels;
use crate::interop::onnx::function::{Binary, Form, Function, Unary};
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::scores;

pub(super) const OPERATORS: &[Operator] = &[
    ("Div", 2, |build, node| binary(build, node, Binary::Div)),
    ("Erf", 1, |build, node| unary(build, node, Unary::Erf, &[])),
    ("Exp", 1, |build, node| unary(build, node, Unary::Exp, &[])),
    ("Max", 2, |build, node| binary(build, node, Binary::Max)),
    ("Min", 2, |build, node| binary(build, node, Binary::Min)),
    ("Neg", 1, |build, node| unary(build, node, Unary::Negative, &[])),
    ("Pow", 2, |build, node| binary(build, node, Binary::Pow)),
    ("Softplus", 1, |build, node| unary(build, node, Unary::Softplus, &[])),
    ("Sqrt", 1, |build, node| match build.value(node, 0)? {
        Value::Moment(view, of) => channels::root(view, of),
        _ => unary(build, node, Unary::Sqrt, &[]),
    }),
    ("Sub", 2, |build, node| binary(build, node, Binary::Sub)),
];

/// Applies a function with one operand. The result may become part of an activation.
pub(crate) fn unary<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    of: Unary,
    attributes: &[&str],
) -> Result<Value, String> {
    node.only(attributes)?;
    let (view, function) = operand(build, node, 0)?;
    made(node, view, Form::Unary(of, function))
}

/// Returns an operand as a function of a tensor. A tensor itself becomes the identity function.
fn operand<'a>(build: &mut Build<'a>, node: &Node<'a>, at: usize) -> Result<(View, Rc<Function>), String> {
    match build.value(node, at)? {
        Value::Function(view, function) => Ok((view, function)),
        Value::Arranged(id, axes) if axes.factor != 1.0 => {
            let function =
                Form::Binary(Binary::Mul, Function::argument(), Rc::new(Function::new("", Form::Number(axes.factor))));
            let view = build.rearranged(node.inputs[at], id, Axes { factor: 1.0, ..axes })?;
            Ok((view, Rc::new(Function::new(node.inputs[at], function))))
        }
        _ => Ok((build.any_view(node, at)?, Function::argument())),
    }
}

fn made(node: &Node<'_>, view: View, form: Form) -> Result<Value, String> {
    let function = Function::new(node.label(), form);
    match function.is_small() {
        true => Ok(Value::Function(view, Rc::new(function))),
        false => Err("its formula has too many nodes for an activation".into()),
    }
}

/// Applies a function with two operands: two tensors, or a tensor and a constant.
pub(crate) fn binary<'a>(build: &mut Build<'a>, node: &Node<'a>, of: Binary) -> Result<Value, String> {
    node.only(&[])?;
    // with one input, Max and Min return the input
    if matches!(of, Binary::Max | Binary::Min) && node.inputs.len() == 1 {
        return build.value(node, 0);
    }
    if let Some(value) = size::binary(build, node, of)? {
        return Ok(value);
    }
    if let Some(value) = scores::binary(build, node, of)? {
        return Ok(value);
    }
    if let Some(value) = channels::binary(build, node, of)? {
        return Ok(value);
    }
    let number = |build: &Build<'a>, at| match build.value(node, at)? {
        Value::Constant(constant) => Ok(Some(constant)),
        _ => Ok::<_, String>(None),
    };
    match (number(build, 0)?, number(build, 1)?) {
        (Some(_), Some(_)) => {
            Err("both of its inputs are constants, and this operator cannot be computed in advance".into())
        }
        (None, None) => two(build, node, of),
        (first, second) => {
            let at = usize::from(first.is_some());
            let Some(constant) = first.or(second) else { return Err("it has no inputs".into()) };
            if let Some(number) = constant.scalar().filter(|_| constant.dims.len() <= 4) {
                let (view, function) = operand(build, node, at)?;
                let number = Rc::new(Function::new("", Form::Number(number)));
                let [a, b] = if at == 0 { [function, number] } else { [number, function] };
                return made(node, view, Form::Binary(of, a, b));
            }
            let x = build.view(node, at)?;
            channels::apply(build, node, of, channels::Operands { x, at, constant: &constant })
        }
    }
}

/// Applies a function to two tensors. If both are functions of the same tensor, the result is also a function of it.
/// Otherwise adds a layer.
fn two<'a>(build: &mut Build<'a>, node: &Node<'a>, of: Binary) -> Result<Value, String> {
    let ((a, f), (b, g)) = (operand(build, node, 0)?, operand(build, node, 1)?);
    if a == b {
        return made(node, a, Form::Binary(of, f, g));
    }
    let views = [build.any_view(node, 0)?, build.any_view(node, 1)?];
    build.pair(node.label(), of, views).map(Value::Tensor)
}
