//! Tensors of the network whose dimensions the graph splits, joins and reorders, as it does around attention.

use std::fmt;
use std::rc::Rc;

use net::Shape;

/// The size of an axis, as far as it is known before the graph runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Number(i64),
    /// The number of images times this number.
    Images(i64),
    /// Another function of the number of images.
    Unknown,
}

impl Size {
    /// The number of images.
    pub const N: Self = Self::Images(1);

    pub fn number(self) -> Option<i64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Images(1) => f.write_str("N"),
            Self::Images(times) => write!(f, "{times} N"),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// Order of the dimensions in the graph, for a whole tensor of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Image,
    Last,
    /// Sequences (N, T, C). The T positions are those of the image in row-major order.
    Tokens,
    Flat,
    /// (N, F), flattened from (N, H, W, C) images of this shape. trireme's layers flatten (C, H, W), so the features
    /// must be reordered.
    FlatLast(Shape),
    /// Any other order. The number is the index in `Build::arrangements`.
    Arranged(usize),
}

impl Layout {
    /// Returns true if the network and the graph have the features of a vector in different orders.
    pub fn is_reordered(self) -> bool {
        matches!(self, Self::FlatLast(shape) if shape.plane() != 1)
    }

    /// Returns true if `axis` has the channels, or the features of vectors. It counts from the end if it is negative.
    pub fn has_channels_at(self, axis: i64) -> bool {
        let channels = match self {
            Self::Image | Self::Flat | Self::FlatLast(_) => 1,
            Self::Tokens => 2,
            Self::Last => 3,
            Self::Arranged(_) => return false,
        };
        from_front(axis, self.rank()) == channels
    }

    pub fn rank(self) -> usize {
        match self {
            Self::Image | Self::Last => 4,
            Self::Tokens => 3,
            Self::Flat | Self::FlatLast(_) => 2,
            // no operator that needs the rank supports it
            Self::Arranged(_) => 0,
        }
    }

    /// Returns the sizes of all dimensions except the batch dimension, for a tensor of shape `x`.
    pub fn dims(self, x: Shape) -> Vec<usize> {
        match self {
            Self::Image => vec![x.c, x.h, x.w],
            Self::Last => vec![x.h, x.w, x.c],
            Self::Tokens => vec![x.plane(), x.c],
            Self::Flat | Self::FlatLast(_) => vec![x.elems()],
            Self::Arranged(_) => Vec::new(),
        }
    }

    /// Describes the layout for messages.
    pub fn text(self) -> &'static str {
        match self {
            Self::Image => "images (N, C, H, W)",
            Self::Last => "images (N, H, W, C)",
            Self::Tokens => "sequences (N, T, C)",
            Self::Flat => "vectors (N, F)",
            Self::FlatLast(_) => "vectors (N, F) flattened from images (N, H, W, C)",
            Self::Arranged(_) => "a tensor with rearranged dimensions",
        }
    }
}

/// Converts an index that counts from the end of `length` items if it is negative. The result may be out of range.
pub(crate) fn from_front(index: i64, length: usize) -> i64 {
    if index < 0 { index.saturating_add(length as i64) } else { index }
}

/// Works like [`from_front`], but returns `None` if the index is out of range.
pub(crate) fn index_within(index: i64, length: usize) -> Option<usize> {
    usize::try_from(from_front(index, length)).ok().filter(|index| *index < length)
}

/// Converts an axis of a tensor with `rank` dimensions. A negative axis counts from the end.
pub(crate) fn axis_index(axis: i64, rank: usize) -> Result<usize, String> {
    let index = index_within(axis, rank);
    index.ok_or_else(|| format!("axis {axis} is out of range for a tensor with {rank} dimensions"))
}

/// Converts the order of a transposition, which must have each of the `rank` axes once.
pub(crate) fn axis_order(perm: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let order = perm.iter().map(|axis| axis_index(*axis, rank)).collect::<Result<Vec<usize>, _>>()?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    match sorted.into_iter().eq(0..rank) {
        true => Ok(order),
        false => Err(format!("its perm must list each of the {rank} dimensions once, got {perm:?}")),
    }
}

/// A dimension of a tensor of the network. Height and width are one dimension, the positions in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    Images,
    Channels,
    Positions,
}

/// Elements along a dimension, at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stride {
    pub of: Dimension,
    pub size: usize,
    pub step: usize,
}

/// One dimension in the graph. Its strides are nested, the outermost first. An axis of size 1 has none.
pub(crate) type Axis = Vec<Stride>;

