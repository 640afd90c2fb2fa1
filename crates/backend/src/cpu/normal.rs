//! A batch normalisation, and its ReLU, that the convolution behind it computes as it reads: the norm's output is never written. In its
//! backward pass the convolution leaves the gradient behind ReLU, and the sums that the norm's own backward pass begins with.

use std::cell::{OnceCell, Ref, RefCell};

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
