//! Parts that several families share: convolution with batch norm and activation, squeeze and excitation, and the
//! classifier at the end.

use crate::{
    Activation, Add, Conv, DropPath, Dropout, Flatten, Id, Init, Linear, Multiply, NetSpec, Norm, Pool, PoolKind,
};

/// Returns a convolution whose padding keeps height and width, which are then divided by the stride. It has no bias,
/// because a norm follows. It is initialised as in torchvision's residual networks.
pub fn conv(channels: usize, k: usize, stride: usize) -> Conv {
    Conv::new(channels, k).stride(stride).pad(k / 2).init(Init::HeNormalFanOut)
}

/// Returns a max pool without padding.
pub fn max_pool(window: usize, stride: usize) -> Pool {
    Pool::new(PoolKind::Max, window, stride)
}

/// Adds a convolution, batch norm, and the activation if there is one. `names` are the names of the convolution and the
/// norm.
pub fn conv_norm_act(
    net: &mut NetSpec,
    names: [&str; 2],
    conv: Conv,
    norm: Norm,
    act: Option<Activation>,
    x: Id,
) -> Id {
    let x = net.add(names[0], conv, x);
    norm_act(net, names[1], norm, act, x)
}

/// Works like [`conv_norm_act`] with the names that PyTorch gives the elements of a sequence: `path.0` and `path.1`.
pub fn unit(net: &mut NetSpec, path: &str, conv: Conv, norm: Norm, act: Option<Activation>, x: Id) -> Id {
    conv_norm_act(net, [&format!("{path}.0"), &format!("{path}.1")], conv, norm, act, x)
}

/// Adds batch norm, and the activation if there is one. ReLU runs in the same pass, other activations are separate
/// layers.
pub fn norm_act(net: &mut NetSpec, name: &str, norm: Norm, act: Option<Activation>, x: Id) -> Id {
    match act {
        None => net.add(name, norm, x),
        Some(Activation::Relu) => net.add(name, norm.relu(), x),
        Some(act) => {
            let x = net.add(name, norm, x);
            net.add(&format!("{name}.act"), act, x)
        }
    }
}

/// Squeeze and excitation (Hu et al. 2018, arXiv 1709.01507): a factor per channel, computed from the means of all
/// channels.
pub struct SqueezeExcite {
    /// Channels between the two 1x1 convolutions.
    pub channels: usize,
    /// Activation after the first convolution.
    pub act: Activation,
    /// Activation after the second convolution.
    pub gate: Activation,
    /// Initialisation of weights and biases.
    pub init: [Init; 2],
}

impl SqueezeExcite {
    /// Adds the layers at `path`. `x` has `width` channels.
    pub fn add(&self, net: &mut NetSpec, path: &str, width: usize, x: Id) -> Id {
        let full = |channels| Conv::new(channels, 1).init(self.init[0]).bias_from(self.init[1]);
        let s = net.add(&format!("{path}.avgpool"), Pool::global(), x);
        let s = net.add(&format!("{path}.fc1"), full(self.channels), s);
        let s = net.add(&format!("{path}.activation"), self.act, s);
        let s = net.add(&format!("{path}.fc2"), full(width), s);
        let s = net.add(&format!("{path}.scale_activation"), self.gate, s);
        net.join(&format!("{path}.scale"), Multiply, &[x, s])
    }
}

/// An inverted residual block as in torchvision: its inner convolutions have many channels, its input and output few.
pub struct InvertedResidual {
    /// Channels of the input.
    pub channels: usize,
    /// Channels of the depthwise convolution.
    pub wide: usize,
    pub kernel: usize,
    pub stride: usize,
    pub out: usize,
    pub act: Activation,
    pub squeeze: Option<SqueezeExcite>,
    pub norm: Norm,
    /// Rate of stochastic depth.
    pub drop: f32,
}

impl InvertedResidual {
    /// Adds a 1x1 convolution to `wide` channels (unless the input has as many), a depthwise convolution, squeeze and
    /// excitation if there is one, and a 1x1 convolution without activation. If the shape is unchanged, also adds the
    /// block's input.
    pub fn add(self, net: &mut NetSpec, path: &str, x: Id) -> Id {
        let (mut y, mut at, wide) = (x, 0, self.wide);
        let mut place = || {
            at += 1;
            format!("{path}.{}", at - 1)
        };
        if wide != self.channels {
            y = unit(net, &place(), conv(wide, 1, 1), self.norm.clone(), Some(self.act), y);
        }
        let depthwise = conv(wide, self.kernel, self.stride).groups(wide);
        y = unit(net, &place(), depthwise, self.norm.clone(), Some(self.act), y);
        if let Some(squeeze) = &self.squeeze {
            y = squeeze.add(net, &place(), wide, y);
        }
        let last = place();
        y = net.add(&format!("{last}.0"), conv(self.out, 1, 1), y);
        let shortcut = (self.stride == 1 && self.channels == self.out).then_some(x);
        norm_add(net, &format!("{last}.1"), self.norm, self.drop, y, shortcut)
    }
}

/// Adds the end of most networks: the mean of each channel, dropout unless its rate is 0, and the linear layer
/// `scores`.
pub fn classify(net: &mut NetSpec, name: &str, dropout: f32, scores: Linear, x: Id) -> Id {
    let x = net.add("avgpool", Pool::global(), x);
    let x = net.add("flatten", Flatten, x);
    let x = if dropout > 0.0 { net.add("dropout", Dropout(dropout), x) } else { x };
    net.add(name, scores, x)
}

/// Returns the linear layer of networks whose scores start uniformly within 1 / sqrt(classes).
pub fn uniform_scores(classes: usize) -> Linear {
    Linear::new(classes).init(Init::Uniform(1.0 / (classes.max(1) as f32).sqrt()))
}

/// Returns `channels` times a factor, rounded to a multiple of 8 that is at least nine tenths of the exact product
/// (MobileNet's rounding).
pub fn scaled(channels: usize, factor: f64) -> usize {
    let exact = channels as f64 * factor;
    let near = (((exact + 4.0) / 8.0) as usize * 8).max(8);
    if (near as f64) < 0.9 * exact { near + 8 } else { near }
}

/// Ends a residual branch with batch norm: normalises `y`. With a shortcut, also sets `y` to zero for a fraction `drop`
/// of the samples (stochastic depth), and adds the shortcut.
pub fn norm_add(net: &mut NetSpec, name: &str, norm: Norm, drop: f32, y: Id, shortcut: Option<Id>) -> Id {
    match shortcut {
        Some(x) if drop == 0.0 => net.join(name, norm.residual(), &[y, x]),
        Some(x) => {
            let y = net.add(name, norm, y);
            drop_add(net, name, drop, y, x)
        }
        None => net.add(name, norm, y),
    }
}

/// Ends a residual branch: sets `y` to zero for a fraction `drop` of the samples (stochastic depth), and adds `x`.
pub fn drop_add(net: &mut NetSpec, name: &str, drop: f32, y: Id, x: Id) -> Id {
    let y = if drop > 0.0 { net.add(&format!("{name}.drop_path"), DropPath(drop), y) } else { y };
    net.join(&format!("{name}.add"), Add, &[y, x])
}

/// Sets TensorFlow's SAME padding, which depends on the input size. An invalid network is reported when its shapes are
/// checked.
pub fn same(net: &NetSpec, conv: Conv, x: Id) -> Conv {
    if conv.stride == [1, 1] {
        let pad = conv.kernel[0] / 2;
        return conv.pad(pad);
    }
    net.shapes().map_or(conv.clone(), |shapes| conv.same(shapes[x.0]))
}
