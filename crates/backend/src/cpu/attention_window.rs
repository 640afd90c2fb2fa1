//! A head's passes over a window: products, softmax, and their gradients. Queries are processed in small groups, so that
//! only a small part of the attention weights is in memory. Backward recomputes the weights.
//!
//! A head's channels fill whole blocks, so its queries, keys, values and outputs are four contiguous pieces of memory
//! with the same layout: (blocks, positions, channels in a block). Windows are gathered from them and scattered to them
//! while they are copied to and from the workspace of a thread.

use net::{Attention, LEAST_NORM, MASK, Windows};

use super::lanes::LANES;
use super::register_tile::{UNROLLED, by_rows, outer, rows};
use super::vector::{Job, Vectors, exp};

/// Number of queries that a thread processes together. Only their attention weights are in memory.
const QUERIES: usize = 32;

/// Positions and channels are padded to a multiple of this number, which is the width of the widest panel.
const WIDEST: usize = 32;

/// Marks a cell that the output leaves out.
pub(super) const OUTSIDE: u32 = u32::MAX;

/// Sizes of a head in a window.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// Cells in a window.
    pub positions: usize,
    pub channels: usize,
    /// Channels per block in all tensors.
    pub block: usize,
}

/// Where the cells of a window are in the plane of a tensor.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    pub places: &'a [u32],
    /// Number of positions in the plane.
    pub plane: usize,
}

impl Sizes {
    pub fn padded_positions(&self) -> usize {
        self.positions.next_multiple_of(WIDEST)
    }

    fn padded_channels(&self) -> usize {
        self.channels.next_multiple_of(WIDEST)
    }

    /// Returns the number of elements in a padded (positions, channels) matrix.
    fn matrix(&self) -> usize {
        self.padded_positions() * self.padded_channels()
    }

    /// Returns the number of attention weights for [`QUERIES`] queries.
    fn weights(&self) -> usize {
        QUERIES * self.padded_positions()
    }

    /// Returns the number of products of all queries with all keys. A row of products is padded.
    pub fn products(&self) -> usize {
        self.positions * self.padded_positions()
    }

    /// Returns the number of elements in a thread's workspace, which must fit [`Forward`], and with `train` also
    /// [`Backward`].
    pub fn workspace(&self, train: bool) -> usize {
        let (matrices, weights) = if train { (7, 2) } else { (3, 1) };
        let rest = QUERIES * self.padded_channels() + 2 * self.padded_positions();
        matrices * self.matrix() + weights * self.weights() + rest
    }

    /// Calls `f(cell, channel, index)` for every value of a window in a tensor. A head's values in a tensor are
    /// (blocks, plane, channels in a block).
    #[inline(always)]
    fn each(&self, cells: Cells<'_>, mut f: impl FnMut(usize, usize, usize)) {
        for first in (0..self.channels).step_by(self.block) {
            for (cell, &place) in cells.places.iter().enumerate().filter(|(_, place)| **place != OUTSIDE) {
                let at = first * cells.plane + place as usize * self.block;
                for lane in 0..self.block {
                    f(cell, first + lane, at + lane);
                }
            }
        }
    }

    /// Copies the values of a window in a tensor to `index(cell, channel)` in `to`, and fills the rest with zeros. Each
    /// cell is multiplied by its factor.
    #[inline(always)]
    fn gather(
        self,
        cells: Cells<'_>,
        from: &[f32],
        factors: &[f32],
        to: &mut [f32],
        index: impl Fn(usize, usize) -> usize,
    ) {
        let from = &from[..cells.plane * self.channels];
        to.fill(0.0);
        self.each(cells, |cell, channel, at| to[index(cell, channel)] = from[at] * factors[cell]);
    }

    /// Copies from panels that are `width` channels wide to a window of a tensor.
    #[inline(always)]
    fn store_panels(self, cells: Cells<'_>, from: &[f32], to: &mut [f32], width: usize) {
        let (to, rows) = (&mut to[..cells.plane * self.channels], self.padded_positions());
        self.each(cells, |cell, channel, at| to[at] = from[panel_index(cell, channel, width, rows)]);
    }

    /// Copies rows with padded channels to cells of a tensor.
    #[inline(always)]
    fn store_rows(self, cells: Cells<'_>, from: &[f32], to: &mut [f32]) {
        for (&place, row) in cells.places.iter().zip(from.chunks_exact(self.padded_channels())) {
            if place == OUTSIDE {
                continue;
            }
            for (block, values) in row[..self.channels].chunks_exact(self.block).enumerate() {
                to[(block * cells.plane + place as usize) * self.block..][..self.block].copy_from_slice(values);
            }
        }
    }

