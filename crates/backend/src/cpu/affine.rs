//! Convolutions and linear layers. A layer has up to three oneDNN primitives, which share its weights.

use std::ops::Range;
use std::rc::Rc;

use net::{Conv, Linear, Shape};

use super::buf::{AlignedBuf, Scratch};
use super::device::Cpu;
use super::framed::Framed;
use super::fusion::Relu;
use super::layout::{Format, Md};
use super::number::{Bf16, Rounded};
use super::onednn::{Data, Engine, Primitive, arg, reorder};
use super::own_gradient::{Depthwise, OwnGradient, Ungrouped};
use super::product::{Geometry, Product, activation};
use super::relayout;
use super::sys::Direction;
use super::threads::Threads;
use crate::{Arena, Error, Gradients, Keeps, Pass, PlanRequest, Planned, Slot, TensorDesc};

enum WeightGradient {
    Primitive(Product),
    /// Our own loops write the gradient in plain order, and the primitive copies it into the layout of the weights. The
    /// flag is true if the images are in channel blocks and the convolution has no groups. Then [`Plan::is_slow`]
    /// returns true, so that `conv` also tries images in frames, for which oneDNN may have a fast primitive.
    Own(Box<dyn OwnGradient>, Primitive, bool),
}

/// A convolution or linear layer planned for a fixed batch size.
pub(super) struct Plan {
    engine: Rc<Engine>,
    threads: Threads,
    name: String,
    y: TensorDesc,
    relu: Relu,
    weights: Md,
    /// True if the weights are stored in plain order because the plan for the largest batch uses kernels of our own.
    weights_are_plain: bool,
    bias: Option<usize>,
    /// Channels with a bias of 0.
    zero_bias: Range<usize>,
    forward: Product,
    backward_weights: Option<WeightGradient>,
    backward_data: Option<Product>,
    /// Buffers for the layer's tensors and weights rounded to bf16, or `None` if the layer computes in f32.
    rounded: Option<Rounded>,
    scratch: Rc<Scratch>,
    /// A copy of the input in plain order. Used if the input has padding channels, because the primitive cannot skip
    /// them.
    plain: Option<PlainCopies>,
    /// A copy of the input with its padding. Used if the primitive cannot add the padding itself.
    framed: Option<Framed>,
}

