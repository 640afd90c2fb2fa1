//! The list of all ops, from which every table of ops is made, and the type of any op of the list.

use std::ops::{Deref, DerefMut};

use super::shape::Shape;
use super::spec::OpSpec;
use super::stored::Stored;

/// Calls the macro `$then` with a line for each op: the name of its file, here and in each backend, and its type. The order is that of
/// messages that name kinds of layers.
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
        }
    };
}

macro_rules! any_op {
    ($($file:ident $name:ident,)*) => {
        $(use super::$file::$name;)*

        /// A layer's computation with all attributes, without sizes of the input. What it declares is in [`OpSpec`].
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

        impl DerefMut for Op {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self { $(Op::$name(op) => op,)* }
            }
        }

        impl Op {
            /// How files store its tensors; none without tensors.
            pub fn stored(&self) -> Option<&'static Stored> {
                match self { $(Op::$name(_) => $name::stored(),)* }
            }

            /// All kinds of layers with tensors.
            pub fn all_stored() -> impl Iterator<Item = &'static Stored> {
                [$($name::stored(),)*].into_iter().flatten()
            }
        }
    };
}
for_each_op!(any_op);

impl Op {
    /// Shape of the output for these inputs; the error says what does not fit.
    pub fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        match self.arity() {
            Some(arity) if x.len() != arity => Err(format!("{} takes {arity} input(s), got {}", self.kind(), x.len())),
            None if x.is_empty() => Err(format!("{} takes one input or more, got none", self.kind())),
            _ => self.deref().output(x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conv, GroupNorm, LayerNorm, LayerScale, Linear, Norm};

    #[test]
    fn every_parameter_has_a_place_in_files() {
        let ops: [Op; 6] = [
            Conv::new(4, 3).bias(0.0).into(),
            Linear::new(5).into(),
            Norm::new().into(),
            LayerNorm::new().into(),
            GroupNorm::new(2).into(),
            LayerScale(0.1).into(),
        ];
        assert_eq!(Op::all_stored().count(), ops.len());
        for op in &ops {
            let stored = op.stored().expect("it has parameters");
            let kept = stored.tensors.iter().filter(|tensor| !tensor.running).map(|tensor| tensor.torch);
            let fields: Vec<_> = op.params(Shape::image(2, 5, 5)).iter().map(|p| p.field).collect();
            assert_eq!(kept.collect::<Vec<_>>(), fields, "{}", stored.kind);
            assert_eq!(Op::all_stored().filter(|other| other.kind == stored.kind).count(), 1);
        }
    }
}
