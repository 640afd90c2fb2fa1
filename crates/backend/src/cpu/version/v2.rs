//! oneDNN 2.x describes tensors by values, and primitives through the description of an operation.

use std::ptr;

use super::super::sys::{self, Direction, check};
use crate::Error;

/// Pointer to a tensor's descriptor for calls of oneDNN.
pub type Raw = *const sys::dnnl_memory_desc_t;

/// Dimensions, element type and memory layout of a tensor.
#[derive(Clone, Copy)]
pub struct Descriptor(sys::dnnl_memory_desc_t);

impl Descriptor {
    /// Describes a tensor with elements of type `of` in the layout `tag`.
    pub fn tagged(dims: &[usize], of: sys::dnnl_data_type_t, tag: sys::dnnl_format_tag_t) -> Result<Self, Error> {
        let mut d = [0; sys::DNNL_MAX_NDIMS as usize];
        d.iter_mut().zip(dims).for_each(|(to, from)| *to = *from as i64);
        // SAFETY: an all-zero descriptor is valid and empty. `d` has at least `dims.len()` values, and `md` outlives
        // the call.
        let (md, status) = unsafe {
            let mut md: sys::dnnl_memory_desc_t = std::mem::zeroed();
            let status = sys::dnnl_memory_desc_init_by_tag(&mut md, dims.len() as i32, d.as_ptr(), of, tag);
            (md, status)
        };
        check(status, "dnnl_memory_desc_init_by_tag", "a layout")?;
        Ok(Self(md))
    }

    /// Copies a descriptor that belongs to oneDNN.
    ///
    /// # Safety
    /// `from` must be valid.
    pub unsafe fn copied(from: Raw) -> Result<Self, Error> {
        // SAFETY: the caller ensures that `from` is valid.
        Ok(Self(unsafe { *from }))
    }

    pub fn raw(&self) -> Raw {
        &self.0
    }

    /// Returns the same layout for elements of another type.
    pub fn with_type(mut self, of: sys::dnnl_data_type_t) -> Result<Self, Error> {
        self.0.data_type = of;
        Ok(self)
    }

    pub fn dims(&self) -> &[i64] {
        &self.0.dims[..self.0.ndims as usize]
    }

    /// Returns, for each dimension, the distance in elements between consecutive outermost blocks.
    pub fn strides(&self) -> &[i64] {
        &self.blocking().strides[..self.0.ndims as usize]
    }

    /// Returns the size and the dimension of each block, the innermost last.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> {
        let b = self.blocking();
        b.inner_blks.into_iter().zip(b.inner_idxs).take(b.inner_nblks as usize).collect::<Vec<_>>().into_iter()
    }

    fn blocking(&self) -> &sys::dnnl_blocking_desc_t {
        // SAFETY: this is called only for blocked descriptors, so `blocking` is the active member.
        unsafe { &self.0.format_desc.blocking }
    }
}

/// Appends ReLU to the operations after a primitive.
///
/// # Safety
/// `ops` must be valid.
pub unsafe fn append_relu(ops: sys::dnnl_post_ops_t) -> sys::dnnl_status_t {
    // SAFETY: the caller ensures that `ops` is valid.
    unsafe { sys::dnnl_post_ops_append_eltwise(ops, 1.0, sys::dnnl_eltwise_relu, 0.0, 0.0) }
}

/// Describes a pass over x, w, bias and y. `window` has a convolution's strides, the gaps between the kernel's cells,
/// and the padding before and after. Without it, the primitive is an inner product.
///
/// # Safety
/// All pointers must be valid, except that the bias may be null. Each pointer of the window must point to a value for
/// each spatial dimension.
pub unsafe fn describe(
    to: &mut sys::dnnl_primitive_desc_t,
    (engine, attr): (sys::dnnl_engine_t, sys::const_dnnl_primitive_attr_t),
    pass: Direction,
    [x, w, bias, y]: [Raw; 4],
    window: Option<[*const sys::dnnl_dim_t; 4]>,
) -> sys::dnnl_status_t {
    let (kind, direct) = (sys::dnnl_forward_training, sys::dnnl_convolution_direct);
    // SAFETY: the caller ensures that pointers are valid. The init calls overwrite the all-zero descriptions, and these
    // operations need no hint.
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
