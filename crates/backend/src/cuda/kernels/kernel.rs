//! A kernel as the host sees it: its name, its grid, and arguments with checked types and lengths.

use crate::Error;
use crate::cuda::driver::slice::{Element, Slice};

/// Threads per block in every kernel. No kernel uses dynamic shared memory.
pub const THREADS: u32 = 256;

/// Maximum number of blocks per multiprocessor. Every kernel loops over the remaining work.
const BLOCKS: u32 = 8;

/// Blocks per multiprocessor for large inputs of the kernels in columns.cuh: the number that can run on a
/// multiprocessor at the same time.
const RESIDENT: usize = 3;

/// Blocks per multiprocessor for small inputs, where a thread has fewer than `BATCH` rows.
const FEWEST: usize = 2;

/// Rows that a thread loads together (`OF_ONE` in norm.cu).
const BATCH: usize = 4;

/// A block, not a warp, sums each set with at least this number of values (`LARGE` in group_norm.cu).
const LARGE: usize = 4096;

/// Number of blocks of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// How the kernels of columns.cuh divide a (rows, channels) matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Channels per tile.
    pub width: usize,
    /// Number of tiles along the channels.
    pub tiles: usize,
    /// Number of parts along the rows.
    pub splits: usize,
}

impl Tiling {
    /// Returns the number of partial sums, with `each` sums per channel.
    pub fn parts(&self, each: usize) -> usize {
        each * self.width * self.tiles * self.splits
    }
}

/// Properties of the GPU and the precision that grids depend on.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub multiprocessors: u32,
    /// Bytes per activation.
    pub activation: usize,
}

impl Geometry {
    fn most(&self) -> usize {
        (self.multiprocessors * BLOCKS) as usize
    }

    pub fn one_block(&self) -> Grid {
        Grid { x: 1, y: 1, z: 1 }
    }

    /// Returns a grid with a block per item, but with at most `BLOCKS` blocks per multiprocessor.
    pub fn blocks(&self, items: usize) -> Grid {
        Grid { x: items.min(self.most()), y: 1, z: 1 }
    }

    /// Returns a grid with a thread per item, but with at most `BLOCKS` blocks per multiprocessor.
    pub fn threads(&self, items: usize) -> Grid {
        self.blocks(items.div_ceil(THREADS as usize))
    }

    /// Returns a grid for sets of `values` values that are summed: a block per large set, otherwise a warp per set.
    pub fn sets(&self, sets: usize, values: usize) -> Grid {
        if values >= LARGE { self.blocks(sets) } else { self.threads(32 * sets) }
    }

    /// Returns the number of channels in 16 bytes.
    pub fn widest(&self) -> usize {
        16 / self.activation
    }

    /// Returns the number of channels in 16 bytes if that divides `channels`, so that all accesses are 16 bytes wide.
    /// Otherwise returns 1.
    pub fn pack(&self, channels: usize) -> usize {
        let wide = self.widest();
        if channels.is_multiple_of(wide) { wide } else { 1 }
    }

    /// Partitions a (rows, channels) matrix. A tile is 128 bytes of a row, a full cache line. For a small matrix, the
    /// last block of a tile would then spend more time on adding the sums of the tile's blocks than on its rows. So a
    /// tile of a small matrix is 32 bytes, the smallest part of a cache line.
    pub fn tiling(&self, rows: usize, channels: usize) -> Tiling {
        let (pack, threads, gpus) = (self.pack(channels), THREADS as usize, self.multiprocessors as usize);
        let columns = channels.div_ceil(pack);
        let small = rows * columns < FEWEST * gpus * threads * BATCH;
        let bytes = if small { 32 } else { 128 };
        let tile = columns.clamp(1, bytes / (pack * self.activation));
        let (tiles, lines) = (columns.div_ceil(tile), threads / tile);
        let splits = match small {
            true => (FEWEST * gpus).div_ceil(tiles).min(rows.div_ceil(lines)),
            false => (RESIDENT * gpus / tiles).min(rows.div_ceil(lines * BATCH)),
        };
        Tiling { width: tile * pack, tiles, splits: splits.max(1) }
    }

    /// Returns a grid over a (rows, channels) matrix for the kernels of columns.cuh.
    pub fn columns(&self, rows: usize, channels: usize) -> Grid {
        let tiling = self.tiling(rows, channels);
        Grid { x: tiling.tiles, y: tiling.splits, z: 1 }
    }

    /// Partitions the rows if they are divided into `groups` groups. All groups run at the same time, so each uses
    /// fewer blocks: together they use the same number as a single matrix.
    pub fn group_tiling(&self, rows: usize, channels: usize, groups: usize) -> Tiling {
        let tiling = self.tiling(rows, channels);
        Tiling { splits: tiling.splits.div_ceil(groups), ..tiling }
    }

