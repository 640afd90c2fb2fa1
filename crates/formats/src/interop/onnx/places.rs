//! Positions that the graph selects, moves or pads. Exporters write attention in windows this way.

use net::{PixelChannel, Shape, SpaceToDepth};

use super::axes::{Axes, Dimension, Stride, axis, channels, has_images};

/// Stands for a position that the tensor does not have, because a layer has cropped it.
pub(crate) const ABSENT: u32 = u32::MAX;

/// Largest number of positions in a list.
const MOST_POSITIONS: usize = 1 << 22;

fn is_position(stride: &&Stride) -> bool {
    stride.of == Dimension::Positions
}

impl Axes {
    /// Returns the number of positions along each axis.
    fn extents(&self) -> Vec<usize> {
        let extent = |axis: &Vec<Stride>| axis.iter().filter(is_position).map(|stride| stride.size).product();
        self.axes.iter().map(extent).collect()
    }

    /// Returns the length of the list that [`Self::places`] returns.
    pub fn count(&self) -> Result<usize, String> {
        let count = self.extents().into_iter().try_fold(1usize, |product, n| product.checked_mul(n));
        count.filter(|count| *count <= MOST_POSITIONS).ok_or_else(|| {
            format!("it moves the positions of an image that has more than {MOST_POSITIONS}; use smaller images")
        })
    }

    /// Lists the image's positions in the order of the axes.
    pub fn places(&self) -> Result<Vec<u32>, String> {
        self.count()?;
        let mut places = vec![self.first_position];
        for stride in self.axes.iter().flatten().filter(is_position) {
            let steps = |place: usize| (0..stride.size).map(move |at| place + at * stride.step);
            places = places.into_iter().flat_map(steps).collect();
        }
        let place = |at: usize| match &self.table {
            Some(table) => table.get(at).copied().unwrap_or(ABSENT),
            None => u32::try_from(at).unwrap_or(ABSENT),
        };
        Ok(places.into_iter().map(place).collect())
    }

    /// Replaces the positions. `places` lists them in the order of the axes, with `extents` positions along each axis.
    /// Returns `None` if an axis with positions also contains channels.
    fn with_places(mut self, places: Vec<u32>, extents: &[usize]) -> Option<Self> {
        let mut step = 1;
        for (own, extent) in self.axes.iter_mut().zip(extents).rev() {
            let (first, rest) = own.split_at(usize::from(has_images(own)));
            if *extent == 1 && !rest.iter().any(|stride| is_position(&stride)) {
                continue;
            }
            if first.iter().any(|stride| stride.of != Dimension::Images) || !rest.iter().all(|s| is_position(&s)) {
                return None;
            }
            *own = [first, &axis(Dimension::Positions, *extent, step)].concat();
            step *= extent;
        }
        self.first_position = 0;
        let in_order = places.iter().enumerate().all(|(at, place)| at == *place as usize);
        self.table = if in_order { None } else { Some(places.into()) };
        Some(self)
    }

    /// Removes the list of positions if the positions are in order.
    pub fn simplified(self) -> Result<Self, String> {
        if self.table.is_none() {
            return Ok(self);
        }
        let places = self.places()?;
        let in_order = places.iter().enumerate().all(|(at, place)| at == *place as usize);
        let made = if in_order { self.clone().with_places(places, &self.extents()) } else { None };
        Ok(made.unwrap_or(self))
    }

    /// Selects indices of an axis of positions.
    pub fn picked(self, axis: i64, indices: &[usize]) -> Result<Self, String> {
        let (at, mut extents) = (self.at(axis)?, self.extents());
        let (size, inner) = (extents[at], extents[at + 1..].iter().product::<usize>());
        if self.size(axis)? != size || indices.iter().any(|index| *index >= size) {
            return Err(format!("it selects indices along axis {axis}, but only positions can be selected"));
        }
        extents[at] = indices.len();
        let places = self.places()?;
        let rows = |block: &[u32]| -> Vec<u32> {
            indices.iter().flat_map(|index| &block[index * inner..][..inner]).copied().collect()
        };
        let picked: Vec<u32> = places.chunks_exact(size * inner).flat_map(rows).collect();
        let made = Self { axes: self.axes.clone(), ..self }.with_places(picked, &extents);
        made.filter(|_| !indices.is_empty())
            .ok_or_else(|| "it selects positions along an axis that mixes positions with channels".into())
    }