    /// Writes 1 / norm of each cell's vector if `cosine` is set, otherwise 1.
    #[inline(always)]
    fn factors(self, cells: Cells<'_>, from: &[f32], cosine: bool, factors: &mut [f32]) {
        if !cosine {
            return factors.fill(1.0);
        }
        factors.fill(0.0);
        self.each(cells, |cell, _, at| factors[cell] = from[at].mul_add(from[at], factors[cell]));
        factors.iter_mut().for_each(|factor| *factor = 1.0 / factor.sqrt().max(LEAST_NORM as f32));
    }
}

impl<'a> Cells<'a> {
    /// Returns some of the cells, starting with `first`.
    fn part(self, first: usize, count: usize) -> Self {
        Self { places: &self.places[first..first + count], ..self }
    }
}

/// Returns the index of an element in panels with `width` columns and `rows` rows.
#[inline(always)]
fn panel_index(row: usize, column: usize, width: usize, rows: usize) -> usize {
    (column / width * rows + row) * width + column % width
}

/// The terms that are added to the products of queries and keys.
pub(super) struct Terms {
    /// For each head, query and key. Rows are padded.
    bias: Vec<f32>,
    /// For each kind of window, query and key. `kinds` has the kind of each window. Windows of kind 0 have no mask.
    masks: Vec<f32>,
    kinds: Vec<usize>,
    /// For each query and key, the index of the difference of their positions.
    differences: Vec<u32>,
}

impl Terms {
    /// Returns `None` if there is neither a bias nor a mask.
    pub fn new(op: &Attention, windows: &Windows, sizes: &Sizes) -> Option<Self> {
        let (area, row) = (windows.area(), sizes.padded_positions());
        let kind = |window| (0..area).map(|cell| windows.part(window, cell)).fold(0, |kind, part| kind | part);
        let kinds: Vec<usize> = (0..windows.count()).map(kind).collect();
        if op.position_bias.is_none() && kinds.iter().all(|kind| *kind == 0) {
            return None;
        }
        let pairs = || (0..area).flat_map(|query| (0..area).map(move |key| (query, key)));
        let mut masks = vec![0.0; kinds.iter().max().map_or(0, |most| most + 1) * sizes.products()];
        for (window, kind) in kinds.iter().enumerate().filter(|(_, kind)| **kind > 0) {
            for (query, key) in pairs().filter(|pair| windows.part(window, pair.0) != windows.part(window, pair.1)) {
                masks[kind * sizes.products() + query * row + key] = MASK;
            }
        }
        let differences = pairs().map(|(query, key)| windows.difference(query, key) as u32).collect();
        Some(Self { bias: vec![0.0; op.heads * sizes.products()], masks, kinds, differences })
    }

    /// Copies the bias from a table with a row for each difference and a column for each head.
    pub fn fill(&mut self, table: &[f32], heads: usize, sizes: &Sizes) {
        for (head, bias) in self.bias.chunks_exact_mut(sizes.products()).enumerate() {
            let rows = bias.chunks_exact_mut(sizes.padded_positions()).zip(self.differences.chunks(sizes.positions));
            for (bias, differences) in rows {
                bias.iter_mut().zip(differences).for_each(|(b, d)| *b = table[*d as usize * heads + head]);
            }
        }
    }

    /// Returns the bias of a head, and the mask of a window if it has one.
    pub fn of(&self, head: usize, window: usize, sizes: &Sizes) -> WindowTerms<'_> {
        let (kind, products) = (self.kinds[window], sizes.products());
        let mask = (kind > 0).then(|| &self.masks[kind * products..][..products]);
        WindowTerms { bias: &self.bias[head * products..][..products], mask }
    }

    /// Adds the gradients for each query and key to those for each difference of positions.
    pub fn add_differences(&self, dbias: &[f32], sums: &mut [f64], sizes: &Sizes) {
        let rows = dbias.chunks_exact(sizes.padded_positions()).zip(self.differences.chunks(sizes.positions));
        for (dbias, differences) in rows {
            dbias.iter().zip(differences).for_each(|(d, difference)| sums[*difference as usize] += f64::from(*d));
        }
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&self.bias[..]) + size_of_val(&self.masks[..]) + size_of_val(&self.differences[..])
    }
}

