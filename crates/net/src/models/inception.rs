//! Inception v3, Inception v4 and Inception-ResNet v2, and parts that GoogLeNet uses too: convolution, batch norm and
//! ReLU as one unit, rows of units, and modules that concatenate the channels of several rows.

use super::blocks::{classify, conv_norm_act, max_pool};
use crate::{Activation, Add, Concat, Conv, Flatten, Id, Init, Linear, NetSpec, Norm, Pool, PoolKind, Shape};

/// Returns a convolution that keeps height and width.
pub fn same(channels: usize, [h, w]: [usize; 2]) -> Conv {
    Conv::new(channels, 1).kernel([h, w]).pads([h / 2, w / 2, h / 2, w / 2])
}

/// Returns a square convolution that keeps height and width.
pub fn square(channels: usize, k: usize) -> Conv {
    same(channels, [k, k])
}

/// Returns a square convolution without padding.
pub fn valid(channels: usize, k: usize, stride: usize) -> Conv {
    Conv::new(channels, k).stride(stride)
}

/// A network under construction.
pub struct Builder {
    pub net: NetSpec,
    /// The norm after each convolution.
    pub norm: Norm,
    /// Initialisation of the convolutions.
    pub init: Init,
    /// A 3x3 average pool that keeps height and width.
    pub average: Pool,
}

impl Builder {
    /// Begins a network with convolutions that are initialised with `init`, norms with eps 1e-3, and average pools that
    /// do not count padding.
    pub fn new(name: &str, input: Shape, init: Init) -> Self {
        let average = Pool::new(PoolKind::Avg, 3, 1).pads([1; 4]);
        Self { net: NetSpec::new(name, input), norm: Norm { eps: 1e-3, ..Norm::new() }, init, average }
    }

    /// Adds a convolution, its norm and ReLU.
    pub fn unit(&mut self, path: &str, conv: Conv, x: Id) -> Id {
        let names = [format!("{path}.conv"), format!("{path}.bn")];
        let (conv, norm) = (conv.init(self.init), self.norm.clone());
        conv_norm_act(&mut self.net, [&names[0], &names[1]], conv, norm, Some(Activation::Relu), x)
    }

    /// Adds units one after another, named `prefix` plus a number from `first` on.
    pub fn row(&mut self, prefix: &str, first: usize, convs: impl IntoIterator<Item = Conv>, x: Id) -> Id {
        (first..).zip(convs).fold(x, |x, (i, conv)| self.unit(&format!("{prefix}{i}"), conv, x))
    }

    /// Adds a 1x3 and a 3x1 convolution that read the same input, named `prefix` plus a and b, and concatenates them.
    pub fn fan(&mut self, prefix: &str, channels: usize, x: Id) -> Id {
        let a = self.unit(&format!("{prefix}a"), same(channels, [1, 3]), x);
        let b = self.unit(&format!("{prefix}b"), same(channels, [3, 1]), x);
        self.concat(prefix, &[a, b])
    }

    /// Adds the pool [`Builder::average`] under the name `pool`, and a 1x1 unit under the name `unit`.
    pub fn pooled(&mut self, [pool, unit]: [&str; 2], channels: usize, x: Id) -> Id {
        let average = self.average.clone();
        let x = self.net.add(pool, average, x);
        self.unit(unit, square(channels, 1), x)
    }

    /// Ends a module by concatenating its branches.
    pub fn concat(&mut self, path: &str, branches: &[Id]) -> Id {
        self.net.join(&format!("{path}.concat"), Concat, branches)
    }
}

// Inception v3 (Szegedy et al. 2015, arXiv 1512.00567) as in torchvision and as in TF-slim, with an auxiliary
// classifier.

/// The program whose variant is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Average pools count padding, norms have a scale, and dropout is 0.5.
    Torchvision,
    /// Average pools do not count padding, norms have only a shift, running statistics have a momentum of 0.0003, and
    /// dropout is 0.2.
    Slim,
}

/// Weight of the auxiliary classifier's loss.
const V3_AUXILIARY: f32 = 0.4;

