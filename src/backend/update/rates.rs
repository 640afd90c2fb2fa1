//! The factors of a step that all its updates share, and their places in a buffer. From [`FIRST`] on they are the trust ratios of the
//! tensors (1 where a tensor has none), in the order of [`Norms::tensors`](super::Norms::tensors).

/// Factor of all gradients: what clipping by norm leaves of them, 1 without.
pub const GRADIENT: usize = 0;
/// Norm of all gradients together, before clipping.
pub const NORM: usize = 1;
/// 1: the factor of groups without a trust ratio of their own.
pub const PLAIN: usize = 2;
/// The first of the trust ratios.
pub const FIRST: usize = 3;

/// The factors of a step without norms, with room for this many tensors.
pub fn plain(tensors: usize) -> Vec<f32> {
    [vec![1.0, 0.0], vec![1.0; 1 + tensors]].concat()
}