/// The terms of a head in a window.
#[derive(Clone, Copy)]
pub(super) struct WindowTerms<'a> {
    bias: &'a [f32],
    mask: Option<&'a [f32]>,
}

impl WindowTerms<'_> {
    /// Multiplies a query's products by the factor and adds its terms.
    #[inline(always)]
    fn add(&self, row: &mut [f32], query: usize, scale: f32) {
        let own = query * row.len()..(query + 1) * row.len();
        row.iter_mut().zip(&self.bias[own.clone()]).for_each(|(value, bias)| *value = value.mul_add(scale, *bias));
        if let Some(mask) = self.mask {
            row.iter_mut().zip(&mask[own]).for_each(|(value, mask)| *value += mask);
        }
    }
}

/// Computes `to = a u` for `count` rows. `a_step` and `step` are the row strides of `a` and `to`. The panels `u` have
/// `depth` rows each.
#[inline(always)]
fn product<S: Vectors>(
    set: S,
    count: usize,
    (a, a_step): (&[f32], usize),
    (u, depth): (&[f32], usize),
    (to, step): (&mut [f32], usize),
) {
    let width = 2 * S::LANES;
    for (panel, u) in u.chunks_exact(depth * width).enumerate() {
        by_rows!(count, S::ROWS, |row| rows::<S, 2>(
            set,
            (&a[row * a_step..], a_step),
            u,
            (&mut to[row * step + panel * width..], step),
            false
        ));
    }
}

/// Computes `sums += transpose(weights) d` for `count` queries. `sums` consists of panels with a row per key.
#[inline(always)]
fn add_outer<S: Vectors>(set: S, sizes: &Sizes, count: usize, weights: &[f32], d: &[f32], sums: &mut [f32]) {
    let (width, positions, channels) = (2 * S::LANES, sizes.padded_positions(), sizes.padded_channels());
    for (panel, sums) in sums.chunks_exact_mut(positions * width).enumerate() {
        by_rows!(sizes.positions, S::ROWS, |row| outer::<S, 2>(
            set,
            count,
            (&weights[row..], positions),
            (&d[panel * width..], channels),
            &mut sums[row * width..],
            true
        ));
    }
}

/// Replaces a query's products with all keys, times `scale`, by their softmax. Returns the greatest product, and 1 / the sum of
/// exponentials.
#[inline(always)]
fn softmax(row: &mut [f32], sizes: &Sizes, scale: f32) -> [f32; 2] {
    row[sizes.positions..].fill(f32::NEG_INFINITY);
    let mut most = [f32::NEG_INFINITY; LANES];
    for values in row.as_chunks::<LANES>().0 {
        most.iter_mut().zip(values).for_each(|(most, value)| *most = value.max(*most));
    }
    let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0; LANES];
    for values in row.as_chunks_mut::<LANES>().0 {
        for (value, sum) in values.iter_mut().zip(&mut sums) {
            *value = exp((*value - most) * scale);
            *sum += *value;
        }
    }
    let inverse = 1.0 / sums.iter().sum::<f32>();
    row.iter_mut().for_each(|value| *value *= inverse);
    [most, inverse]
}

/// Replaces a query's products with all keys in `row` by their softmax, which is computed again from the results of
/// [`softmax`]. Replaces the gradients with respect to the softmax by the gradients with respect to the products.
#[inline(always)]
fn softmax_back(row: &mut [f32], gradients: &mut [f32], [most, inverse]: [f32; 2], sizes: &Sizes, scale: f32) {
    row[sizes.positions..].fill(f32::NEG_INFINITY);
    let mut sums = [0.0; LANES];
    for (values, gradients) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(gradients.as_chunks::<LANES>().0) {
        for ((value, gradient), sum) in values.iter_mut().zip(gradients).zip(&mut sums) {
            *value = exp((*value - most) * scale) * inverse;
            *sum = value.mul_add(*gradient, *sum);
        }
    }
    let mean = sums.iter().sum::<f32>();
    for (gradient, value) in gradients.iter_mut().zip(row) {
        *gradient = *value * (*gradient - mean) * scale;
    }
}

/// Splits matrices off a workspace.
struct Workspace<'a>(&'a mut [f32]);

