//! The passes of batch normalisation over the rows of one channel block: moments, result, sums of gradients, gradient of x. The channels
//! of a row come again after so many groups of lanes as there are constants: after one in blocks of channels, after more in whole pixels.
//! X are the numbers of x and its gradient, Y those of the result, the residual and their gradients.

use crate::backend::cpu::lanes::{LANES, Lanes, group};
use crate::backend::cpu::number::Number;
use crate::simd::simd;

/// Bits of a mode: ReLU behind the sum.
pub const RELU: usize = 1;
/// A residual input.
pub const RESIDUAL: usize = 2;
/// A gradient in two summands.
pub const SECOND: usize = 4;
/// Forward notes which values ReLU lets through, which backward, with a residual, cannot compute again from x alone.
pub const NOTES: usize = 4;
/// Backward leaves the gradient behind ReLU in place of dy also where it has one summand and there is no residual.
pub const STORES: usize = 8;

/// Of each group of lanes, a bit for each value that ReLU lets through.
pub type Bits = u32;

/// Words of [`Bits`] for so many elements of a row.
pub fn words(elems: usize) -> usize {
    elems.div_ceil(LANES)
}

/// The words of a stretch of a row's elements that begins with a group.
fn words_of(part: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    part.start / LANES..words(part.end)
}

/// Runs the statement for each stretch of a row's elements whose lanes have the same constants, with the number of these: for the whole
/// row where there is one group of them.
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
    /// Adds sums of (x - k) and (x - k)^2 of one row to `s` and `q`.
    pub fn moments [X: Number] (x: &[X], k: &[Lanes], s: &mut [Lanes], q: &mut [Lanes]) {
        each_group!(x.len(), k.len(), |i, part| add_moments(&x[part], &k[i], &mut s[i], &mut q[i]));
    }
}

#[inline(always)]
fn add_moments<X: Number>(x: &[X], k: &Lanes, s: &mut Lanes, q: &mut Lanes) {
    let mut add = |lane: usize, x: f32| {
        let d = x - k[lane];
        s[lane] += d;
        q[lane] = d.mul_add(d, q[lane]);
    };
    let (groups, rest) = x.as_chunks::<LANES>();
    for group in groups {
        group.iter().enumerate().for_each(|(lane, x)| add(lane, x.get()));
    }
    rest.iter().enumerate().for_each(|(lane, x)| add(lane, x.get()));
}

simd! {
    fn normalise_as [X: Number, Y: Number] <M: usize>(
        x: &[X], residual: &[Y], scale: &[Lanes], shift: &[Lanes], y: &mut [Y], bits: &mut [Bits],
    ) {
        let n = y.len();
        let x = &x[..n];
        each_group!(n, scale.len(), |i, part| {
            let bits = if M & NOTES != 0 { &mut bits[words_of(&part)] } else { &mut [] };
            let residual = if M & RESIDUAL != 0 { &residual[part.clone()] } else { &[] };
            normal::<X, Y, M>((&x[part.clone()], residual), &scale[i], &shift[i], &mut y[part], bits);
        });
    }
}

#[inline(always)]
fn normal<X: Number, Y: Number, const M: usize>(
    (x, residual): (&[X], &[Y]),
    scale: &Lanes,
    shift: &Lanes,
    y: &mut [Y],
    bits: &mut [Bits],
) {
    let value = |lane: usize, x: X, r: Y| {
        let mut v = x.get().mul_add(scale[lane], shift[lane]);
        if M & RESIDUAL != 0 {
            v += r.get();
        }
        if M & RELU != 0 && v <= 0.0 { 0.0 } else { v }
    };
    let n = y.len();
    let whole = n - n % LANES;
    let mut values = [0.0; LANES];
    for at in (0..whole).step_by(LANES).map(group) {
        let part = at..at + LANES;
        let (x, r) = (&x[part.clone()], if M & RESIDUAL != 0 { &residual[part.clone()] } else { &[Y::default(); LANES] });
        for lane in 0..LANES {
            values[lane] = value(lane, x[lane], r[lane]);
        }
        for (y, v) in y[part].iter_mut().zip(values) {
            *y = Y::of(v);
        }
        if M & NOTES != 0 {
            bits[at / LANES] = positive(&values);
        }
    }
    for i in whole..n {
        let r = if M & RESIDUAL != 0 { residual[i] } else { Y::default() };
        values[i - whole] = value(i - whole, x[i], r);
        y[i] = Y::of(values[i - whole]);
    }
    if M & NOTES != 0 && whole < n {
        bits[whole / LANES] = positive(&values[..n - whole]);
    }
}

