//! The operations that `trireme bench ops` measures: convolutions and linear layers of networks, or convolutions of
//! given sizes. Runs single passes of an operation on random tensors and measures their time.

use std::time::Instant;

use backend::{Arena, Backend, Buffer, DrawKey, Gradients, ParamFormat, PlanRequest, Planned, Slot, TensorDesc};
use engine::graph::BuildError;
use loaders::Draws;
use net::{Conv, Linear, Op, Shape};

use crate::error::Error;

/// Number of random values to draw. Longer tensors repeat these values.
const DISTINCT_VALUES: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Forward,
    /// Computes the gradients of the parameters.
    Weights,
    /// Computes the gradient of the input.
    Input,
}

impl Pass {
    pub const ALL: [Self; 3] = [Self::Forward, Self::Weights, Self::Input];

    /// Returns the name that result tables use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Weights => "weights",
            Self::Input => "input",
        }
    }
}

/// The parameters and parameter gradients of an implementation, in its formats.
pub struct Parameters<B: Backend> {
    values: Arena<B>,
    gradients: Arena<B>,
    slots: Vec<Slot>,
}

impl<B: Backend> Parameters<B> {
    /// Creates parameters with small random values.
    pub fn new(backend: &B, plan: &dyn Planned<B>) -> Result<Self, backend::Error> {
        let mut end = 0;
        let slot = |format: B::Format| {
            let (offset, len) = (end, format.elems());
            // every parameter starts on a cache line
            end = (end + len).next_multiple_of(16);
            Slot { bucket: 0, offset, len }
        };
        let slots: Vec<Slot> = plan.formats().into_iter().map(slot).collect();
        let values = Arena { buckets: vec![noise(backend, end, 0.1)?] };
        Ok(Self { values, gradients: Arena::new(backend, &[end])?, slots })
    }
}

/// Tensors that all implementations of an operation share.
pub struct Tensors<'a, B: Backend> {
    backend: &'a B,
    x: B::Buf,
    dx: Option<B::Buf>,
    /// The output `y` and its gradient, allocated when the first implementation runs.
    ys: Option<[B::Buf; 2]>,
    ids: Vec<u64>,
}

impl<'a, B: Backend> Tensors<'a, B> {
    /// Creates an input with layout `x`, and its gradient if `wants_dx` is set.
    pub fn new(backend: &'a B, x: &TensorDesc, wants_dx: bool) -> Result<Self, backend::Error> {
        let dx = wants_dx.then(|| backend.alloc(x.elems())).transpose()?;
        Ok(Self { backend, x: noise(backend, x.elems(), 1.0)?, dx, ys: None, ids: (0..x.n as u64).collect() })
    }

    /// Runs a pass and returns its time in milliseconds.
    pub fn time(
        &mut self,
        plan: &mut dyn Planned<B>,
        with: &mut Parameters<B>,
        pass: Pass,
    ) -> Result<f64, backend::Error> {
        let elems = plan.output().elems();
        let [y, dy] = match &mut self.ys {
            Some(ys) => ys,
            none => none.insert([self.backend.alloc(elems)?, noise(self.backend, elems, 1.0)?]),
        };
        let Parameters { values, gradients, slots } = with;
        let around = backend::Pass {
            backend: self.backend,
            params: values,
            slots,
            running: &[],
            running_at: 0,
            training: true,
            // with `frozen`, the backward pass computes only the gradient of the input
            frozen: pass == Pass::Input,
            key: DrawKey { seed: 0, epoch: 0, ids: &self.ids },
            across: None,
        };
        let start = Instant::now();
        if pass == Pass::Forward {
            plan.forward(&around, &[&self.x], y)?;
        } else {
            let dx = self.dx.as_mut().filter(|_| pass == Pass::Input);
            plan.backward(&around, Gradients { x: &[&self.x], y, dy, dy2: None, dx: vec![dx], dparams: gradients })?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

/// Returns a buffer of random values between `-scale` and `scale`.
fn noise<B: Backend>(backend: &B, elems: usize, scale: f32) -> Result<B::Buf, backend::Error> {
    let mut draws = Draws::new(1, 0, 0, 0);
    let drawn: Vec<f32> = (0..DISTINCT_VALUES.min(elems)).map(|_| scale * (2.0 * draws.unit() - 1.0)).collect();
    let mut buffer = backend.alloc(elems)?;
    for first in (0..elems).step_by(DISTINCT_VALUES) {
        buffer.write(first, &drawn[..DISTINCT_VALUES.min(elems - first)])?;
    }
    Ok(buffer)
}

/// A convolution given by its sizes counts as a network's first layer if it has at most this number of input channels.
const IMAGE: usize = 4;

/// A convolution given by its sizes. It has SAME padding, computed for stride 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    input: Shape,
    conv: Conv,
}

impl std::str::FromStr for Convolution {
    type Err = String;

    /// Parses `KERNEL,IN,OUT,HEIGHT,WIDTH`, optionally followed by `,STRIDE,GROUPS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| match word.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("expected integers >= 1, got {word:?}")),
        };
        let numbers = text.split(',').map(number).collect::<Result<Vec<usize>, _>>()?;
        let [kernel, inputs, outputs, height, width, ref more @ ..] = numbers[..] else {
            return Err("expected KERNEL,IN,OUT,HEIGHT,WIDTH, optionally followed by ,STRIDE,GROUPS".into());
        };
        let (stride, groups) = match more {
            [] => (1, 1),
            [stride] => (*stride, 1),
            [stride, groups] => (*stride, *groups),
            _ => return Err("expected at most 7 numbers: KERNEL,IN,OUT,HEIGHT,WIDTH,STRIDE,GROUPS".into()),
        };
        let input = Shape::image(inputs, height, width);
        // the stride does not change the padding, as in PyTorch's networks
        let conv = Conv::new(outputs, kernel).same(input).stride(stride).groups(groups);
        Op::Conv(conv.clone()).output(&[input])?;
        Ok(Self { input, conv })
    }
}

