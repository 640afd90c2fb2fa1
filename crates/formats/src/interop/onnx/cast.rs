//! Casts: of numbers of the file, which are computed here, and of tensors, which have no type but f32.

use std::rc::Rc;

use half::{bf16, f16};

use super::build::Build;
use super::graph::Node;
use super::tensor::{Constant, Values, number, type_name};
use super::value::Value;
use crate::interop::weights::Number;

/// What a Cast makes.
pub(super) fn cast<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["saturate", "to"])?;
    let kind = node.int("to", 1);
    let to = number(kind).ok_or_else(|| format!("to {}: only numbers are supported", type_name(kind)))?;
    let value = build.value(node, 0)?;
    match (&value, to) {
        (Value::Constant(constant), _) => of_constant(build, constant, to, kind),
        (Value::Sizes(_) | Value::Size(_), Number::I64 | Number::I32 | Number::F32 | Number::F64) => Ok(value),
        (Value::Sizes(_) | Value::Size(_), _) => {
            Err(format!("sizes of a tensor to {}, which need not hold them; cast them to int64", type_name(kind)))
        }
        (_, Number::F32 | Number::F64 | Number::F16 | Number::Bf16) => Ok(value),
        _ => Err(format!("it rounds a tensor of the network to {}; leave the node out", type_name(kind))),
    }
}

/// Numbers of another type, as the standard rounds them; those that do not change are shared.
fn of_constant(build: &mut Build<'_>, constant: &Rc<Constant>, to: Number, kind: i64) -> Result<Value, String> {
    if matches!((&constant.values, to), (Values::Floats(_) | Values::Same(..), Number::F32 | Number::F64)) {
        return Ok(Value::Constant(constant.clone()));
    }
    build.take(size_of::<i64>() * constant.values.len())?;
    let values = match to {
        Number::F32 | Number::F64 => Values::Floats(constant.floats()),
        Number::F16 => floats(constant, |x| f16::from_f32(x).to_f32()),
        Number::Bf16 => floats(constant, |x| bf16::from_f32(x).to_f32()),
        Number::Bool => Values::Ints(match &constant.values {
            Values::Ints(values) => values.iter().map(|n| i64::from(*n != 0)).collect(),
            Values::Floats(_) | Values::Same(..) => constant.floats().iter().map(|x| i64::from(*x != 0.0)).collect(),
        }),
        Number::U8 => whole(constant, 0, u8::MAX.into(), kind)?,
        Number::U16 => whole(constant, 0, u16::MAX.into(), kind)?,
        Number::U32 => whole(constant, 0, u32::MAX.into(), kind)?,
        Number::I8 => whole(constant, i8::MIN.into(), i8::MAX.into(), kind)?,
        Number::I16 => whole(constant, i16::MIN.into(), i16::MAX.into(), kind)?,
        Number::I32 => whole(constant, i32::MIN.into(), i32::MAX.into(), kind)?,
        Number::I64 => whole(constant, i64::MIN, i64::MAX, kind)?,
        // whole numbers are held as i64
        Number::U64 => whole(constant, 0, i64::MAX, kind)?,
    };
    Ok(Value::Constant(Rc::new(Constant { dims: constant.dims.clone(), values })))
}

fn floats(constant: &Constant, round: impl Fn(f32) -> f32) -> Values {
    Values::Floats(constant.floats().into_iter().map(round).collect())
}

/// Without their fractions. Numbers that the type does not have are refused: what becomes of them depends on the machine.
fn whole(constant: &Constant, least: i64, most: i64, kind: i64) -> Result<Values, String> {
    let fits = |n: i128| i64::try_from(n).ok().filter(|n| (least..=most).contains(n));
    let wrong = |shown: String| format!("{shown} to {}, which has no such number; cast to float32", type_name(kind));
    let values: Result<Vec<i64>, String> = match &constant.values {
        Values::Floats(_) | Values::Same(..) => constant
            .floats()
            .iter()
            .map(|x| x.is_finite().then(|| fits(x.trunc() as i128)).flatten().ok_or_else(|| wrong(x.to_string())))
            .collect(),
        Values::Ints(values) => {
            values.iter().map(|n| fits(i128::from(*n)).ok_or_else(|| wrong(n.to_string()))).collect()
        }
    };
    values.map(Values::Ints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::onnx::graph::Graph;
    use crate::interop::onnx::value::Layout;
    use net::Shape;

    fn made(values: Values, kind: i64) -> Result<Values, String> {
        let graph = Graph::default();
        let mut build = Build::new(&graph, "net", ("x", Shape::image(1, 1, 1), Layout::Image), 0);
        let constant = Rc::new(Constant { dims: vec![values.len()], values });
        match of_constant(&mut build, &constant, number(kind).unwrap(), kind)? {
            Value::Constant(constant) => Ok(constant.values.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_are_rounded_as_their_type_has_them() {
        let floats = || Values::Floats(vec![2.7, -2.7, 0.0]);
        for kind in [3, 5, 6, 7] {
            assert_eq!(made(floats(), kind).unwrap(), Values::Ints(vec![2, -2, 0]), "{kind}");
        }
        assert_eq!(made(floats(), 9).unwrap(), Values::Ints(vec![1, 1, 0]));
        for kind in [1, 11] {
            assert_eq!(made(floats(), kind).unwrap(), floats());
            assert_eq!(made(Values::Ints(vec![3, -1]), kind).unwrap(), Values::Floats(vec![3.0, -1.0]));
        }
        let near = Values::Floats(vec![1.0 + 1.0 / 4096.0, 70_000.0]);
        assert_eq!(made(near.clone(), 10).unwrap(), Values::Floats(vec![1.0, f32::INFINITY]));
        assert_eq!(made(near, 16).unwrap(), Values::Floats(vec![1.0, 70_144.0]));
    }

    #[test]
    fn numbers_that_a_type_does_not_have_are_refused() {
        for (value, kind, name) in
            [(300.0, 2, "300 to uint8"), (-1.0, 2, "-1 to uint8"), (3e9, 6, "to int32"), (1e20, 7, "to int64")]
        {
            let error = made(Values::Floats(vec![value]), kind).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
        assert!(made(Values::Floats(vec![f32::NAN]), 7).unwrap_err().contains("NaN to int64"));
        assert!(made(Values::Ints(vec![256]), 2).unwrap_err().contains("256 to uint8"));
        assert!(made(Values::Ints(vec![-1]), 13).unwrap_err().contains("-1 to uint64"));
    }
}
