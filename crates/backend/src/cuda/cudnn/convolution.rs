//! A convolution as a cuDNN graph: forward with bias and ReLU, and both gradients.

use std::fmt;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind, cudnnConvolutionMode_t, cudnnDataType_t,
    cudnnPointwiseMode_t,
};

use net::{Conv, Shape};

use super::descriptor::{Descriptor, Device};
use crate::{Error, Precision};

/// A convolution's sizes and attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    pub n: usize,
    /// Channels, height and width of the input.
    pub x: [usize; 3],
    /// Channels, height and width of the output.
    pub y: [usize; 3],
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Padding at top, left, bottom and right.
    pub pads: [usize; 4],
    /// Vertical and horizontal dilation.
    pub dilation: [usize; 2],
    pub groups: usize,
    pub precision: Precision,
}

impl Convolution {
    /// Returns the sizes of a layer with input shape `x` and output shape `y` over `n` images.
    pub fn new(op: &Conv, n: usize, [x, y]: [Shape; 2], precision: Precision) -> Self {
        Self {
            n,
            x: [x.c, x.h, x.w],
            y: [y.c, y.h, y.w],
            kernel: op.kernel,
            stride: op.stride,
            pads: op.pads,
            dilation: op.dilation,
            groups: op.groups,
            precision,
        }
    }
}

/// The pass of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The forward pass: y from x and w.
    Forward { bias: bool, relu: bool },
    /// The input gradient: dx from dy and w.
    Data,
    /// The filter gradient: dw from dy and x.
    Filter,
}

impl fmt::Display for Convolution {
    /// Writes everything except the number of images.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |of: &[usize], between: &str| of.iter().map(usize::to_string).collect::<Vec<_>>().join(between);
        let (x, y, kernel, stride) =
            (list(&self.x, "x"), list(&self.y, "x"), list(&self.kernel, "x"), list(&self.stride, "x"));
        let (pads, groups, precision) = (list(&self.pads, ","), self.groups, self.precision);
        write!(f, "convolution {x} to {y}, kernel {kernel}, stride {stride}, pads {pads}, ")?;
        if self.dilation != [1, 1] {
            write!(f, "dilation {}, ", list(&self.dilation, "x"))?;
        }
        write!(f, "groups {groups}, {precision}")
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Forward { bias: false, relu: false } => "forward",
            Direction::Forward { bias: true, relu: false } => "forward with bias",
            Direction::Forward { bias: false, relu: true } => "forward with ReLU",
            Direction::Forward { bias: true, relu: true } => "forward with bias and ReLU",
            Direction::Data => "gradient of the input",
            Direction::Filter => "gradient of the weights",
        })
    }
}

/// Ids of the tensors in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum Tensor {
    /// The input x or its gradient.
    X = 1,
    /// The weights w or their gradient.
    W = 2,
    /// The output y or its gradient.
    Y = 3,
    Bias = 4,
}

/// Ids of tensors that exist only inside the engine.
const CONVOLVED: i64 = 5;
const BIASED: i64 = 6;

fn data_type(precision: Precision) -> cudnnDataType_t {
    match precision {
        Precision::F32 => cudnnDataType_t::CUDNN_DATA_FLOAT,
        Precision::Bf16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        Precision::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
    }
}

/// A finalised graph and the descriptors that it refers to.
pub struct Graph {
    pub root: Descriptor,
    _parts: Vec<Descriptor>,
}

/// Creates a descriptor of an (n, c, h, w) tensor that is stored channels last. A tensor that is not `real` exists only
/// inside the engine.
fn tensor(id: i64, dims: [usize; 4], kind: cudnnDataType_t, real: bool) -> Result<Descriptor, Error> {
    let [n, c, h, w] = dims.map(|d| d as i64);
    let t = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
    t.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[kind])?;
    t.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &[n, c, h, w])?;
    t.set(Name::CUDNN_ATTR_TENSOR_STRIDES, &[h * w * c, 1, w * c, c])?;
    t.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?;
    t.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16i64])?;
    if !real {
        t.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])?;
    }
    t.finalize("a tensor")?;
    Ok(t)
}

fn pointwise(
    mode: cudnnPointwiseMode_t,
    x: &Descriptor,
    b: Option<&Descriptor>,
    y: &Descriptor,
) -> Result<[Descriptor; 2], Error> {
    let function = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
    function.set(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode])?;
    function.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[cudnnDataType_t::CUDNN_DATA_FLOAT])?;
    function.finalize("a pointwise function")?;
    let op = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
    op.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&function])?;
    op.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[x])?;
    if let Some(b) = b {
        op.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[b])?;
    }
    op.refer(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[y])?;
    op.finalize("a pointwise operation")?;
    Ok([op, function])
}