/// A bit for each of up to [`LANES`] values that is above 0.
#[inline(always)]
fn positive(y: &[f32]) -> Bits {
    y.iter().enumerate().fold(0, |bits, (lane, y)| bits | Bits::from(*y > 0.0) << lane)
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
    /// What ReLU let through, with a residual.
    pub bits: &'a [Bits],
    pub second: &'a [Y],
    pub constants: &'a [Constants],
}

simd! {
    fn reduce_as [X: Number, Y: Number] <M: usize>(row: &Row<'_, X, Y>, dy: &mut [Y], s: &mut [Lanes], sx: &mut [Lanes]) {
        let n = dy.len();
        let x = &row.x[..n];
        let noted = M & (RELU | RESIDUAL) == RELU | RESIDUAL;
        each_group!(n, row.constants.len(), |i, part| {
            let bits = if noted { &row.bits[words_of(&part)] } else { &[] };
            let second = if M & SECOND != 0 { &row.second[part.clone()] } else { &[] };
            let read = (&x[part.clone()], second);
            add_gradients::<X, Y, M>(&row.constants[i], read, bits, &mut dy[part], [&mut s[i], &mut sx[i]]);
        });
    }
}

#[inline(always)]
fn add_gradients<X: Number, Y: Number, const M: usize>(
    k: &Constants,
    (x, second): (&[X], &[Y]),
    bits: &[Bits],
    dy: &mut [Y],
    [s, sx]: [&mut Lanes; 2],
) {
    let mut one = |lane: usize, x: X, second: Y, bits: Bits, dy: &mut Y| {
        let (x, mut g) = (x.get(), gradient::<M>(k, lane, x.get(), second.get(), bits, dy.get()));
        if M & (RESIDUAL | SECOND | STORES) != 0 {
            *dy = Y::of(g);
            // what dx is made of
            g = dy.get();
        }
        s[lane] += g;
        sx[lane] = g.mul_add(x - k.mean[lane], sx[lane]);
    };
    let bits = |at: usize| if M & (RELU | RESIDUAL) == RELU | RESIDUAL { bits[at / LANES] } else { 0 };
    let n = dy.len();
    let whole = n - n % LANES;
    for at in (0..whole).step_by(LANES) {
        let part = at..at + LANES;
        let second = if M & SECOND != 0 { &second[part.clone()] } else { &[Y::default(); LANES] };
        let (bits, x, dy) = (bits(at), &x[part.clone()], &mut dy[part]);
        for lane in 0..LANES {
            one(lane, x[lane], second[lane], bits, &mut dy[lane]);
        }
    }
    for i in whole..n {
        let second = if M & SECOND != 0 { second[i] } else { Y::default() };
        one(i - whole, x[i], second, bits(whole), &mut dy[i]);
    }
}

/// dy, plus its second summand, where ReLU let the value through. Without a residual the value is computed again from x by the
/// forward pass's own formula.
#[inline(always)]
fn gradient<const M: usize>(k: &Constants, lane: usize, x: f32, second: f32, bits: Bits, dy: f32) -> f32 {
    let g = if M & SECOND != 0 { dy + second } else { dy };
    let passes = match (M & RELU != 0, M & RESIDUAL != 0) {
        (false, _) => true,
        (true, false) => x.mul_add(k.scale[lane], k.shift[lane]) > 0.0,
        (true, true) => bits >> lane & 1 != 0,
    };
    if passes { g } else { 0.0 }
}

