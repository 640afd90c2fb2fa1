//! What an operation and the one that alone reads its output share. It is settled when they are planned; what it holds is written and read
//! as they run.

use std::cell::OnceCell;
use std::rc::Rc;

use super::moments::OutputMoments;
use super::normal::Normal;

/// Empty where the operation that makes the tensor offers nothing.
#[derive(Default)]
pub struct Fusion {
    /// By a convolution.
    pub(super) moments: OnceCell<Rc<OutputMoments>>,
    /// By a batch normalisation.
    pub(super) normal: OnceCell<Rc<Normal>>,
}
