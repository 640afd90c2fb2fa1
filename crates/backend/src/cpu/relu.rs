//! ReLU at the end of a convolution or a linear layer. Where a max pooling alone reads what it leaves, the pooling sends no gradient to
//! windows whose largest value is not above 0: that is ReLU's gradient already, without a pass over the output and its gradient.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use super::buf::AlignedBuf;
use super::flat;
use super::threads::Threads;

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