/// A tensor of the network, or a part of it, as the graph sees it: with other dimensions, in another order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axes {
    pub axes: Vec<Axis>,
    pub first_channel: usize,
    pub first_position: usize,
    /// The graph multiplies the tensor by this number.
    pub factor: f64,
    /// The graph divides the tensor by its norm along this axis.
    pub unit: Option<Axis>,
    /// Number of rows and columns of zeros that the graph adds at top, left, bottom and right. Positions refer to the
    /// padded image.
    pub pads: [usize; 4],
    /// A list of image positions, or [`ABSENT`](super::places::ABSENT). If there is a list, strides are steps in it.
    pub table: Option<Rc<[u32]>>,
}

/// Largest number of dimensions after new ones are added.
const MOST_AXES: usize = 8;

pub(crate) fn images(count: usize) -> Axis {
    vec![Stride { of: Dimension::Images, size: count, step: 1 }]
}

pub(crate) fn channels(count: usize) -> Axis {
    axis(Dimension::Channels, count, 1)
}

pub(crate) fn positions(count: usize) -> Axis {
    axis(Dimension::Positions, count, 1)
}

pub(crate) fn axis(of: Dimension, size: usize, step: usize) -> Axis {
    if size == 1 { Vec::new() } else { vec![Stride { of, size, step }] }
}

impl Default for Axes {
    fn default() -> Self {
        let axes = Vec::new();
        Self { axes, first_channel: 0, first_position: 0, factor: 1.0, unit: None, pads: [0; 4], table: None }
    }
}

impl Axes {
    /// Returns the axes of a whole tensor of shape `x`. The graph has `count` images, or 1 if the number may vary.
    /// Returns `None` for vectors with the features of (H, W, C).
    pub fn of(layout: Layout, x: Shape, count: usize) -> Option<Self> {
        let (n, c) = (images(count), channels(x.c));
        let (h, w) = (axis(Dimension::Positions, x.h, x.w), positions(x.w));
        let axes = match layout {
            Layout::Image => vec![n, c, h, w],
            Layout::Last => vec![n, h, w, c],
            Layout::Tokens => vec![n, positions(x.plane()), c],
            Layout::Flat => vec![n, c],
            Layout::FlatLast(_) | Layout::Arranged(_) => return None,
        };
        Some(Self { axes, ..Self::default() })
    }

    /// Returns the layout if this is a whole tensor of shape `x` with a layout. `x` includes the padding.
    pub fn layout(&self, x: Shape) -> Option<Layout> {
        let count = self.axes.first()?.first()?.size;
        let all = [Layout::Image, Layout::Last, Layout::Tokens, Layout::Flat];
        // vectors have a single position
        let fits = |layout: &Layout| *layout != Layout::Flat || x.plane() == 1;
        let plain = |layout: Layout| Some(Self { pads: self.pads, ..Self::of(layout, x, count)? });
        all.into_iter().filter(fits).find(|layout| plain(*layout).as_ref() == Some(self))
    }

    /// Returns the axis of all channels of a tensor, if it comes last and no other axis has channels.
    pub fn has_last(&self, all: usize) -> bool {
        self.first_channel == 0 && self.is_unscaled() && self.axes.last() == Some(&channels(all))
    }

    /// Returns true if the graph neither multiplies the tensor by a number nor divides it by norms.
    pub fn is_unscaled(&self) -> bool {
        self.factor == 1.0 && self.unit.is_none()
    }

    /// Replaces the last axis by an axis with `count` channels.
    pub fn with_last(mut self, count: usize) -> Self {
        if let Some(last) = self.axes.last_mut() {
            *last = channels(count);
        }
        self
    }

    pub fn sizes(&self) -> Vec<Size> {
        let size = |axis: &Axis| match axis.iter().find(|stride| stride.of == Dimension::Images) {
            Some(images) => Size::Images((size(axis) / images.size.max(1)) as i64),
            None => Size::Number(size(axis) as i64),
        };
        self.axes.iter().map(size).collect()
    }

    /// Returns the size of an axis, or the number of images in it.
    pub fn size(&self, axis: i64) -> Result<usize, String> {
        self.at(axis).map(|at| size(&self.axes[at]))
    }

    /// Returns the index of an axis, which counts from the end if it is negative.
    pub fn at(&self, axis: i64) -> Result<usize, String> {
        axis_index(axis, self.axes.len())
    }

