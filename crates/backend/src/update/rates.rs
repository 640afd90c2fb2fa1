//! The factors of a step that all its updates share, and their indices in a buffer. From [`FIRST`] on, it has each
//! tensor's factor on the learning rate, including the trust ratio, in the order of
//! [`Norms::tensors`](super::Norms::tensors).

/// Factor on all gradients from clipping by norm, or 1.
pub const GRADIENT: usize = 0;
/// Norm of all gradients together, before clipping.
pub const NORM: usize = 1;
/// Always 1: the factor of groups that have no own factor.
pub const PLAIN: usize = 2;
/// Index of the first tensor's factor.
pub const FIRST: usize = 3;

/// Returns the factors of a step that needs no norms.
pub fn plain(tensors: impl Iterator<Item = f32>) -> Vec<f32> {
    [1.0, 0.0, 1.0].into_iter().chain(tensors).collect()
}
