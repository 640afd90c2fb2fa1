//! Convolution: attributes, shapes, cost.

use std::ops::Range;

use super::shape::{Shape, pads_text, same_padding, window_steps};
use super::spec::{Init, KerasOrder, OpSpec, ParamSpec, StoredTensor, product};
use super::toml_keys::{Keys, OpFormat};

/// Two-dimensional cross-correlation, as in every deep learning library. The weight has layout OIHW with I = in /
/// groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    pub out_channels: usize,
    pub kernel: [usize; 2],
    /// Vertical and horizontal step of the kernel.
    pub stride: [usize; 2],
    /// Padding at top, left, bottom and right.
    pub pads: [usize; 4],
    /// Vertical and horizontal distance between adjacent cells of the kernel. It is 1 for ordinary convolutions.
    pub dilation: [usize; 2],
    pub groups: usize,
    pub bias: bool,
    /// True if max(x, 0) follows in the same pass.
    pub relu: bool,
    /// True if PyTorch writes this as a fully connected layer over the channels of each pixel (`nn.Linear`). Files for
    /// PyTorch then have the weight as (out, in). Allowed only for a 1x1 kernel with stride 1 and one group.
    pub linear: bool,
    /// False if the output channels are queries, keys and values for attention, and the keys have no bias: the middle
    /// third of the bias is 0 (Liu et al. 2021, arXiv 2111.09883). Allowed only with `linear` and `bias`.
    pub key_bias: bool,
    pub init: Init,
    pub bias_init: Init,
}

impl Conv {
    /// Creates a convolution with a square kernel, stride 1, no padding, no bias and no ReLU.
    pub fn new(out_channels: usize, k: usize) -> Self {
        Self {
            out_channels,
            kernel: [k, k],
            stride: [1, 1],
            pads: [0; 4],
            dilation: [1, 1],
            groups: 1,
            bias: false,
            relu: false,
            linear: false,
            key_bias: true,
            init: Init::HeNormalFanIn,
            bias_init: Init::Constant(0.0),
        }
    }

    /// Sets the stride in both directions.
    pub fn stride(mut self, s: usize) -> Self {
        self.stride = [s, s];
        self
    }

    /// Sets the same padding on all four sides.
    pub fn pad(mut self, p: usize) -> Self {
        self.pads = [p; 4];
        self
    }

    /// Sets the padding at top, left, bottom and right.
    pub fn pads(mut self, pads: [usize; 4]) -> Self {
        self.pads = pads;
        self
    }

    /// Sets height and width of the kernel.
    pub fn kernel(mut self, kernel: [usize; 2]) -> Self {
        self.kernel = kernel;
        self
    }

    /// Sets TensorFlow's SAME padding for an input of this size: the output has size ceil(size / stride). If the
    /// padding is odd, the extra zero goes to the bottom or right.
    pub fn same(mut self, x: Shape) -> Self {
        self.pads = same_padding(x, self.extent(), self.stride);
        self
    }

    /// Sets the dilation in both directions.
    pub fn dilation(mut self, d: usize) -> Self {
        self.dilation = [d, d];
        self
    }

    /// Returns height and width of the area that the dilated kernel spans.
    pub fn extent(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.kernel[axis].saturating_sub(1) * self.dilation[axis] + 1)
    }

    /// Returns true if the groups divide the input channels and the output channels.
    fn divides(&self, x: Shape) -> bool {
        self.groups > 0 && x.c.is_multiple_of(self.groups) && self.out_channels.is_multiple_of(self.groups)
    }

    /// Sets the number of groups of channels. With as many groups as the input has channels, the convolution is
    /// depthwise: each channel has its own filters.
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// Adds a bias that is initialised to `start`.
    pub fn bias(self, start: f32) -> Self {
        self.bias_from(Init::Constant(start))
    }

    /// Adds a bias with this initialisation.
    pub fn bias_from(mut self, init: Init) -> Self {
        self.bias = true;
        self.bias_init = init;
        self
    }

    /// Applies ReLU in the same pass.
    pub fn relu(mut self) -> Self {
        self.relu = true;
        self
    }

    /// Marks the convolution as a fully connected layer in files for PyTorch.
    pub fn linear(mut self) -> Self {
        self.linear = true;
        self
    }

    /// Removes the bias of the keys, see [`Conv::key_bias`].
    pub fn without_key_bias(mut self) -> Self {
        self.key_bias = false;
        self
    }

    /// Returns the channels with a bias of 0.
    pub fn zero_bias(&self) -> Range<usize> {
        let third = if self.key_bias { 0 } else { self.out_channels / 3 };
        third..2 * third
    }

    pub fn init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }
}