/// Creates Inception v3 for images of 299 x 299.
pub fn v3(name: &str, input: Shape, classes: usize, arrangement: Arrangement) -> NetSpec {
    let slim = arrangement == Arrangement::Slim;
    let mut b = Builder::new(name, input, V3_START);
    if slim {
        b.norm = Norm { momentum: 3e-4, scale: false, ..b.norm };
    } else {
        b.average.kind = PoolKind::AvgCountPad;
    }
    let mut x = v3_stem(&mut b);
    for (name, pool) in [("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)] {
        x = v3_module_a(&mut b, name, pool, x);
    }
    x = v3_module_b(&mut b, "Mixed_6a", x);
    for (name, channels) in [("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)] {
        x = v3_module_c(&mut b, name, channels, x);
    }
    v3_auxiliary(&mut b, classes, x);
    x = v3_module_d(&mut b, "Mixed_7a", x);
    x = v3_module_e(&mut b, "Mixed_7b", x);
    x = v3_module_e(&mut b, "Mixed_7c", x);
    classify(&mut b.net, "fc", if slim { 0.2 } else { 0.5 }, v3_full(classes).init(V3_START), x);
    b.net
}

const V3_START: Init = Init::Normal(0.1);

fn v3_full(features: usize) -> Linear {
    Linear::new(features).bias_from(Init::UniformFanIn)
}

/// Adds the stem, which reduces 299x299 to 35x35.
fn v3_stem(b: &mut Builder) -> Id {
    let x = b.net.image();
    let x = b.unit("Conv2d_1a_3x3", valid(32, 3, 2), x);
    let x = b.unit("Conv2d_2a_3x3", valid(32, 3, 1), x);
    let x = b.unit("Conv2d_2b_3x3", square(64, 3), x);
    let x = b.net.add("maxpool1", max_pool(3, 2), x);
    let x = b.unit("Conv2d_3b_1x1", square(80, 1), x);
    let x = b.unit("Conv2d_4a_3x3", valid(192, 3, 1), x);
    b.net.add("maxpool2", max_pool(3, 2), x)
}

/// Adds the average pool of most modules, with its 1x1 convolution.
fn v3_pooled(b: &mut Builder, path: &str, channels: usize, x: Id) -> Id {
    b.pooled([&format!("{path}.avgpool"), &format!("{path}.branch_pool")], channels, x)
}

/// Adds a module at 35x35 (figure 5).
fn v3_module_a(b: &mut Builder, path: &str, pool: usize, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let one = b.unit(&name("branch1x1"), square(64, 1), x);
    let five = b.row(&name("branch5x5_"), 1, [square(48, 1), square(64, 5)], x);
    let three = b.row(&name("branch3x3dbl_"), 1, [square(64, 1), square(96, 3), square(96, 3)], x);
    let pool = v3_pooled(b, path, pool, x);
    b.concat(path, &[one, five, three, pool])
}

/// Adds a reduction to 17x17 (figure 10).
fn v3_module_b(b: &mut Builder, path: &str, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let three = b.unit(&name("branch3x3"), valid(384, 3, 2), x);
    let double = b.row(&name("branch3x3dbl_"), 1, [square(64, 1), square(96, 3), valid(96, 3, 2)], x);
    let pool = b.net.add(&name("maxpool"), max_pool(3, 2), x);
    b.concat(path, &[three, double, pool])
}

/// Adds a module at 17x17, with 1x7 and 7x1 kernels (figure 6).
fn v3_module_c(b: &mut Builder, path: &str, c: usize, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let (wide, tall) = (|channels| same(channels, [1, 7]), |channels| same(channels, [7, 1]));
    let one = b.unit(&name("branch1x1"), square(192, 1), x);
    let seven = b.row(&name("branch7x7_"), 1, [square(c, 1), wide(c), tall(192)], x);
    let double = b.row(&name("branch7x7dbl_"), 1, [square(c, 1), tall(c), wide(c), tall(c), wide(192)], x);
    let pool = v3_pooled(b, path, 192, x);
    b.concat(path, &[one, seven, double, pool])
}

/// Adds a reduction from 17x17 to 8x8.
fn v3_module_d(b: &mut Builder, path: &str, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let three = b.row(&name("branch3x3_"), 1, [square(192, 1), valid(320, 3, 2)], x);
    let seven = [square(192, 1), same(192, [1, 7]), same(192, [7, 1]), valid(192, 3, 2)];
    let seven = b.row(&name("branch7x7x3_"), 1, seven, x);
    let pool = b.net.add(&name("maxpool"), max_pool(3, 2), x);
    b.concat(path, &[three, seven, pool])
}

/// Adds a module at 8x8, with parallel 1x3 and 3x1 kernels (figure 7).
fn v3_module_e(b: &mut Builder, path: &str, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let one = b.unit(&name("branch1x1"), square(320, 1), x);
    let three = b.unit(&name("branch3x3_1"), square(384, 1), x);
    let three = b.fan(&name("branch3x3_2"), 384, three);
    let double = b.row(&name("branch3x3dbl_"), 1, [square(448, 1), square(384, 3)], x);
    let double = b.fan(&name("branch3x3dbl_3"), 384, double);
    let pool = v3_pooled(b, path, 192, x);
    b.concat(path, &[one, three, double, pool])
}

/// Adds an auxiliary classifier: average pool 5x5/3, conv 1x1-128, conv 5x5-768, mean, fc.
fn v3_auxiliary(b: &mut Builder, classes: usize, x: Id) {
    let x = b.net.add("AuxLogits.pool", Pool::new(PoolKind::Avg, 5, 3), x);
    let x = b.unit("AuxLogits.conv0", square(128, 1), x);
    let x = b.unit("AuxLogits.conv1", valid(768, 5, 1), x);
    let x = b.net.add("AuxLogits.avgpool", Pool::global(), x);
    let x = b.net.add("AuxLogits.flatten", Flatten, x);
    let scores = b.net.add("AuxLogits.fc", v3_full(classes).init(Init::Normal(0.001)), x);
    b.net.head(scores, V3_AUXILIARY);
}

// Inception v4 (Szegedy et al. 2016, arXiv 1602.07261, figures 3 to 9) as in timm.

/// Creates Inception v4 for images of 299 x 299.
pub fn v4(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut b = Builder::new(name, input, Init::UniformFanIn);
    let mut x = v4_stem(&mut b);
    type Module = fn(&mut Builder, &str, Id) -> Id;
    let modules: [(Module, usize); 5] =
        [(v4_module_a, 4), (reduction_a, 1), (v4_module_b, 7), (reduction_b, 1), (v4_module_c, 3)];
    for (at, module) in (6..).zip(modules.into_iter().flat_map(|(module, times)| vec![module; times])) {
        x = module(&mut b, &format!("features.{at}"), x);
    }
    classify(&mut b.net, "last_linear", 0.2, Linear::new(classes).bias_from(Init::UniformFanIn), x);
    b.net
}

/// Adds the stem, which reduces 299x299 to 35x35.
fn v4_stem(b: &mut Builder) -> Id {
    let x = b.net.image();
    let x = b.row("features.", 0, [valid(32, 3, 2), valid(32, 3, 1), square(64, 3)], x);
    let pool = b.net.add("features.3.maxpool", max_pool(3, 2), x);
    let conv = b.unit("features.3.conv", valid(96, 3, 2), x);
    let x = b.concat("features.3", &[pool, conv]);
    let short = b.row("features.4.branch0.", 0, [square(64, 1), valid(96, 3, 1)], x);
    let long = [square(64, 1), same(64, [1, 7]), same(64, [7, 1]), valid(96, 3, 1)];
    let long = b.row("features.4.branch1.", 0, long, x);
    let x = b.concat("features.4", &[short, long]);
    let conv = b.unit("features.5.conv", valid(192, 3, 2), x);
    let pool = b.net.add("features.5.maxpool", max_pool(3, 2), x);
    b.concat("features.5", &[conv, pool])
}

/// Adds the average pool of most modules, with its 1x1 convolution.
fn v4_pooled(b: &mut Builder, path: &str, channels: usize, x: Id) -> Id {
    b.pooled([&format!("{path}.branch3.0"), &format!("{path}.branch3.1")], channels, x)
}

/// Adds a module at 35x35 (figure 4).
fn v4_module_a(b: &mut Builder, path: &str, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(96, 1), x);
    let three = b.row(&format!("{path}.branch1."), 0, [square(64, 1), square(96, 3)], x);
    let double = b.row(&format!("{path}.branch2."), 0, [square(64, 1), square(96, 3), square(96, 3)], x);
    let pool = v4_pooled(b, path, 96, x);
    b.concat(path, &[one, three, double, pool])
}

/// Adds a reduction from 35x35 to 17x17 (figure 7).
fn reduction_a(b: &mut Builder, path: &str, x: Id) -> Id {
    let three = b.unit(&format!("{path}.branch0"), valid(384, 3, 2), x);
    let double = b.row(&format!("{path}.branch1."), 0, [square(192, 1), square(224, 3), valid(256, 3, 2)], x);
    let pool = b.net.add(&format!("{path}.branch2"), max_pool(3, 2), x);
    b.concat(path, &[three, double, pool])
}

/// Adds a module at 17x17 (figure 5).
fn v4_module_b(b: &mut Builder, path: &str, x: Id) -> Id {
    let (wide, tall) = (|channels| same(channels, [1, 7]), |channels| same(channels, [7, 1]));
    let one = b.unit(&format!("{path}.branch0"), square(384, 1), x);
    let seven = b.row(&format!("{path}.branch1."), 0, [square(192, 1), wide(224), tall(256)], x);
    let double = [square(192, 1), tall(192), wide(224), tall(224), wide(256)];
    let double = b.row(&format!("{path}.branch2."), 0, double, x);
    let pool = v4_pooled(b, path, 128, x);
    b.concat(path, &[one, seven, double, pool])
}

/// Adds a reduction from 17x17 to 8x8 (figure 8).
fn reduction_b(b: &mut Builder, path: &str, x: Id) -> Id {
    let three = b.row(&format!("{path}.branch0."), 0, [square(192, 1), valid(192, 3, 2)], x);
    let seven = [square(256, 1), same(256, [1, 7]), same(320, [7, 1]), valid(320, 3, 2)];
    let seven = b.row(&format!("{path}.branch1."), 0, seven, x);
    let pool = b.net.add(&format!("{path}.branch2"), max_pool(3, 2), x);
    b.concat(path, &[three, seven, pool])
}

/// Adds a module at 8x8 (figure 6).
fn v4_module_c(b: &mut Builder, path: &str, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(256, 1), x);
    let three = b.unit(&format!("{path}.branch1_0"), square(384, 1), x);
    let three = b.fan(&format!("{path}.branch1_1"), 256, three);
    let double = [square(384, 1), same(448, [3, 1]), same(512, [1, 3])];
    let double = b.row(&format!("{path}.branch2_"), 0, double, x);
    let double = b.fan(&format!("{path}.branch2_3"), 256, double);
    let pool = v4_pooled(b, path, 256, x);
    b.concat(path, &[one, three, double, pool])
}

