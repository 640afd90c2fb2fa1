//! Vision transformers (Dosovitskiy et al. 2021, arXiv 2010.11929) as in torchvision. Fully connected layers over tokens
//! are 1x1 convolutions here.

use crate::{
    Activation, Add, Attention, ClassToken, Conv, Flatten, Id, Init, LayerNorm, Linear, NetSpec, Pool,
    PositionEmbedding, Shape, Token,
};

/// Sizes in a vision transformer.
pub struct Size {
    /// Height and width of a patch.
    pub patch: usize,
    pub layers: usize,
    pub heads: usize,
    /// Features per token.
    pub width: usize,
    /// Features between the two linear layers in each perceptron.
    pub hidden: usize,
}

pub const B16: Size = Size { patch: 16, layers: 12, heads: 12, width: 768, hidden: 3072 };
pub const B32: Size = Size { patch: 32, ..B16 };
pub const L16: Size = Size { patch: 16, layers: 24, heads: 16, width: 1024, hidden: 4096 };
pub const L32: Size = Size { patch: 32, ..L16 };
pub const H14: Size = Size { patch: 14, layers: 32, heads: 16, width: 1280, hidden: 5120 };
pub const S16: Size = Size { patch: 16, layers: 12, heads: 6, width: 384, hidden: 1536 };
pub const TI4: Size = Size { patch: 4, layers: 12, heads: 3, width: 192, hidden: 768 };

/// Creates a network with these layers: patches, class token, position embedding, the encoder's layers, layer norm, and
/// a linear layer on the class token.
pub fn torchvision(name: &str, input: Shape, classes: usize, size: Size) -> NetSpec {
    let (mut net, x) = patches(name, input, &size);
    let x = net.add("class_token", ClassToken, x);
    let x = net.add("encoder.pos_embedding", PositionEmbedding::default(), x);
    let x = add_encoder(&mut net, &size, x);
    let x = net.add("encoder.token", Token(0), x);
    add_head(&mut net, classes, x);
    net
}

/// Creates the network by Beyer et al. 2022 (arXiv 2205.01580), with a linear layer as its head: there is no class token,
/// the scores are computed from the mean of all positions, and the position embedding consists of sines and cosines.
pub fn averaged(name: &str, input: Shape, classes: usize, size: Size) -> NetSpec {
    let (mut net, x) = patches(name, input, &size);
    let x = net.add("encoder.pos_embedding", PositionEmbedding { sincos: true }, x);
    let x = add_encoder(&mut net, &size, x);
    let x = net.add("encoder.avgpool", Pool::global(), x);
    add_head(&mut net, classes, x);
    net
}

/// Creates a network that begins with a convolution over patches.
fn patches(name: &str, input: Shape, size: &Size) -> (NetSpec, Id) {
    let Size { patch, width, .. } = *size;
    let mut net = NetSpec::new(name, input);
    let deviation = 1.0 / ((input.c * patch * patch) as f32).sqrt();
    let patches = Conv::new(width, patch).stride(patch).bias(0.0).init(Init::Normal(deviation));
    let x = net.add("conv_proj", patches, net.image());
    (net, x)
}

/// Adds the encoder's layers and the layer norm after them.
fn add_encoder(net: &mut NetSpec, size: &Size, mut x: Id) -> Id {
    for layer in 0..size.layers {
        x = add_layer(net, &format!("encoder.layers.encoder_layer_{layer}"), size, x);
    }
    net.add("encoder.ln", LayerNorm::new(), x)
}

fn add_head(net: &mut NetSpec, classes: usize, x: Id) {
    let x = net.add("heads.flatten", Flatten, x);
    net.add("heads.head", Linear::new(classes).init(Init::Constant(0.0)), x);
}

/// Adds self-attention and a perceptron, each after a layer norm and with a shortcut around it.
fn add_layer(net: &mut NetSpec, path: &str, size: &Size, x: Id) -> Id {
    let Size { heads, width, hidden, .. } = *size;
    let full = |channels, init| Conv::new(channels, 1).linear().init(init);
    let y = net.add(&format!("{path}.ln_1"), LayerNorm::new(), x);
    let projection = full(3 * width, glorot(width, 3 * width)).bias(0.0);
    let y = net.add(&format!("{path}.self_attention.in_proj"), projection, y);
    let y = net.add(&format!("{path}.self_attention"), Attention::new(heads), y);
    let projection = full(width, Init::UniformFanIn).bias(0.0);
    let y = net.add(&format!("{path}.self_attention.out_proj"), projection, y);
    let x = net.join(&format!("{path}.add_1"), Add, &[y, x]);
    let y = net.add(&format!("{path}.ln_2"), LayerNorm::new(), x);
    let (init, bias) = (glorot(width, hidden), Init::Normal(1e-6));
    let y = net.add(&format!("{path}.mlp.0"), full(hidden, init).bias_from(bias), y);
    let y = net.add(&format!("{path}.mlp.1"), Activation::Gelu, y);
    let y = net.add(&format!("{path}.mlp.3"), full(width, init).bias_from(bias), y);
    net.join(&format!("{path}.add_2"), Add, &[y, x])
}

/// Returns the uniform initialisation from Glorot and Bengio 2010, which is PyTorch's `xavier_uniform_`.
fn glorot(inputs: usize, outputs: usize) -> Init {
    Init::Uniform((6.0 / (inputs + outputs) as f32).sqrt())
}
