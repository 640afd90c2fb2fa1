//! The matrices of F(2, 3), F(2, 5) and F(4, 3), applied to one column or row: B for inputs, A for outputs, as the literature calls
//! them. A is also the length of a line, M its outputs. Filters, and so G, are next door.

use super::super::vector::Vectors;

/// Points of F(4, 3) beside 0 and infinity, and their negatives: of those that were tried, the ones with the least rounding error. F(2, 3)
/// has the points 0, 1, -1 and infinity, F(2, 5) also 2 and -2.
pub const NEAR: f32 = 0.75;
pub const FAR: f32 = 1.5;

/// Side of the filters that a grid is for.
pub const fn kernel(a: usize) -> usize {
    a - 1
}

/// B^T d of one column or row.
#[inline(always)]
pub fn input_line<S: Vectors, const A: usize, const M: usize>(set: S, d: [S::Lanes; A]) -> [S::Lanes; A] {
    let mut t = [set.zero(); A];
    if M == 4 {
        let sum = set.splat(NEAR * NEAR + FAR * FAR);
        let product = set.splat(NEAR * NEAR * FAR * FAR);
        t[0] = set.mul_add(product, d[0], set.sub_mul(d[4], sum, d[2]));
        for (at, point, other) in [(1, NEAR, FAR), (3, FAR, NEAR)] {
            let (point, other) = (set.splat(point), set.splat(other * other));
            let (even, odd) = (set.sub_mul(d[4], other, d[2]), set.sub_mul(d[3], other, d[1]));
            t[at] = set.mul_add(point, odd, even);
            t[at + 1] = set.sub_mul(even, point, odd);
        }
        t[5] = set.mul_add(product, d[1], set.sub_mul(d[5], sum, d[3]));
    } else if A == 4 {
        t[0] = set.sub(d[0], d[2]);
        t[1] = set.add(d[1], d[2]);
        t[2] = set.sub(d[2], d[1]);
        t[3] = set.sub(d[1], d[3]);
    } else {
        let (four, five) = (set.splat(4.0), set.splat(5.0));
        let (even, odd) = (set.sub_mul(d[4], four, d[2]), set.sub_mul(d[3], four, d[1]));
        let (near, far) = (set.sub(d[4], d[2]), set.sub(d[3], d[1]));
        let twice = set.add(far, far);
        t[0] = set.mul_add(four, d[0], set.sub_mul(d[4], five, d[2]));
        t[1] = set.add(even, odd);
        t[2] = set.sub(even, odd);
        t[3] = set.add(near, twice);
        t[4] = set.sub(near, twice);
        t[5] = set.mul_add(four, d[1], set.sub_mul(d[5], five, d[3]));
    }
    t
}

/// A^T m.
#[inline(always)]
pub fn output_line<S: Vectors, const A: usize, const M: usize>(set: S, m: [S::Lanes; A]) -> [S::Lanes; M] {
    let mut y = [set.zero(); M];
    let (sum, difference) = (set.add(m[1], m[2]), set.sub(m[1], m[2]));
    y[0] = set.add(m[0], sum);
    if A == 4 {
        y[1] = set.sub(difference, m[3]);
        return y;
    }
    let (sum2, difference2) = (set.add(m[3], m[4]), set.sub(m[3], m[4]));
    y[0] = set.add(y[0], sum2);
    if M == 4 {
        let (near2, far2) = (NEAR * NEAR, FAR * FAR);
        y[1] = set.mul_add(set.splat(NEAR), difference, set.scale(FAR, difference2));
        y[2] = set.mul_add(set.splat(near2), sum, set.scale(far2, sum2));
        let odd = set.mul_add(set.splat(FAR * far2), difference2, m[5]);
        y[3] = set.mul_add(set.splat(NEAR * near2), difference, odd);
    } else {
        let twice = set.add(difference2, difference2);
        y[1] = set.add(set.add(difference, twice), m[5]);
    }
    y
}

/// A y, of two outputs.
#[inline(always)]
pub fn gradient_line<S: Vectors, const A: usize, const M: usize>(set: S, y: [S::Lanes; M]) -> [S::Lanes; A] {
    let mut g = [set.zero(); A];
    g[0] = y[0];
    if M == 4 {
        for (at, point) in [(1, NEAR), (3, FAR)] {
            let square = set.splat(point * point);
            let even = set.mul_add(square, y[2], y[0]);
            let odd = set.mul_add(square, y[3], y[1]);
            g[at] = set.mul_add(set.splat(point), odd, even);
            g[at + 1] = set.sub_mul(even, set.splat(point), odd);
        }
        g[5] = y[3];
        return g;
    }
    g[1] = set.add(y[0], y[1]);
    g[2] = set.sub(y[0], y[1]);
    if A == 4 {
        g[3] = set.sub(set.zero(), y[1]);
    } else {
        let twice = set.add(y[1], y[1]);
        g[3] = set.add(y[0], twice);
        g[4] = set.sub(y[0], twice);
        g[5] = y[1];
    }
    g
}
