//! Windows of pools and convolutions with explicit padding on all four sides, which every format can say.

use net::{Pool, PoolKind, Shape, same_pads};

/// A window with its padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Padded {
    /// Height, width.
    pub window: [usize; 2],
    /// Vertical, horizontal step.
    pub stride: [usize; 2],
    /// At top, left, bottom, right: with what rounding the number of windows up adds.
    pub pads: [usize; 4],
}

/// How a pool reads its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// The whole plane.
    All,
    /// Windows of one size.
    Equal(Padded),
    /// So many stretches down and across that they differ in size.
    Bins([usize; 2]),
}

/// How `pool` reads an input of shape `x` and makes `y`.
///
/// # Errors
/// For padding that counts in averages, and windows that reach beyond it.
pub(super) fn windows(pool: &Pool, x: Shape, y: Shape) -> Result<Windows, String> {
    let Pool { kind, window, stride, pads, ceil: _, bins } = pool;
    let (from, to) = ([x.h, x.w], [y.h, y.w]);
    let Some(window) = window.filter(|_| bins.is_none()) else {
        return Ok(match bins {
            Some([1, 1]) | None => Windows::All,
            Some(_) if from[0].is_multiple_of(to[0]) && from[1].is_multiple_of(to[1]) => {
                let window = [from[0] / to[0], from[1] / to[1]];
                Windows::Equal(Padded { window, stride: window, pads: [0; 4] })
            }
            Some(bins) => Windows::Bins(*bins),
        });
    };
    let mut all = *pads;
    for axis in [0, 1] {
        let reach = (to[axis] - 1) * stride[axis] + window[axis];
        let beyond = reach.saturating_sub(from[axis] + pads[axis] + pads[axis + 2]);
        if beyond > 0 && *kind == PoolKind::AvgCountPad {
            return Err("it averages over padding, and its last window reaches beyond it".into());
        }
        all[axis + 2] += beyond;
    }
    Ok(Windows::Equal(Padded { window, stride: *stride, pads: all }))
}

impl Padded {
    /// Whether this is TensorFlow's SAME for an input of shape `x`.
    pub fn is_same(&self, x: Shape) -> bool {
        let (top, bottom) = same_pads(x.h, self.window[0], self.stride[0]);
        let (left, right) = same_pads(x.w, self.window[1], self.stride[1]);
        self.pads == [top, left, bottom, right]
    }

    /// Whether both ends of each direction have the same padding, at most half the window.
    pub fn is_even(&self) -> bool {
        let [top, left, bottom, right] = self.pads;
        top == bottom && left == right && 2 * top <= self.window[0] && 2 * left <= self.window[1]
    }

    /// Whether there is no padding.
    pub fn is_bare(&self) -> bool {
        self.pads == [0; 4]
    }
}
