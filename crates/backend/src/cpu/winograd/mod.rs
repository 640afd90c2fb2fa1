//! 3x3 and 5x5 convolutions at stride 1 with Winograd's minimal filtering (Lavin and Gray 2015, arXiv 1509.09308,
//! section 4). F(2x4, 3x3) and F(2x2, 5x5) need 3 and 2.78 times fewer multiplications than the direct form, in all
//! three passes.
//!
//! An image is divided into tiles of 2 x M outputs, which read A x B inputs: M = 4, A = 4, B = 6 for 3x3 kernels, M =
//! 2, A = B = 6 for 5x5 kernels. Tiles and filters are transformed to a grid of A x B values (A lines of B places). At
//! each place of the grid, the product over the channels is a matrix product. Inputs, outputs and gradients stay in
//! channel blocks of a register's length: 8 with AVX2, 16 with AVX-512. [`phases`] computes 3x3 convolutions at stride
//! 2.

mod outputs;
mod strip;

mod filters;
mod folded;
mod many_channels;
mod passes;
mod phases;
mod transform;

use std::cell::Ref;
use std::rc::Rc;

use filters::Filters;
use many_channels::ManyChannels;
use net::Conv;
use outputs::{BiasRelu, Convolution, Finish, NormGradient};
use passes::{Correlation, strip_len};
use strip::{Order, padded, tiles};
use transform::{InputNorm, PassInput};

use super::buf::{AlignedBuf, Scratch};
use super::device::Cpu;
use super::fusion::{Constants, FusedNorm};
use super::layout::Format;
use super::moments::{Moments, OutputMoments};
use super::threads::Threads;
use super::vector::{Eight, Sixteen, Vectors};
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// A convolution planned for a fixed batch size. Transformed tiles have A x B values, and tiles have 2 x M outputs.
struct Plan<S: Vectors, const A: usize, const B: usize, const M: usize> {
    set: S,
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
    /// Rows and columns of zeros around the images.
    pad: usize,
    bias_relu: BiasRelu,
    wants_dx: bool,
    /// Number of tiles per strip. A thread takes a strip through all stages before it begins the next.
    strip: usize,
    /// Number of tiles per strip if threads divide the output channels instead of the samples: for convolutions (y from
    /// x, dx from dy), and for the filter gradient. `None` if they divide the samples.
    many_channels: [Option<usize>; 2],
    /// The previous batch norm, if this convolution computes it.
    norm: Option<Rc<FusedNorm>>,
    /// The moments of the output for the next batch norm, which may request them.
    moments: Option<Rc<OutputMoments>>,
    /// Workspace for a pass: the transformed filters or each thread's gradient of them, then each thread's transformed
    /// inputs and outputs of a strip. Other operations use the same memory.
    scratch: Rc<Scratch>,
}

