//! Batch norm's loops over the rows of a channel block: moments, result, sums of gradients, and dx. There is a set of
//! constants for each group of lanes until the channels repeat: a single set for channel blocks, perhaps more for
//! channels last.
//!
//! X is the number type of x and its gradient. Y is the type of the result, the residual and their gradients.

use base::simd;

use crate::cpu::lanes::{LANES, Lanes, hide_stride};
use crate::cpu::number::Number;

/// A bit of a mode: ReLU is applied to the result.
pub const RELU: usize = 1;
/// A bit of a mode: a residual input is added.
pub const RESIDUAL: usize = 2;
/// A bit of a mode: a second gradient of y is added in the backward pass.
pub const SECOND: usize = 4;
/// A bit of a mode: forward stores which values ReLU passed, because backward cannot compute this from x if there is a
/// residual. It has the same value as [`SECOND`], which is used only in backward.
pub const STORES_BITS: usize = 4;
/// A bit of a mode: backward overwrites dy with the gradient after ReLU's mask, even without a second gradient and
/// without a residual.
pub const STORES_GRADIENT: usize = 8;

/// Which values of a row ReLU passed. There is a word for each lane, with a bit for each of [`TOGETHER`] consecutive
/// groups, then the words for the next groups. With this order, vector code needs no sums across lanes.
pub type Bits = u32;

/// Number of groups that share a word.
const TOGETHER: usize = Bits::BITS as usize;

/// Returns the words in [`Bits`] for a row with `elems` elements.
pub fn words(elems: usize) -> usize {
    elems.div_ceil(LANES * TOGETHER) * LANES
}

/// Returns the range of words that belong to a group, and the group's bit in each of them.
#[inline(always)]
fn place(group: usize) -> (std::ops::Range<usize>, Bits) {
    let at = group / TOGETHER * LANES;
    (at..at + LANES, 1 << (group % TOGETHER))
}

/// Runs the statement for each part of a row with the same constants, and passes the index of the constants. If there
/// is only a single set of constants, the part is the whole row.
macro_rules! each_group {
    ($elems:expr, $groups:expr, |$group:ident, $part:ident| $run:expr) => {
        let (n, groups) = ($elems, $groups);
        if groups == 1 {
            let ($group, $part) = (0, 0..n);
            $run;
        } else {
            let (whole, mut next) = (n - n % LANES, 0);
            for at in (0..whole).step_by(LANES) {
                let ($group, $part) = (next, at..at + LANES);
                $run;
                next = if next + 1 == groups { 0 } else { next + 1 };
            }
            if whole < n {
                let ($group, $part) = (next, whole..n);
                $run;
            }
        }
    };
}

simd! {
    /// Adds the sums of (x - k) and (x - k)^2 over a row to `s` and `q`.
    pub fn moments [X: Number] (x: &[X], k: &[Lanes], s: &mut [Lanes], q: &mut [Lanes]) {
        each_group!(x.len(), k.len(), |i, part| add_moments(&x[part], &k[i], &mut s[i], &mut q[i]));
    }
}

#[inline(always)]
fn add_moments<X: Number>(x: &[X], k: &Lanes, s: &mut Lanes, q: &mut Lanes) {
    // Local variables stay in registers. Sums behind a reference would be stored at each step, because the compiler
    // cannot exclude that other writes change them.
    let mut sums = [*s, *q];
    let mut add = |lane: usize, x: f32| {
        let d = x - k[lane];
        sums[0][lane] += d;
        sums[1][lane] = d.mul_add(d, sums[1][lane]);
    };
    let (groups, rest) = x.as_chunks::<LANES>();
    for group in groups {
        group.iter().enumerate().for_each(|(lane, x)| add(lane, x.to_f32()));
    }
    rest.iter().enumerate().for_each(|(lane, x)| add(lane, x.to_f32()));
    [*s, *q] = sums;
}