    /// Joins parts of a tensor along an axis that contains positions.
    pub fn joined(parts: &[Self], axis: i64) -> Option<Self> {
        let first = parts.first()?;
        let at = first.at(axis).ok()?;
        let mut extents = first.extents();
        let inner: usize = extents[at + 1..].iter().product();
        let outer: usize = extents[..at].iter().product();
        let mut lists = Vec::new();
        extents[at] = 0;
        for part in parts {
            let mut own = part.extents();
            let size = own.get(at).copied()?;
            let same = part.first_channel == first.first_channel && part.factor == first.factor;
            own[at] = 0;
            let others = |axes: &Self| -> Vec<Vec<Stride>> {
                axes.axes.iter().map(|axis| axis.iter().filter(|s| !is_position(s)).copied().collect()).collect()
            };
            let fits = part.size(axis).ok()? == size && part.unit == first.unit && part.pads == first.pads;
            if !same
                || !fits
                || own != [&extents[..at], &[0], &extents[at + 1..]].concat()
                || others(part) != others(first)
            {
                return None;
            }
            extents[at] += size;
            lists.push((part.places().ok()?, size * inner));
        }
        let row = |outer: usize| lists.iter().flat_map(move |(list, size)| &list[outer * size..][..*size]);
        let places = (0..outer).flat_map(row).copied().collect();
        first.clone().with_places(places, &extents)
    }

    /// Looks for an axis that contains positions followed by all channels. `x` is the tensor's shape. Returns the axes
    /// without the positions in this axis, the index of the axis, and the list of positions for each step along it.
    pub fn pixels(&self, x: Shape) -> Option<(Self, usize, Vec<Vec<u32>>)> {
        let all = channels(x.c);
        let is_mixed = |axis: &Vec<Stride>| axis.ends_with(&all) && axis.len() > all.len();
        let at = self.axes.iter().position(is_mixed)?;
        let (outer, inner) = self.axes[at].split_at(self.axes[at].len() - all.len());
        let mut rest = self.clone();
        rest.axes[at] = inner.to_vec();
        let mut first = rest.clone();
        first.axes.insert(0, outer.to_vec());
        let places = first.places().ok()?;
        let chunk = rest.count().ok()?;
        let positions = outer.iter().all(|stride| is_position(&stride));
        positions.then(|| (rest, at, places.chunks(chunk).map(<[u32]>::to_vec).collect()))
    }

    /// Returns the size of the squares if `space_to_depth` joins pixels in this order. `pixels` contains a list of
    /// positions for each pixel in a square. `x` is the tensor's shape without padding.
    pub fn squares(&self, x: Shape, pixels: &[Vec<u32>]) -> Option<usize> {
        let (size, [top, left, _, right]) = (pixels.len().isqrt(), self.pads);
        let plane = x.h.div_ceil(size) * x.w.div_ceil(size);
        let width = x.w + left + right;
        let source = |pixel: usize, position: usize| {
            let channel = pixel * x.c;
            SpaceToDepth(size).source(x, PixelChannel { channel, position }).map(|from| from.position)
        };
        let own = |place: u32| {
            let (row, column) = (place as usize / width, place as usize % width);
            (row < x.h && column < x.w).then_some(row * x.w + column)
        };
        let fits = |(pixel, places): (usize, &Vec<u32>)| {
            places.len() == plane
                && places.iter().enumerate().all(|(at, place)| *place != ABSENT && own(*place) == source(pixel, at))
        };
        let whole = size > 1 && size * size == pixels.len() && [top, left] == [0; 2] && self.is_unscaled();
        (whole && pixels.iter().enumerate().all(fits)).then_some(size)
    }

    /// Returns the axes for a new tensor that stores its positions in this order.
    pub fn whole(self) -> Option<Self> {
        let (count, extents) = (self.count().ok()?, self.extents());
        let places = (0..count as u32).collect();
        let own = Self { pads: [0; 4], factor: 1.0, unit: None, first_channel: 0, ..self };
        own.with_places(places, &extents)
    }

