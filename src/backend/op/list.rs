//! The list of all ops, which every table of ops is made from.

/// Calls the macro `$then` with a line for each op: the name of its file, here and in each backend, and its type. The order is that of
/// messages that name kinds of layers.
macro_rules! for_each_op {
    ($then:ident) => {
        $then! {
            conv Conv,
            linear Linear,
            norm Norm,
            pool Pool,
            lrn Lrn,
            relu Relu,
            tanh Tanh,
            dropout Dropout,
            add Add,
            shortcut Shortcut,
            flatten Flatten,
            silu Silu,
        }
    };
}
pub(in crate::backend) use for_each_op;