impl<'a> Workspace<'a> {
    fn take(&mut self, elems: usize) -> &'a mut [f32] {
        let (taken, rest) = std::mem::take(&mut self.0).split_at_mut(elems);
        self.0 = rest;
        taken
    }
}

/// A head in a window: sizes, positions of the cells in x and y, factor and bias terms. Forward and backward use it.
pub(super) struct Window<'a> {
    pub sizes: Sizes,
    pub x: Cells<'a>,
    pub y: Cells<'a>,
    /// Factor that multiplies the products of queries and keys.
    pub scale: f32,
    pub cosine: bool,
    pub terms: Option<WindowTerms<'a>>,
}

impl Window<'_> {
    /// Returns the factor that the softmax applies. If there are terms, the products already contain it.
    fn softmax_scale(&self) -> f32 {
        if self.terms.is_some() { 1.0 } else { self.scale }
    }

    /// Adds the terms to the products of queries that start with `first`.
    #[inline(always)]
    fn add_terms(&self, products: &mut [f32], first: usize) {
        if let Some(terms) = &self.terms {
            let rows = products.chunks_exact_mut(self.sizes.padded_positions());
            rows.enumerate().for_each(|(row, products)| terms.add(products, first + row, self.scale));
        }
    }
}

/// A head's forward pass over a window.
pub(super) struct Forward<'a> {
    pub window: Window<'a>,
    /// Queries, keys and values in all windows.
    pub inputs: [&'a [f32]; 3],
    pub statistics: &'a mut [[f32; 2]],
    /// Outputs in all windows.
    pub y: &'a mut [f32],
    pub workspace: &'a mut [f32],
}

impl Job for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { window, inputs: [queries, keys, values], statistics, y, workspace } = self;
        let (sizes, cells) = (window.sizes, window.x);
        let (positions, channels) = (sizes.padded_positions(), sizes.padded_channels());
        let (width, depth) = (2 * S::LANES, sizes.channels.next_multiple_of(UNROLLED));
        // Each of these returns the index of a cell's channel in a layout. `rows`: a row of padded channels per cell.
        // `panels`: panels of `width` channels with a row per padded cell. `turned`: panels of `width` cells with a row
        // per channel (`depth` rows).
        let rows = move |cell: usize, channel: usize| cell * channels + channel;
        let panels = move |cell: usize, channel: usize| panel_index(cell, channel, width, positions);
        let turned = move |cell: usize, channel: usize| panel_index(channel, cell, width, depth);
        let mut workspace = Workspace(workspace);
        let q = workspace.take(sizes.matrix());
        let k = &mut workspace.take(sizes.matrix())[..positions * depth];
        let v = workspace.take(sizes.matrix());
        let (weights, result) = (workspace.take(sizes.weights()), workspace.take(QUERIES * channels));
        let factors = workspace.take(positions);
        sizes.factors(cells, queries, window.cosine, factors);
        sizes.gather(cells, queries, factors, q, rows);
        sizes.factors(cells, keys, window.cosine, factors);
        sizes.gather(cells, keys, factors, k, turned);
        factors.fill(1.0);
        sizes.gather(cells, values, factors, v, panels);
        for first in (0..sizes.positions).step_by(QUERIES) {
            let count = QUERIES.min(sizes.positions - first);
            product(set, count, (&q[first * channels..], channels), (k, depth), (weights, positions));
            window.add_terms(&mut weights[..count * positions], first);
            let rows = weights.chunks_exact_mut(positions).zip(&mut statistics[first..first + count]);
            rows.for_each(|(row, own)| *own = softmax(row, &sizes, window.softmax_scale()));
            product(set, count, (weights, positions), (v, positions), (result, channels));
            sizes.store_rows(window.y.part(first, count), result, y);
        }
    }
}