    pub fn transposed(mut self, perm: &[i64]) -> Result<Self, String> {
        let order = axis_order(perm, self.axes.len())?;
        self.axes = order.iter().map(|at| self.axes[*at].clone()).collect();
        Ok(self)
    }

    /// Splits and joins dimensions. A size of -1 is computed from the other sizes. `varies` says that the graph accepts
    /// any number of images.
    pub fn reshaped(mut self, sizes: &[Size], varies: bool) -> Result<Self, String> {
        let refuse = || {
            let show = |sizes: &[Size]| sizes.iter().map(Size::to_string).collect::<Vec<_>>().join(", ");
            format!(
                "it reshapes [{}] to [{}], which does not keep whole dimensions together",
                show(&self.sizes()),
                show(sizes)
            )
        };
        let mut rest = merged(self.axes.concat());
        rest.reverse();
        let images = rest.iter().find(|stride| stride.of == Dimension::Images).map_or(1, |stride| stride.size);
        let total: usize = rest.iter().map(|stride| stride.size).product();
        let known = |size: &Size| match *size {
            Size::Number(-1) | Size::Unknown => None,
            Size::Number(n) => Some(usize::try_from(n).unwrap_or(0)),
            Size::Images(k) => Some(usize::try_from(k).ok().and_then(|k| k.checked_mul(images)).unwrap_or(0)),
        };
        let unknown = sizes.iter().filter(|size| known(size).is_none()).count();
        let depends_on_images = |size: &Size| !matches!(size, Size::Number(n) if *n != -1);
        let others = sizes.iter().filter_map(known).try_fold(1usize, |product, n| product.checked_mul(n));
        let missing = others.filter(|others| *others > 0 && total.is_multiple_of(*others)).ok_or_else(refuse)?;
        let missing = total / missing;
        if unknown > 1 || (unknown == 0 && missing != 1) {
            return Err(refuse());
        }
        let mut axes = Vec::new();
        // files that were exported with one image have 1 instead of their number, mostly in front
        let may_have_images = |place: usize| !varies || place == 0 || sizes.get(place).is_some_and(depends_on_images);
        for (place, size) in sizes.iter().enumerate() {
            let own = may_have_images(place);
            let mut axis = taken(&mut rest, known(size).unwrap_or(missing), own).ok_or_else(refuse)?;
            // a single image between two axes belongs to the first one, so that the channels have an axis of their own
            let stays =
                (!varies || depends_on_images(size)) && (place + 2 >= sizes.len() || !may_have_images(place + 1));
            let next = rest.last().filter(|next| next.of == Dimension::Images && next.size == 1);
            if let (true, Some(single)) = (stays && known(size) != Some(1), next.copied()) {
                rest.pop();
                axis.push(single);
            }
            axes.push(axis);
        }
        if !rest.is_empty() {
            return Err(refuse());
        }
        self.axes = axes;
        Ok(self)
    }

    /// Selects one index of an axis and removes the axis.
    pub fn selected(self, axis: i64, index: i64) -> Result<Self, String> {
        let at = self.at(axis)?;
        let size = size(&self.axes[at]);
        let index = index_within(index, size);
        let index = index.ok_or_else(|| format!("an index along axis {axis} is out of range for a size of {size}"))?;
        let mut selected = self.sliced(axis, index..index + 1)?;
        selected.axes.remove(at);
        Ok(selected)
    }

    /// Selects a range of an axis.
    pub fn sliced(mut self, axis: i64, range: std::ops::Range<usize>) -> Result<Self, String> {
        let at = self.at(axis)?;
        let axis = &mut self.axes[at];
        if range == (0..size(axis)) {
            return Ok(self);
        }
        if has_images(axis) {
            return Err("it selects some of the images".into());
        }
        if range.is_empty() {
            return Err("it selects nothing".into());
        }
        let refuse = "it selects a part of an axis that crosses dimensions of the tensor";
        let left = range.len();
        let mut start = range.start;
        let mut strides = Vec::new();
        while let Some((outer, inner)) = axis.split_first().map(|(outer, inner)| (*outer, inner.to_vec())) {
            let each = size(&inner);
            let first = start / each;
            let whole = start.is_multiple_of(each) && left.is_multiple_of(each);
            // otherwise the range is within one element of the outer stride
            if !whole && start % each + left > each {
                return Err(refuse.into());
            }
            match outer.of {
                Dimension::Channels => self.first_channel += first * outer.step,
                Dimension::Positions => self.first_position += first * outer.step,
                Dimension::Images => {}
            }
            if whole {
                strides.extend((left > each).then_some(Stride { size: left / each, ..outer }));
                strides.extend(inner);
                break;
            }
            start %= each;
            *axis = inner;
        }
        self.axes[at] = merged(strides);
        Ok(self)
    }

