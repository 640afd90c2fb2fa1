//! Operations that run with copies of their inputs, because the inputs have another layout than the operation reads:
//!
//! - images with channels last, for operations that only have loops for channel blocks, and the reverse
//! - the network's input image in plain order, if another input of the operation is in channel blocks
//! - a flattened image, if the operation cannot read its elements in the image's memory order
//! - convolutions that read only some pixels, or images with zeros around them
//! - f32 copies of bf16 inputs, and the reverse
//! - convolutions with additional channels of zeros, for which outputs are also copied

use net::{Op, Reads, Shape};

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::layout::Format;
use super::norm;
use super::number::{Number, by_numbers};
use super::threads::Threads;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// An operation that reads copies of its inputs.
struct Plan {
    threads: Threads,
    inner: Box<dyn Planned<Cpu>>,
    inputs: Vec<Tensor>,
    /// Present if the operation writes a copy of the output.
    output: Option<Tensor>,
    /// Text that is appended to the names of primitives in tables.
    how: &'static str,
}

/// An input or output. If the operation uses another layout than the network, it has copies of the tensor and its
/// gradient.
struct Tensor {
    given: View,
    required: View,
    x: AlignedBuf,
    dx: AlignedBuf,
}

impl Tensor {
    /// Allocates the tensor's copy and, if `has_gradient` is set, a copy for its gradient.
    fn new(given: View, required: View, has_gradient: bool, name: &str) -> Result<Self, Error> {
        let copied = if given == required { 0 } else { required.images.words() };
        let (x, dx) = (copied, if has_gradient { copied } else { 0 });
        Ok(Self { given, required, x: AlignedBuf::zeroed(x, name)?, dx: AlignedBuf::zeroed(dx, name)? })
    }

    fn differs(&self) -> bool {
        self.given != self.required
    }
}

/// Some pixels of images: from `first` on, every `step`-th in both directions.
#[derive(Clone, Copy, PartialEq)]
struct View {
    images: TensorDesc,
    first: [usize; 2],
    step: [usize; 2],
    /// Number of rows and columns.
    extent: [usize; 2],
}

impl View {
    fn whole(images: &TensorDesc) -> Self {
        Self::stepped(images, [1, 1])
    }

    fn stepped(images: &TensorDesc, step: [usize; 2]) -> Self {
        let Shape { h, w, .. } = images.shape;
        Self { images: *images, first: [0, 0], step, extent: [h.div_ceil(step[0]), w.div_ceil(step[1])] }
    }

    /// Returns true if the view leaves out some pixels.
    fn has_holes(&self) -> bool {
        self.extent != [self.images.shape.h, self.images.shape.w]
    }

    /// Returns the offset of channel `c` of the first pixel within a sample.
    fn at(&self, c: usize) -> usize {
        self.images.at(c, self.first[0] * self.images.shape.w + self.first[1])
    }

    /// Returns the number of elements from row to row, and from pixel to pixel.
    fn strides(&self) -> [usize; 2] {
        let TensorDesc { shape, block, .. } = self.images;
        [self.step[0] * shape.w * block, self.step[1] * block]
    }
}

/// Returns the channels-last layout for every `step`-th pixel of `x`.
pub(super) fn strided_channels_last(x: &TensorDesc, step: [usize; 2]) -> TensorDesc {
    let [h, w] = View::stepped(x, step).extent;
    channels_last(&x.with_shape(Shape::image(x.shape.c, h, w)))
}

pub(super) fn channels_last(x: &TensorDesc) -> TensorDesc {
    TensorDesc { block: x.shape.c, ..*x }
}

/// Returns the layout of an output that consists of channels of `x`. It is channels last or in blocks, like `x`.
pub(super) fn output_layout(cpu: &Cpu, x: &TensorDesc, shape: Shape) -> TensorDesc {
    let y = x.with_shape(shape);
    if cpu.channels_last && x.block == x.shape.c { channels_last(&y) } else { y }
}

