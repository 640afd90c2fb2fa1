//! Lists all operations. Every table of operations is generated from this list. Also defines the type for any
//! operation, and limits on layer sizes.

use std::ops::Deref;

use base::text::plural;

use super::shape::Shape;
use super::spec::{OpSpec, Stored};
use super::toml_keys::OpFormat;

/// Calls the macro `$then` with a line for each operation: the name of its file (the same in this crate, in each
/// backend and in `formats`), and its type. Messages list kinds of layers in this order.
#[macro_export]
macro_rules! for_each_op {
    ($then:ident) => {
        $then! {
            conv Conv,
            linear Linear,
            norm Norm,
            pool Pool,
            lrn Lrn,
            activation Activation,
            dropout Dropout,
            add Add,
            shortcut Shortcut,
            flatten Flatten,
            concat Concat,
            multiply Multiply,
            layer_norm LayerNorm,
            group_norm GroupNorm,
            layer_scale LayerScale,
            drop_path DropPath,
            blur_pool BlurPool,
            channels Channels,
            class_token ClassToken,
            position_embedding PositionEmbedding,
            attention Attention,
            token Token,
            space_to_depth SpaceToDepth,
        }
    };
}

macro_rules! any_op {
    ($($file:ident $name:ident,)*) => {
        $(use super::$file::$name;)*

        /// A layer's computation with all attributes, but without input sizes. Its declarations are in [`OpSpec`].
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name),)*
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Self {
                Op::$name(op)
            }
        })*

        impl Deref for Op {
            type Target = dyn OpSpec;

            fn deref(&self) -> &Self::Target {
                match self { $(Op::$name(op) => op,)* }
            }
        }

        impl Op {
            /// Returns the name of the kind in lower case, as printed in tables and as the value of `op` in a `net.toml`.
            pub fn kind(&self) -> &'static str {
                match self { $(Op::$name(op) => OpFormat::kind(op),)* }
            }

            /// Returns how files store its tensors, or `None` if it has no tensors.
            pub fn stored(&self) -> Option<&'static Stored> {
                match self { $(Op::$name(_) => stored::<$name>(),)* }
            }

            /// Returns all kinds of layers that have tensors.
            pub fn all_stored() -> impl Iterator<Item = &'static Stored> {
                [$(stored::<$name>(),)*].into_iter().flatten()
            }
        }
    };
}
for_each_op!(any_op);

fn stored<T: OpFormat>() -> Option<&'static Stored> {
    let stored = const { &Stored { kind: T::WORDS[0], tensors: T::TENSORS } };
    Some(stored).filter(|stored| !stored.tensors.is_empty())
}

impl Op {
    /// Returns the output's shape for these inputs. The error describes the mismatch.
    pub fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        match self.arity() {
            Some(arity) if x.len() != arity => Err(format!("expected {}, got {}", plural(arity, "input"), x.len())),
            None if x.is_empty() => Err("expected at least one input, got none".into()),
            _ => self.deref().output(x),
        }
    }
}

// Limits on layers that are read from a file, so that later sums over the network cannot overflow.

/// Maximum values in a sample's tensor.
const MOST_VALUES: u128 = 1 << 28;

/// Maximum elements of a parameter.
pub(super) const MOST_ELEMENTS: u128 = 1 << 36;

/// Maximum multiply-adds of a layer per sample.
const MOST_MACS: u128 = 1 << 50;

impl Op {
    /// Works like [`Op::output`], for a layer that a file describes. Also rejects sizes above the limits.
    pub fn output_within_limits(&self, x: &[Shape]) -> Result<Shape, String> {
        let y = self.output(x)?;
        let product = |sizes: &[usize]| sizes.iter().fold(1u128, |product, &n| product.saturating_mul(n as u128));
        let values = product(&[y.c, y.h, y.w]);
        if values == 0 || values > MOST_VALUES {
            return Err(format!("its output has {values} values per image; from 1 to {MOST_VALUES} are possible"));
        }
        let macs = u128::from(self.macs(x[0]));
        if macs > MOST_MACS {
            return Err(format!("it would need {macs} multiply-adds per image; the limit is {MOST_MACS}"));
        }
        let plane = product(&[y.h, y.w]);
        for parameter in self.params(x[0]) {
            let (field, shape) = (parameter.field, &parameter.shape);
            let elements = product(shape);
            if elements == 0 {
                return Err(format!("its {field} would have the shape {shape:?}, which has no elements"));
            }
            if elements > MOST_ELEMENTS {
                return Err(format!(
                    "its {field} would have the shape {shape:?} with {elements} elements; the limit is {MOST_ELEMENTS}"
                ));
            }
            let macs = elements.saturating_mul(plane);
            if macs > MOST_MACS {
                return Err(format!(
                    "its {field} with the shape {shape:?} would need up to {macs} multiply-adds per image; the limit is \
                     {MOST_MACS}"
                ));
            }
        }
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::PositionBias;
    use crate::{ClassToken, Conv, GroupNorm, LayerNorm, LayerScale, Linear, Norm, PositionEmbedding};

    #[test]
    fn every_parameter_has_a_name_in_files() {
        let windows = Attention { cosine: true, ..Attention::new(2) };
        let continuous = Attention { position_bias: Some(PositionBias::Continuous(4)), ..windows };
        let table = Attention { position_bias: Some(PositionBias::Table), ..windows };
        let ops: [Op; 10] = [
            Conv::new(4, 3).bias(0.0).into(),
            Linear::new(5).into(),
            Norm::new().into(),
            LayerNorm::new().into(),
            GroupNorm::new(2).into(),
            LayerScale(0.1).into(),
            ClassToken.into(),
            PositionEmbedding::default().into(),
            continuous.into(),
            table.into(),
        ];
        let kinds: BTreeSet<&str> = Op::all_stored().map(|stored| stored.kind).collect();
        assert_eq!(kinds.len(), Op::all_stored().count());
        let mut without = kinds;
        for op in &ops {
            let stored = op.stored().expect("it has parameters");
            without.remove(stored.kind);
            let fields: Vec<_> = op.params(Shape::image(12, 5, 5)).iter().map(|p| p.field).collect();
            let kept = stored.tensors.iter().filter(|tensor| !tensor.running).map(|tensor| tensor.torch);
            // a layer of attention has either a table or a continuous bias
            let kept: Vec<_> = kept.filter(|field| stored.kind != "attention" || fields.contains(field)).collect();
            assert_eq!(kept, fields, "{}", stored.kind);
        }
        assert!(without.is_empty(), "{without:?}");
    }

    #[test]
    fn outputs_beyond_the_size_limits_are_refused() {
        let x = Shape::image(64, 32, 32);
        let output = |op: &Op, x| {
            op.output_within_limits(&[x]).map_err(|why| why.contains("elements") || why.contains("values"))
        };
        assert_eq!(output(&Conv::new(8, 3).into(), x), Ok(Shape::image(8, 30, 30)));
        assert_eq!(output(&Conv::new(1 << 24, 3).into(), x), Err(true));
        assert_eq!(output(&Linear::new(1 << 24).into(), Shape::image(1 << 14, 64, 64)), Err(true));
        assert_eq!(output(&Linear::new(0).into(), x), Err(true));
        // 2^20 outputs of 2^24 channels in about 2^24 cells: more multiply-adds than 64 bits can count
        let huge: Op = Conv::new(1 << 20, 4095).pad(2047).into();
        let why = huge.output_within_limits(&[Shape::image(1 << 24, 1, 1)]).unwrap_err();
        assert!(why.contains("multiply-adds"), "{why}");
    }
}
