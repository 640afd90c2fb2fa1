//! Memory layouts in oneDNN's description, layouts of parameters, and copies to and from plain order. These copies are
//! our own loops, so that threads that only read weights need no oneDNN engine.

use std::fmt;

use super::panels::Panels;
use super::sys;
use super::version::Descriptor;
use crate::{Error, ParamFormat};

/// Pairs of layouts with the same order of elements. The first is for weights (outputs, C, H, W), the second for the
/// same weights as a matrix.
const BLOCKED_MATRICES: [[sys::dnnl_format_tag_t; 2]; 3] = [
    [sys::dnnl_ABcd16b64a, sys::dnnl_AB16b64a],
    [sys::dnnl_ABcd16b32a, sys::dnnl_AB16b32a],
    [sys::dnnl_ABcd16b16a, sys::dnnl_AB16b16a],
];

/// Layout of a tensor in oneDNN's description.
#[derive(Clone, Copy)]
pub struct Md(pub(super) Descriptor);

impl Md {
    fn tagged(dims: &[usize], tag: sys::dnnl_format_tag_t) -> Result<Self, Error> {
        Descriptor::tagged(dims, sys::dnnl_f32, tag).map(Self)
    }

    /// Returns a row-major layout.
    pub fn plain(dims: &[usize]) -> Result<Self, Error> {
        let tag = match dims.len() {
            1 => sys::dnnl_a,
            2 => sys::dnnl_ab,
            4 => sys::dnnl_abcd,
            _ => sys::dnnl_abcde,
        };
        Self::tagged(dims, tag)
    }

    fn dims(&self) -> Vec<usize> {
        self.0.dims().iter().map(|&d| d as usize).collect()
    }

    /// Describes dimensions N, C, H, W with blocks of 1, 8 or 16 channels. Any other block size means channels last.
    pub fn activation(dims: &[usize; 4], block: usize) -> Result<Self, Error> {
        let tag = match block {
            1 => sys::dnnl_abcd,
            8 => sys::dnnl_aBcd8b,
            16 => sys::dnnl_aBcd16b,
            _ => return Self::channels_last(dims),
        };
        Self::tagged(dims, tag)
    }

    /// Describes dimensions N, C, H, W with all channels of a pixel next to each other.
    pub fn channels_last(dims: &[usize; 4]) -> Result<Self, Error> {
        Self::tagged(dims, sys::dnnl_acdb)
    }

    /// Lets oneDNN choose the layout.
    pub fn any(dims: &[usize]) -> Result<Self, Error> {
        Self::tagged(dims, sys::dnnl_format_tag_any)
    }

    /// For weights (outputs, C, H, W) over images with blocks of 16 channels, returns the same memory's layout as a
    /// matrix (outputs, image elements in memory order). Returns `None` if there is no such layout.
    pub fn as_matrix(&self) -> Result<Option<Self>, Error> {
        let dims = self.dims();
        let [outputs, c, h, w] = dims[..] else { return Ok(None) };
        Self::same_place(self, BLOCKED_MATRICES, &dims, &[outputs, c * h * w])
    }

    /// Reverses [`Md::as_matrix`].
    pub fn over_image(&self, image: [usize; 3]) -> Result<Option<Self>, Error> {
        let dims = self.dims();
        let [outputs, _] = dims[..] else { return Ok(None) };
        let pairs = BLOCKED_MATRICES.map(|[image, matrix]| [matrix, image]);
        Self::same_place(self, pairs, &dims, &[&[outputs][..], &image].concat())
    }

