//! Layouts as oneDNN describes them, and copies between them and plain order by loops of our own: threads that only read what a
//! training thread has left need no library for it.

use std::fmt;

use super::sys::{self, check};
use crate::backend::Error;

/// Layout of a tensor as oneDNN describes it.
#[derive(Clone, Copy)]
pub struct Md(pub(super) sys::dnnl_memory_desc_t);

impl Md {
    fn tagged(dims: &[usize], tag: sys::dnnl_format_tag_t) -> Result<Self, Error> {
        // SAFETY: an all-zero descriptor is the valid empty one.
        let mut md: sys::dnnl_memory_desc_t = unsafe { std::mem::zeroed() };
        let mut d = [0; sys::DNNL_MAX_NDIMS as usize];
        for (to, from) in d.iter_mut().zip(dims) {
            *to = *from as i64;
        }
        // SAFETY: `d` holds at least `dims.len()` values, `md` outlives the call.
        let status =
            unsafe { sys::dnnl_memory_desc_init_by_tag(&mut md, dims.len() as i32, d.as_ptr(), sys::dnnl_f32, tag) };
        check(status, "dnnl_memory_desc_init_by_tag", "a layout")?;
        Ok(Self(md))
    }

    /// Row-major.
    pub fn plain(dims: &[usize]) -> Result<Self, Error> {
        let tag = match dims.len() {
            1 => sys::dnnl_a,
            2 => sys::dnnl_ab,
            4 => sys::dnnl_abcd,
            _ => sys::dnnl_abcde,
        };
        Self::tagged(dims, tag)
    }

    /// N, C, H, W with channels in blocks of 1, 8 or 16, or all channels of a pixel side by side.
    pub fn activation(dims: &[usize; 4], block: usize) -> Result<Self, Error> {
        let tag = match block {
            1 => sys::dnnl_abcd,
            8 => sys::dnnl_aBcd8b,
            16 => sys::dnnl_aBcd16b,
            _ => return Self::channels_last(dims),
        };
        Self::tagged(dims, tag)
    }

    /// N, C, H, W with the channels of a pixel side by side.
    pub fn channels_last(dims: &[usize; 4]) -> Result<Self, Error> {
        Self::tagged(dims, sys::dnnl_acdb)
    }

    /// The library shall choose.
    pub fn any(dims: &[usize]) -> Result<Self, Error> {
        Self::tagged(dims, sys::dnnl_format_tag_any)
    }

    /// Row-major, with the same dimensions.
    pub fn as_plain(&self) -> Result<Self, Error> {
        let dims: Vec<usize> = self.0.dims[..self.0.ndims as usize].iter().map(|&d| d as usize).collect();
        Self::plain(&dims)
    }

    /// The same places, for elements of bf16.
    pub fn in_bf16(mut self) -> Self {
        self.0.data_type = sys::dnnl_bf16;
        self
    }

    /// The same places, for elements of f32.
    pub fn in_f32(mut self) -> Self {
        self.0.data_type = sys::dnnl_f32;
        self
    }

    /// Words of the size of an f32 that it takes, padding included.
    pub fn elems(&self) -> usize {
        // SAFETY: reads a valid descriptor.
        unsafe { sys::dnnl_memory_desc_get_size(&self.0).div_ceil(4) }
    }

    /// Elements without padding.
    pub fn plain_elems(&self) -> usize {
        self.0.dims[..self.0.ndims as usize].iter().product::<i64>() as usize
    }

    fn blocking(&self) -> &sys::dnnl_blocking_desc_t {
        // SAFETY: only blocked descriptors are ever made here, so the blocking member is the live one.
        unsafe { &self.0.format_desc.blocking }
    }

    /// Where the elements of each index of dimension `d` begin. An element's place is the sum of those of its indices: every block
    /// belongs to one dimension.
    fn offsets(&self, d: usize) -> Vec<usize> {
        let blocking = self.blocking();
        let place = |index: usize| {
            let (mut rest, mut stride, mut place) = (index, 1, 0);
            for block in (0..blocking.inner_nblks as usize).rev() {
                let size = blocking.inner_blks[block] as usize;
                if blocking.inner_idxs[block] as usize == d {
                    place += rest % size * stride;
                    rest /= size;
                }
                stride *= size;
            }
            place + rest * blocking.strides[d] as usize
        };
        (0..self.0.dims[d] as usize).map(place).collect()
    }

    /// Calls `copy` with every element's place in plain order and its place here, in plain order.
    pub fn pairs(&self, mut copy: impl FnMut(usize, usize)) {
        let dims = self.0.ndims as usize;
        let outer = self.offsets(0);
        let inner = (1..dims).fold(vec![0], |so_far, d| {
            let offsets = self.offsets(d);
            so_far.iter().flat_map(|from| offsets.iter().map(move |offset| from + offset)).collect()
        });
        for (row, from) in outer.iter().enumerate() {
            for (column, to) in inner.iter().enumerate() {
                copy(row * inner.len() + column, from + to);
            }
        }
    }

    /// Copies from plain order into this layout; padding stays as it is.
    pub fn pack(&self, plain: &[f32], to: &mut [f32]) {
        self.pairs(|plain_at, at| to[at] = plain[plain_at]);
    }

    /// Copies from this layout into plain order.
    pub fn unpack(&self, from: &[f32], plain: &mut [f32]) {
        self.pairs(|plain_at, at| plain[plain_at] = from[at]);
    }
}

impl PartialEq for Md {
    fn eq(&self, other: &Self) -> bool {
        // SAFETY: reads two valid descriptors.
        unsafe { sys::dnnl_memory_desc_equal(&self.0, &other.0) != 0 }
    }
}

impl fmt::Debug for Md {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.ndims as usize;
        let b = self.blocking();
        let inner = b.inner_nblks as usize;
        write!(f, "{:?} strides {:?}", &self.0.dims[..n], &b.strides[..n])?;
        (0..inner).try_for_each(|i| write!(f, " {}@{}", b.inner_blks[i], b.inner_idxs[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::onednn::{Engine, arg, reorder};
    use super::*;

    /// Grouped, blocked in two dimensions, with padding in both: oneDNN's own reorder is the witness.
    #[test]
    fn copies_are_those_of_the_library() {
        let engine = Engine::new(1).unwrap();
        let (two, grouped) = (sys::dnnl_ABcd8b8a, sys::dnnl_aBCde8c8b);
        for (dims, tag) in [(vec![20, 13, 3, 5], two), (vec![2, 9, 17, 3, 3], grouped), (vec![7, 30], sys::dnnl_ba)] {
            let (plain, packed) = (Md::plain(&dims).unwrap(), Md::tagged(&dims, tag).unwrap());
            let values: Vec<f32> = (1..=plain.elems()).map(|i| i as f32).collect();
            let mut theirs = vec![0.0; packed.elems()];
            let data = [(arg::SRC, values.as_ptr().cast_mut()), (arg::DST, theirs.as_mut_ptr())];
            let copy = reorder(&engine, &plain, &packed, "test").unwrap();
            // SAFETY: both vectors have the sizes of their layouts.
            unsafe { copy.run(&engine, &data).unwrap() };
            let mut ours = vec![0.0; packed.elems()];
            packed.pack(&values, &mut ours);
            assert_eq!(ours, theirs, "{packed:?}");
            let mut back = vec![0.0; values.len()];
            packed.unpack(&ours, &mut back);
            assert_eq!(back, values);
        }
    }
}