simd! {
    fn normalise_as [X: Number, Y: Number] <M: usize>(
        x: &[X], residual: &[Y], scale: &[Lanes], shift: &[Lanes], y: &mut [Y], bits: &mut [Bits],
    ) {
        let n = y.len();
        let x = &x[..n];
        each_group!(n, scale.len(), |i, part| {
            let residual = if M & RESIDUAL != 0 { &residual[part.clone()] } else { &[] };
            let bits = (&mut *bits, part.start / LANES);
            normalise_part::<X, Y, M>((&x[part.clone()], residual), &scale[i], &shift[i], &mut y[part], bits);
        });
    }
}

/// Computes y for a part of a row. `bits` belongs to the whole row, and `first` is the number of the part's first group
/// in the row.
#[inline(always)]
fn normalise_part<X: Number, Y: Number, const M: usize>(
    (x, residual): (&[X], &[Y]),
    scale: &Lanes,
    shift: &Lanes,
    y: &mut [Y],
    (bits, first): (&mut [Bits], usize),
) {
    let value = |lane: usize, x: X, r: Y| {
        let mut v = x.to_f32().mul_add(scale[lane], shift[lane]);
        if M & RESIDUAL != 0 {
            v += r.to_f32();
        }
        if M & RELU != 0 && v <= 0.0 { 0.0 } else { v }
    };
    let n = y.len();
    let whole = n - n % LANES;
    let mut words = [0; LANES];
    if M & STORES_BITS != 0 && first % TOGETHER != 0 {
        words.copy_from_slice(&bits[place(first).0]);
    }
    for at in (0..whole).step_by(LANES).map(hide_stride) {
        let part = at..at + LANES;
        let r = if M & RESIDUAL != 0 { &residual[part.clone()] } else { &[Y::default(); LANES] };
        let (x, y, (range, bit)) = (&x[part.clone()], &mut y[part], place(first + at / LANES));
        for lane in 0..LANES {
            let v = value(lane, x[lane], r[lane]);
            y[lane] = Y::from_f32(v);
            if M & STORES_BITS != 0 {
                words[lane] |= if v <= 0.0 { 0 } else { bit };
            }
        }
        if M & STORES_BITS != 0 && (bit == 1 << (TOGETHER - 1) || at + LANES == whole) {
            bits[range].copy_from_slice(&words);
            if bit == 1 << (TOGETHER - 1) {
                words = [0; LANES];
            }
        }
    }
    let (range, bit) = place(first + whole / LANES);
    for i in whole..n {
        let r = if M & RESIDUAL != 0 { residual[i] } else { Y::default() };
        let v = value(i - whole, x[i], r);
        y[i] = Y::from_f32(v);
        words[i - whole] |= if v <= 0.0 { 0 } else { bit };
    }
    if M & STORES_BITS != 0 && whole < n {
        bits[range].copy_from_slice(&words);
    }
}

/// Mean, scale and shift of each lane.
pub struct Constants {
    pub mean: Lanes,
    pub scale: Lanes,
    pub shift: Lanes,
}

/// A row and its constants in a backward pass.
pub struct Row<'a, X, Y> {
    pub x: &'a [X],
    /// The bits of the values that ReLU passed. Used only with a residual.
    pub bits: &'a [Bits],
    pub second: &'a [Y],
    pub constants: &'a [Constants],
}

simd! {
    fn reduce_as [X: Number, Y: Number] <M: usize>(row: &Row<'_, X, Y>, dy: &mut [Y], s: &mut [Lanes], sx: &mut [Lanes]) {
        let n = dy.len();
        let x = &row.x[..n];
        each_group!(n, row.constants.len(), |i, part| {
            let second = if M & SECOND != 0 { &row.second[part.clone()] } else { &[] };
            let (read, bits) = ((&x[part.clone()], second), (row.bits, part.start / LANES));
            add_gradients::<X, Y, M>(&row.constants[i], read, bits, &mut dy[part], [&mut s[i], &mut sx[i]]);
        });
    }
}

