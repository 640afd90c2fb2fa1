//! State that an operation shares with the only reader of its output, so that one of them can do work of the other.
//! Planning decides which of the two does the work. During a pass, they exchange sums and constants.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::rc::Rc;

use super::buf::AlignedBuf;
use super::flat;
use super::moments::OutputMoments;
use super::threads::Threads;

/// Work that the producer of a tensor and the tensor's only reader can take over from each other. A cell is empty if
/// neither has offered that work.
#[derive(Default)]
pub struct Fusion {
    /// The moments that the convolution before a norm offers to compute.
    pub(super) moments: OnceCell<Rc<OutputMoments>>,
    /// The batch norm that the following convolution may compute.
    pub(super) norm: OnceCell<Rc<FusedNorm>>,
    /// The ReLU at the end of a convolution or linear layer. The reader may compute its gradient instead.
    pub(super) relu: OnceCell<Rc<OfferedRelu>>,
}

// ReLU at the end of a convolution or linear layer. If the only reader of the output is a max pooling, the pooling can
// skip the gradients of windows with a maximum of at most 0. Then the pooling's gradient already includes ReLU's mask,
// and the layer needs no pass over output and gradient to apply the mask.

/// A ReLU that lets the only reader of its output compute the gradient.
pub struct OfferedRelu {
    /// Name of the operation that ends with this ReLU.
    pub op_name: String,
    accepted: Cell<bool>,
}

impl OfferedRelu {
    /// Accepts the offer: the reader ensures that the gradient is 0 wherever the output is not above 0.
    pub fn accept(&self) {
        self.accepted.set(true);
    }
}

/// The ReLU at the end of an operation, if `present`.
pub struct Relu {
    present: bool,
    offered: Option<Rc<OfferedRelu>>,
}

impl Relu {
    /// Creates the ReLU at the end of the operation `op_name`. If this operation shares a `fusion` with the only reader of its
    /// output, offers the ReLU to the reader.
    pub fn new(present: bool, op_name: &str, fusion: Option<&Fusion>) -> Self {
        let offered = fusion.filter(|_| present).map(|fusion| {
            let offer = || Rc::new(OfferedRelu { op_name: op_name.into(), accepted: Cell::new(false) });
            Rc::clone(fusion.relu.get_or_init(offer))
        });
        Self { present, offered }
    }

    pub fn is_present(&self) -> bool {
        self.present
    }

    /// Returns true if the backward pass reads the output, to compute ReLU's mask.
    pub fn reads_output(&self) -> bool {
        self.present && !self.offered.as_ref().is_some_and(|relu| relu.accepted.get())
    }

    /// Zeroes the first `n` elements of `dy` where ReLU's output is 0, unless the reader has done this.
    pub fn mask(&self, threads: Threads, n: usize, dy: &mut AlignedBuf, y: &AlignedBuf) {
        if self.reads_output() {
            flat::mask(threads, &mut dy.as_mut_slice()[..n], &y.as_slice()[..n]);
        }
    }
}

// A batch norm, with its ReLU, that the next convolution computes while it reads its input. The output of the norm is
// never written. In the backward pass, the convolution writes the gradient after ReLU's mask and the sums that the
// norm's backward pass needs first.

/// The constants of a norm for each channel, including padding: y = scale x + shift.
#[derive(Default)]
pub(super) struct Constants {
    pub mean: Vec<f32>,
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
}

/// State shared by a norm and the convolution that is its only reader.
pub(super) struct FusedNorm {
    pub op_name: String,
    pub relu: bool,
    /// Name of the convolution, if it computes the norm.
    conv: OnceCell<String>,
    /// Constants of the last forward pass.
    constants: RefCell<Constants>,
    /// Sums of the last backward pass until they are read: first g for all channels, then g (x - mean). g is the
    /// gradient after ReLU's mask.
    sums: RefCell<Option<Vec<f64>>>,
}

impl FusedNorm {
    pub fn new(op_name: &str, relu: bool) -> Self {
        let (conv, constants, sums) = (OnceCell::new(), RefCell::default(), RefCell::default());
        Self { op_name: op_name.into(), relu, conv, constants, sums }
    }

    /// Accepts the offer: the convolution with this name will compute the norm.
    pub fn accept(&self, name: &str) {
        self.conv.get_or_init(|| name.into());
    }

    /// Returns the name of the convolution that computes the norm.
    pub fn computed_by(&self) -> Option<&str> {
        self.conv.get().map(String::as_str)
    }

    pub fn set_constants(&self, constants: Constants) {
        self.constants.replace(constants);
    }

    pub fn constants(&self) -> Ref<'_, Constants> {
        self.constants.borrow()
    }

    /// Adds up `parts` in order and stores the result. Each part has `each` sums.
    pub fn put_sums(&self, parts: &[f64], each: usize) {
        self.sums.replace(Some((0..each).map(|i| parts[i..].iter().step_by(each).sum()).collect()));
    }

    /// Returns the sums of the last backward pass and removes them.
    pub fn take_sums(&self) -> Option<Vec<f64>> {
        self.sums.take()
    }
}
