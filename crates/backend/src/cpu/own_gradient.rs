//! What loops of our own for a convolution's weight gradient have in common.

/// The weight gradient of one convolution.
pub(super) trait OwnGradient {
    /// Bytes of work space.
    fn bytes(&self) -> usize;

    /// The weight's gradient in plain OIHW order; also writes the bias's.
    fn run(&mut self, x: &[f32], dy: &[f32], db: Option<&mut [f32]>) -> &[f32];
}
