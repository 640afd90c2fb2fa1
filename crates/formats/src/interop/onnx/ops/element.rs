//! Functions of each element, of one tensor or of two.

use std::rc::Rc;

use net::Activation;

use crate::interop::onnx::build::{ANY, Build, Operator, Value, View};
use crate::interop::onnx::channels;
use crate::interop::onnx::function::{Binary, Form, Function, Unary};
use crate::interop::onnx::graph::Node;

pub(super) const OPERATORS: &[Operator] = &[
    ("Add", 2, |build, node| binary(build, node, Binary::Add)),
    ("Clip", 3, clip),
    ("Div", 2, |build, node| binary(build, node, Binary::Div)),
    ("Erf", 1, |build, node| unary(build, node, Unary::Erf, &[])),
    ("Exp", 1, |build, node| unary(build, node, Unary::Exp, &[])),
    ("Gelu", 1, gelu),
    ("HardSigmoid", 1, |build, node| {
        let [alpha, beta] = [("alpha", 0.2), ("beta", 0.5)].map(|(name, usual)| f64::from(node.float(name, usual)));
        unary(build, node, Unary::HardSigmoid(alpha, beta), &["alpha", "beta"])
    }),
    ("HardSwish", 1, |build, node| unary(build, node, Unary::HardSwish, &[])),
    ("LeakyRelu", 1, |build, node| {
        let slope = f64::from(node.float("alpha", 0.01));
        unary(build, node, Unary::LeakyRelu(slope), &["alpha"])
    }),
    ("Max", 2, |build, node| binary(build, node, Binary::Max)),
    ("Mean", ANY, |build, node| {
        let sum = sum(build, node)?;
        let share = Activation::Scale(1.0 / node.inputs.len() as f32);
        let id = build.layer((None, node.label()), share, &[sum.id], Vec::new())?;
        Ok(Value::Tensor(View { id, ..sum }))
    }),
    ("Min", 2, |build, node| binary(build, node, Binary::Min)),
    ("Mul", 2, |build, node| binary(build, node, Binary::Mul)),
    ("Neg", 1, |build, node| unary(build, node, Unary::Negative, &[])),
    ("Pow", 2, |build, node| binary(build, node, Binary::Pow)),
    ("Relu", 1, |build, node| unary(build, node, Unary::Relu, &[])),
    ("Sigmoid", 1, |build, node| unary(build, node, Unary::Sigmoid, &[])),
    ("Softplus", 1, |build, node| unary(build, node, Unary::Softplus, &[])),
    ("Sqrt", 1, |build, node| match build.value(node, 0)? {
        Value::Moment(view, of) => channels::root(view, of),
        _ => unary(build, node, Unary::Sqrt, &[]),
    }),
    ("Sub", 2, |build, node| binary(build, node, Binary::Sub)),
    ("Sum", ANY, |build, node| match node.inputs.len() {
        2 => binary(build, node, Binary::Add),
        _ => sum(build, node).map(Value::Tensor),
    }),
    ("Tanh", 1, |build, node| unary(build, node, Unary::Tanh, &[])),
];

fn gelu<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let of = if node.text("approximate") == "tanh" { Unary::GeluTanh } else { Unary::Gelu };
    unary(build, node, of, &["approximate"])
}

/// Between two numbers, each of which may be left out.
fn clip<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let mut bounds = [f64::NEG_INFINITY, f64::INFINITY];
    // the bounds are attributes before opset 11
    for (at, (bound, name)) in bounds.iter_mut().zip(["min", "max"]).enumerate() {
        if let Some(given) = build.given(node, at + 1)? {
            *bound = given.scalar().ok_or("its bounds must be single numbers")?;
        } else if node.has(name) {
            *bound = f64::from(node.float(name, 0.0));
        }
    }
    unary(build, node, Unary::Clip(bounds[0], bounds[1]), &["max", "min"])
}

fn unary<'a>(build: &mut Build<'a>, node: &Node<'a>, of: Unary, attributes: &[&str]) -> Result<Value, String> {
    node.only(attributes)?;
    let (view, function) = operand(build, node, 0)?;
    made(node, view, Form::Unary(of, function))
}

/// A tensor as a function of itself, or of the one that it was made from.
fn operand<'a>(build: &mut Build<'a>, node: &Node<'a>, at: usize) -> Result<(View, Rc<Function>), String> {
    match build.value(node, at)? {
        Value::Function(view, function) => Ok((view, function)),
        _ => Ok((build.view(node, at)?, Function::argument())),
    }
}

fn made(node: &Node<'_>, view: View, form: Form) -> Result<Value, String> {
    let function = Function::new(node.label(), form);
    match function.is_small() {
        true => Ok(Value::Function(view, Rc::new(function))),
        false => Err("it ends a function of too many nodes, which is no activation".into()),
    }
}

fn binary<'a>(build: &mut Build<'a>, node: &Node<'a>, of: Binary) -> Result<Value, String> {
    node.only(&[])?;
    // the largest or least of one tensor
    if matches!(of, Binary::Max | Binary::Min) && node.inputs.len() == 1 {
        return build.value(node, 0);
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

/// Adds one or more tensors.
fn sum<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<View, String> {
    node.only(&[])?;
    let mut sum = build.view(node, 0)?;
    for at in 1..node.inputs.len() {
        let next = build.view(node, at)?;
        sum = build.pair(node.label(), Binary::Add, [sum, next])?;
    }
    Ok(sum)
}

/// Of two tensors: a function of one where both are made from it, else a layer.
fn two<'a>(build: &mut Build<'a>, node: &Node<'a>, of: Binary) -> Result<Value, String> {
    let ((a, f), (b, g)) = (operand(build, node, 0)?, operand(build, node, 1)?);
    if a == b {
        return made(node, a, Form::Binary(of, f, g));
    }
    let views = [build.view(node, 0)?, build.view(node, 1)?];
    build.pair(node.label(), of, views).map(Value::Tensor)
}