// Inception-ResNet v2 (Szegedy et al. 2016, arXiv 1602.07261, figures 10 to 16) as in timm: Inception modules with a
// scaled residual.

/// Creates Inception-ResNet v2 for images of 299 x 299.
pub fn resnet_v2(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut b = Builder::new(name, input, Init::UniformFanIn);
    let mut x = resnet_v2_stem(&mut b);
    for i in 0..10 {
        x = block_35(&mut b, &format!("repeat.{i}"), x);
    }
    x = to_17(&mut b, "mixed_6a", x);
    for i in 0..20 {
        x = block_17(&mut b, &format!("repeat_1.{i}"), x);
    }
    x = to_8(&mut b, "mixed_7a", x);
    for i in 0..9 {
        x = block_8(&mut b, &format!("repeat_2.{i}"), 0.2, x);
        x = b.net.add(&format!("repeat_2.{i}.relu"), Activation::Relu, x);
    }
    x = block_8(&mut b, "block8", 1.0, x);
    x = b.unit("conv2d_7b", square(1536, 1), x);
    classify(&mut b.net, "classif", 0.2, Linear::new(classes).bias_from(Init::UniformFanIn), x);
    b.net
}

/// Adds the stem, which reduces 299x299 to 35x35.
fn resnet_v2_stem(b: &mut Builder) -> Id {
    let x = b.net.image();
    let x = b.unit("conv2d_1a", valid(32, 3, 2), x);
    let x = b.unit("conv2d_2a", valid(32, 3, 1), x);
    let x = b.unit("conv2d_2b", square(64, 3), x);
    let x = b.net.add("maxpool_3a", max_pool(3, 2), x);
    let x = b.unit("conv2d_3b", square(80, 1), x);
    let x = b.unit("conv2d_4a", valid(192, 3, 1), x);
    let x = b.net.add("maxpool_5a", max_pool(3, 2), x);
    let one = b.unit("mixed_5b.branch0", square(96, 1), x);
    let five = b.row("mixed_5b.branch1.", 0, [square(48, 1), square(64, 5)], x);
    let double = b.row("mixed_5b.branch2.", 0, [square(64, 1), square(96, 3), square(96, 3)], x);
    let pool = b.pooled(["mixed_5b.branch3.0", "mixed_5b.branch3.1"], 64, x);
    b.concat("mixed_5b", &[one, five, double, pool])
}

