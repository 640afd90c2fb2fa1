//! What a kernel is to the host: its name, its grid, and arguments whose types and lengths are checked.

use crate::Error;
use crate::cuda::driver::slice::{Element, Slice};

/// Threads of a block, in every kernel. None takes dynamic shared memory.
pub const THREADS: u32 = 256;

/// Blocks of a grid for each multiprocessor; every kernel loops over what is left.
const BLOCKS: u32 = 8;

/// Blocks of a grid for each multiprocessor where a kernel of columns.cuh has much to do: as many as run there at once.
const RESIDENT: usize = 3;

/// The same where there is little: each thread then has fewer rows than one batch.
const FEWEST: usize = 2;

/// Rows of a thread that are loaded together (`OF_ONE` of norm.cu).
const BATCH: usize = 4;

/// Blocks of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub x: usize,
    pub y: usize,
}

/// How the kernels of columns.cuh cut a matrix (rows, channels).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Channels of a tile.
    pub width: usize,
    /// Tiles over the channels.
    pub tiles: usize,
    /// Parts of the rows.
    pub splits: usize,
}

impl Tiling {
    /// Parts of sums, `each` sums a channel.
    pub fn parts(&self, each: usize) -> usize {
        each * self.width * self.tiles * self.splits
    }
}

/// What grids depend on beside sizes.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Multiprocessors of the GPU.
    pub multiprocessors: u32,
    /// Bytes of an activation.
    pub activation: usize,
}

impl Geometry {
    fn most(&self) -> usize {
        (self.multiprocessors * BLOCKS) as usize
    }

    /// One block.
    pub fn one_block(&self) -> Grid {
        Grid { x: 1, y: 1 }
    }

    /// A block for each of so many items.
    pub fn blocks(&self, items: usize) -> Grid {
        Grid { x: items.min(self.most()), y: 1 }
    }

    /// A thread for each of so many items.
    pub fn threads(&self, items: usize) -> Grid {
        self.blocks(items.div_ceil(THREADS as usize))
    }

    /// Channels of 16 bytes.
    pub fn widest(&self) -> usize {
        16 / self.activation
    }

    /// Channels of 16 bytes where all accesses can be as wide, else one.
    pub fn pack(&self, channels: usize) -> usize {
        let wide = self.widest();
        if channels.is_multiple_of(wide) { wide } else { 1 }
    }

    /// How a matrix (rows, channels) is cut. A tile is 128 bytes of a row, a whole line of the cache; 32 bytes, its smallest part,
    /// where the matrix is so small that each block's sums, of which the last block adds a tile's, take longer than its rows.
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

    /// A grid over a matrix (rows, channels) for the kernels of columns.cuh.
    pub fn columns(&self, rows: usize, channels: usize) -> Grid {
        let tiling = self.tiling(rows, channels);
        Grid { x: tiling.tiles, y: tiling.splits }
    }
}

/// A kernel with its arguments.
///
/// # Safety
/// `arguments` must be those of the kernel `name`, in its order, and where `check` succeeds, the kernel must touch no element of a
/// slice beyond those that `check` requires.
pub unsafe trait Kernel {
    /// Its name in the sources.
    fn name(&self) -> &'static str;
    /// The grid for its sizes.
    fn grid(&self, geometry: &Geometry) -> Grid;
    /// Fails where a slice is shorter than the kernel needs.
    fn check(&self, grid: Grid) -> Result<(), Error>;
    /// The bits of every argument, in the lower bytes of a word.
    fn arguments(&self) -> Vec<u64>;
}

/// A type of arguments.
pub trait Argument: Copy {
    /// The kernels' name of its type, or of what it points to; and whether it points.
    #[cfg_attr(not(test), allow(dead_code))]
    const ELEMENT: &'static str;
    #[cfg_attr(not(test), allow(dead_code))]
    const POINTER: bool;

    /// Its bits.
    fn bits(self) -> u64;

    /// A size, where it is one; the elements of a slice.
    fn size(self) -> usize {
        0
    }

    /// Fails where it has fewer elements than that; `what` is for the message.
    fn require(self, _elements: usize, _what: &str) -> Result<(), Error> {
        Ok(())
    }
}

/// Scalars: how they become bits, and a size.
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

/// None is the null pointer.
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

/// The type of a field, or the elements that it needs. `[T; n]` is a slice of at least n elements, `(null or [T; n])` may be absent,
/// anything else is a scalar.
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

/// Declares kernels: the symbol in the sources, the struct of its arguments under the names and in the order of the sources' parameters,
/// and the grid (a method of [`Geometry`], `as grid` where lengths depend on it). Lengths are expressions of the sizes among the
/// arguments; sizes in `given` are no arguments, but properties of lists whose elements say where a kernel reads and writes.
///
/// It also makes a test that compares the declarations with the sources.
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

            // SAFETY: names, types and order are those of the sources (see the test below), and each slice has the elements
            // that the kernel of this name indexes for these sizes.
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
    fn every_multiprocessor_has_its_blocks() {
        // an H200, bf16
        let geometry = Geometry { multiprocessors: 132, activation: 2 };
        // ResNet-50, batch 256: one wave of three blocks, of which rounding may leave out a few; whole lines of 64 channels
        for (rows, channels) in
            [(3_211_264, 64), (802_816, 256), (200_704, 512), (50_176, 1024), (12_544, 512), (12_544, 2048)]
        {
            let tiling = geometry.tiling(rows, channels);
            assert_eq!(tiling.width, 64, "{rows} x {channels}");
            assert!((370..=396).contains(&(tiling.tiles * tiling.splits)), "{rows} x {channels}: {tiling:?}");
        }
        // ResNet-20, batch 128: two blocks each, or as many as there are rows for
        for (rows, channels, blocks) in [(131_072, 16, 264), (32_768, 32, 264), (8_192, 64, 256)] {
            let tiling = geometry.tiling(rows, channels);
            assert_eq!((tiling.width, tiling.tiles * tiling.splits), (16, blocks), "{rows} x {channels}: {tiling:?}");
        }
        // all channels are in a tile, whatever their number, and a block's sums are no more than its threads
        for (rows, channels, activation) in [(1, 1, 2), (7, 3, 4), (100_000, 37, 2), (9, 4096, 4), (65, 1001, 2)] {
            let tiling = Geometry { multiprocessors: 2, activation }.tiling(rows, channels);
            assert!(tiling.width * tiling.tiles >= channels && 2 * tiling.width <= THREADS as usize, "{tiling:?}");
            assert!(tiling.splits >= 1 && tiling.width * (tiling.tiles - 1) < channels, "{tiling:?}");
        }
    }
}
