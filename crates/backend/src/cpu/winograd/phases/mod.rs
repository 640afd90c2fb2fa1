//! 3x3 convolutions at stride 2 with minimal filtering of phases: the odd and the even pixels. Along an axis y[i] =
//! x[2i - 1] w[0] + x[2i] w[1] + x[2i + 1] w[2]. The odd pixels are convolved with two taps at stride 1, the even
//! pixels with one. So s outputs need s + 1 products for the odd pixels and s for the even ones, instead of 3 s. A tile
//! of 2 x 4 outputs needs 45 products instead of 72, which is 1.6 times fewer, in all three passes.
//!
//! Both phases have the same points, so their products are added in the same 3 x 5 cells. Smaller tiles at the lower
//! and right edge use fewer points of the same filters, so nothing is computed outside the image.

pub mod grid;
mod many_channels;
mod passes;
mod transform;

use std::rc::Rc;

use grid::{FILTERS, LINE, LINES, TILE_COLUMNS};
use many_channels::ManyChannels;
use net::{Conv, Shape};
use passes::{Convolution, Direction};

use super::super::buf::{AlignedBuf, Scratch};
use super::super::device::Cpu;
use super::super::layout::Format;
use super::super::threads::Threads;
use super::super::vector::Vectors;
use super::filters::Filters;
use super::many_channels as many;
use super::outputs::{BiasRelu, Finish};
use super::passes::{Correlation, strip_len};
use super::strip::{padded, tiles};
use super::transform::PassInput;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// A convolution planned for a fixed batch size.
pub struct Plan<S: Vectors> {
    set: S,
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
    bias_relu: BiasRelu,
    wants_dx: bool,
    /// Number of tiles per strip. A thread takes a strip through all stages before it begins the next.
    strip: usize,
    /// True if threads divide the output channels, false if they divide the samples.
    many_channels: bool,
    /// Workspace for a pass: the transformed filters or each thread's gradient of them, then each thread's transformed
    /// inputs and outputs of a strip. Other operations use the same memory.
    scratch: Rc<Scratch>,
}

impl<S: Vectors> Plan<S> {
    /// Plans all passes. The weights are in plain order.
    pub fn new(set: S, cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Result<Self, Error> {
        let x = r.x[0];
        let (h, w) = (x.shape.h.div_ceil(2), x.shape.w.div_ceil(2));
        let y = TensorDesc { shape: Shape { c: op.out_channels, h, w }, ..x };
        let (threads, ci, co) = (cpu.threads, padded(x.shape.c), padded(op.out_channels));
        let (many_channels, all) = (many::suits(ci, co, many::MOST_CHANNELS, threads), x.n * tiles(&y, TILE_COLUMNS));
        let strip = if many_channels {
            many::strip_len(S::ROWS, all.min(many_channels::TILES), threads)
        } else {
            strip_len([32, 64], S::ROWS, ci, co, tiles(&y, TILE_COLUMNS) * x.n.div_ceil(threads.0))
        };
        let bias_relu = BiasRelu::new(cpu, r, op, y);
        let scratch = cpu.scratch.clone();
        let plan = Self { set, threads, x, y, bias_relu, wants_dx: r.wants_dx, strip, many_channels, scratch };
        let grids = if r.train { threads.0 } else { 1 };
        let room = if many_channels {
            many_channels::workspace::<S>([ci, co], (strip, all), threads)
        } else {
            plan.grid() * grids + passes::workspace::<S>([ci, co], strip) * threads.0
        };
        plan.scratch.reserve(room, r.name)?;
        Ok(plan)
    }

    /// Returns the padded numbers of input and output channels.
    fn channels(&self) -> [usize; 2] {
        [padded(self.x.shape.c), padded(self.y.shape.c)]
    }

    /// Returns the number of floats of the transformed filters.
    fn grid(&self) -> usize {
        FILTERS * self.channels().into_iter().product::<usize>()
    }

    /// Computes y from x, or dx from dy, with the plain filters `w`.
    fn convolve(&self, direction: Direction, from: PassInput<'_>, w: &[f32], finish: Finish<'_>, y: &mut [f32]) {
        let (set, threads, strip) = (self.set, self.threads, self.strip);
        let (ci, co) = (self.x.shape.c, self.y.shape.c);
        let (to, filters) = match direction {
            Direction::Forward => (&self.y, Filters::forward::<LINES>(ci, co)),
            Direction::Backward => (&self.x, Filters::rotated::<LINES>(ci, co)),
        };
        let filters = filters.of_phases();
        let (mut scratch, y) = (self.scratch.borrow(), &mut y[..to.elems()]);
        if self.many_channels {
            let many_channels = ManyChannels { set, threads, direction, from, filters, strip };
            return many_channels.convolve(to, w, finish, scratch.as_mut_slice(), y);
        }
        let (grid, workspace) = scratch.as_mut_slice().split_at_mut(self.grid());
        filters.transform::<S, LINES, LINE, TILE_COLUMNS>(set, threads, w, grid);
        let workspace = &mut workspace[..passes::workspace::<S>(self.channels(), strip) * threads.0];
        Convolution { direction, from, to, filters: grid, strip, finish }.run(set, threads, workspace, y);
    }

    /// Computes the gradient of the plain filters.
    fn correlate(&self, x: PassInput<'_>, dy: PassInput<'_>, dw: &mut [f32]) {
        let (set, threads, strip) = (self.set, self.threads, self.strip);
        let filters = Filters::forward::<LINES>(self.x.shape.c, self.y.shape.c).of_phases();
        let mut scratch = self.scratch.borrow();
        if self.many_channels {
            let many_channels = ManyChannels { set, threads, direction: Direction::Forward, from: x, filters, strip };
            return many_channels.correlate(dy, scratch.as_mut_slice(), dw);
        }
        let (grids, workspace) = scratch.as_mut_slice().split_at_mut(self.grid() * threads.0);
        let workspace = &mut workspace[..passes::workspace::<S>(self.channels(), strip) * threads.0];
        passes::correlate(Correlation { x, dy, strip }, set, threads, workspace, grids);
        filters.gradient::<S, LINES, LINE, TILE_COLUMNS>(set, threads, grids, dw);
    }
}

impl<S: Vectors> Planned<Cpu> for Plan<S> {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        self.bias_relu.formats(self.x.shape.c, 9)
    }

    fn state_bytes(&self) -> usize {
        self.bias_relu.bytes()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps { inputs: 1, output: self.bias_relu.relu.reads_output() }
    }

    fn implementation(&self) -> String {
        "own winograd".into()
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        self.bias_relu.take(pass);
        let finish = Finish { bias: self.bias_relu.bias(), relu: self.bias_relu.relu.is_present(), ..Finish::PLAIN };
        let from = PassInput::new(self.x, x[0].as_slice());
        self.convolve(Direction::Forward, from, pass.params.get(pass.slots[0]), finish, y.as_mut_slice());
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let wanted = g.take_dx(0);
        self.bias_relu.mask(g.dy, g.y);
        let (x, dy) = (g.x[0].as_slice(), PassInput::new(self.y, g.dy.as_slice()));
        if !pass.frozen {
            self.correlate(PassInput::new(self.x, x), dy, g.dparams.get_mut(pass.slots[0]));
            self.bias_relu.gradient(pass, dy.data, g.dparams);
        }
        let (Some(dx), true) = (wanted, self.wants_dx) else { return Ok(()) };
        let finish = Finish::PLAIN;
        self.convolve(Direction::Backward, dy, pass.params.get(pass.slots[0]), finish, dx.as_mut_slice());
        Ok(())
    }
}