/// Returns the layouts in which an operation reads its inputs. Returns `None` if the operation reads them as they are,
/// and for convolutions, which choose the layouts themselves.
pub(super) fn required_layouts(cpu: &Cpu, r: &PlanRequest<'_, Cpu>) -> Option<Vec<TensorDesc>> {
    if matches!(r.op, Op::Conv(_)) {
        return None;
    }
    let mut wanted = required_order(cpu, r).unwrap_or_else(|| r.x.to_vec());
    if let Op::Attention(op) = r.op
        // attention needs heads whose channels fill whole blocks
        && !op.head_channels(wanted[0].shape.c).is_multiple_of(wanted[0].block)
    {
        wanted[0].block = 1;
    }
    for (input, wanted) in wanted.iter_mut().enumerate() {
        wanted.bf16 = match r.op {
            Op::Norm(_) if input == 0 => wanted.bf16,
            Op::Norm(_) => norm::writes_bf16(cpu, r),
            _ => false,
        };
    }
    (wanted != r.x).then_some(wanted)
}

/// Returns the inputs' layouts with the order of channels that the operation reads, or `None` if they already have it.
fn required_order(cpu: &Cpu, r: &PlanRequest<'_, Cpu>) -> Option<Vec<TensorDesc>> {
    let flattened = r.x.iter().zip(r.shapes).any(|(x, shape)| x.shape != *shape);
    let alike = r.x.iter().all(|x| x.in_f32() == r.x[0].in_f32());
    if flattened && (r.op.reads() == Reads::Channels || !alike) {
        return Some(r.x.iter().zip(r.shapes).map(|(x, shape)| TensorDesc { shape: *shape, block: 1, ..*x }).collect());
    }
    if let Some(blocked) = blocks_next_to_plain(r.x).filter(|_| !flattened && !cpu.channels_last) {
        return Some(blocked);
    }
    if r.x.iter().all(in_blocks) && !cpu.channels_last {
        return None;
    }
    Some(match r.op {
        Op::Norm(_)
        | Op::Pool(_)
        | Op::Activation(_)
        | Op::Add(_)
        | Op::Dropout(_)
        | Op::DropPath(_)
        | Op::Linear(_)
            if r.x.iter().all(|x| x == &r.x[0]) =>
        {
            return None;
        }
        Op::Norm(_) | Op::Add(_) => r.x.iter().map(channels_last).collect(),
        Op::Concat(_) | Op::Shortcut(_) | Op::Channels(_) if cpu.channels_last => {
            r.x.iter().map(channels_last).collect()
        }
        _ if r.x.iter().all(|x| x.block == 1) => return None,
        _ => r.x.iter().map(|x| TensorDesc { block: cpu.block, ..*x }).collect(),
    })
}

/// For an operation with some inputs in channel blocks and some in plain order (vectors, or the network's image):
/// returns layouts with the same channel blocks for all inputs. Otherwise returns `None`.
fn blocks_next_to_plain(x: &[TensorDesc]) -> Option<Vec<TensorDesc>> {
    let block = x.iter().find(|x| !x.is_plain())?.block;
    let lies_so = [8, 16].contains(&block) && x.iter().all(|x| x.is_plain() || x.block == block);
    (lies_so && x.iter().any(TensorDesc::is_plain)).then(|| x.iter().map(|x| TensorDesc { block, ..*x }).collect())
}

/// Returns true if all operations have loops for the layout.
fn in_blocks(x: &TensorDesc) -> bool {
    x.is_plain() || [8, 16].contains(&x.block)
}

/// Returns the layout of `x` with channel blocks, or `x` if it is in plain order.
pub(super) fn blocked(cpu: &Cpu, x: &TensorDesc) -> TensorDesc {
    TensorDesc { block: if in_blocks(x) { x.block } else { cpu.block }, ..*x }
}