/// dx = a g + (b x + c), per lane.
pub struct Slope {
    pub a: Lanes,
    pub b: Lanes,
    pub c: Lanes,
}

simd! {
    /// dx from stored gradients.
    pub fn slope [X: Number, Y: Number] (k: &[Slope], x: &[X], g: &[Y], dx: &mut [X]) {
        let n = dx.len();
        let (x, g) = (&x[..n], &g[..n]);
        each_group!(n, k.len(), |i, part| slope_of(&k[i], &x[part.clone()], &g[part.clone()], &mut dx[part]));
    }
}

#[inline(always)]
fn slope_of<X: Number, Y: Number>(k: &Slope, x: &[X], g: &[Y], dx: &mut [X]) {
    let value = |lane: usize, x: X, g: Y| X::of(k.a[lane].mul_add(g.get(), k.b[lane].mul_add(x.get(), k.c[lane])));
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
    fn slope_in_place_as [X: Number, Y: Number] <M: usize>(k: &[Slope], row: &Row<'_, X, Y>, dy: &mut [Y]) {
        let n = dy.len();
        let x = &row.x[..n];
        each_group!(n, k.len(), |i, part| {
            own_slope::<X, Y, M>(&k[i], &row.constants[i], &x[part.clone()], &mut dy[part]);
        });
    }
}

#[inline(always)]
fn own_slope<X: Number, Y: Number, const M: usize>(k: &Slope, constants: &Constants, x: &[X], dy: &mut [Y]) {
    let value = |lane: usize, x: X, dy: Y| {
        let x = x.get();
        let g = gradient::<M>(constants, lane, x, 0.0, 0, dy.get());
        Y::of(k.a[lane].mul_add(g, k.b[lane].mul_add(x, k.c[lane])))
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

/// y = scale x + shift, plus the residual, behind ReLU, as `mode` says; with [`NOTES`], and only with both, what ReLU lets through.
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

/// Adds a row's sums of g, the gradient behind ReLU, and g (x - mean) to `s` and `sx`. With a residual input, a second summand or
/// [`STORES`], g replaces dy in memory; else the next pass makes it again.
pub fn reduce<X: Number, Y: Number>(
    mode: usize,
    row: &Row<'_, X, Y>,
    dy: &mut [Y],
    s: &mut [Lanes],
    sx: &mut [Lanes],
) {
    match mode {
        0 => reduce_as::<X, Y, 0>(row, dy, s, sx),
        1 => reduce_as::<X, Y, 1>(row, dy, s, sx),
        2 => reduce_as::<X, Y, 2>(row, dy, s, sx),
        3 => reduce_as::<X, Y, 3>(row, dy, s, sx),
        4 => reduce_as::<X, Y, 4>(row, dy, s, sx),
        5 => reduce_as::<X, Y, 5>(row, dy, s, sx),
        6 => reduce_as::<X, Y, 6>(row, dy, s, sx),
        7 => reduce_as::<X, Y, 7>(row, dy, s, sx),
        STORES => reduce_as::<X, Y, STORES>(row, dy, s, sx),
        _ => reduce_as::<X, Y, { STORES | RELU }>(row, dy, s, sx),
    }
}

/// dx in place of dy, without a residual. With a second summand [`reduce`] has left the masked gradient there.
pub fn slope_in_place<X: Number, Y: Number>(mode: usize, k: &[Slope], row: &Row<'_, X, Y>, dy: &mut [Y]) {
    match mode {
        RELU => slope_in_place_as::<X, Y, 1>(k, row, dy),
        _ => slope_in_place_as::<X, Y, 0>(k, row, dy),
    }
}