/// Adds the sums over a part of a row. `bits` belongs to the whole row, and `first` is the number of the part's first
/// group in the row.
#[inline(always)]
fn add_gradients<X: Number, Y: Number, const M: usize>(
    k: &Constants,
    (x, second): (&[X], &[Y]),
    (bits, first): (&[Bits], usize),
    dy: &mut [Y],
    [s, sx]: [&mut Lanes; 2],
) {
    // Local variables, for the same reason as in `add_moments`.
    let mut sums = [*s, *sx];
    let mut one = |lane: usize, x: X, second: Y, passed: bool, dy: &mut Y| {
        let (x, mut g) = (x.to_f32(), gradient::<M>(k, lane, x.to_f32(), second.to_f32(), passed, dy.to_f32()));
        if M & (RESIDUAL | SECOND | STORES_GRADIENT) != 0 {
            *dy = Y::from_f32(g);
            // Sum the stored value, because dx is computed from it.
            g = dy.to_f32();
        }
        sums[0][lane] += g;
        sums[1][lane] = g.mul_add(x - k.mean[lane], sums[1][lane]);
    };
    let reads_bits = M & (RELU | RESIDUAL) == RELU | RESIDUAL;
    let n = dy.len();
    let whole = n - n % LANES;
    for at in (0..whole).step_by(LANES) {
        let (part, (range, bit)) = (at..at + LANES, place(first + at / LANES));
        let second = if M & SECOND != 0 { &second[part.clone()] } else { &[Y::default(); LANES] };
        let bits = if reads_bits { &bits[range] } else { &[0; LANES] };
        let (x, dy) = (&x[part.clone()], &mut dy[part]);
        for lane in 0..LANES {
            one(lane, x[lane], second[lane], bits[lane] & bit != 0, &mut dy[lane]);
        }
    }
    let (range, bit) = place(first + whole / LANES);
    for i in whole..n {
        let second = if M & SECOND != 0 { second[i] } else { Y::default() };
        one(i - whole, x[i], second, reads_bits && bits[range.start + i - whole] & bit != 0, &mut dy[i]);
    }
    [*s, *sx] = sums;
}

/// Returns dy plus the second gradient if ReLU passed the value, otherwise 0. Without a residual, it computes the value
/// again from x, with the formula of the forward pass.
#[inline(always)]
fn gradient<const M: usize>(k: &Constants, lane: usize, x: f32, second: f32, passed: bool, dy: f32) -> f32 {
    let g = if M & SECOND != 0 { dy + second } else { dy };
    let masked = match (M & RELU != 0, M & RESIDUAL != 0) {
        (false, _) => false,
        (true, false) => x.mul_add(k.scale[lane], k.shift[lane]) <= 0.0,
        (true, true) => !passed,
    };
    if masked { 0.0 } else { g }
}

/// Coefficients of dx = a g + (b x + c) for each lane.
pub struct DxCoefficients {
    pub a: Lanes,
    pub b: Lanes,
    pub c: Lanes,
}

simd! {
    /// Computes dx from stored gradients.
    pub fn input_gradient [X: Number, Y: Number] (k: &[DxCoefficients], x: &[X], g: &[Y], dx: &mut [X]) {
        let n = dx.len();
        let (x, g) = (&x[..n], &g[..n]);
        each_group!(n, k.len(), |i, part| input_gradient_part(&k[i], &x[part.clone()], &g[part.clone()], &mut dx[part]));
    }
}

#[inline(always)]
fn input_gradient_part<X: Number, Y: Number>(k: &DxCoefficients, x: &[X], g: &[Y], dx: &mut [X]) {
    let value =
        |lane: usize, x: X, g: Y| X::from_f32(k.a[lane].mul_add(g.to_f32(), k.b[lane].mul_add(x.to_f32(), k.c[lane])));
    let n = dx.len();
    let whole = n - n % LANES;
    for at in (0..whole).step_by(LANES) {
        let (x, g, dx) = (&x[at..at + LANES], &g[at..at + LANES], &mut dx[at..at + LANES]);
        for lane in 0..LANES {
            dx[lane] = value(lane, x[lane], g[lane]);
        }
    }
    for i in whole..n {
        dx[i] = value(i - whole, x[i], g[i]);
    }
}