    /// Removes axes of size 1.
    pub fn squeezed(mut self, axes: &[i64]) -> Result<Self, String> {
        let mut places = axes.iter().map(|axis| self.at(*axis)).collect::<Result<Vec<usize>, _>>()?;
        places.sort_unstable();
        places.dedup();
        for place in places.into_iter().rev() {
            if !self.axes[place].is_empty() {
                return Err(format!("it removes axis {place}, whose size is not 1"));
            }
            self.axes.remove(place);
        }
        Ok(self)
    }

    /// Adds axes of size 1. The numbers are indices of the result.
    pub fn unsqueezed(mut self, axes: &[i64]) -> Result<Self, String> {
        let rank = self.axes.len() + axes.len();
        if rank > MOST_AXES {
            return Err(format!("its result has {rank} dimensions; at most {MOST_AXES} are supported"));
        }
        let mut places: Vec<i64> = axes.iter().map(|axis| from_front(*axis, rank)).collect();
        places.sort_unstable();
        for place in places {
            let place = usize::try_from(place).ok().filter(|place| *place <= self.axes.len());
            self.axes.insert(place.ok_or("its axes are out of range")?, Vec::new());
        }
        Ok(self)
    }

    /// Returns the number of groups if the axes are (N, groups, all other elements in a group) of a tensor of shape `x`.
    pub fn groups(&self, x: Shape) -> Option<usize> {
        let [n, groups, rest] = &self.axes[..] else { return None };
        let all = [channels(x.c), positions(x.plane())].concat();
        let joined = merged([groups.clone(), rest.clone()].concat());
        let of_channels = groups.iter().all(|stride| stride.of == Dimension::Channels);
        let whole = self.first_channel == 0 && self.first_position == 0 && self.is_unscaled() && self.table.is_none();
        (whole && has_images(n) && of_channels && joined == all).then(|| size(groups))
    }

    /// Returns the number of groups if this is an image of shape `x` after a channel shuffle.
    pub fn shuffled(&self, x: Shape) -> Option<usize> {
        let &[outer, inner] = self.axes.get(1)?.as_slice() else { return None };
        let channels = |stride: Stride| stride.of == Dimension::Channels;
        let interleaved = outer.step == 1 && inner.step == outer.size && inner.size * outer.size == x.c;
        let plain = Self::of(Layout::Image, x, size(self.axes.first()?))?;
        let rest = [&self.axes[..1], &plain.axes[1..2], &self.axes[2..]].concat();
        (channels(outer) && channels(inner) && interleaved && Self { axes: rest, ..self.clone() } == plain)
            .then_some(inner.size)
    }
}

pub(crate) fn has_images(axis: &Axis) -> bool {
    axis.iter().any(|stride| stride.of == Dimension::Images)
}

pub(crate) fn size(axis: &[Stride]) -> usize {
    axis.iter().map(|stride| stride.size).product()
}

/// Takes the strides of an axis of this size from `rest`, which begins with the last stride. Returns `None` if they
/// cannot be divided like this.
fn taken(rest: &mut Vec<Stride>, size: usize, may_have_images: bool) -> Option<Axis> {
    let (mut left, mut axis) = (size, Vec::new());
    while let Some(stride) = rest.last().copied() {
        let images = stride.of == Dimension::Images;
        // a single image can be in any axis that may have images: the first of these
        if left == 1 && !(images && stride.size == 1 && may_have_images && size == 1 && axis.is_empty()) {
            break;
        }
        if images && !may_have_images {
            return None;
        }
        rest.pop();
        if left.is_multiple_of(stride.size) {
            left /= stride.size;
            axis.push(stride);
        } else if stride.size.is_multiple_of(left) && !images {
            let inner = stride.size / left;
            axis.push(Stride { size: left, step: stride.step * inner, ..stride });
            rest.push(Stride { size: inner, ..stride });
            left = 1;
        } else {
            return None;
        }
    }
    (left == 1).then(|| merged(axis))
}

