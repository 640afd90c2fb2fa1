//! What an operation shares with the only one that reads its output. Who does what is settled when they are planned; sums and constants
//! pass between them as they run.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::rc::Rc;

use super::buf::AlignedBuf;
use super::flat;
use super::moments::OutputMoments;
use super::threads::Threads;

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

// ReLU at the end of a convolution or a linear layer. Where a max pooling alone reads what it leaves, the pooling sends no gradient to
// windows whose largest value is not above 0: that is ReLU's gradient already, without a pass over the output and its gradient.

/// A ReLU whose gradient the only reader of its output may compute.
pub struct OfferedRelu {
    /// Name of the operation that it ends.
    pub of: String,
    stopped: Cell<bool>,
}

impl OfferedRelu {
    /// The reader promises a gradient of zero wherever the output is not above 0.
    pub fn stop(&self) {
        self.stopped.set(true);
    }
}

/// A ReLU, or none.
pub struct Relu {
    present: bool,
    offered: Option<Rc<OfferedRelu>>,
}

impl Relu {
    /// At the end of the operation of this name; offered to the single reader of its output, if there is one.
    pub fn new(present: bool, of: &str, reader: Option<&OnceCell<Rc<OfferedRelu>>>) -> Self {
        let offered = reader.filter(|_| present).map(|reader| {
            let offer = || Rc::new(OfferedRelu { of: of.into(), stopped: Cell::new(false) });
            Rc::clone(reader.get_or_init(offer))
        });
        Self { present, offered }
    }

    /// Whether there is one.
    pub fn is_present(&self) -> bool {
        self.present
    }

    /// Whether the backward pass reads the output.
    pub fn reads_output(&self) -> bool {
        self.present && !self.offered.as_ref().is_some_and(|relu| relu.stopped.get())
    }

    /// Leaves of the first `n` elements of dy what ReLU let through.
    pub fn mask(&self, threads: Threads, n: usize, dy: &mut AlignedBuf, y: &AlignedBuf) {
        if self.reads_output() {
            flat::mask(threads, &mut dy.as_mut_slice()[..n], &y.as_slice()[..n]);
        }
    }
}

// A batch normalisation, and its ReLU, that the convolution behind it computes as it reads: the norm's output is never written. In its
// backward pass the convolution leaves the gradient behind ReLU, and the sums that the norm's own backward pass begins with.

/// What such a norm knows of its channels, padding included: y = scale x + shift.
#[derive(Default)]
pub(super) struct Constants {
    pub mean: Vec<f32>,
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
}

/// What a norm and the convolution that alone reads it share.
pub(super) struct Normal {
    /// Name of the norm.
    pub of: String,
    pub relu: bool,
    /// Name of the convolution, if it computes the norm.
    by: OnceCell<String>,
    /// Of the last forward pass.
    constants: RefCell<Constants>,
    /// Of the last backward pass, until they are read: the sums of g, the gradient behind ReLU, of all channels, then those of
    /// g (x - mean).
    sums: RefCell<Option<Vec<f64>>>,
}

impl Normal {
    pub fn new(of: &str, relu: bool) -> Self {
        let (by, constants, sums) = (OnceCell::new(), RefCell::default(), RefCell::default());
        Self { of: of.into(), relu, by, constants, sums }
    }

    /// A convolution of this name will compute it.
    pub fn taken_by(&self, name: &str) {
        self.by.get_or_init(|| name.into());
    }

    /// The convolution that computes it.
    pub fn by(&self) -> Option<&str> {
        self.by.get().map(String::as_str)
    }

    pub fn set_constants(&self, constants: Constants) {
        self.constants.replace(constants);
    }

    pub fn constants(&self) -> Ref<'_, Constants> {
        self.constants.borrow()
    }

    /// Keeps the sums of `parts`, each of which has all of `each`, added in their order.
    pub fn put_sums(&self, parts: &[f64], each: usize) {
        self.sums.replace(Some((0..each).map(|i| parts[i..].iter().step_by(each).sum()).collect()));
    }

    /// Those of the last backward pass, once.
    pub fn take_sums(&self) -> Option<Vec<f64>> {
        self.sums.take()
    }
}
