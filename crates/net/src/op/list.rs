//! The list of all ops, which every table of ops is made from.

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