    /// Finds the pair whose first layout is `self` and returns the pair's second layout, with the dimensions `to`.
    fn same_place(
        &self,
        pairs: [[sys::dnnl_format_tag_t; 2]; 3],
        from: &[usize],
        to: &[usize],
    ) -> Result<Option<Self>, Error> {
        for [first, second] in pairs {
            if *self == Self::tagged(from, first)? {
                return Self::tagged(to, second).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the row-major layout with the same dimensions.
    pub fn as_plain(&self) -> Result<Self, Error> {
        Self::plain(&self.dims())
    }

    /// Returns the same layout for bf16 elements.
    pub fn in_bf16(self) -> Result<Self, Error> {
        self.0.with_type(sys::dnnl_bf16).map(Self)
    }

    /// Returns the same layout for f32 elements.
    pub fn in_f32(self) -> Result<Self, Error> {
        self.0.with_type(sys::dnnl_f32).map(Self)
    }

    /// Returns the size in words of 4 bytes, including padding.
    pub fn elems(&self) -> usize {
        // SAFETY: the descriptor is valid and only read.
        unsafe { sys::dnnl_memory_desc_get_size(self.0.raw()).div_ceil(4) }
    }

    /// Returns the number of elements without padding.
    pub fn plain_elems(&self) -> usize {
        self.0.dims().iter().product::<i64>() as usize
    }

    /// Returns the offset of each index in dimension `d`. An element's offset is the sum of its indices' offsets,
    /// because every block belongs to a single dimension.
    fn offsets(&self, d: usize) -> Vec<usize> {
        let blocks: Vec<(usize, usize)> =
            self.0.blocks().rev().map(|(size, of)| (size as usize, of as usize)).collect();
        let outer = self.0.strides()[d] as usize;
        let place = |index: usize| {
            let (mut rest, mut stride, mut place) = (index, 1, 0);
            for &(size, of) in &blocks {
                if of == d {
                    place += rest % size * stride;
                    rest /= size;
                }
                stride *= size;
            }
            place + rest * outer
        };
        (0..self.0.dims()[d] as usize).map(place).collect()
    }

    /// Calls `copy(offset in plain order, offset in this layout)` for every element, in plain order.
    pub fn pairs(&self, mut copy: impl FnMut(usize, usize)) {
        let dims = self.0.dims().len();
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
}

impl PartialEq for Md {
    fn eq(&self, other: &Self) -> bool {
        // SAFETY: both descriptors are valid and only read.
        unsafe { sys::dnnl_memory_desc_equal(self.0.raw(), other.0.raw()) != 0 }
    }
}

impl fmt::Debug for Md {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} strides {:?}", self.0.dims(), self.0.strides())?;
        self.0.blocks().try_for_each(|(size, of)| write!(f, " {size}@{of}"))
    }
}

/// The memory layout of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// Weights in a layout that oneDNN has chosen.
    Weights(Box<Md>),
    /// Weights of a linear layer that uses our own products.
    Panels(Panels),
    /// The number of elements, in plain order.
    Plain(usize),
}

impl ParamFormat for Format {
    fn elems(&self) -> usize {
        match self {
            Format::Weights(md) => md.elems(),
            Format::Panels(panels) => panels.elems(),
            Format::Plain(n) => *n,
        }
    }

    fn describe(&self) -> String {
        match self {
            Format::Weights(md) => format!("dimensions {md:?}"),
            Format::Panels(panels) => panels.describe(),
            Format::Plain(n) => n.describe(),
        }
    }

    /// Padding keeps its values.
    fn pack(&self, plain: &[f32], packed: &mut [f32]) -> Result<(), Error> {
        if let Format::Plain(n) = self {
            packed[..*n].copy_from_slice(plain);
            return Ok(());
        }
        self.each_pair(plain.len(), packed.len(), |plain_at, at| packed[at] = plain[plain_at])
    }