    /// Returns all axes except the last one.
    pub fn cells(&self) -> Self {
        let axes = self.axes.split_last().map_or_else(Vec::new, |(_, rest)| rest.to_vec());
        Self { axes, ..self.clone() }
    }

    pub fn last_exchanged(self) -> Result<Self, String> {
        let rank = self.axes.len() as i64;
        let order: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        self.transposed(&order)
    }

    /// Returns the axes after a layer has cropped the image from the shape `before` to `y` at the bottom and at the right.
    pub fn cropped(self, before: Shape, y: Shape) -> Self {
        let place = |place: u32| match (place as usize / before.w, place as usize % before.w) {
            (row, column) if place != ABSENT && row < y.h && column < y.w => (row * y.w + column) as u32,
            _ => ABSENT,
        };
        let table = match &self.table {
            Some(table) => table.iter().map(|at| place(*at)).collect(),
            None => (0..before.plane() as u32).map(place).collect(),
        };
        Self { table: Some(table), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::onnx::axes::Layout;
    use crate::interop::onnx::axes::Size;

    const SHAPE: Shape = Shape { c: 2, h: 4, w: 4 };

    fn image() -> Axes {
        Axes::of(Layout::Last, SHAPE, 1).unwrap()
    }

    /// Moves an axis by one and back, as shifted windows do.
    #[test]
    fn moving_an_axis_back_restores_the_order_of_positions() {
        let moved = |axes: &Axes, by: usize| {
            let parts = [by..4, 0..by].map(|part| axes.clone().sliced(1, part).unwrap());
            Axes::joined(&parts, 1).unwrap()
        };
        let shifted = moved(&image(), 1);
        assert_eq!(shifted.places().unwrap()[..5], [4, 5, 6, 7, 8]);
        assert_eq!(shifted.places().unwrap()[12..], [0, 1, 2, 3]);
        assert_ne!(shifted.clone().simplified().unwrap(), image());
        assert_eq!(moved(&shifted, 3).simplified().unwrap(), image());
        assert_eq!(Axes::joined(&[image(), Axes { factor: 2.0, ..image() }], 1), None);
    }

    #[test]
    fn picked_selects_positions_by_index() {
        let picked = image().picked(2, &[3, 0]).unwrap();
        assert_eq!(picked.places().unwrap(), [3, 0, 7, 4, 11, 8, 15, 12]);
        assert_eq!(picked.sizes(), [Size::N, Size::Number(4), Size::Number(2), Size::Number(2)]);
        assert!(image().picked(3, &[0]).unwrap_err().contains("only positions"));
        assert!(image().picked(1, &[4]).is_err() && image().picked(1, &[]).is_err());
    }

    #[test]
    fn pixels_of_squares_are_recognised() {
        let every = |first: usize| [first, first + 2];
        let parts = [[0, 0], [1, 0], [0, 1], [1, 1]];
        let pixels = |order: [usize; 4]| {
            let part =
                |at: usize| image().picked(1, &every(parts[at][0])).unwrap().picked(2, &every(parts[at][1])).unwrap();
            order.map(|at| part(at).places().unwrap())
        };
        assert_eq!(image().squares(SHAPE, &pixels([0, 1, 2, 3])), Some(2));
        assert_eq!(image().squares(SHAPE, &pixels([0, 2, 1, 3])), None);
    }

    #[test]
    fn cropped_positions_are_absent() {
        let cropped = image().cropped(SHAPE, Shape { h: 3, w: 3, ..SHAPE });
        assert_eq!(cropped.places().unwrap()[..6], [0, 1, 2, ABSENT, 3, 4]);
        let rest = cropped.sliced(1, 0..3).unwrap().sliced(2, 0..3).unwrap().simplified().unwrap();
        assert_eq!(Some(rest), Axes::of(Layout::Last, Shape { h: 3, w: 3, ..SHAPE }, 1));
    }

    #[test]
    fn long_lists_of_positions_are_refused() {
        let large = Axes::of(Layout::Last, Shape::image(1, 1 << 16, 1 << 16), 1).unwrap();
        assert!(large.places().unwrap_err().contains("smaller images"));
    }
}
