//! What an operation shares with the only one that reads its output. Who does what is settled when they are planned; sums and constants
//! pass between them as they run.

use std::cell::OnceCell;
use std::rc::Rc;

use super::moments::OutputMoments;
use super::normal::Normal;
use super::relu::OfferedRelu;

/// Empty where the operation that makes the tensor offers nothing.
#[derive(Default)]
pub struct Fusion {
    /// By a convolution.
    pub(super) moments: OnceCell<Rc<OutputMoments>>,
    /// By a batch normalisation.
    pub(super) normal: OnceCell<Rc<Normal>>,
    /// By a convolution or a linear layer that ends with one.
    pub(super) relu: OnceCell<Rc<OfferedRelu>>,
}