/// A head's backward pass over a window. Returns the gradient of the logarithm of the factor for cosines.
pub(super) struct Backward<'a> {
    pub window: Window<'a>,
    /// Queries, keys and values in all windows.
    pub inputs: [&'a [f32]; 3],
    pub statistics: &'a [[f32; 2]],
    /// Gradients of the outputs in all windows.
    pub dy: &'a [f32],
    /// Gradients for queries, keys and values in all windows.
    pub gradients: [&'a mut [f32]; 3],
    /// The gradients of the terms are added here, for each query and key. May be empty.
    pub dbias: &'a mut [f32],
    pub workspace: &'a mut [f32],
}

impl Job for Backward<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) -> f64 {
        let Self { window, inputs: [queries, keys, values], statistics, dy, gradients, dbias, workspace } = self;
        let (sizes, cells) = (window.sizes, window.x);
        let (positions, channels) = (sizes.padded_positions(), sizes.padded_channels());
        let (width, depth) = (2 * S::LANES, sizes.channels.next_multiple_of(UNROLLED));
        // As in the forward pass.
        let rows = move |cell: usize, channel: usize| cell * channels + channel;
        let panels = move |cell: usize, channel: usize| panel_index(cell, channel, width, positions);
        let turned = move |cell: usize, channel: usize| panel_index(channel, cell, width, depth);
        let mut workspace = Workspace(workspace);
        let [q, d, k, dk, dv] = [(); 5].map(|()| workspace.take(sizes.matrix()));
        let [k_turned, v_turned] = [(); 2].map(|()| &mut workspace.take(sizes.matrix())[..positions * depth]);
        let [weights, slopes] = [(); 2].map(|()| workspace.take(sizes.weights()));
        let dq = workspace.take(QUERIES * channels);
        let [query_factors, factors] = [(); 2].map(|()| workspace.take(positions));
        factors.fill(1.0);
        sizes.gather(window.y, dy, factors, d, rows);
        sizes.gather(cells, values, factors, v_turned, turned);
        sizes.factors(cells, queries, window.cosine, query_factors);
        sizes.gather(cells, queries, query_factors, q, rows);
        sizes.factors(cells, keys, window.cosine, factors);
        sizes.gather(cells, keys, factors, k, panels);
        sizes.gather(cells, keys, factors, k_turned, turned);
        dk.fill(0.0);
        dv.fill(0.0);
        let [queries, keys, values] = gradients;
        let mut dscale = 0.0;
        for first in (0..sizes.positions).step_by(QUERIES) {
            let count = QUERIES.min(sizes.positions - first);
            let (q, d) = (&q[first * channels..], &d[first * channels..]);
            product(set, count, (q, channels), (k_turned, depth), (weights, positions));
            window.add_terms(&mut weights[..count * positions], first);
            product(set, count, (d, channels), (v_turned, depth), (slopes, positions));
            let rows = weights.chunks_exact_mut(positions).zip(slopes.chunks_exact_mut(positions));
            for ((row, slopes), statistics) in rows.zip(&statistics[first..first + count]) {
                softmax_back(row, slopes, *statistics, &sizes, window.softmax_scale());
            }
            if window.terms.is_some() {
                let slopes = &mut slopes[..count * positions];
                let sums = dbias.iter_mut().skip(first * positions);
                sums.zip(&*slopes).for_each(|(sum, slope)| *sum += slope);
                slopes.iter_mut().for_each(|slope| *slope *= window.scale);
            }
            product(set, count, (slopes, positions), (k, positions), (dq, channels));
            if window.cosine {
                let rows = dq.chunks_exact_mut(channels).zip(q.chunks_exact(channels));
                for ((dq, q), factor) in rows.zip(&query_factors[first..first + count]) {
                    let along: f32 = dq.iter().zip(q).map(|(dq, q)| dq * q).sum();
                    dq.iter_mut().zip(q).for_each(|(dq, q)| *dq = (*dq - along * q) * factor);
                    dscale += f64::from(along);
                }
            }
            sizes.store_rows(cells.part(first, count), dq, queries);
            add_outer(set, &sizes, count, slopes, q, dk);
            add_outer(set, &sizes, count, weights, d, dv);
        }
        if window.cosine {
            without_norms(&sizes, width, k, factors, dk);
        }
        sizes.store_panels(cells, dk, keys, width);
        sizes.store_panels(cells, dv, values, width);
        dscale
    }
}

/// Replaces the gradients for keys of norm 1 by those for the original keys. `k` and `dk` are panels that are `width`
/// channels wide, and `factors` are 1 / the norms.
#[inline(always)]
fn without_norms(sizes: &Sizes, width: usize, k: &[f32], factors: &[f32], dk: &mut [f32]) {
    let rows = sizes.padded_positions();
    for (cell, factor) in factors.iter().enumerate().take(sizes.positions) {
        let at = |channel| panel_index(cell, channel, width, rows);
        let along: f32 = (0..sizes.channels).map(|channel| dk[at(channel)] * k[at(channel)]).sum();
        for at in (0..sizes.channels).map(at) {
            dk[at] = (dk[at] - along * k[at]) * factor;
        }
    }
}