/// Concatenates the branches, converts them to the channels of `x` with a 1x1 convolution, scales the result, and adds
/// `x`.
fn residual(b: &mut Builder, path: &str, branches: &[Id], channels: usize, scale: f32, x: Id) -> Id {
    let y = b.concat(path, branches);
    let linear = Conv::new(channels, 1).init(Init::UniformFanIn).bias_from(Init::UniformFanIn);
    let y = b.net.add(&format!("{path}.conv2d"), linear, y);
    let y = b.net.add(&format!("{path}.scale"), Activation::Scale(scale), y);
    b.net.join(&format!("{path}.add"), Add, &[y, x])
}

fn block_35(b: &mut Builder, path: &str, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(32, 1), x);
    let three = b.row(&format!("{path}.branch1."), 0, [square(32, 1), square(32, 3)], x);
    let double = b.row(&format!("{path}.branch2."), 0, [square(32, 1), square(48, 3), square(64, 3)], x);
    let sum = residual(b, path, &[one, three, double], 320, 0.17, x);
    b.net.add(&format!("{path}.act"), Activation::Relu, sum)
}

fn to_17(b: &mut Builder, path: &str, x: Id) -> Id {
    let three = b.unit(&format!("{path}.branch0"), valid(384, 3, 2), x);
    let double = b.row(&format!("{path}.branch1."), 0, [square(256, 1), square(256, 3), valid(384, 3, 2)], x);
    let pool = b.net.add(&format!("{path}.branch2"), max_pool(3, 2), x);
    b.concat(path, &[three, double, pool])
}