    fn unpack(&self, packed: &[f32], plain: &mut [f32]) -> Result<(), Error> {
        if let Format::Plain(n) = self {
            plain.copy_from_slice(&packed[..*n]);
            return Ok(());
        }
        self.each_pair(plain.len(), packed.len(), |plain_at, at| plain[plain_at] = packed[at])
    }
}

impl Format {
    /// Calls `copy(offset in plain order, offset in memory)` for every element. Returns an error if a slice of a weight
    /// copy is shorter than its layout.
    fn each_pair(&self, plain: usize, packed: usize, mut copy: impl FnMut(usize, usize)) -> Result<(), Error> {
        let plain_elems = match self {
            Format::Weights(md) => md.plain_elems(),
            Format::Panels(panels) => panels.plain_elems(),
            Format::Plain(n) => *n,
        };
        for (what, elems, len) in [("plain", plain_elems, plain), ("packed", self.elems(), packed)] {
            if len < elems {
                let (expected, got) = (format!("{elems} elements"), len.to_string());
                return Err(Error::Size { op: format!("{what} side of a weight copy"), expected, got });
            }
        }
        match self {
            Format::Weights(md) => md.pairs(copy),
            Format::Panels(panels) => panels.pairs(copy),
            Format::Plain(n) => (0..*n).for_each(|i| copy(i, i)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::onednn::{Data, Engine, arg, reorder};
    use super::*;

    /// The cases include layouts of weights for tile instructions.
    #[test]
    fn bf16_layout_has_the_same_offsets() {
        for tag in [sys::dnnl_ABcd16b16a2b, sys::dnnl_BA16a32b2a, sys::dnnl_abcd, sys::dnnl_aBcd16b] {
            let two = tag == sys::dnnl_BA16a32b2a;
            let md = Md::tagged(if two { &[70, 40][..] } else { &[70, 40, 3, 3] }, tag).unwrap();
            let bf16 = md.in_bf16().unwrap();
            assert_eq!(bf16.elems(), md.elems().div_ceil(2));
            assert!(bf16 != md && bf16.in_f32().unwrap() == md && format!("{bf16:?}") == format!("{md:?}"));
        }
        assert!(Md::any(&[70, 40]).unwrap().in_bf16().is_ok());
    }

    /// Compares with oneDNN's own reorder, for grouped weights and for blocks in two dimensions, with padding in both.
    #[test]
    fn copies_match_onednn_reorders() {
        let engine = Engine::new(1).unwrap();
        let (two, grouped) = (sys::dnnl_ABcd8b8a, sys::dnnl_aBCde8c8b);
        for (dims, tag) in [(vec![20, 13, 3, 5], two), (vec![2, 9, 17, 3, 3], grouped), (vec![7, 30], sys::dnnl_ba)] {
            let (plain, packed) = (Md::plain(&dims).unwrap(), Md::tagged(&dims, tag).unwrap());
            let values: Vec<f32> = (1..=plain.elems()).map(|i| i as f32).collect();
            let mut theirs = vec![0.0; packed.elems()];
            let mut data = [(arg::SRC, Data::Read(&values)), (arg::DST, Data::Write(&mut theirs))];
            let copy = reorder(&engine, &plain, &packed, "test").unwrap();
            copy.run(&engine, &mut data).unwrap();
            let mut ours = vec![0.0; packed.elems()];
            let format = Format::Weights(Box::new(packed));
            format.pack(&values, &mut ours).unwrap();
            assert_eq!(ours, theirs, "{packed:?}");
            let mut back = vec![0.0; values.len()];
            format.unpack(&ours, &mut back).unwrap();
            assert_eq!(back, values);
        }
    }

    #[test]
    fn weights_over_blocked_images_match_flattened_weights() {
        let (outputs, [c, h, w]) = (70, [32, 3, 2]);
        let places = |md: &Md| {
            let mut places = vec![0; md.plain_elems()];
            md.pairs(|plain, place| places[plain] = place);
            places
        };
        for [_, tag] in BLOCKED_MATRICES {
            let matrix = Md::tagged(&[outputs, c * h * w], tag).unwrap();
            let image = matrix.over_image([c, h, w]).unwrap().expect("a layout");
            assert_eq!(image.as_matrix().unwrap(), Some(matrix));
            let (matrix, image) = (places(&matrix), places(&image));
            for (plain, place) in image.into_iter().enumerate() {
                let (pixel, channel, output) = (plain % (h * w), plain / (h * w) % c, plain / (c * h * w));
                let column = (channel / 16 * h * w + pixel) * 16 + channel % 16;
                assert_eq!(place, matrix[output * c * h * w + column], "{tag}: output {output}, channel {channel}");
            }
        }
        let plain = Md::plain(&[outputs, c * h * w]).unwrap();
        assert_eq!(plain.over_image([c, h, w]).unwrap(), None);
        assert_eq!(Md::plain(&[outputs, c, h, w]).unwrap().as_matrix().unwrap(), None);
    }
}
