//! One pass of a convolution or linear layer: its primitive, and the copy of the weights (or of their gradient) where the primitive
//! wants another layout than the arena's.

use std::rc::Rc;

use super::buf::Scratch;
use super::onednn::{Engine, Primitive, arg};
use crate::Error;

/// A primitive and the detour that its weights may take.
pub(super) struct Product {
    primitive: Primitive,
    detour: Option<Detour>,
}

/// Work space for weights in the primitive's layout, and the copy between them and the arena's.
struct Detour {
    copy: Primitive,
    weights: Rc<Scratch>,
}

impl Product {
    /// Whose weights lie as the primitive wants them.
    pub fn new(primitive: Primitive) -> Self {
        Self { primitive, detour: None }
    }

    /// Whose weights are copied before the pass; their gradient, after it. `weights` has room for the primitive's layout, and is borrowed
    /// for no longer than a pass.
    pub fn with_detour(self, copy: Primitive, weights: Rc<Scratch>) -> Self {
        Self { detour: Some(Detour { copy, weights }), ..self }
    }

    /// Whether only the plain-loop implementation takes it.
    pub fn is_slow(&self) -> bool {
        self.primitive.name().starts_with("ref")
    }

    /// The primitive's name, for tables.
    pub fn name(&self) -> String {
        format!("{}{}", self.primitive.name(), if self.detour.is_some() { "+reorder" } else { "" })
    }

    /// Runs a pass that reads weights; `data` has the other arguments.
    ///
    /// # Safety
    /// As for [`Primitive::run`]; `w` has the layout that the detour, if there is one, copies from.
    pub unsafe fn run_from(&mut self, engine: &Engine, w: &[f32], mut data: Vec<(i32, *mut f32)>) -> Result<(), Error> {
        let mut from = pointer(w);
        let mut own = self.detour.as_ref().map(|d| d.weights.borrow());
        if let (Some(d), Some(own)) = (&self.detour, &mut own) {
            let to = own.as_mut_slice().as_mut_ptr();
            // SAFETY: the caller's promise; the target is work space of sufficient size, borrowed until the pass is over.
            unsafe { d.copy.run(engine, &[(arg::SRC, from), (arg::DST, to)])? };
            from = to;
        }
        data.push((arg::WEIGHTS, from));
        // SAFETY: the caller's promise.
        unsafe { self.primitive.run(engine, &data) }
    }

    /// Runs the pass that makes the gradient of weights; `data` has the other arguments.
    ///
    /// # Safety
    /// As for [`Primitive::run`]; `dw` has the layout that the detour, if there is one, copies to.
    pub unsafe fn run_into(
        &mut self,
        engine: &Engine,
        dw: &mut [f32],
        mut data: Vec<(i32, *mut f32)>,
    ) -> Result<(), Error> {
        let dw = dw.as_mut_ptr();
        let mut own = self.detour.as_ref().map(|d| d.weights.borrow());
        let target = own.as_mut().map_or(dw, |own| own.as_mut_slice().as_mut_ptr());
        data.push((arg::DIFF_WEIGHTS, target));
        // SAFETY: the caller's promise; the source is work space of sufficient size, borrowed until the copy is over.
        unsafe {
            self.primitive.run(engine, &data)?;
            match &self.detour {
                Some(d) => d.copy.run(engine, &[(arg::SRC, target), (arg::DST, dw)]),
                None => Ok(()),
            }
        }
    }
}

/// The address of something that a primitive only reads.
pub(super) fn pointer(slice: &[f32]) -> *mut f32 {
    slice.as_ptr().cast_mut()
}
