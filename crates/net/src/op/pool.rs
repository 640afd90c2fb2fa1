//! Pooling: attributes, shapes, and the cells of each window.

use super::shape::{Shape, pads_text, same_padding, window_steps};
use super::spec::OpSpec;
use super::toml_keys::{Keys, OpFormat};

/// How a window is reduced to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest cell. Cells of padding are ignored.
    Max,
    /// The mean over the cells inside the image.
    Avg,
    /// The sum over the cells divided by the window size, which includes padding but not the cells beyond the padding
    /// that `ceil` adds.
    AvgCountPad,
}

/// Max or average pooling, with PyTorch's ceil mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub kind: PoolKind,
    /// Height and width of the window. `None` means the whole plane.
    pub window: Option<[usize; 2]>,
    /// Vertical and horizontal step of the window.
    pub stride: [usize; 2],
    /// Padding at top, left, bottom and right.
    pub pads: [usize; 4],
    /// True if the number of windows is rounded up. A window that would start beyond image and padding is dropped.
    pub ceil: bool,
    /// Fixed number of windows in each direction, independent of the input size. If set, window, stride and pads are
    /// ignored.
    pub bins: Option<[usize; 2]>,
}

/// A window along one axis: the cells [from, to) inside the image, and the divisor for `AvgCountPad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: usize,
    /// Index of the cell after the last one.
    pub to: usize,
    /// Number of cells including padding.
    pub padded: usize,
}

impl Pool {
    /// Creates a pool with a square window and no padding.
    pub fn new(kind: PoolKind, window: usize, stride: usize) -> Self {
        Self { kind, window: Some([window, window]), stride: [stride, stride], pads: [0; 4], ceil: false, bins: None }
    }

    /// Creates an average over the whole plane.
    pub fn global() -> Self {
        Self { kind: PoolKind::Avg, window: None, stride: [1, 1], pads: [0; 4], ceil: false, bins: None }
    }

    /// Creates averages over `bins` x `bins` areas that cover the plane. They overlap if `bins` does not divide its
    /// size (PyTorch's `AdaptiveAvgPool2d`).
    pub fn adaptive(bins: usize) -> Self {
        Self { bins: Some([bins, bins]), ..Self::global() }
    }

    /// Sets the padding at top, left, bottom and right.
    pub fn pads(mut self, pads: [usize; 4]) -> Self {
        self.pads = pads;
        self
    }

    /// Rounds the number of windows up.
    pub fn ceil(mut self) -> Self {
        self.ceil = true;
        self
    }

    /// Returns height and width of the window for this input.
    pub fn extent(&self, x: Shape) -> [usize; 2] {
        self.window.unwrap_or([x.h, x.w])
    }

    /// Returns the windows along the rows (`axis` 0) or the columns (1).
    pub fn windows(&self, x: Shape, axis: usize) -> Result<Vec<Window>, String> {
        let size = [x.h, x.w][axis];
        if let Some(bins) = self.bins.map(|bins| bins[axis]) {
            let stretch = |i: usize| (i * size / bins, ((i + 1) * size).div_ceil(bins));
            return Ok((0..bins).map(stretch).map(|(from, to)| Window { from, to, padded: to - from }).collect());
        }
        let (k, s) = (self.extent(x)[axis], self.stride[axis]);
        let (before, after) = (self.pads[axis], self.pads[axis + 2]);
        let extent = size + before + after;
        // with `ceil`, an incomplete last step counts too, so the last window may extend beyond image and padding
        let rest = if self.ceil { s.saturating_sub(1) } else { 0 };
        let Some(mut steps) = window_steps(extent + rest, k, s) else {
            let ([rows, columns], x, pads) = (self.extent(x), x.with_plane(), pads_text(self.pads));
            return Err(format!("a window of {rows}x{columns} does not fit into {x}{pads}"));
        };
        if before >= k || after >= k {
            let [rows, columns] = self.extent(x);
            return Err(format!(
                "pads {:?} (top, left, bottom, right) must be smaller than the window, {rows}x{columns}",
                self.pads
            ));
        }
        if (steps - 1) * s >= size + before {
            steps -= 1;
        }
        Ok((0..steps)
            .map(|i| {
                let start = i * s;
                let end = (start + k).min(extent);
                let from = start.saturating_sub(before);
                Window { from, to: end.saturating_sub(before).min(size), padded: end - start }
            })
            .collect())
    }
}

impl OpSpec for Pool {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        let rows = self.windows(x[0], 0)?.len();
        let columns = self.windows(x[0], 1)?.len();
        Ok(Shape::image(x[0].c, rows, columns))
    }
}

impl OpFormat for Pool {
    const WORDS: &'static [&'static str] = &["maxpool", "avgpool"];

    fn kind(&self) -> &'static str {
        match self.kind {
            PoolKind::Max => "maxpool",
            PoolKind::Avg | PoolKind::AvgCountPad => "avgpool",
        }
    }

    fn cure(&self, inputs: &[Shape]) -> &'static str {
        let [x] = *inputs else { return "" };
        let [rows, columns] = self.extent(x);
        let [top, left, bottom, right] = self.pads;
        match top.max(bottom) >= rows || left.max(right) >= columns {
            true => "try a smaller pad or a larger window",
            false => "try a smaller window or a larger pad, or remove window to pool the whole plane",
        }
    }

    fn plain(word: &str) -> Self {
        let kind = if word == "maxpool" { PoolKind::Max } else { PoolKind::Avg };
        Self { kind, ..Self::global() }
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { kind, window, stride, pads, ceil, bins } = self;
        keys.key("window", window);
        keys.key("bins", bins);
        keys.refuse(
            "bins",
            window.is_some() && bins.is_some(),
            "cannot be combined with window: bins sets the number of windows, and their size follows from it",
        );
        let bare = window.is_none();
        if bare {
            keys.key("stride", stride);
            keys.refuse("stride", *stride != [1, 1], "needs a window");
        } else {
            keys.needed("stride", stride);
        }
        let (input, span, step) = (keys.input(), window.unwrap_or([1, 1]), *stride);
        keys.pads(pads, || same_padding(input, span, step));
        keys.key("ceil", ceil);
        keys.refuse("pad", bare && *pads != [0; 4], "needs a window");
        keys.refuse("ceil", bare && *ceil, "needs a window");
        if *kind != PoolKind::Max {
            let mut counts = *kind == PoolKind::AvgCountPad;
            keys.key("count_pad", &mut counts);
            *kind = if counts { PoolKind::AvgCountPad } else { PoolKind::Avg };
        }
    }
}
