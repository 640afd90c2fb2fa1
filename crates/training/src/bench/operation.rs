//! The operations that `trireme bench ops` measures, and the time of each of their passes alone, on made-up tensors: the convolutions and
//! linear layers of networks, or convolutions of given sizes.

use std::time::Instant;

use backend::{Arena, Backend, Buffer, DrawKey, Gradients, ParamFormat, PlanRequest, Planned, Slot, TensorDesc};
use engine::graph::BuildError;
use loaders::Draws;
use net::{Conv, Linear, Op, Shape};

use crate::error::Error;

/// Values that are drawn; longer tensors repeat them.
const DRAWN: usize = 1 << 16;

/// A pass of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The output.
    Forward,
    /// The parameters' gradients.
    Weights,
    /// The input's gradient.
    Input,
}

impl Pass {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Weights, Self::Input];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Weights => "weights",
            Self::Input => "input",
        }
    }
}

/// An implementation's parameters and their gradients, in its formats.
pub struct Parameters<B: Backend> {
    values: Arena<B>,
    gradients: Arena<B>,
    slots: Vec<Slot>,
}

impl<B: Backend> Parameters<B> {
    /// Small values.
    pub fn new(backend: &B, plan: &dyn Planned<B>) -> Result<Self, backend::Error> {
        let mut end = 0;
        let slot = |format: B::Format| {
            let (offset, len) = (end, format.elems());
            // each on a cache line
            end = (end + len).next_multiple_of(16);
            Slot { chunk: 0, offset, len }
        };
        let slots: Vec<Slot> = plan.formats().into_iter().map(slot).collect();
        let values = Arena { chunks: vec![noise(backend, end, 0.1)?] };
        Ok(Self { values, gradients: Arena::new(backend, &[end])?, slots })
    }
}

/// The tensors that all implementations share.
pub struct Work<'a, B: Backend> {
    backend: &'a B,
    x: B::Buf,
    dx: Option<B::Buf>,
    /// The output and its gradient, made for the first implementation.
    ys: Option<[B::Buf; 2]>,
    ids: Vec<u64>,
}

impl<'a, B: Backend> Work<'a, B> {
    /// For inputs in this layout, and their gradient if it is wanted.
    pub fn new(backend: &'a B, x: &TensorDesc, wants_dx: bool) -> Result<Self, backend::Error> {
        let dx = wants_dx.then(|| backend.alloc(x.elems())).transpose()?;
        Ok(Self { backend, x: noise(backend, x.elems(), 1.0)?, dx, ys: None, ids: (0..x.n as u64).collect() })
    }

    /// Milliseconds of one pass.
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
            // then only the input's gradient is made
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

/// Values between `-scale` and `scale`.
fn noise<B: Backend>(backend: &B, elems: usize, scale: f32) -> Result<B::Buf, backend::Error> {
    let mut draws = Draws::new(1, 0, 0, 0);
    let drawn: Vec<f32> = (0..DRAWN.min(elems)).map(|_| scale * (2.0 * draws.unit() - 1.0)).collect();
    let mut buffer = backend.alloc(elems)?;
    for first in (0..elems).step_by(DRAWN) {
        buffer.write(first, &drawn[..DRAWN.min(elems - first)])?;
    }
    Ok(buffer)
}

/// Channels up to which an input is the image itself, as a network's first layer reads it, where sizes are given.
const IMAGE: usize = 4;

/// A convolution padded as SAME at stride 1, from its sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    input: Shape,
    conv: Conv,
}

impl std::str::FromStr for Convolution {
    type Err = String;

    /// `KERNEL,IN,OUT,HEIGHT,WIDTH`, and perhaps `,STRIDE,GROUPS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| match word.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("{word:?} is no number above 0")),
        };
        let numbers = text.split(',').map(number).collect::<Result<Vec<usize>, _>>()?;
        let [kernel, inputs, outputs, height, width, ref more @ ..] = numbers[..] else {
            return Err("expected KERNEL,IN,OUT,HEIGHT,WIDTH, and perhaps ,STRIDE,GROUPS".into());
        };
        let (stride, groups) = match more {
            [] => (1, 1),
            [stride] => (*stride, 1),
            [stride, groups] => (*stride, *groups),
            _ => return Err("after STRIDE and GROUPS nothing may follow".into()),
        };
        let input = Shape::image(inputs, height, width);
        // strides leave the padding as it is, as networks of PyTorch have it
        let conv = Conv::new(outputs, kernel).same(input).stride(stride).groups(groups);
        Op::Conv(conv.clone()).output(&[input])?;
        Ok(Self { input, conv })
    }
}

/// An operation of a network, without ReLU: equal ones are measured once.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What is computed.
    pub op: Op,
    /// One sample of what goes in.
    pub input: Shape,
    /// Whether it reads the network's image, whose gradient nobody wants.
    pub image: bool,
}

impl Case {
    /// For an input that lies like this.
    pub fn request<'a, B: Backend>(&'a self, x: &'a [TensorDesc]) -> PlanRequest<'a, B> {
        let shapes = std::slice::from_ref(&self.input);
        PlanRequest { wants_dx: !self.image, ..PlanRequest::alone("bench ops", &self.op, shapes, x) }
    }

    /// Multiply-adds of a pass of one sample.
    pub fn macs(&self) -> u64 {
        self.op.macs(self.input)
    }

    /// As a person names it.
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

/// Without what changes no time: ReLU, first values, how files have it.
fn bare(conv: &Conv) -> Conv {
    let Conv { kernel, stride, pads, dilation, groups, bias, .. } = *conv;
    Conv { kernel, stride, pads, dilation, groups, bias, ..Conv::new(conv.out_channels, 1) }
}

/// The convolutions and linear layers of networks, then these convolutions, each once, with the name of the first layer that it is.
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