    /// Returns a grid for a (rows, channels) matrix that is divided into groups.
    pub fn groups(&self, rows: usize, channels: usize, groups: usize) -> Grid {
        let tiling = self.group_tiling(rows, channels, groups);
        Grid { x: tiling.tiles, y: tiling.splits, z: groups }
    }
}

/// A kernel with its arguments.
///
/// # Safety
/// `arguments` must return the arguments of the kernel `name`, in its order. If `check` succeeds, the kernel must not
/// access any element of a slice beyond those that `check` requires.
pub unsafe trait Kernel {
    /// Returns the kernel's name in the sources.
    fn name(&self) -> &'static str;
    /// Returns the grid for the kernel's sizes.
    fn grid(&self, geometry: &Geometry) -> Grid;
    /// Returns an error if a slice is shorter than the kernel needs.
    fn check(&self, grid: Grid) -> Result<(), Error>;
    /// Returns each argument's bits in the low bytes of a word.
    fn arguments(&self) -> Vec<u64>;
}

/// A type that kernels take as argument.
pub trait Argument: Copy {
    /// The kernels' name for this type. For a pointer, the name for the type of its target.
    #[cfg_attr(not(test), allow(dead_code))]
    const ELEMENT: &'static str;
    #[cfg_attr(not(test), allow(dead_code))]
    const POINTER: bool;

    fn bits(self) -> u64;

    /// Returns the value if this is a size, or how many elements a slice has.
    fn size(self) -> usize {
        0
    }

    /// Returns an error if a slice has fewer elements. `what` is used in the message.
    fn require(self, _elements: usize, _what: &str) -> Result<(), Error> {
        Ok(())
    }
}

/// Implements `Argument` for scalars: their bits, and their value as a size.
macro_rules! scalar {
    ($($type:ty: |$value:ident| $bits:expr, $size:expr;)*) => {$(
        impl Argument for $type {
            const ELEMENT: &'static str = <$type as Element>::NAME;
            const POINTER: bool = false;

            fn bits(self) -> u64 {
                let $value = self;
                $bits
            }

            fn size(self) -> usize {
                let $value = self;
                $size
            }
        }
    )*};
}

scalar! {
    i32: |v| u64::from(v as u32), v.max(0) as usize;
    u32: |v| u64::from(v), v as usize;
    u64: |v| v, v as usize;
    f32: |v| u64::from(v.to_bits()), v as usize;
    f64: |v| v.to_bits(), v as usize;
}

impl<T: Element> Argument for Slice<'_, T> {
    const ELEMENT: &'static str = T::NAME;
    const POINTER: bool = true;

    fn bits(self) -> u64 {
        self.address()
    }

    fn size(self) -> usize {
        self.len()
    }

    fn require(self, elements: usize, what: &str) -> Result<(), Error> {
        Slice::require(&self, elements, what)
    }
}

/// `None` is passed as a null pointer.
impl<T: Element> Argument for Option<Slice<'_, T>> {
    const ELEMENT: &'static str = T::NAME;
    const POINTER: bool = true;

    fn bits(self) -> u64 {
        self.map_or(0, |slice| slice.address())
    }

    fn size(self) -> usize {
        self.map_or(0, |slice| slice.len())
    }

    fn require(self, elements: usize, what: &str) -> Result<(), Error> {
        self.map_or(Ok(()), |slice| Slice::require(&slice, elements, what))
    }
}

/// Expands to a field's type (`type`), or to the number of elements that the field needs (`need`). `[T; n]` is a slice
/// of at least n elements, `(null or [T; n])` may be absent, and anything else is a scalar.
macro_rules! parameter {
    (type $life:lifetime [$type:ty; $len:expr]) => { $crate::cuda::driver::slice::Slice<$life, $type> };
    (type $life:lifetime (null or [$type:ty; $len:expr])) => {
        Option<$crate::cuda::driver::slice::Slice<$life, $type>>
    };
    (type $life:lifetime $type:ident) => { $type };
    (need [$type:ty; $len:expr]) => { $len };
    (need (null or [$type:ty; $len:expr])) => { $len };
    (need $type:ident) => { 0 };
}
pub(in crate::cuda) use parameter;