/// Returns true if these kernels support the convolution. They need channel blocks of a register's length. They also
/// need f32, because bf16 would round the transformed values.
pub(super) fn fits(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> bool {
    let [k, pad] = [op.kernel[0], op.pads[0]];
    let square = op.kernel == [k; 2] && op.pads == [pad; 4] && op.dilation == [1, 1] && op.groups == 1;
    let has_grid = match op.stride {
        [1, 1] => k == 3 && pad < k || [k, pad] == [5, 2],
        [2, 2] => [k, pad] == [3, 1],
        _ => false,
    };
    square && has_grid && cpu.bf16.is_none() && r.x[0].block == cpu.block && cpu.isa.has_fma()
}

/// Plans a convolution that [`fits`], with the tile size for its kernel.
pub(super) fn plan(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Option<Result<Box<dyn Planned<Cpu>>, Error>> {
    match cpu.block {
        Eight::LANES => on(Eight::detect()?, cpu, r, op),
        _ => on(Sixteen::detect()?, cpu, r, op),
    }
}

fn on<S: Vectors + 'static>(
    set: S,
    cpu: &Cpu,
    r: &PlanRequest<'_, Cpu>,
    op: &Conv,
) -> Option<Result<Box<dyn Planned<Cpu>>, Error>> {
    match op.kernel[0] {
        3 if op.stride == [2, 2] => Some(phases::Plan::new(set, cpu, r, op).map(|p| Box::new(p) as _)),
        3 => Some(Plan::<S, 4, 6, 4>::new(set, cpu, r, op).map(|p| Box::new(p) as _)),
        5 => Some(Plan::<S, 6, 6, 2>::new(set, cpu, r, op).map(|p| Box::new(p) as _)),
        _ => None,
    }
}

impl<S: Vectors, const A: usize, const B: usize, const M: usize> Plan<S, A, B, M> {
    /// Plans all passes. The weights are in plain order.
    fn new(set: S, cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Result<Self, Error> {
        let x = r.x[0];
        let y = x.with_shape(r.output()?);
        let (threads, ci, co) = (cpu.threads, padded(x.shape.c), padded(op.out_channels));
        // Without padding, the input has more tiles than the output, and the input gradient is computed for the input's
        // tiles.
        let all = tiles(&y, M).max(tiles(&x, M));
        let strip =
            strip_len(if A == 4 { [32, 256] } else { [12, 128] }, S::ROWS, ci, co, all * x.n.div_ceil(threads.0));
        let many_channels = [many_channels::MOST_CHANNELS, many_channels::max_gradient_channels(threads)].map(|most| {
            many_channels::suits(ci, co, most, threads).then(|| many_channels::strip_len(S::ROWS, all * x.n, threads))
        });
        let bias_relu = BiasRelu::new(cpu, r, op, y);
        let norm = r.input_fusion.and_then(|fusion| fusion.norm.get().cloned());
        norm.iter().for_each(|norm| norm.accept(r.name));
        let moments = r.output_fusion.filter(|_| cpu.fuses).map(|fusion| {
            let moments = fusion.moments.get_or_init(|| Rc::new(OutputMoments::new(r.name)));
            Rc::clone(moments)
        });
        let (wants_dx, scratch) = (r.wants_dx, cpu.scratch.clone());
        let pad = op.pads[0];
        let plan = Self { set, threads, x, y, pad, bias_relu, wants_dx, strip, many_channels, norm, moments, scratch };
        let grids = [Some(1), r.train.then_some(threads.0)];
        let rooms = plan.many_channels.into_iter().zip(grids).filter_map(|(strip, grids)| Some((strip, grids?)));
        for (strip, grids) in rooms {
            let by_samples = || plan.grid() * grids + plan.workspace() * threads.0;
            let floats = strip.map_or_else(by_samples, |strip| plan.many_channels_workspace(strip));
            plan.scratch.reserve(floats, r.name)?;
        }
        Ok(plan)
    }

    /// Returns the padded numbers of input and output channels.
    fn channels(&self) -> (usize, usize) {
        (padded(self.x.shape.c), padded(self.y.shape.c))
    }

    /// Returns the number of floats of the transformed filters.
    fn grid(&self) -> usize {
        let (ci, co) = self.channels();
        A * B * ci * co
    }

    /// Returns how many floats a thread needs for a strip's inputs and outputs, in any pass.
    fn workspace(&self) -> usize {
        let (ci, co) = self.channels();
        let place = |channels| Order::by_place::<S>(channels, self.strip, M).place;
        let folded =
            folded::suits::<S>(A, ci, co).then(|| folded::workspace::<S>(ci, co).max(folded::workspace::<S>(co, ci)));
        (A * B * (place(ci) + place(co))).max(folded.unwrap_or(0))
    }

    /// Returns the workspace of all threads in floats if they divide the output channels. `strip` is the number of
    /// tiles per strip.
    fn many_channels_workspace(&self, strip: usize) -> usize {
        let ((ci, co), tiles) = (self.channels(), self.x.n * tiles(&self.y, M).max(tiles(&self.x, M)));
        many_channels::workspace::<S>(A * B, [ci, co], (strip, tiles), M, self.threads)
    }

    /// Computes y from x, or dx from dy, with the plain filters `w`.
    fn convolve(
        &self,
        from: PassInput<'_>,
        to: TensorDesc,
        (filters, w): (Filters, &[f32]),
        finish: Finish<'_>,
        y: &mut [f32],
        (moments, sums): (&mut [Moments], &mut [f64]),
    ) {
        let (set, threads, strip) = (self.set, self.threads, self.strip);
        let (mut scratch, y) = (self.scratch.borrow(), &mut y[..to.elems()]);
        if let Some(strip) = self.many_channels[0] {
            let many_channels = ManyChannels { set, threads, from, filters, strip };
            return many_channels.convolve::<A, B, M>(&to, w, finish, scratch.as_mut_slice(), (y, moments, sums));
        }
        let (grid, workspace) = scratch.as_mut_slice().split_at_mut(self.grid());
        filters.transform::<S, A, B, M>(set, threads, w, grid);
        let convolution = Convolution { from, to, filters: grid, strip, finish };
        let workspace = &mut workspace[..self.workspace() * threads.0];
        convolution.run::<S, A, B, M>(set, threads, workspace, y, (moments, sums));
    }

    /// Computes the gradient of the plain filters.
    fn correlate(&self, x: PassInput<'_>, dy: PassInput<'_>, dw: &mut [f32]) {
        let (set, threads, strip) = (self.set, self.threads, self.strip);
        let filters = Filters::forward::<A>(self.x.shape.c, self.y.shape.c);
        let mut scratch = self.scratch.borrow();
        if let Some(strip) = self.many_channels[1] {
            let many_channels = ManyChannels { set, threads, from: x, filters, strip };
            return many_channels.correlate::<A, B, M>(dy, scratch.as_mut_slice(), dw);
        }
        let (grids, workspace) = scratch.as_mut_slice().split_at_mut(self.grid() * threads.0);
        let correlation = Correlation { x, dy, strip };
        correlation.run::<S, A, B, M>(set, threads, &mut workspace[..self.workspace() * threads.0], grids);
        filters.gradient::<S, A, B, M>(set, threads, grids, dw);
    }

    /// Returns the moments if the next batch norm has requested them.
    fn requested_moments(&self) -> Option<&OutputMoments> {
        self.moments.as_deref().filter(|moments| moments.are_requested())
    }

    /// Describes how to compute the inputs from the input of the previous batch norm, if this convolution computes that
    /// norm. Returns `None` without constants.
    fn normalised<'a>(&self, constants: &'a Option<Ref<'_, Constants>>) -> Option<InputNorm<'a>> {
        let relu = self.norm.as_ref().is_some_and(|norm| norm.relu);
        constants.as_deref().map(|constants| InputNorm { constants, relu })
    }
}

impl<S: Vectors, const A: usize, const B: usize, const M: usize> Planned<Cpu> for Plan<S, A, B, M> {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        self.bias_relu.formats(self.x.shape.c, transform::kernel(A) * transform::kernel(A))
    }

    fn state_bytes(&self) -> usize {
        self.bias_relu.bytes()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps { inputs: 1, output: self.bias_relu.relu.reads_output() }
    }

    fn implementation(&self) -> String {
        let norm = self.norm.as_ref().map_or(String::new(), |norm| format!(" of {}", norm.op_name));
        format!("own winograd{norm}{}", if self.requested_moments().is_some() { " + moments" } else { "" })
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (ci, co) = (self.x.shape.c, self.y.shape.c);
        self.bias_relu.take(pass);
        let requested_moments = self.requested_moments().filter(|_| pass.training);
        let channels = self.y.blocks() * S::LANES;
        let mut moments = vec![Moments::default(); requested_moments.map_or(0, |_| self.threads.0 * channels)];
        let finish = Finish {
            bias: self.bias_relu.bias(),
            relu: self.bias_relu.relu.is_present(),
            moments: requested_moments.is_some(),
            gradient: None,
        };
        let constants = self.norm.as_ref().map(|norm| norm.constants());
        let norm = self.normalised(&constants);
        let from = PassInput { desc: self.x, data: x[0].as_slice(), pad: self.pad, norm };
        let filters = (Filters::forward::<A>(ci, co), pass.params.get(pass.slots[0]));
        self.convolve(from, self.y, filters, finish, y.as_mut_slice(), (&mut moments, &mut []));
        if let Some(requested_moments) = requested_moments {
            requested_moments.put(&moments, channels);
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let dx = g.take_dx(0);
        let (ci, co, threads) = (self.x.shape.c, self.y.shape.c, self.threads);
        self.bias_relu.mask(g.dy, g.y);
        let constants = self.norm.as_ref().map(|norm| norm.constants());
        let norm = self.normalised(&constants);
        let (x, dy) = (g.x[0].as_slice(), PassInput::new(self.y, g.dy.as_slice()));
        if !pass.frozen {
            let x = PassInput { desc: self.x, data: x, pad: self.pad, norm };
            self.correlate(x, dy, g.dparams.get_mut(pass.slots[0]));
            self.bias_relu.gradient(pass, dy.data, g.dparams);
        }
        let (Some(dx), true) = (dx, self.wants_dx) else { return Ok(()) };
        let each = 2 * self.x.blocks() * S::LANES;
        let mut sums = vec![0.0; norm.map_or(0, |_| threads.0 * each)];
        let gradient = norm.map(|norm| NormGradient { norm, x });
        let filters = (Filters::rotated::<A>(ci, co), pass.params.get(pass.slots[0]));
        let finish = Finish { gradient, ..Finish::PLAIN };
        let dy = PassInput { pad: transform::kernel(A) - 1 - self.pad, ..dy };
        self.convolve(dy, self.x, filters, finish, dx.as_mut_slice(), (&mut [], &mut sums));
        if let Some(norm) = &self.norm {
            norm.put_sums(&sums, each);
        }
        Ok(())
    }
}
