//! oneDNN 3.x describes tensors by handles. They are interned here, so that a layout can be copied like a value.
//! Primitives are described in a single call.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::{ptr, slice};

use super::super::sys::{self, Direction, Owned};
use crate::Error;

/// Pointer to a tensor's descriptor for calls of oneDNN.
pub type Raw = sys::const_dnnl_memory_desc_t;

/// Dimensions, element type and memory layout of a tensor. The handle lives as long as the process, and equal layouts
/// have the same handle.
#[derive(Clone, Copy)]
pub struct Descriptor(sys::dnnl_memory_desc_t);

// SAFETY: the object behind the handle is never changed or freed.
unsafe impl Send for Descriptor {}
// SAFETY: as for `Send`.
unsafe impl Sync for Descriptor {}

/// All interned handles, each layout once.
static KNOWN: Mutex<Vec<Descriptor>> = Mutex::new(Vec::new());

/// A handle that is freed unless it is interned.
struct OwnedDescriptor(Owned<sys::dnnl_memory_desc>);

impl OwnedDescriptor {
    fn tagged(dims: &[i64], of: sys::dnnl_data_type_t, tag: sys::dnnl_format_tag_t) -> Result<Self, Error> {
        let mut d = [0; sys::DNNL_MAX_NDIMS as usize];
        d.iter_mut().zip(dims).for_each(|(to, from)| *to = *from);
        // SAFETY: `d` has at least `dims.len()` values, the out-pointer is valid, and the call creates a new handle.
        unsafe {
            let create = |to: &mut _| sys::dnnl_memory_desc_create_with_tag(to, dims.len() as i32, d.as_ptr(), of, tag);
            Owned::new("dnnl_memory_desc_create_with_tag", "a layout", create).map(Self)
        }
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor(self.0.raw())
    }

    /// Returns the permanent handle that is equal to `self`.
    fn intern(self) -> Descriptor {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: both descriptors are valid and only read.
        let equal = known.iter().find(|k| unsafe { sys::dnnl_memory_desc_equal(k.0, self.0.raw()) != 0 });
        if let Some(equal) = equal {
            return *equal;
        }
        known.push(Descriptor(self.0.into_raw()));
        known[known.len() - 1]
    }
}

impl Descriptor {
    /// Describes a tensor with elements of type `of` in the layout `tag`.
    pub fn tagged(dims: &[usize], of: sys::dnnl_data_type_t, tag: sys::dnnl_format_tag_t) -> Result<Self, Error> {
        let dims: Vec<i64> = dims.iter().map(|d| *d as i64).collect();
        OwnedDescriptor::tagged(&dims, of, tag).map(OwnedDescriptor::intern)
    }

    /// Copies a descriptor that belongs to oneDNN.
    ///
    /// # Safety
    /// `from` must be valid.
    pub unsafe fn copied(from: Raw) -> Result<Self, Error> {
        // SAFETY: the caller ensures that `from` is valid, and the call creates a new handle.
        let copy =
            unsafe { Owned::new("dnnl_memory_desc_clone", "a layout", |to| sys::dnnl_memory_desc_clone(to, from))? };
        Ok(OwnedDescriptor(copy).intern())
    }

    pub fn raw(&self) -> Raw {
        self.0
    }

    /// Returns the same layout for elements of another type. oneDNN 3.x cannot change the type, so this searches all
    /// layouts that have a name.
    pub fn with_type(self, of: sys::dnnl_data_type_t) -> Result<Self, Error> {
        if self.query::<sys::dnnl_data_type_t>(sys::dnnl_query_data_type) == Some(of) {
            return Ok(self);
        }
        let dims = self.dims();
        if self.query::<sys::dnnl_format_kind_t>(sys::dnnl_query_format_kind) != Some(sys::dnnl_blocked) {
            return OwnedDescriptor::tagged(dims, of, sys::dnnl_format_tag_any)
                .map(OwnedDescriptor::intern)
                .map_err(|_| unknown(dims));
        }
        let places = |md: &Self| (md.dims().to_vec(), md.strides().to_vec(), md.blocks().collect::<Vec<_>>());
        let wanted = places(&self);
        let mut tags = sys::dnnl_format_tag_any + 1..sys::dnnl_format_tag_last;
        let same = tags.find_map(|tag| {
            OwnedDescriptor::tagged(dims, of, tag).ok().filter(|md| places(&md.descriptor()) == wanted)
        });
        same.map(OwnedDescriptor::intern).ok_or_else(|| unknown(dims))
    }

