//! oneDNN 2.x: tensors are described by values, primitives by way of an operation's description.

use std::ptr;

use super::super::sys::{self, Direction, check};
use crate::Error;

/// A tensor's description, as the library takes it.
pub type Raw = *const sys::dnnl_memory_desc_t;

/// Sizes, type and places of a tensor's elements.
#[derive(Clone, Copy)]
pub struct Descriptor(sys::dnnl_memory_desc_t);

impl Descriptor {
    /// Of elements of this type in the order of a tag.
    pub fn tagged(dims: &[usize], of: sys::dnnl_data_type_t, tag: sys::dnnl_format_tag_t) -> Result<Self, Error> {
        let mut d = [0; sys::DNNL_MAX_NDIMS as usize];
        d.iter_mut().zip(dims).for_each(|(to, from)| *to = *from as i64);
        // SAFETY: an all-zero descriptor is the valid empty one. `d` holds at least `dims.len()` values, `md` outlives the call.
        let (md, status) = unsafe {
            let mut md: sys::dnnl_memory_desc_t = std::mem::zeroed();
            let status = sys::dnnl_memory_desc_init_by_tag(&mut md, dims.len() as i32, d.as_ptr(), of, tag);
            (md, status)
        };
        check(status, "dnnl_memory_desc_init_by_tag", "a layout")?;
        Ok(Self(md))
    }

    /// A copy of one that the library holds.
    ///
    /// # Safety
    /// It must be valid.
    pub unsafe fn copied(from: Raw) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        Ok(Self(unsafe { *from }))
    }

    /// For calls of the library.
    pub fn raw(&self) -> Raw {
        &self.0
    }

    /// The same places, for elements of another type.
    pub fn with_type(mut self, of: sys::dnnl_data_type_t) -> Result<Self, Error> {
        self.0.data_type = of;
        Ok(self)
    }

    /// The sizes.
    pub fn dims(&self) -> &[i64] {
        &self.0.dims[..self.0.ndims as usize]
    }

    /// Elements from one outermost block to the next, of each dimension.
    pub fn strides(&self) -> &[i64] {
        &self.blocking().strides[..self.0.ndims as usize]
    }

    /// Size and dimension of the blocks, the innermost last.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> {
        let b = self.blocking();
        b.inner_blks.into_iter().zip(b.inner_idxs).take(b.inner_nblks as usize).collect::<Vec<_>>().into_iter()
    }

    fn blocking(&self) -> &sys::dnnl_blocking_desc_t {
        // SAFETY: only blocked descriptors are asked for their places, so the blocking member is the live one.
        unsafe { &self.0.format_desc.blocking }
    }
}

/// Appends ReLU to what follows a primitive.
///
/// # Safety
/// `ops` must be valid.
pub unsafe fn append_relu(ops: sys::dnnl_post_ops_t) -> sys::dnnl_status_t {
    // SAFETY: the caller's promise.
    unsafe { sys::dnnl_post_ops_append_eltwise(ops, 1.0, sys::dnnl_eltwise_relu, 0.0, 0.0) }
}

/// Describes one pass over x, w, bias and y: of a convolution with steps, gaps between the kernel's cells, and padding before and after.
/// Without these it is one of an inner product.
///
/// # Safety
/// All pointers must be valid, but for the bias, which may be null; those of the window to a value for each spatial dimension.
pub unsafe fn describe(
    to: &mut sys::dnnl_primitive_desc_t,
    (engine, attr): (sys::dnnl_engine_t, sys::const_dnnl_primitive_attr_t),
    pass: Direction,
    [x, w, bias, y]: [Raw; 4],
    window: Option<[*const sys::dnnl_dim_t; 4]>,
) -> sys::dnnl_status_t {
    let (kind, direct) = (sys::dnnl_forward_training, sys::dnnl_convolution_direct);
    // SAFETY: the caller's promise. An all-zero description is overwritten by the init call; no hint is needed for these operations.
    unsafe {
        let create = |to, status, of: sys::const_dnnl_op_desc_t| match status {
            sys::dnnl_success => sys::dnnl_primitive_desc_create(to, of, attr, engine, ptr::null()),
            failed => failed,
        };
        let Some([s, g, b, a]) = window else {
            let mut d: sys::dnnl_inner_product_desc_t = std::mem::zeroed();
            let status = match pass {
                Direction::Forward => sys::dnnl_inner_product_forward_desc_init(&mut d, kind, x, w, bias, y),
                Direction::BackwardData => sys::dnnl_inner_product_backward_data_desc_init(&mut d, x, w, y),
                Direction::BackwardWeights => sys::dnnl_inner_product_backward_weights_desc_init(&mut d, x, w, bias, y),
            };
            return create(to, status, (&raw const d).cast());
        };
        let mut d: sys::dnnl_convolution_desc_t = std::mem::zeroed();
        let status = match pass {
            Direction::Forward => {
                sys::dnnl_dilated_convolution_forward_desc_init(&mut d, kind, direct, x, w, bias, y, s, g, b, a)
            }
            Direction::BackwardData => {
                sys::dnnl_dilated_convolution_backward_data_desc_init(&mut d, direct, x, w, y, s, g, b, a)
            }
            Direction::BackwardWeights => {
                sys::dnnl_dilated_convolution_backward_weights_desc_init(&mut d, direct, x, w, bias, y, s, g, b, a)
            }
        };
        create(to, status, (&raw const d).cast())
    }
}