/// Joins neighbouring strides that together are a single one.
fn merged(strides: Vec<Stride>) -> Axis {
    let mut axis: Axis = Vec::new();
    for stride in strides {
        match axis.last_mut() {
            Some(last)
                if last.of == stride.of && stride.of != Dimension::Images && last.step == stride.size * stride.step =>
            {
                *last = Stride { size: last.size * stride.size, ..stride };
            }
            _ => axis.push(stride),
        }
    }
    axis
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { c: 12, h: 2, w: 3 };

    /// Returns the elements of the axes in C order as (channel, position), for one image.
    fn elements(axes: &Axes) -> Vec<(usize, usize)> {
        let strides: Vec<Stride> = axes.axes.iter().flatten().copied().collect();
        (0..size(&strides))
            .map(|mut element| {
                let (mut channel, mut position) = (axes.first_channel, axes.first_position);
                for stride in strides.iter().rev() {
                    let offset = element % stride.size * stride.step;
                    element /= stride.size;
                    match stride.of {
                        Dimension::Channels => channel += offset,
                        Dimension::Positions => position += offset,
                        Dimension::Images => {}
                    }
                }
                (channel, position)
            })
            .collect()
    }

    fn known(sizes: &[i64]) -> Vec<Size> {
        sizes.iter().copied().map(Size::Number).collect()
    }

    /// Returns the sizes of a tensor. The axis `at` is the images.
    fn with_images(sizes: &[i64], at: usize) -> Vec<Size> {
        let mut sizes = known(sizes);
        sizes.insert(at, Size::N);
        sizes
    }

    /// Each operation moves elements as it does in NumPy: the values are computed with plain loops.
    #[test]
    fn reshape_transpose_and_slice_match_numpy() {
        let image = Axes::of(Layout::Image, SHAPE, 1).unwrap();
        let channels_first: Vec<(usize, usize)> = (0..12).flat_map(|c| (0..6).map(move |p| (c, p))).collect();
        assert_eq!(elements(&image), channels_first);
        let tokens = image.clone().reshaped(&known(&[1, 12, 6]), true).unwrap().transposed(&[0, 2, 1]).unwrap();
        let channels_last: Vec<(usize, usize)> = (0..6).flat_map(|p| (0..12).map(move |c| (c, p))).collect();
        assert_eq!((elements(&tokens), tokens.layout(SHAPE)), (channels_last, Some(Layout::Tokens)));
        // queries, keys and values of two heads: (N, 6, 3, 2, 2) to (3, N, 2, 6, 2)
        let parts = tokens.reshaped(&with_images(&[6, 3, 2, -1], 0), true).unwrap();
        let parts = parts.transposed(&[2, 0, 3, 1, 4]).unwrap();
        assert_eq!(parts.sizes(), with_images(&[3, 2, 6, 2], 1));
        let keys = parts.selected(0, 1).unwrap();
        let expected: Vec<(usize, usize)> =
            (0..2).flat_map(|head| (0..6).flat_map(move |p| (0..2).map(move |d| (4 + 2 * head + d, p)))).collect();
        assert_eq!(elements(&keys), expected);
        let joined = keys.transposed(&[0, 2, 1, 3]).unwrap().reshaped(&with_images(&[6, 4], 0), true).unwrap();
        assert_eq!((joined.axes[2].clone(), joined.first_channel), (channels(4), 4));
        let squeezed = joined.clone().unsqueezed(&[0, -1]).unwrap().squeezed(&[4, 0]).unwrap();
        assert_eq!(squeezed, joined);
        assert_eq!(joined.clone().unsqueezed(&[1]).unwrap().squeezed(&[1, 1, -3]).unwrap(), joined);
        assert!(joined.clone().squeezed(&[1]).is_err() && joined.unsqueezed(&[0; 1000]).is_err());
    }

    #[test]
    fn slices_stay_within_a_dimension() {
        let tokens = Axes::of(Layout::Tokens, SHAPE, 1).unwrap();
        let first = tokens.clone().selected(1, 0).unwrap();
        assert_eq!(elements(&first), (0..12).map(|c| (c, 0)).collect::<Vec<_>>());
        let last = tokens.clone().selected(1, -1).unwrap();
        assert_eq!(elements(&last)[3], (3, 5));
        let joined = tokens.clone().reshaped(&known(&[1, 72]), true).unwrap();
        assert_eq!(elements(&joined.clone().sliced(1, 24..36).unwrap()), (0..12).map(|c| (c, 2)).collect::<Vec<_>>());
        assert_eq!(elements(&joined.clone().sliced(1, 27..30).unwrap()), [(3, 2), (4, 2), (5, 2)]);
        assert!(joined.sliced(1, 20..30).is_err());
        assert!(tokens.clone().selected(1, 6).is_err() && tokens.clone().selected(3, 0).is_err());
        assert!(Axes::of(Layout::Tokens, SHAPE, 2).unwrap().selected(0, 0).is_err());
    }

    #[test]
    fn the_batch_axis_is_never_split() {
        let tokens = |count| Axes::of(Layout::Tokens, SHAPE, count).unwrap();
        // with a fixed number, they can be joined with any axis
        let first = tokens(1).transposed(&[1, 0, 2]).unwrap().reshaped(&known(&[6, 3, 4]), false).unwrap();
        assert_eq!(first.sizes(), [Size::Number(6), Size::Images(3), Size::Number(4)]);
        let back = first.reshaped(&known(&[6, 1, 12]), false).unwrap().transposed(&[1, 0, 2]).unwrap();
        assert_eq!(back, tokens(1));
        // rows of a matrix
        let first = tokens(1).transposed(&[1, 0, 2]).unwrap();
        let rows = first.clone().reshaped(&known(&[6, 12]), false).unwrap();
        assert!(rows.has_last(12));
        assert_eq!(rows.reshaped(&known(&[6, 1, 12]), false).unwrap(), first);
        let rows = first.clone().reshaped(&[Size::Images(6), Size::Number(12)], true).unwrap();
        assert!(rows.has_last(12));
        assert_eq!(rows.reshaped(&with_images(&[6, 12], 1), true).unwrap(), first);
        let rows = tokens(2).reshaped(&known(&[12, 12]), false).unwrap();
        assert_eq!(rows.clone().reshaped(&known(&[2, 6, 12]), false).unwrap(), tokens(2));
        assert!(rows.reshaped(&known(&[3, 4, 12]), false).is_err());
        let varies = tokens(1).transposed(&[1, 0, 2]).unwrap();
        assert!(varies.clone().reshaped(&known(&[6, 3, 4]), true).is_err());
        assert!(varies.reshaped(&[Size::Number(6), Size::Images(3), Size::Number(4)], true).is_ok());
        for sizes in [&[1, 5, -1][..], &[0, 72], &[1, 71], &[-1, -1, 12]] {
            assert!(tokens(1).reshaped(&known(sizes), true).is_err(), "{sizes:?}");
        }
        for sizes in [[Size::N; 3], [Size::Unknown, Size::Number(-1), Size::Number(12)]] {
            assert!(tokens(1).reshaped(&sizes, true).is_err(), "{sizes:?}");
        }
    }

    /// Rows of an image as sequences: (N, H, W, C) to (N H, W, C).
    #[test]
    fn a_multiple_of_the_batch_size_is_not_the_batch_size() {
        for count in [1, 2] {
            let last = Axes::of(Layout::Last, SHAPE, count).unwrap();
            let rows = last.clone().reshaped(&[Size::Images(2), Size::Number(-1), Size::Number(12)], true).unwrap();
            assert_eq!(rows.sizes(), [Size::Images(2), Size::Number(3), Size::Number(12)]);
            let whole = last.reshaped(&[Size::N, Size::Number(-1), Size::Number(12)], true).unwrap();
            assert_eq!(whole.sizes(), with_images(&[6, 12], 0));
            assert_eq!(rows.reshaped(&with_images(&[2, 3, -1], 0), true).unwrap().layout(SHAPE), Some(Layout::Last));
        }
    }

    #[test]
    fn groups_and_shuffles_are_recognised() {
        let image = Axes::of(Layout::Image, SHAPE, 1).unwrap();
        let grouped = |groups| image.clone().reshaped(&with_images(&[groups, -1], 0), true).unwrap();
        assert_eq!([1, 4, 12].map(|count| grouped(count).groups(SHAPE)), [Some(1), Some(4), Some(12)]);
        assert_eq!((grouped(24).groups(SHAPE), image.groups(SHAPE)), (None, None));
        let blocks = image.clone().reshaped(&known(&[1, 3, 4, 2, 3]), true).unwrap();
        let mixed = blocks.transposed(&[0, 2, 1, 3, 4]).unwrap().reshaped(&known(&[1, 12, 2, 3]), true).unwrap();
        assert_eq!((mixed.shuffled(SHAPE), image.shuffled(SHAPE)), (Some(3), None));
    }
}