    pub fn dims(&self) -> &[i64] {
        self.values(sys::dnnl_query_dims, self.count(sys::dnnl_query_ndims_s32))
    }

    /// Returns, for each dimension, the distance in elements between consecutive outermost blocks.
    pub fn strides(&self) -> &[i64] {
        self.values(sys::dnnl_query_strides, self.count(sys::dnnl_query_ndims_s32))
    }

    /// Returns the size and the dimension of each block, the innermost last.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> {
        let count = self.count(sys::dnnl_query_inner_nblks_s32);
        let (sizes, of) =
            (self.values(sys::dnnl_query_inner_blks, count), self.values(sys::dnnl_query_inner_idxs, count));
        sizes.iter().copied().zip(of.iter().copied())
    }

    fn count(&self, what: sys::dnnl_query_t) -> usize {
        self.query::<i32>(what).map_or(0, |count| count as usize)
    }

    fn values(&self, what: sys::dnnl_query_t, count: usize) -> &[i64] {
        match self.query::<*const i64>(what) {
            // SAFETY: the array is part of the descriptor, which is never freed, and has `count` values.
            Some(values) if count > 0 && !values.is_null() => unsafe { slice::from_raw_parts(values, count) },
            _ => &[],
        }
    }

    /// Returns the answer to a query. `T` must be the type that oneDNN writes for it.
    fn query<T: Copy>(&self, what: sys::dnnl_query_t) -> Option<T> {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        // SAFETY: the descriptor is valid, and oneDNN writes a `T` if it succeeds.
        unsafe {
            let status = sys::dnnl_memory_desc_query(self.0, what, value.as_mut_ptr().cast::<c_void>());
            (status == sys::dnnl_success).then(|| value.assume_init())
        }
    }
}

fn unknown(dims: &[i64]) -> Error {
    Error::Unsupported {
        op: format!("a layout of {dims:?}"),
        why: "oneDNN has no named layout for it with another element type".into(),
    }
}

/// Appends ReLU to the operations after a primitive.
///
/// # Safety
/// `ops` must be valid.
pub unsafe fn append_relu(ops: sys::dnnl_post_ops_t) -> sys::dnnl_status_t {
    // SAFETY: the caller ensures that `ops` is valid.
    unsafe { sys::dnnl_post_ops_append_eltwise(ops, sys::dnnl_eltwise_relu, 0.0, 0.0) }
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
    let (kind, direct, hint) = (sys::dnnl_forward_training, sys::dnnl_convolution_direct, ptr::null());
    // SAFETY: the caller ensures that pointers are valid. No hint is needed, because the layouts already determine
    // everything.
    unsafe {
        match (pass, window) {
            (Direction::Forward, Some([s, g, b, a])) => sys::dnnl_convolution_forward_primitive_desc_create(
                to, engine, kind, direct, x, w, bias, y, s, g, b, a, attr,
            ),
            (Direction::BackwardData, Some([s, g, b, a])) => sys::dnnl_convolution_backward_data_primitive_desc_create(
                to, engine, direct, x, w, y, s, g, b, a, hint, attr,
            ),
            (Direction::BackwardWeights, Some([s, g, b, a])) => {
                sys::dnnl_convolution_backward_weights_primitive_desc_create(
                    to, engine, direct, x, w, bias, y, s, g, b, a, hint, attr,
                )
            }
            (Direction::Forward, None) => {
                sys::dnnl_inner_product_forward_primitive_desc_create(to, engine, kind, x, w, bias, y, attr)
            }
            (Direction::BackwardData, None) => {
                sys::dnnl_inner_product_backward_data_primitive_desc_create(to, engine, x, w, y, hint, attr)
            }
            (Direction::BackwardWeights, None) => {
                sys::dnnl_inner_product_backward_weights_primitive_desc_create(to, engine, x, w, bias, y, hint, attr)
            }
        }
    }
}
