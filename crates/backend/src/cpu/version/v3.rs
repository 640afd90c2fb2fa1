//! oneDNN 3.x: tensors are described by handles, which are interned here, so that a layout stays a value; primitives are described at once.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::{ptr, slice};

use super::super::sys::{self, Direction, Owned};
use crate::Error;

/// A tensor's description, as the library takes it.
pub type Raw = sys::const_dnnl_memory_desc_t;

/// Sizes, type and places of a tensor's elements: a handle that lives as long as the process, the only one of its value.
#[derive(Clone, Copy)]
pub struct Descriptor(sys::dnnl_memory_desc_t);

// SAFETY: what it points to is never changed or freed.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

/// All that there are.
static KNOWN: Mutex<Vec<Descriptor>> = Mutex::new(Vec::new());

/// A handle that is freed unless it is interned.
struct Own(Owned<sys::dnnl_memory_desc>);

impl Own {
    fn tagged(dims: &[i64], of: sys::dnnl_data_type_t, tag: sys::dnnl_format_tag_t) -> Result<Self, Error> {
        let mut d = [0; sys::DNNL_MAX_NDIMS as usize];
        d.iter_mut().zip(dims).for_each(|(to, from)| *to = *from);
        // SAFETY: `d` holds at least `dims.len()` values, the out-pointer is valid; the call makes a new handle.
        unsafe {
            let create = |to: &mut _| sys::dnnl_memory_desc_create_with_tag(to, dims.len() as i32, d.as_ptr(), of, tag);
            Owned::new("dnnl_memory_desc_create_with_tag", "a layout", create).map(Self)
        }
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor(self.0.raw())
    }

    /// The handle of this value that lives on.
    fn intern(self) -> Descriptor {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: reads two valid descriptors.
        let equal = known.iter().find(|k| unsafe { sys::dnnl_memory_desc_equal(k.0, self.0.raw()) != 0 });
        if let Some(equal) = equal {
            return *equal;
        }
        known.push(Descriptor(self.0.into_raw()));
        known[known.len() - 1]
    }
}

impl Descriptor {
    /// Of elements of this type in the order of a tag.
    pub fn tagged(dims: &[usize], of: sys::dnnl_data_type_t, tag: sys::dnnl_format_tag_t) -> Result<Self, Error> {
        let dims: Vec<i64> = dims.iter().map(|d| *d as i64).collect();
        Own::tagged(&dims, of, tag).map(Own::intern)
    }

    /// A copy of one that the library holds.
    ///
    /// # Safety
    /// It must be valid.
    pub unsafe fn copied(from: Raw) -> Result<Self, Error> {
        // SAFETY: the caller's promise; the call makes a new handle.
        let copy =
            unsafe { Owned::new("dnnl_memory_desc_clone", "a layout", |to| sys::dnnl_memory_desc_clone(to, from))? };
        Ok(Own(copy).intern())
    }

    /// For calls of the library.
    pub fn raw(&self) -> Raw {
        self.0
    }

    /// The same places, for elements of another type: the library cannot change the type, so the layout is looked for among all that have
    /// names.
    pub fn with_type(self, of: sys::dnnl_data_type_t) -> Result<Self, Error> {
        if self.query::<sys::dnnl_data_type_t>(sys::dnnl_query_data_type) == Some(of) {
            return Ok(self);
        }
        let dims = self.dims();
        if self.query::<sys::dnnl_format_kind_t>(sys::dnnl_query_format_kind) != Some(sys::dnnl_blocked) {
            return Own::tagged(dims, of, sys::dnnl_format_tag_any).map(Own::intern).map_err(|_| unknown(dims));
        }
        let places = |md: &Self| (md.dims().to_vec(), md.strides().to_vec(), md.blocks().collect::<Vec<_>>());
        let wanted = places(&self);
        let mut tags = sys::dnnl_format_tag_any + 1..sys::dnnl_format_tag_last;
        let same = tags.find_map(|tag| Own::tagged(dims, of, tag).ok().filter(|md| places(&md.descriptor()) == wanted));
        same.map(Own::intern).ok_or_else(|| unknown(dims))
    }

    /// The sizes.
    pub fn dims(&self) -> &[i64] {
        self.values(sys::dnnl_query_dims, self.count(sys::dnnl_query_ndims_s32))
    }

    /// Elements from one outermost block to the next, of each dimension.
    pub fn strides(&self) -> &[i64] {
        self.values(sys::dnnl_query_strides, self.count(sys::dnnl_query_ndims_s32))
    }

    /// Size and dimension of the blocks, the innermost last.
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
            // SAFETY: the array lies in the descriptor, which lives on, and holds `count` values.
            Some(values) if count > 0 && !values.is_null() => unsafe { slice::from_raw_parts(values, count) },
            _ => &[],
        }
    }

    /// Of a type that the library writes for this query.
    fn query<T: Copy>(&self, what: sys::dnnl_query_t) -> Option<T> {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        // SAFETY: a valid descriptor; the library writes a `T` where it succeeds.
        unsafe {
            let status = sys::dnnl_memory_desc_query(self.0, what, value.as_mut_ptr().cast::<c_void>());
            (status == sys::dnnl_success).then(|| value.assume_init())
        }
    }
}

fn unknown(dims: &[i64]) -> Error {
    Error::Unsupported {
        op: format!("a layout of {dims:?}"),
        why: "oneDNN has no name for it with elements of another type".into(),
    }
}

/// Appends ReLU to what follows a primitive.
///
/// # Safety
/// `ops` must be valid.
pub unsafe fn append_relu(ops: sys::dnnl_post_ops_t) -> sys::dnnl_status_t {
    // SAFETY: the caller's promise.
    unsafe { sys::dnnl_post_ops_append_eltwise(ops, sys::dnnl_eltwise_relu, 0.0, 0.0) }
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
    let (kind, direct, hint) = (sys::dnnl_forward_training, sys::dnnl_convolution_direct, ptr::null());
    // SAFETY: the caller's promise; the layouts say all that a hint could.
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