fn block_17(b: &mut Builder, path: &str, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(192, 1), x);
    let seven = b.row(&format!("{path}.branch1."), 0, [square(128, 1), same(160, [1, 7]), same(192, [7, 1])], x);
    let sum = residual(b, path, &[one, seven], 1088, 0.1, x);
    b.net.add(&format!("{path}.act"), Activation::Relu, sum)
}

fn to_8(b: &mut Builder, path: &str, x: Id) -> Id {
    let first = b.row(&format!("{path}.branch0."), 0, [square(256, 1), valid(384, 3, 2)], x);
    let second = b.row(&format!("{path}.branch1."), 0, [square(256, 1), valid(288, 3, 2)], x);
    let third = b.row(&format!("{path}.branch2."), 0, [square(256, 1), square(288, 3), valid(320, 3, 2)], x);
    let pool = b.net.add(&format!("{path}.branch3"), max_pool(3, 2), x);
    b.concat(path, &[first, second, third, pool])
}

/// Adds a residual block at 8x8. In contrast to the other residual blocks, this function adds no ReLU after the sum.
fn block_8(b: &mut Builder, path: &str, scale: f32, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(192, 1), x);
    let three = b.row(&format!("{path}.branch1."), 0, [square(192, 1), same(224, [1, 3]), same(256, [3, 1])], x);
    residual(b, path, &[one, three], 2080, scale, x)
}
