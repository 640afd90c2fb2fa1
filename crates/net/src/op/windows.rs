//! How attention divides a plane into windows.

/// The windows of a plane. A position in a window is called a cell. Windows and cells are numbered row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    plane: [usize; 2],
    /// Rows and columns of the plane that are not padding.
    kept: [usize; 2],
    size: [usize; 2],
    /// Number of windows along each axis.
    counts: [usize; 2],
    shift: [usize; 2],
    grid: bool,
}

impl Windows {
    /// Divides `plane` (rows, columns) into windows of `size`, which must divide it. See [`Attention`](super::Attention)
    /// for `shift` and `grid`.
    pub(super) fn new(plane: [usize; 2], kept: [usize; 2], size: [usize; 2], shift: [usize; 2], grid: bool) -> Self {
        let counts = [0, 1].map(|axis| plane[axis] / size[axis].max(1));
        let shift = [0, 1].map(|axis| if size[axis] >= plane[axis] { 0 } else { shift[axis] });
        Self { plane, kept, size, counts, shift, grid }
    }

    /// Returns the number of windows.
    pub fn count(&self) -> usize {
        self.counts[0] * self.counts[1]
    }

    /// Returns the number of cells in a window.
    pub fn area(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// Returns row and column of a cell in the plane.
    fn place(&self, window: usize, cell: usize) -> [usize; 2] {
        let (window, cell) = (split(window, self.counts[1]), split(cell, self.size[1]));
        [0, 1].map(|axis| match self.grid {
            true => cell[axis] * self.counts[axis] + window[axis],
            false => (window[axis] * self.size[axis] + cell[axis] + self.shift[axis]) % self.plane[axis],
        })
    }

    /// Returns the position of a cell in the input's plane.
    pub fn input(&self, window: usize, cell: usize) -> usize {
        let [row, column] = self.place(window, cell);
        row * self.plane[1] + column
    }

    /// Returns the position of a cell in the output's plane, or `None` if it is padding.
    pub fn output(&self, window: usize, cell: usize) -> Option<usize> {
        let [row, column] = self.place(window, cell);
        (row < self.kept[0] && column < self.kept[1]).then_some(row * self.kept[1] + column)
    }

    /// Returns which part of the window a cell belongs to. Cells of different parts come from opposite sides of the
    /// plane, so that they are masked. A window that does not cross the plane's edge has a single part, 0.
    pub fn part(&self, window: usize, cell: usize) -> usize {
        let (window, cell) = (split(window, self.counts[1]), split(cell, self.size[1]));
        let crosses = |axis: usize| {
            let last = self.shift[axis] > 0 && window[axis] + 1 == self.counts[axis];
            usize::from(last && cell[axis] >= self.size[axis] - self.shift[axis])
        };
        2 * crosses(0) + crosses(1)
    }

    /// Returns the number of differences between two cells of a window.
    pub fn differences(&self) -> usize {
        self.size.iter().map(|size| 2 * size - 1).product()
    }

    /// Returns the index of the difference between a query's and a key's cell.
    pub fn difference(&self, query: usize, key: usize) -> usize {
        let (query, key) = (split(query, self.size[1]), split(key, self.size[1]));
        let [rows, columns] = [0, 1].map(|axis| query[axis] + self.size[axis] - 1 - key[axis]);
        rows * (2 * self.size[1] - 1) + columns
    }

    /// Returns each difference on a logarithmic scale: sign(d) log2(|d| + 1) / 3, where d is the number of rows (or
    /// columns), scaled such that the largest one is 8. Computed in f32, as in torchvision.
    pub fn coordinates(&self) -> Vec<[f32; 2]> {
        let coordinate = |axis: usize, index: usize| {
            let most = self.size[axis] as f32 - 1.0;
            let d = (index as f32 - most) / most * 8.0;
            (d.abs() + 1.0).log2() / 3.0 * d.signum()
        };
        let columns = 2 * self.size[1] - 1;
        (0..self.differences()).map(|i| [coordinate(0, i / columns), coordinate(1, i % columns)]).collect()
    }

    /// Returns the width of a window.
    pub fn width(&self) -> usize {
        self.size[1]
    }

    /// Returns the height of a window.
    pub fn height(&self) -> usize {
        self.size[0]
    }
}

/// Returns row and column of a number in rows of `width`.
fn split(number: usize, width: usize) -> [usize; 2] {
    [number / width.max(1), number % width.max(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every position belongs to exactly one cell, for each way to divide a plane.
    #[test]
    fn every_position_belongs_to_exactly_one_window_cell() {
        for (size, shift, grid) in
            [([2, 3], [0, 0], false), ([2, 3], [1, 1], false), ([4, 3], [3, 2], false), ([2, 3], [0, 0], true)]
        {
            let windows = Windows::new([4, 6], [3, 6], size, shift, grid);
            let all = || (0..windows.count()).flat_map(|window| (0..windows.area()).map(move |cell| (window, cell)));
            let mut inputs: Vec<usize> = all().map(|(window, cell)| windows.input(window, cell)).collect();
            let mut outputs: Vec<usize> = all().filter_map(|(window, cell)| windows.output(window, cell)).collect();
            inputs.sort_unstable();
            outputs.sort_unstable();
            assert_eq!(inputs, (0..24).collect::<Vec<_>>());
            assert_eq!(outputs, (0..18).collect::<Vec<_>>());
        }
    }

    /// Shifted windows at the edge have parts, others have not. Along an axis where the window spans the plane, there is
    /// no shift.
    #[test]
    fn only_windows_across_an_edge_have_parts() {
        let parts =
            |windows: Windows, window| (0..windows.area()).map(|cell| windows.part(window, cell)).collect::<Vec<_>>();
        let windows = Windows::new([4, 4], [4, 4], [2, 2], [1, 1], false);
        assert_eq!(
            [0, 1, 2, 3].map(|window| parts(windows, window)),
            [[0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 2, 2], [0, 1, 2, 3]]
        );
        assert_eq!(windows.input(3, 3), 0);
        let wide = Windows::new([4, 2], [4, 2], [2, 2], [1, 1], false);
        assert_eq!([0, 1].map(|window| parts(wide, window)), [[0, 0, 0, 0], [0, 0, 2, 2]]);
        assert_eq!(wide.input(1, 3), 1);
        let grid = Windows::new([4, 4], [4, 4], [2, 2], [0, 0], true);
        assert_eq!([0, 1, 2, 3].map(|cell| grid.input(1, cell)), [1, 3, 9, 11]);
    }
}