impl Convolution {
    fn x_dims(&self) -> [usize; 4] {
        [self.n, self.x[0], self.x[1], self.x[2]]
    }

    fn y_dims(&self) -> [usize; 4] {
        [self.n, self.y[0], self.y[1], self.y[2]]
    }

    fn w_dims(&self) -> [usize; 4] {
        [self.y[0], self.x[0] / self.groups, self.kernel[0], self.kernel[1]]
    }

    /// Returns how many elements x, w and y have.
    pub fn elems(&self) -> [usize; 3] {
        [self.x_dims(), self.w_dims(), self.y_dims()].map(|d| d.iter().product())
    }

    fn attributes(&self) -> Result<Descriptor, Error> {
        let pair = |a: usize, b: usize| [a as i64, b as i64];
        let [top, left, bottom, right] = self.pads;
        let c = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
        c.set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[cudnnDataType_t::CUDNN_DATA_FLOAT])?;
        c.set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION])?;
        c.set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2i64])?;
        c.set(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &pair(self.dilation[0], self.dilation[1]))?;
        c.set(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &pair(self.stride[0], self.stride[1]))?;
        c.set(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &pair(top, left))?;
        c.set(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &pair(bottom, right))?;
        c.finalize("a convolution's attributes")?;
        Ok(c)
    }

    /// Builds and finalises the graph for a direction.
    pub fn graph(&self, direction: Direction, device: &Device<'_>) -> Result<Graph, Error> {
        let own = data_type(self.precision);
        let within = cudnnDataType_t::CUDNN_DATA_FLOAT;
        let (bias, relu) = match direction {
            Direction::Forward { bias, relu } => (bias, relu),
            _ => (false, false),
        };
        let plain = !bias && !relu;
        let x = tensor(Tensor::X as i64, self.x_dims(), own, true)?;
        let w = tensor(Tensor::W as i64, self.w_dims(), own, true)?;
        let y = tensor(Tensor::Y as i64, self.y_dims(), own, true)?;
        let attributes = self.attributes()?;
        let mut parts = Vec::new();
        let mut operations = Vec::new();
        if plain {
            operations.push(self.operation(direction, &attributes, [&x, &w, &y])?);
        } else {
            let convolved = tensor(CONVOLVED, self.y_dims(), within, false)?;
            operations.push(self.operation(direction, &attributes, [&x, &w, &convolved])?);
            let mut last = convolved;
            if bias {
                let b = tensor(Tensor::Bias as i64, [1, self.y[0], 1, 1], own, true)?;
                let biased = if relu { Some(tensor(BIASED, self.y_dims(), within, false)?) } else { None };
                let to = biased.as_ref().unwrap_or(&y);
                let [op, f] = pointwise(cudnnPointwiseMode_t::CUDNN_POINTWISE_ADD, &last, Some(&b), to)?;
                operations.push(op);
                parts.extend([b, f]);
                if let Some(biased) = biased {
                    parts.push(std::mem::replace(&mut last, biased));
                }
            }
            if relu {
                let [op, f] = pointwise(cudnnPointwiseMode_t::CUDNN_POINTWISE_RELU_FWD, &last, None, &y)?;
                operations.push(op);
                parts.push(f);
            }
            parts.push(last);
        }
        let root = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        if let Some(handle) = device.handle() {
            root.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[handle])?;
        }
        root.refer(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations.iter().collect::<Vec<_>>())?;
        root.finalize("a convolution")?;
        parts.extend([x, w, y, attributes]);
        parts.extend(operations);
        Ok(Graph { root, _parts: parts })
    }

    fn operation(
        &self,
        direction: Direction,
        attributes: &Descriptor,
        [x, w, y]: [&Descriptor; 3],
    ) -> Result<Descriptor, Error> {
        use Name::*;
        let (kind, [alpha, beta, conv, x_name, w_name, y_name]) = match direction {
            Direction::Forward { .. } => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                ],
            ),
            Direction::Data => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                ],
            ),
            Direction::Filter => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                ],
            ),
        };
        let op = Descriptor::new(kind)?;
        op.set(alpha, &[1f32])?;
        op.set(beta, &[0f32])?;
        op.refer(conv, &[attributes])?;
        op.refer(x_name, &[x])?;
        op.refer(w_name, &[w])?;
        op.refer(y_name, &[y])?;
        op.finalize("a convolution")?;
        Ok(op)
    }
}
