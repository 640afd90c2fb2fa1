//! The factors of a step that all its updates share, and their places in a buffer. From [`FIRST`] on they are the factors of the
//! tensors on the learning rate, trust ratios included, in the order of [`Norms::tensors`](super::Norms::tensors).

/// Factor of all gradients: what clipping by norm leaves of them, 1 without.
pub const GRADIENT: usize = 0;
/// Norm of all gradients together, before clipping.
pub const NORM: usize = 1;
/// 1: the factor of groups without one of their own.
pub const PLAIN: usize = 2;
/// The first of the tensors'.
pub const FIRST: usize = 3;

/// The factors of a step without norms: those of the tensors.
pub fn plain(tensors: impl Iterator<Item = f32>) -> Vec<f32> {
    [1.0, 0.0, 1.0].into_iter().chain(tensors).collect()
}
