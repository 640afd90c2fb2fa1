//! The matrices of F(s, 2) for the phases of one axis, s = 1 to 4 outputs: s finite points and infinity. Those of fewer outputs are the
//! first of the same points, so that tiles of all sizes share the transformed filters. The even phase, of one tap, needs the finite points
//! alone.

use super::super::super::vector::Vectors;

/// Points of an axis: near, -near, far, -far, then infinity.
#[derive(Clone, Copy)]
pub struct Points {
    near: f32,
    far: f32,
}

/// Of rows, two of which are a tile, so that far points are not in use, and of columns; of those that were tried, the ones with the least
/// rounding error.
pub const ROWS: Points = Points { near: 0.75, far: 1.5 };
pub const COLUMNS: Points = Points { near: 0.5, far: 1.5 };

/// Most finite points.
pub const FINITE: usize = 4;

impl Points {
    /// B^T of the finite points, for s values.
    #[inline(always)]
    pub fn finite<S: Vectors>(self, set: S, s: usize, d: [S::Lanes; FINITE]) -> [S::Lanes; FINITE] {
        let (a, b) = (self.near, self.far);
        let zero = set.zero();
        match s {
            1 => [d[0], zero, zero, zero],
            2 => {
                let (even, odd) = (set.scale(0.5, d[0]), set.scale(0.5 / a, d[1]));
                [set.add(even, odd), set.sub(even, odd), zero, zero]
            }
            3 => {
                let mut t = [zero; FINITE];
                for (t, a) in t.iter_mut().zip([a, -a]) {
                    let scale = 0.5 / (a * (a - b));
                    let first = set.mul_add(set.splat(-a * b * scale), d[0], set.scale(scale, d[2]));
                    *t = set.mul_add(set.splat(0.5 / a), d[1], first);
                }
                t[2] = set.scale(1.0 / (b * b - a * a), set.sub_mul(d[2], set.splat(a * a), d[0]));
                t
            }
            _ => {
                let mut t = [zero; FINITE];
                for (at, p, q) in [(0, a, b), (2, b, a)] {
                    let (q2, scale) = (set.splat(q * q), 0.5 / (p * p - q * q));
                    let even = set.scale(scale, set.sub_mul(d[2], q2, d[0]));
                    let odd = set.scale(scale / p, set.sub_mul(d[3], q2, d[1]));
                    t[at] = set.add(even, odd);
                    t[at + 1] = set.sub(even, odd);
                }
                t
            }
        }
    }

    /// B^T of infinity, for s + 1 values.
    #[inline(always)]
    pub fn infinite<S: Vectors>(self, set: S, s: usize, d: [S::Lanes; FINITE + 1]) -> S::Lanes {
        let (a, b) = (self.near, self.far);
        let (a2, b2) = (a * a, b * b);
        match s {
            1 => set.sub_mul(d[1], set.splat(a), d[0]),
            2 => set.sub_mul(d[2], set.splat(a2), d[0]),
            3 => {
                let high = set.sub_mul(d[3], set.splat(b), d[2]);
                set.sub_mul(high, set.splat(a2), set.sub_mul(d[1], set.splat(b), d[0]))
            }
            _ => set.mul_add(set.splat(a2 * b2), d[0], set.sub_mul(d[4], set.splat(a2 + b2), d[2])),
        }
    }

    /// A^T m: s outputs.
    #[inline(always)]
    pub fn output<S: Vectors>(self, set: S, s: usize, m: [S::Lanes; FINITE], infinite: S::Lanes) -> [S::Lanes; FINITE] {
        let (a, b) = (self.near, self.far);
        let (near, far) = (a * a, b * b);
        let (sum, difference) = (set.add(m[0], m[1]), set.sub(m[0], m[1]));
        let zero = set.zero();
        match s {
            1 => [set.add(m[0], infinite), zero, zero, zero],
            2 => [sum, set.mul_add(set.splat(a), difference, infinite), zero, zero],
            3 => {
                let third = set.mul_add(set.splat(far), m[2], infinite);
                [
                    set.add(sum, m[2]),
                    set.mul_add(set.splat(a), difference, set.scale(b, m[2])),
                    set.mul_add(set.splat(near), sum, third),
                    zero,
                ]
            }
            _ => {
                let (sum2, difference2) = (set.add(m[2], m[3]), set.sub(m[2], m[3]));
                let fourth = set.mul_add(set.splat(b * far), difference2, infinite);
                [
                    set.add(sum, sum2),
                    set.mul_add(set.splat(a), difference, set.scale(b, difference2)),
                    set.mul_add(set.splat(near), sum, set.scale(far, sum2)),
                    set.mul_add(set.splat(a * near), difference, fourth),
                ]
            }
        }
    }

    /// A y of s outputs at the finite points; at infinity it is the last of them.
    #[inline(always)]
    pub fn gradient<S: Vectors>(self, set: S, s: usize, y: [S::Lanes; FINITE]) -> [S::Lanes; FINITE] {
        let zero = set.zero();
        let mut g = [y[0], zero, zero, zero];
        if s == 1 {
            return g;
        }
        // outputs that are not there are zeros
        for (at, p) in [(0, self.near), (2, self.far)] {
            let square = set.splat(p * p);
            let (even, odd) =
                if s == 2 { (y[0], y[1]) } else { (set.mul_add(square, y[2], y[0]), set.mul_add(square, y[3], y[1])) };
            g[at] = set.mul_add(set.splat(p), odd, even);
            g[at + 1] = set.sub_mul(even, set.splat(p), odd);
            if s == 2 {
                return g;
            }
        }
        g
    }

    /// G g of a filter of three taps: at `finite` points, infinity, and the tap of the even phase.
    #[inline(always)]
    pub fn filter<S: Vectors, const N: usize>(self, set: S, finite: usize, g: [S::Lanes; 3]) -> [S::Lanes; N] {
        let mut u = [set.zero(); N];
        for (at, p) in [(0, self.near), (2, self.far)].into_iter().take(finite / 2) {
            u[at] = set.mul_add(set.splat(p), g[2], g[0]);
            u[at + 1] = set.sub_mul(g[0], set.splat(p), g[2]);
        }
        u[finite] = g[2];
        u[finite + 1] = g[1];
        u
    }

    /// G^T u.
    #[inline(always)]
    pub fn taps<S: Vectors, const N: usize>(self, set: S, finite: usize, u: [S::Lanes; N]) -> [S::Lanes; 3] {
        let (mut first, mut last) = (set.add(u[0], u[1]), u[finite]);
        last = set.mul_add(set.splat(self.near), set.sub(u[0], u[1]), last);
        if finite > 2 {
            first = set.add(first, set.add(u[2], u[3]));
            last = set.mul_add(set.splat(self.far), set.sub(u[2], u[3]), last);
        }
        [first, u[finite + 1], last]
    }
}