simd! {
    fn input_gradient_in_place_as [X: Number, Y: Number] <M: usize>(k: &[DxCoefficients], row: &Row<'_, X, Y>, dy: &mut [Y]) {
        let n = dy.len();
        let x = &row.x[..n];
        each_group!(n, k.len(), |i, part| {
            input_gradient_part_in_place::<X, Y, M>(&k[i], &row.constants[i], &x[part.clone()], &mut dy[part]);
        });
    }
}

#[inline(always)]
fn input_gradient_part_in_place<X: Number, Y: Number, const M: usize>(
    k: &DxCoefficients,
    constants: &Constants,
    x: &[X],
    dy: &mut [Y],
) {
    let value = |lane: usize, x: X, dy: Y| {
        let x = x.to_f32();
        let g = gradient::<M>(constants, lane, x, 0.0, false, dy.to_f32());
        Y::from_f32(k.a[lane].mul_add(g, k.b[lane].mul_add(x, k.c[lane])))
    };
    let n = dy.len();
    let whole = n - n % LANES;
    for at in (0..whole).step_by(LANES) {
        let (x, dy) = (&x[at..at + LANES], &mut dy[at..at + LANES]);
        for lane in 0..LANES {
            dy[lane] = value(lane, x[lane], dy[lane]);
        }
    }
    for i in whole..n {
        dy[i] = value(i - whole, x[i], dy[i]);
    }
}

/// y = scale x + shift, plus the residual and with ReLU, depending on `mode`. With the mode bit [`STORES_BITS`], also
/// stores which values ReLU passed. This bit requires a residual and ReLU.
pub fn normalise<X: Number, Y: Number>(
    mode: usize,
    (x, residual): (&[X], &[Y]),
    scale: &[Lanes],
    shift: &[Lanes],
    y: &mut [Y],
    bits: &mut [Bits],
) {
    match mode {
        0 => normalise_as::<X, Y, 0>(x, residual, scale, shift, y, bits),
        1 => normalise_as::<X, Y, 1>(x, residual, scale, shift, y, bits),
        2 => normalise_as::<X, Y, 2>(x, residual, scale, shift, y, bits),
        3 => normalise_as::<X, Y, 3>(x, residual, scale, shift, y, bits),
        _ => normalise_as::<X, Y, 7>(x, residual, scale, shift, y, bits),
    }
}

/// Adds the sums of g and g (x - mean) over a row to `s` and `sx`. g is the gradient after ReLU's mask. With a
/// residual, a second gradient or [`STORES_GRADIENT`], g overwrites dy. Otherwise, the pass that computes dx computes g
/// again.
pub fn reduce<X: Number, Y: Number>(mode: usize, row: &Row<'_, X, Y>, dy: &mut [Y], s: &mut [Lanes], sx: &mut [Lanes]) {
    match mode {
        0 => reduce_as::<X, Y, 0>(row, dy, s, sx),
        1 => reduce_as::<X, Y, 1>(row, dy, s, sx),
        2 => reduce_as::<X, Y, 2>(row, dy, s, sx),
        3 => reduce_as::<X, Y, 3>(row, dy, s, sx),
        4 => reduce_as::<X, Y, 4>(row, dy, s, sx),
        5 => reduce_as::<X, Y, 5>(row, dy, s, sx),
        6 => reduce_as::<X, Y, 6>(row, dy, s, sx),
        7 => reduce_as::<X, Y, 7>(row, dy, s, sx),
        STORES_GRADIENT => reduce_as::<X, Y, STORES_GRADIENT>(row, dy, s, sx),
        _ => reduce_as::<X, Y, { STORES_GRADIENT | RELU }>(row, dy, s, sx),
    }
}

/// Overwrites dy with dx, without a residual. With a second gradient, dy already has the masked gradient, because
/// [`reduce`] has stored it.
pub fn input_gradient_in_place<X: Number, Y: Number>(
    mode: usize,
    k: &[DxCoefficients],
    row: &Row<'_, X, Y>,
    dy: &mut [Y],
) {
    match mode {
        RELU => input_gradient_in_place_as::<X, Y, 1>(k, row, dy),
        _ => input_gradient_in_place_as::<X, Y, 0>(k, row, dy),
    }
}