/// Plans an operation for inputs in the layouts `required`. `plan_inner` makes this plan. Inputs with another layout
/// are copied. If `step` is not 1, the copy has only every `step`-th pixel. An image may be required as a vector in
/// plain order.
pub(super) fn plan(
    cpu: &Cpu,
    r: &PlanRequest<'_, Cpu>,
    required: &[TensorDesc],
    step: [usize; 2],
    plan_inner: impl FnOnce(&PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error>,
) -> Result<Box<dyn Planned<Cpu>>, Error> {
    if required == r.x && step == [1, 1] {
        return plan_inner(r);
    }
    // Nothing can be fused with neighbouring operations, because they use the original tensors instead of the copies.
    let inner = plan_inner(&PlanRequest { x: required, input_fusion: None, output_fusion: None, ..*r })?;
    let input = |(i, (given, required)): (usize, (&TensorDesc, &TensorDesc))| -> Result<Tensor, Error> {
        // The gradient of this input is in dy, so it needs no copy.
        let has_gradient = r.train && (i > 0 || r.wants_dx) && inner.input_with_gradient_in_dy() != Some(i);
        let vector = required.block == 1 && required.shape == Shape::vector(given.shape.elems());
        let required = if vector { required.with_shape(given.shape) } else { *required };
        Tensor::new(View::stepped(given, step), View::whole(&required), has_gradient, r.name)
    };
    let inputs = r.x.iter().zip(required).enumerate().map(input).collect::<Result<_, _>>()?;
    Ok(Box::new(Plan { threads: cpu.threads, inner, inputs, output: None, how: "with copies" }))
}

/// Wraps an operation that was planned for the images of `frame`. The input's images are copied into these frames at
/// row and column `first`, with zeros around them.
pub(super) fn in_frame(
    cpu: &Cpu,
    r: &PlanRequest<'_, Cpu>,
    inner: Box<dyn Planned<Cpu>>,
    frame: &TensorDesc,
    first: [usize; 2],
) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let given = View::whole(&r.x[0]);
    let required = View { images: *frame, first, ..given };
    let inputs = vec![Tensor::new(given, required, r.train && r.wants_dx, r.name)?];
    Ok(Box::new(Plan { threads: cpu.threads, inner, inputs, output: None, how: "in a frame" }))
}

/// Wraps an operation that was planned for more channels than the request has. Channels of zeros follow the input's
/// channels. Additional output channels are ignored.
pub(super) fn with_more_channels(
    cpu: &Cpu,
    r: &PlanRequest<'_, Cpu>,
    inner: Box<dyn Planned<Cpu>>,
    x: &TensorDesc,
) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let y = inner.output();
    let tensor = |given: &TensorDesc, required: &TensorDesc, has_gradient| {
        Tensor::new(View::whole(given), View::whole(required), has_gradient, r.name)
    };
    let inputs = vec![tensor(&r.x[0], x, r.train && r.wants_dx)?];
    let output = Some(tensor(&y.with_shape(r.output()?), &y, r.train)?);
    Ok(Box::new(Plan { threads: cpu.threads, inner, inputs, output, how: "with more channels" }))
}

/// Copies pixels between layouts. Pixels that lie between and around the copied ones become zero, as do padding
/// channels and channels that only `to` has.
fn copy(threads: Threads, from: &View, x: &[f32], to: &View, y: &mut [f32]) {
    by_numbers!(from.images.bf16, to.images.bf16, copy_in(threads, from, x, to, y));
}

fn copy_in<X: Number, Y: Number>(threads: Threads, from: &View, x: &[f32], to: &View, y: &mut [f32]) {
    let (x, y) = (X::from_words(x), Y::from_words_mut(y));
    let run = stretch(from.images.block, to.images.block);
    let channels = from.images.shape.c.min(to.images.shape.c);
    let (sample, source) = (to.images.sample_elems(), from.images.sample_elems());
    let holes = to.has_holes() || channels < to.images.blocks() * to.images.block;
    threads.each_item(&mut y[..to.images.elems()], sample, |n, y| {
        let x = &x[n * source..][..source];
        if holes {
            y.fill(Y::default());
        }
        for c in (0..channels).step_by(run) {
            match run.min(channels - c) {
                16 => copy_channels::<X, Y, 16>(from, x, to, y, c),
                8 => copy_channels::<X, Y, 8>(from, x, to, y, c),
                len => (c..c + len).for_each(|c| copy_channels::<X, Y, 1>(from, x, to, y, c)),
            }
        }
    });
}

/// Returns the number of channels that are contiguous in blocks of both sizes and for which there is a kernel.
fn stretch(a: usize, b: usize) -> usize {
    [16, 8].into_iter().find(|run| a.is_multiple_of(*run) && b.is_multiple_of(*run)).unwrap_or(1)
}

