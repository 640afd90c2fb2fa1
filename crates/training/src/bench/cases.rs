//! The operations that `trireme bench ops` measures: the convolutions and linear layers of networks, or convolutions of given sizes.

use backend::{Backend, PlanRequest, TensorDesc};
use engine::graph::BuildError;
use net::{Conv, Linear, Op, Shape};

use crate::error::Error;

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