impl OpSpec for Conv {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        let x = x[0];
        if !self.divides(x) {
            return Err(format!(
                "{} input and {} output channels cannot be divided into {} groups",
                x.c, self.out_channels, self.groups
            ));
        }
        if self.kernel.contains(&0) || self.dilation.contains(&0) {
            return Err(format!("kernel {:?} and dilation {:?} must be at least 1", self.kernel, self.dilation));
        }
        if self.linear && (self.kernel, self.stride, self.groups) != ([1; 2], [1; 2], 1) {
            return Err("linear = true requires kernel 1, stride 1 and one group".into());
        }
        if !(self.key_bias || self.linear && self.bias && self.out_channels.is_multiple_of(3)) {
            return Err("key_bias = false requires linear, bias, and a multiple of 3 channels".into());
        }
        let [top, left, bottom, right] = self.pads;
        let [kh, kw] = self.extent();
        let h = window_steps(x.h + top + bottom, kh, self.stride[0]);
        let w = window_steps(x.w + left + right, kw, self.stride[1]);
        match (h, w) {
            (Some(h), Some(w)) => Ok(Shape::image(self.out_channels, h, w)),
            _ => {
                let (x, pads) = (x.with_plane(), pads_text(self.pads));
                Err(format!("a kernel that spans {kh}x{kw} does not fit into {x}{pads}"))
            }
        }
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        let shape = vec![self.out_channels, x.c / self.groups, self.kernel[0], self.kernel[1]];
        let mut params = vec![ParamSpec::new("weight", shape, self.init)];
        if self.bias {
            params.push(ParamSpec { zeros: self.zero_bias(), ..params[0].bias(self.bias_init) });
        }
        params
    }

    fn macs(&self, x: Shape) -> u64 {
        let y = self.output(&[x]).ok();
        y.map_or(0, |y| product(&[y.c, y.h, y.w, x.c / self.groups, self.kernel[0], self.kernel[1]]))
    }
}

impl OpFormat for Conv {
    const WORDS: &'static [&'static str] = &["conv"];
    const TENSORS: &'static [StoredTensor] = &[
        StoredTensor::parameter("weight", "kernel", KerasOrder::Filters),
        StoredTensor::parameter("bias", "bias", KerasOrder::Vector),
    ];

    fn cure(&self, inputs: &[Shape]) -> &'static str {
        let [x] = *inputs else { return "" };
        if !self.divides(x) {
            return "groups must divide the input and output channels";
        }
        let [top, left, bottom, right] = self.pads;
        let [kh, kw] = self.extent();
        if kh > x.h + top + bottom || kw > x.w + left + right {
            return "try a smaller kernel or dilation, a larger pad, or a smaller stride in an earlier layer";
        }
        ""
    }

    fn plain(_: &str) -> Self {
        Self::new(0, 1)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        keys.needed("channels", &mut self.out_channels);
        keys.needed("kernel", &mut self.kernel);
        keys.key("stride", &mut self.stride);
        keys.key("dilation", &mut self.dilation);
        let same = self.clone();
        let input = keys.input();
        let Self {
            out_channels: _,
            kernel: _,
            stride: _,
            dilation: _,
            pads,
            groups,
            bias,
            relu,
            linear,
            key_bias,
            init,
            bias_init,
        } = self;
        keys.pads(pads, || same.same(input).pads);
        keys.key("groups", groups);
        keys.key("bias", bias);
        keys.key("relu", relu);
        keys.key("linear", linear);
        keys.key("key_bias", key_bias);
        keys.key("init", init);
        keys.key("bias_init", bias_init);
    }
}