/// An operation to measure, without ReLU.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub op: Op,
    /// Shape of one input sample, without the batch dimension.
    pub input: Shape,
    /// True if the operation reads the images. Their gradient is not needed.
    pub image: bool,
}

impl Case {
    /// Returns a plan request for an input with layout `x`.
    pub fn request<'a, B: Backend>(&'a self, x: &'a [TensorDesc]) -> PlanRequest<'a, B> {
        let shapes = std::slice::from_ref(&self.input);
        PlanRequest { wants_dx: !self.image, ..PlanRequest::alone("bench ops", &self.op, shapes, x) }
    }

    /// Multiply-adds per pass and sample.
    pub fn macs(&self) -> u64 {
        self.op.macs(self.input)
    }

    /// Returns a short description of the operation and its sizes for tables.
    pub fn describe(&self) -> String {
        let Shape { c, h, w } = self.input;
        match &self.op {
            Op::Conv(conv) => {
                let pair = |[a, b]: [usize; 2]| if a == b { a.to_string() } else { format!("{a}x{b}") };
                let mut text = format!("{} {c}>{} {h}x{w}", pair(conv.kernel), conv.out_channels);
                for (what, value, usual) in [
                    ("/", pair(conv.stride), "1"),
                    (" groups ", conv.groups.to_string(), "1"),
                    (" gaps ", pair(conv.dilation), "1"),
                ] {
                    text += &if value == usual { String::new() } else { format!("{what}{value}") };
                }
                text
            }
            Op::Linear(linear) => format!("linear {}>{}", self.input.elems(), linear.out_features),
            other => other.kind().into(),
        }
    }
}

/// Copies a convolution without the properties that do not affect its time, such as ReLU, initial values, and names in
/// files.
fn bare(conv: &Conv) -> Conv {
    let Conv { kernel, stride, pads, dilation, groups, bias, .. } = *conv;
    Conv { kernel, stride, pads, dilation, groups, bias, ..Conv::new(conv.out_channels, 1) }
}

/// Collects the convolutions and linear layers of the given networks, and then the given convolutions. Equal operations
/// appear only once, with the name of the first layer that uses them.
pub fn cases(models: &[String], convolutions: &[Convolution]) -> Result<Vec<(String, Case)>, Error> {
    let mut cases: Vec<(String, Case)> = Vec::new();
    let mut add = |name: String, case: Case| {
        if cases.iter().all(|(_, other)| *other != case) {
            cases.push((name, case));
        }
    };
    for model in models {
        let unknown = || Error::Usage(net::models::unknown(model));
        let network = net::models::find(model).ok_or_else(unknown)?;
        let net = (network.build)(network.name, network.input, network.classes);
        let shapes = net.shapes().map_err(BuildError::from)?;
        for node in &net.nodes {
            let op = match &node.op {
                Op::Conv(conv) => Op::Conv(bare(conv)),
                Op::Linear(linear) => Op::Linear(Linear { bias: linear.bias, ..Linear::new(linear.out_features) }),
                _ => continue,
            };
            let from = node.inputs[0];
            let input = match op {
                Op::Linear(_) => Shape::vector(shapes[from.0].elems()),
                _ => shapes[from.0],
            };
            add(format!("{model} {}", node.name), Case { op, input, image: from == net.image() });
        }
    }
    for Convolution { input, conv } in convolutions {
        let case = Case { op: Op::Conv(conv.clone()), input: *input, image: input.c <= IMAGE };
        add("--shape".into(), case);
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_operations_are_measured_once() {
        let ops = |models: &[&str], shapes: &[&str]| -> Vec<String> {
            let models: Vec<String> = models.iter().map(|name| name.to_string()).collect();
            let shapes: Vec<Convolution> = shapes.iter().map(|shape| shape.parse().unwrap()).collect();
            cases(&models, &shapes).unwrap().into_iter().map(|(_, case)| case.describe()).collect()
        };
        let resnet = ops(&["resnet20"], &[]);
        let wanted =
            ["3 3>16 32x32", "3 16>16 32x32", "3 16>32 32x32/2", "3 32>32 16x16", "3 32>64 16x16/2", "3 64>64 8x8"];
        assert_eq!(resnet[..6], wanted);
        assert_eq!(resnet[6..], ["linear 64>10"]);
        assert_eq!(ops(&["resnet20", "resnet56"], &["3,64,64,8,8", "3,16,32,32,32,2"]), resnet);
        assert_eq!(ops(&[], &["5,64,32,7,9,2,4"]), ["5 64>32 7x9/2 groups 4"]);
    }
}