/// Copies `R` channels of all pixels, from channel `c` on.
fn copy_channels<X: Number, Y: Number, const R: usize>(from: &View, x: &[X], to: &View, y: &mut [Y], c: usize) {
    let (x, y) = (&x[from.at(c)..], &mut y[to.at(c)..]);
    let ([rows, columns], there, here) = (to.extent, from.strides(), to.strides());
    for row in 0..rows {
        let (x, y) = (&x[row * there[0]..], &mut y[row * here[0]..]);
        for column in 0..columns {
            let (y, x) = (&mut y[column * here[1]..][..R], &x[column * there[1]..][..R]);
            y.iter_mut().zip(x).for_each(|(y, x)| *y = Y::from_f32(x.to_f32()));
        }
    }
}

/// Returns the inputs that the operation reads: the copies, or the originals if there is no copy.
fn read_inputs<'a>(inputs: &'a [Tensor], x: &[&'a AlignedBuf]) -> Vec<&'a AlignedBuf> {
    inputs.iter().zip(x).map(|(input, x)| if input.differs() { &input.x } else { *x }).collect()
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.output.as_ref().map_or_else(|| self.inner.output(), |output| output.given.images)
    }

    fn formats(&self) -> Vec<Format> {
        self.inner.formats()
    }

    fn state_bytes(&self) -> usize {
        let copies = self.inputs.iter().chain(&self.output).map(|t| t.x.as_slice().len() + t.dx.as_slice().len());
        self.inner.state_bytes() + 4 * copies.sum::<usize>()
    }

    fn tensors_for_backward(&self) -> Keeps {
        // Inputs that are copied are kept too, because the batch size may decide which inputs are copied.
        self.inner.tensors_for_backward()
    }

    fn implementation(&self) -> String {
        format!("{} {}", self.inner.implementation(), self.how)
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        self.inner.input_with_gradient_in_dy().filter(|i| !self.inputs[*i].differs())
    }

    fn adds_two_gradients(&self) -> bool {
        self.inner.adds_two_gradients()
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        for (input, x) in self.inputs.iter_mut().zip(x).filter(|(input, _)| input.differs()) {
            copy(self.threads, &input.given, x.as_slice(), &input.required, input.x.as_mut_slice());
        }
        let inputs = read_inputs(&self.inputs, x);
        let Some(output) = &mut self.output else { return self.inner.forward(pass, &inputs, y) };
        self.inner.forward(pass, &inputs, &mut output.x)?;
        copy(self.threads, &output.required, output.x.as_slice(), &output.given, y.as_mut_slice());
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Gradients { x, y, dy, dy2, dx, dparams } = g;
        let in_place = self.inner.input_with_gradient_in_dy();
        let mut copies: Vec<AlignedBuf> = self.inputs.iter_mut().map(|i| std::mem::take(&mut i.dx)).collect();
        let (mut own, mut targets) = (Vec::new(), Vec::new());
        for (i, ((input, target), copy)) in self.inputs.iter().zip(dx).zip(&mut copies).enumerate() {
            let (inner, outer) = match (input.differs(), target) {
                (true, Some(target)) => ((in_place != Some(i)).then_some(copy), Some(target)),
                (_, target) => (target, None),
            };
            own.push(inner);
            targets.push(outer);
        }
        let inputs = read_inputs(&self.inputs, x);
        let (y, inner_dy) = match &mut self.output {
            None => (y, &mut *dy),
            Some(output) => {
                copy(self.threads, &output.given, dy.as_slice(), &output.required, output.dx.as_mut_slice());
                (&output.x, &mut output.dx)
            }
        };
        self.inner.backward(pass, Gradients { x: &inputs, y, dy: inner_dy, dy2, dx: own, dparams })?;
        for (i, target) in targets.into_iter().enumerate() {
            let (input, Some(target)) = (&self.inputs[i], target) else { continue };
            let from = if in_place == Some(i) { dy.as_slice() } else { copies[i].as_slice() };
            copy(self.threads, &input.required, from, &input.given, target.as_mut_slice());
        }
        self.inputs.iter_mut().zip(copies).for_each(|(input, copy)| input.dx = copy);
        Ok(())
    }

    fn pool_statistics(&self, running: &[f32], sums: &mut [f64]) -> u64 {
        self.inner.pool_statistics(running, sums)
    }
}