/// Declares kernels: the symbol in the sources, a struct with the arguments, and the grid. The arguments have the names
/// and the order of the parameters in the sources. The grid is a method of [`Geometry`], and `as grid` makes it
/// available to lengths. Lengths are expressions of the sizes among the arguments. Sizes in `given` are not arguments.
/// They describe lists whose elements say where a kernel reads and writes.
///
/// Also generates a test that compares the declarations with the sources.
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $symbol:ident: $name:ident over $rule:ident($($size:expr),*) $(as $grid:ident)?
        $(given($($given:ident),*))? {
            $($field:ident: $kind:tt),* $(,)?
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub struct $name<'a> {
                $(pub $field: $crate::cuda::kernels::kernel::parameter!(type 'a $kind),)*
                $($(pub $given: usize,)*)?
            }

            // SAFETY: names, types and order are those of the sources (checked by the test below), and each slice has
            // the elements that the kernel accesses for these sizes.
            unsafe impl $crate::cuda::kernels::kernel::Kernel for $name<'_> {
                fn name(&self) -> &'static str {
                    stringify!($symbol)
                }

                #[allow(unused_variables)]
                fn grid(
                    &self,
                    geometry: &$crate::cuda::kernels::kernel::Geometry,
                ) -> $crate::cuda::kernels::kernel::Grid {
                    use $crate::cuda::kernels::kernel::Argument;
                    $(let $field = self.$field.size();)*
                    geometry.$rule($($size),*)
                }

                #[allow(unused_variables)]
                fn check(
                    &self,
                    grid: $crate::cuda::kernels::kernel::Grid,
                ) -> Result<(), $crate::Error> {
                    use $crate::cuda::kernels::kernel::{Argument, parameter};
                    $(let $grid = grid;)?
                    $(let $field = self.$field.size();)*
                    $($(let $given = self.$given;)*)?
                    $(
                        let what = concat!("`", stringify!($field), "` of the kernel ", stringify!($symbol));
                        Argument::require(self.$field, parameter!(need $kind), what)?;
                    )*
                    Ok(())
                }

                fn arguments(&self) -> Vec<u64> {
                    vec![$($crate::cuda::kernels::kernel::Argument::bits(self.$field)),*]
                }
            }
        )*

        #[test]
        fn kernels_have_the_parameters_of_the_sources() {
            use $crate::cuda::kernels::kernel::{Argument, parameter};
            use $crate::cuda::kernels::signature::{Parameter, compare};
            $(
                compare(stringify!($symbol), &[$(Parameter {
                    name: stringify!($field),
                    element: <parameter!(type 'static $kind) as Argument>::ELEMENT,
                    pointer: <parameter!(type 'static $kind) as Argument>::POINTER,
                }),*]);
            )*
        }
    };
}
pub(in crate::cuda) use kernels;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_set_has_a_block_and_a_small_set_a_warp() {
        let geometry = Geometry { multiprocessors: 132, activation: 2 };
        // 32 images with 32 groups of two channels
        assert_eq!(geometry.sets(1024, 56 * 56 * 2), Grid { x: 1024, y: 1, z: 1 });
        assert_eq!(geometry.sets(1024, 7 * 7 * 2), Grid { x: 128, y: 1, z: 1 });
    }

    #[test]
    fn tiling_gives_every_multiprocessor_enough_blocks() {
        // an H200 with bf16
        let geometry = Geometry { multiprocessors: 132, activation: 2 };
        // ResNet-50, batch 256: a single wave of three blocks per multiprocessor, minus a few by rounding, and full
        // cache lines of 64 channels
        for (rows, channels) in
            [(3_211_264, 64), (802_816, 256), (200_704, 512), (50_176, 1024), (12_544, 512), (12_544, 2048)]
        {
            let tiling = geometry.tiling(rows, channels);
            assert_eq!(tiling.width, 64, "{rows} x {channels}");
            assert!((370..=396).contains(&(tiling.tiles * tiling.splits)), "{rows} x {channels}: {tiling:?}");
        }
        // ResNet-20, batch 128: two blocks per multiprocessor, or fewer if there are not enough rows
        for (rows, channels, blocks) in [(131_072, 16, 264), (32_768, 32, 264), (8_192, 64, 256)] {
            let tiling = geometry.tiling(rows, channels);
            assert_eq!((tiling.width, tiling.tiles * tiling.splits), (16, blocks), "{rows} x {channels}: {tiling:?}");
        }
        // the tiles cover any number of channels, and a block has at most as many sums as threads
        for (rows, channels, activation) in [(1, 1, 2), (7, 3, 4), (100_000, 37, 2), (9, 4096, 4), (65, 1001, 2)] {
            let tiling = Geometry { multiprocessors: 2, activation }.tiling(rows, channels);
            assert!(tiling.width * tiling.tiles >= channels && 2 * tiling.width <= THREADS as usize, "{tiling:?}");
            assert!(tiling.splits >= 1 && tiling.width * (tiling.tiles - 1) < channels, "{tiling:?}");
        }
    }
}