impl Plan {
    /// Plans a convolution that writes channel blocks.
    pub fn conv(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Result<Self, Error> {
        let mut x = r.x[0];
        let y = TensorDesc { n: x.n, shape: r.output()?, block: cpu.block, bf16: false };
        let framed = Framed::new(op, &x, &y, r.train && r.wants_dx, r.name)?;
        let unpadded = op.clone().pads([0; 4]);
        let op = framed.as_ref().map_or(op, |f| {
            x = x.with_shape(Shape::image(x.shape.c, f.frame[2], f.frame[3]));
            &unpadded
        });
        let plan = match &framed {
            None => Self::conv_in_bf16(cpu, r, op, y)?,
            Some(_) => None,
        };
        let plan = plan.map_or_else(|| Self::new(cpu, r, &Geometry::new(op, &x, &y, activation)?, y), Ok)?;
        let mut plan = Self { framed, ..plan };
        let slow = matches!(&plan.backward_weights, Some(WeightGradient::Primitive(b)) if b.is_slow());
        if let (true, Some(own)) = (slow, own_gradient(cpu, op, x, y, r.name)?) {
            let copy = reorder(&cpu.engine, &plan.weights.as_plain()?, &plan.weights, r.name)?;
            let in_blocks = op.groups == 1 && x.block != 1;
            plan.backward_weights = Some(WeightGradient::Own(own, copy, in_blocks));
        }
        Ok(plan)
    }

    /// Plans a convolution with a bf16 input or output. Returns `None` if both are f32. Returns an error if the input
    /// is bf16 and oneDNN has no fast primitive for it.
    fn conv_in_bf16(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv, y: TensorDesc) -> Result<Option<Self>, Error> {
        let (x, writes_bf16) =
            (r.x[0], r.may_write_bf16 && cpu.writes_bf16 && cpu.bf16 == Some(Bf16::Native) && !op.relu);
        let y = TensorDesc { bf16: writes_bf16, ..y };
        if !x.bf16 && !y.bf16 {
            return Ok(None);
        }
        let plan = Geometry::new(op, &x, &y, activation).and_then(|g| Self::with_factors(cpu, r, &g, y, cpu.bf16));
        match plan {
            Ok(plan) if !plan.is_slow() => Ok(Some(plan)),
            _ if x.bf16 => Err(Error::Unsupported {
                op: r.name.into(),
                why: "oneDNN has no fast primitive for this convolution in bf16; use precision = \"f32\"".into(),
            }),
            _ => Ok(None),
        }
    }

    /// Plans a convolution that uses tile instructions (AMX) and reads and writes images channels last. Returns an
    /// error if oneDNN has no such primitive.
    pub fn in_tiles(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Conv) -> Result<Self, Error> {
        let x = r.x[0];
        let y = relayout::channels_last(&TensorDesc::plain(x.n, r.output()?));
        let layout = |d: &TensorDesc| Md::channels_last(&[d.n, d.shape.c, d.shape.h, d.shape.w]);
        let plan = Self::with_factors(cpu, r, &Geometry::new(op, &x, &y, layout)?, y, cpu.bf16)?;
        if plan.is_slow() || !plan.forward.name().contains("amx") {
            return Err(Error::Unsupported { op: r.name.into(), why: "oneDNN has no AMX primitive".into() });
        }
        Ok(plan)
    }

    /// Plans a linear layer. It reads an image in the image's own layout.
    pub fn linear(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Linear) -> Result<Self, Error> {
        if let Some(plan) = Self::matrix(cpu, r, op)? {
            return Ok(plan);
        }
        let y = TensorDesc::plain(r.x[0].n, r.output()?);
        let image = r.x[0];
        let plain = PlainCopies::new(r)?;
        let Shape { c, h, w } = image.shape;
        let geometry = if plain.is_some() || image.is_plain() {
            Self::vector_geometry(op, &image)?
        } else {
            Geometry::linear(op, activation(&image)?, image.n, &[c, h, w])?
        };
        Ok(Self { plain, ..Self::new(cpu, r, &geometry, y)? })
    }

    /// Describes a linear layer that reads an image as a vector.
    fn vector_geometry(op: &Linear, image: &TensorDesc) -> Result<Geometry, Error> {
        let elems = image.shape.elems();
        Geometry::linear(op, Md::plain(&[image.n, elems])?, image.n, &[elems])
    }

    /// Plans a linear layer over blocked images as a layer over vectors in memory order, because oneDNN has faster
    /// primitives for vectors. Returns `None` if the resulting weight layout cannot be described as a layout over
    /// images.
    fn matrix(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, op: &Linear) -> Result<Option<Self>, Error> {
        let image = r.x[0];
        let Shape { c, h, w } = image.shape;
        if image.block != 16 || !c.is_multiple_of(16) || cpu.bf16.is_some() {
            return Ok(None);
        }
        let given = match r.formats {
            Some([Format::Weights(weights), rest @ ..]) => match weights.as_matrix()? {
                Some(matrix) => Some([&[Format::Weights(Box::new(matrix))][..], rest].concat()),
                None => return Ok(None),
            },
            _ => None,
        };
        let y = TensorDesc::plain(image.n, r.output()?);
        let geometry = Self::vector_geometry(op, &image)?;
        let Ok(plan) = Self::new(cpu, &PlanRequest { formats: given.as_deref(), ..*r }, &geometry, y) else {
            return Ok(None);
        };
        Ok(plan.weights.over_image([c, h, w])?.map(|weights| Self { weights, ..plan }))
    }

    /// Plans a layer whose inputs, gradients and weights are rounded to the backend's precision, or that stays in f32
    /// if oneDNN has no fast primitive for that precision.
    fn new(cpu: &Cpu, r: &PlanRequest<'_, Cpu>, g: &Geometry, y: TensorDesc) -> Result<Self, Error> {
        match cpu.bf16.and_then(|bf16| Self::with_factors(cpu, r, g, y, Some(bf16)).ok()) {
            Some(plan) if !plan.is_slow() => Ok(plan),
            _ => Self::with_factors(cpu, r, g, y, None),
        }
    }

    fn with_factors(
        cpu: &Cpu,
        r: &PlanRequest<'_, Cpu>,
        g: &Geometry,
        y: TensorDesc,
        bf16: Option<Bf16>,
    ) -> Result<Self, Error> {
        let engine = cpu.engine.clone();
        let layer = |direction, w: Md| g.layer(r.name, direction, w, bf16)?.primitive(&engine, direction);
        let any = Md::any(&g.w_dims)?;
        let product = |direction, weights: Md| -> Result<Product, Error> {
            // Prefer the layout of the arena, because it saves a copy. If only oneDNN's plain loops support it, let
            // oneDNN choose a layout and copy.
            if let Ok((primitive, _)) = layer(direction, weights)
                && let product = Product::new(primitive)
                && !product.is_slow()
            {
                return Ok(product);
            }
            let (primitive, own) = layer(direction, any)?;
            let (from, to) = match direction {
                Direction::BackwardWeights => (own, weights),
                _ => (Bf16::factor(bf16, weights)?, own),
            };
            let copy = reorder(&engine, &from, &to, r.name)?;
            cpu.weight_copies.reserve(own.elems(), r.name)?;
            Ok(Product::new(primitive).with_weight_copy(copy, cpu.weight_copies.clone()))
        };
        let in_plain = || Md::plain(&g.w_dims).and_then(|w| Ok((product(Direction::Forward, w)?, w)));
        let (forward, weights) = match r.formats.and_then(|f| f.first()) {
            Some(Format::Weights(given)) => (product(Direction::Forward, **given)?, **given),
            Some(Format::Plain(_)) => in_plain()?,
            _ => {
                let (primitive, own) = layer(Direction::Forward, any)?;
                // oneDNN 3.x can choose layouts that have no name. They cannot be converted to f32, so use plain order
                // instead.
                own.in_f32().map_or_else(|_| in_plain(), |weights| Ok((Product::new(primitive), weights)))?
            }
        };
        let backward_weights = r.train.then(|| product(Direction::BackwardWeights, weights)).transpose()?;
        let backward_data = (r.train && r.wants_dx).then(|| product(Direction::BackwardData, weights)).transpose()?;
        let rounded = match bf16 {
            Some(bf16) => {
                let elems = [g.x.in_f32()?.elems(), weights.elems(), g.y.in_f32()?.elems()];
                Some(Rounded::new(bf16, cpu.threads, elems, [r.x[0].bf16, y.bf16], r.train, r.name)?)
            }
            None => None,
        };
        cpu.scratch.reserve(rounded.as_ref().map_or(0, Rounded::scratch), r.name)?;
        Ok(Self {
            engine,
            threads: cpu.threads,
            name: r.name.into(),
            y,
            relu: Relu::new(g.relu, r.name, r.output_fusion.filter(|_| cpu.fuses)),
            weights,
            weights_are_plain: matches!(r.formats.and_then(|f| f.first()), Some(Format::Plain(_))),
            bias: g.bias,
            zero_bias: g.zero_bias.clone(),
            forward,
            backward_weights: backward_weights.map(WeightGradient::Primitive),
            backward_data,
            rounded,
            scratch: cpu.scratch.clone(),
            plain: None,
            framed: None,
        })
    }

    pub fn weights(&self) -> &Md {
        &self.weights
    }

    /// Returns true if the plan can run a backward pass.
    pub fn trains(&self) -> bool {
        self.backward_weights.is_some()
    }

    /// Returns true if a pass uses oneDNN's plain loops, which are slow, or our own loops that replace them in channel
    /// blocks.
    pub fn is_slow(&self) -> bool {
        let weights = match &self.backward_weights {
            Some(WeightGradient::Primitive(product)) => product.is_slow(),
            Some(WeightGradient::Own(_, _, in_blocks)) => *in_blocks,
            None => false,
        };
        weights || self.forward.is_slow() || self.backward_data.as_ref().is_some_and(Product::is_slow)
    }
}

/// Our own loops need a sum per weight and thread. With more weights than this (64 MB per thread), only plain images use
/// these loops.
const MOST_WEIGHTS: usize = 1 << 24;

/// Returns our own loops for the weight gradient of a convolution, or `None` if there are none for its sizes.
fn own_gradient(
    cpu: &Cpu,
    op: &Conv,
    x: TensorDesc,
    y: TensorDesc,
    name: &str,
) -> Result<Option<Box<dyn OwnGradient>>, Error> {
    let depthwise = op.groups == x.shape.c && op.groups == y.shape.c && x.block == y.block;
    let weights = op.out_channels * x.shape.c * op.kernel[0] * op.kernel[1];
    Ok(match op.groups {
        1 if x.block == 1 || weights <= MOST_WEIGHTS => Some(Box::new(Ungrouped::new(cpu.threads, op, x, y, name)?)),
        _ if depthwise => Some(Box::new(Depthwise::new(cpu.threads, op, x, y, name)?)),
        _ => None,
    })
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<Format> {
        let mut formats = vec![match self.weights_are_plain {
            true => Format::Plain(self.weights.elems()),
            false => Format::Weights(Box::new(self.weights)),
        }];
        formats.extend(self.bias.map(Format::Plain));
        formats
    }

    fn state_bytes(&self) -> usize {
        let weights = match &self.backward_weights {
            Some(WeightGradient::Own(own, ..)) => own.bytes(),
            Some(WeightGradient::Primitive(_)) | None => 0,
        };
        let plain = self.plain.as_ref().map_or(0, PlainCopies::bytes);
        let framed = self.framed.as_ref().map_or(0, |f| f.x.as_slice().len());
        weights + plain + framed * 4 + self.rounded.as_ref().map_or(0, Rounded::bytes)
    }

    fn tensors_for_backward(&self) -> Keeps {
        let rounded = self.rounded.as_ref().is_some_and(Rounded::keeps_x);
        let copied = rounded || self.plain.is_some() || self.framed.is_some();
        Keeps { inputs: usize::from(!copied), output: self.relu.reads_output() }
    }

    fn implementation(&self) -> String {
        let weights = self.backward_weights.as_ref().map(|w| match w {
            WeightGradient::Primitive(product) => product.name(),
            WeightGradient::Own(..) => "own".into(),
        });
        let factors = self.rounded.as_ref().map(|_| "bf16:".into());
        let data = self.backward_data.as_ref().map(Product::name);
        let names: Vec<String> = [factors, Some(self.forward.name()), weights, data].into_iter().flatten().collect();
        names.join(" ")
    }

    fn forward(&mut self, pass: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let x = match (&mut self.plain, &mut self.framed) {
            (Some(p), _) => {
                p.fill(x[0]);
                &p.x
            }
            (None, Some(f)) => {
                f.fill(self.threads, x[0].as_slice());
                &f.x
            }
            (None, None) => x[0],
        };
        let (x, w) = (x.as_slice(), pass.params.get(pass.slots[0]));
        let mut scratch = self.scratch.borrow();
        let (x, w) = match &mut self.rounded {
            Some(rounded) => rounded.forward(x, w, scratch.as_mut_slice()),
            None => (x, w),
        };
        let mut data = vec![(arg::SRC, Data::Read(x)), (arg::DST, Data::Write(y.as_mut_slice()))];
        if self.bias.is_some() {
            data.push((arg::BIAS, Data::Read(pass.params.get(pass.slots[1]))));
        }
        self.forward.run_from(&self.engine, w, data)
    }

    fn backward(&mut self, pass: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let dx = g.take_dx(0);
        self.relu.mask(self.threads, self.y.elems(), g.dy, g.y);
        let own = self.plain.as_ref().map(|p| &p.x).or(self.framed.as_ref().map(|f| &f.x));
        let (x, dy, w) = (own.unwrap_or(g.x[0]).as_slice(), g.dy.as_slice(), pass.params.get(pass.slots[0]));
        let mut scratch = self.scratch.borrow();
        let (x, dy, w) = match &self.rounded {
            Some(rounded) => rounded.backward((x, dy), w, scratch.as_mut_slice()),
            None => (x, dy, w),
        };
        let Some(weights) = &mut self.backward_weights else {
            let why = "backward was called, but it was planned for evaluation".into();
            return Err(Error::Unsupported { op: self.name.clone(), why });
        };
        if !pass.frozen {
            weights.run(&self.engine, (x, dy), pass.slots, g.dparams)?;
            if let Some(&bias) = pass.slots.get(1) {
                g.dparams.get_mut(bias)[self.zero_bias.clone()].fill(0.0);
            }
        }
        let (Some(dx), Some(backward)) = (dx, &mut self.backward_data) else { return Ok(()) };
        let target = self.plain.as_mut().map_or(&mut *dx, |p| &mut p.dx).as_mut_slice();
        let data = vec![(arg::DIFF_DST, Data::Read(dy)), (arg::DIFF_SRC, Data::Write(target))];
        backward.run_from(&self.engine, w, data)?;
        if let Some(p) = &self.plain {
            p.write_dx(dx);
        }
        Ok(())
    }
}

impl WeightGradient {
    /// Computes the gradients of the weights (first slot) and of the bias (second slot, if present) from x and dy.
    fn run(
        &mut self,
        engine: &Engine,
        (x, dy): (&[f32], &[f32]),
        slots: &[Slot],
        dparams: &mut Arena<Cpu>,
    ) -> Result<(), Error> {
        match self {
            Self::Own(own, copy, _) => {
                let plain = own.run(x, dy, slots.get(1).map(|&bias| dparams.get_mut(bias)));
                let dw = dparams.get_mut(slots[0]);
                copy.run(engine, &mut [(arg::SRC, Data::Read(plain)), (arg::DST, Data::Write(dw))])
            }
            Self::Primitive(product) => {
                let bias = slots.get(1);
                let mut db = vec![0.0; bias.map_or(0, |bias| bias.len)];
                let mut data = vec![(arg::SRC, Data::Read(x)), (arg::DIFF_DST, Data::Read(dy))];
                data.extend(bias.map(|_| (arg::DIFF_BIAS, Data::Write(&mut db))));
                product.run_into(engine, dparams.get_mut(slots[0]), data)?;
                if let Some(&bias) = bias {
                    dparams.get_mut(bias).copy_from_slice(&db);
                }
                Ok(())
            }
        }
    }
}

/// Copies of an image and its gradient in plain order.
struct PlainCopies {
    image: TensorDesc,
    pub x: AlignedBuf,
    pub dx: AlignedBuf,
}

impl PlainCopies {
    /// Allocates the copies for the first input. Returns `None` if its channels fill their blocks, so that no copy is
    /// needed.
    pub fn new(r: &PlanRequest<'_, Cpu>) -> Result<Option<Self>, Error> {
        let image = r.x[0];
        if image.shape.c.is_multiple_of(image.block) {
            return Ok(None);
        }
        let elems = image.n * image.shape.elems();
        let dx = if r.train && r.wants_dx { elems } else { 0 };
        Ok(Some(Self { image, x: AlignedBuf::zeroed(elems, r.name)?, dx: AlignedBuf::zeroed(dx, r.name)? }))
    }

    pub fn bytes(&self) -> usize {
        4 * (self.x.as_slice().len() + self.dx.as_slice().len())
    }

    /// Copies an image to plain order.
    pub fn fill(&mut self, image: &AlignedBuf) {
        self.image.to_plain(image.as_slice(), self.x.as_mut_slice());
    }

    /// Copies the gradient back to the layout of the image.
    pub fn write_dx(&self, dx: &mut AlignedBuf) {
        self.image.from_plain(self.dx.as_slice(), dx.as_mut_slice());
    }
}
