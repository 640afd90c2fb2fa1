//! The list of all networks.

use super::efficientnet::Scale;
use super::inception::Arrangement;
use super::resnet::{BOTTLENECK, Kind, SQUEEZE, WIDE, grouped};
use super::{
    alexnet, convnext, densenet, efficientnet, googlenet, inception, maxvit, mnasnet, mobilenet, regnet, resnet,
    shufflenet, small, squeezenet, swin, vgg, vit,
};
use crate::{NetSpec, Shape};

/// A function that builds a network from its name, the shape of the images, and the number of classes.
pub type Build = fn(&str, Shape, usize) -> NetSpec;

/// A network of the catalogue, with the sizes that it was designed for.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// The value of `model` in a recipe.
    pub name: &'static str,
    /// Shape of the images that the network was designed for. It accepts other shapes, too.
    pub input: Shape,
    /// Height and width of an image must be multiples of this number: the patch size, or 1 for networks without
    /// patches.
    pub patch: usize,
    /// Number of classes that the network was designed for.
    pub classes: usize,
    /// The program or paper that defines the network. The network's parameters have the same names and numbers of
    /// elements as there.
    pub origin: &'static str,
    pub build: Build,
}

/// Returns a network for ten classes of square images with `px` pixels per side.
const fn ten(name: &'static str, channels: usize, px: usize, origin: &'static str, build: Build) -> Network {
    Network { name, input: Shape::image(channels, px, px), patch: 1, classes: 10, origin, build }
}

/// Returns a network for ImageNet's classes and square images with `px` pixels per side.
const fn imagenet(name: &'static str, px: usize, origin: &'static str, build: Build) -> Network {
    Network { name, input: Shape::image(3, px, px), patch: 1, classes: 1000, origin, build }
}

/// Returns torchvision's vision transformer with this patch size.
const fn transformer(name: &'static str, patch: usize, build: Build) -> Network {
    Network { patch, ..imagenet(name, 224, VISION, build) }
}

const VISION: &str = "torchvision";
const TIMM: &str = "timm";

pub const CATALOGUE: &[Network] = &[
    ten("lenet", 1, 28, "TF-slim", small::lenet_slim),
    ten("lenet-caffe", 1, 28, "Caffe", small::lenet_caffe),
    ten("cifarnet", 3, 24, "TensorFlow's CIFAR-10 tutorial", small::cifarnet_tutorial),
    ten("cifarnet-slim", 3, 32, "TF-slim", small::cifarnet_slim),
    ten("resnet20", 3, 32, "He et al. 2015", resnet::cifar::<3>),
    ten("resnet32", 3, 32, "He et al. 2015", resnet::cifar::<5>),
    ten("resnet44", 3, 32, "He et al. 2015", resnet::cifar::<7>),
    ten("resnet56", 3, 32, "He et al. 2015", resnet::cifar::<9>),
    ten("resnet110", 3, 32, "He et al. 2015", resnet::cifar::<18>),
    ten("wrn16_2", 3, 32, "Zagoruyko 2016", |name, x, c| resnet::wide_cifar(name, x, c, 16, 2, 0.0)),
    ten("wrn28_10", 3, 32, "Zagoruyko 2016", |name, x, c| resnet::wide_cifar(name, x, c, 28, 10, 0.3)),
    ten("airbench94", 3, 32, "Jordan 2024", small::airbench94),
    imagenet("alexnet", 224, VISION, alexnet::torchvision),
    imagenet("alexnet-columns", 224, "TernGrad", alexnet::two_columns),
    imagenet("overfeat", 231, "Sermanet et al. 2013, fast", alexnet::overfeat),
    imagenet("vgg11", 224, VISION, |name, x, c| vgg::torchvision(name, x, c, vgg::A, false)),
    imagenet("vgg13", 224, VISION, |name, x, c| vgg::torchvision(name, x, c, vgg::B, false)),
    imagenet("vgg16", 224, VISION, |name, x, c| vgg::torchvision(name, x, c, vgg::D, false)),
    imagenet("vgg19", 224, VISION, |name, x, c| vgg::torchvision(name, x, c, vgg::E, false)),
    imagenet("vgg11_bn", 224, VISION, |name, x, c| vgg::torchvision(name, x, c, vgg::A, true)),
    imagenet("vgg13_bn", 224, VISION, |name, x, c| vgg::torchvision(name, x, c, vgg::B, true)),
    imagenet("vgg16_bn", 224, VISION, |name, x, c| vgg::torchvision(name, x, c, vgg::D, true)),
    imagenet("vgg19_bn", 224, VISION, |name, x, c| vgg::torchvision(name, x, c, vgg::E, true)),
    imagenet("googlenet", 224, VISION, googlenet::torchvision),
    imagenet("inception_v3", 299, VISION, |name, x, c| inception::v3(name, x, c, Arrangement::Torchvision)),
    imagenet("inception_v3-slim", 299, "TF-slim", |name, x, c| inception::v3(name, x, c, Arrangement::Slim)),
    imagenet("inception_v4", 299, TIMM, inception::v4),
    imagenet("inception_resnet_v2", 299, TIMM, inception::resnet_v2),
    imagenet("resnet18", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [2, 2, 2, 2], Kind::Basic)),
    imagenet("resnet34", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [3, 4, 6, 3], Kind::Basic)),
    imagenet("resnet50", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [3, 4, 6, 3], BOTTLENECK)),
    imagenet("resnet101", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [3, 4, 23, 3], BOTTLENECK)),
    imagenet("resnet152", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [3, 8, 36, 3], BOTTLENECK)),
    imagenet("resnetv2_50", 224, TIMM, |name, x, c| resnet::preactivated(name, x, c, [3, 4, 6, 3])),
    imagenet("resnetv2_101", 224, TIMM, |name, x, c| resnet::preactivated(name, x, c, [3, 4, 23, 3])),
    imagenet("resnetv2_152", 224, TIMM, |name, x, c| resnet::preactivated(name, x, c, [3, 8, 36, 3])),
    imagenet("resnext50_32x4d", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [3, 4, 6, 3], grouped(32, 4))),
    imagenet("resnext101_32x8d", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [3, 4, 23, 3], grouped(32, 8))),
    imagenet("resnext101_64x4d", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [3, 4, 23, 3], grouped(64, 4))),
    imagenet("wide_resnet50_2", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [3, 4, 6, 3], WIDE)),
    imagenet("wide_resnet101_2", 224, VISION, |name, x, c| resnet::imagenet(name, x, c, [3, 4, 23, 3], WIDE)),
    imagenet("seresnet50", 224, TIMM, |name, x, c| resnet::imagenet(name, x, c, [3, 4, 6, 3], SQUEEZE)),
    imagenet("densenet121", 224, VISION, |name, x, c| densenet::torchvision(name, x, c, [6, 12, 24, 16], 32)),
    imagenet("densenet161", 224, VISION, |name, x, c| densenet::torchvision(name, x, c, [6, 12, 36, 24], 48)),
    imagenet("densenet169", 224, VISION, |name, x, c| densenet::torchvision(name, x, c, [6, 12, 32, 32], 32)),
    imagenet("densenet201", 224, VISION, |name, x, c| densenet::torchvision(name, x, c, [6, 12, 48, 32], 32)),
    imagenet("squeezenet1_0", 224, VISION, |name, x, c| squeezenet::torchvision(name, x, c, squeezenet::V1_0)),
    imagenet("squeezenet1_1", 224, VISION, |name, x, c| squeezenet::torchvision(name, x, c, squeezenet::V1_1)),
    imagenet("mobilenetv1_100", 224, TIMM, mobilenet::v1),
    imagenet("mobilenet_v2", 224, VISION, mobilenet::v2),
    imagenet("mobilenet_v3_large", 224, VISION, |name, x, c| mobilenet::v3(name, x, c, mobilenet::LARGE, 1280)),
    imagenet("mobilenet_v3_small", 224, VISION, |name, x, c| mobilenet::v3(name, x, c, mobilenet::SMALL, 1024)),
    imagenet("shufflenet_v2_x0_5", 224, VISION, |name, x, c| shufflenet::torchvision(name, x, c, shufflenet::X0_5)),
    imagenet("shufflenet_v2_x1_0", 224, VISION, |name, x, c| shufflenet::torchvision(name, x, c, shufflenet::X1_0)),
    imagenet("shufflenet_v2_x1_5", 224, VISION, |name, x, c| shufflenet::torchvision(name, x, c, shufflenet::X1_5)),
    imagenet("shufflenet_v2_x2_0", 224, VISION, |name, x, c| shufflenet::torchvision(name, x, c, shufflenet::X2_0)),
    imagenet("mnasnet0_5", 224, VISION, |name, x, c| mnasnet::torchvision(name, x, c, 0.5)),
    imagenet("mnasnet0_75", 224, VISION, |name, x, c| mnasnet::torchvision(name, x, c, 0.75)),
    imagenet("mnasnet1_0", 224, VISION, |name, x, c| mnasnet::torchvision(name, x, c, 1.0)),
    imagenet("mnasnet1_3", 224, VISION, |name, x, c| mnasnet::torchvision(name, x, c, 1.3)),
    imagenet("efficientnet_b0", 224, VISION, |name, x, c| efficientnet::torchvision(name, x, c, scale(1.0, 1.0, 0.2))),
    imagenet("efficientnet_b1", 240, VISION, |name, x, c| efficientnet::torchvision(name, x, c, scale(1.0, 1.1, 0.2))),
    imagenet("efficientnet_b2", 288, VISION, |name, x, c| efficientnet::torchvision(name, x, c, scale(1.1, 1.2, 0.3))),
    imagenet("efficientnet_b3", 300, VISION, |name, x, c| efficientnet::torchvision(name, x, c, scale(1.2, 1.4, 0.3))),
    imagenet("efficientnet_b4", 380, VISION, |name, x, c| efficientnet::torchvision(name, x, c, scale(1.4, 1.8, 0.4))),
    imagenet("efficientnet_b5", 456, VISION, |name, x, c| efficientnet::torchvision(name, x, c, scale(1.6, 2.2, 0.4))),
    imagenet("efficientnet_b6", 528, VISION, |name, x, c| efficientnet::torchvision(name, x, c, scale(1.8, 2.6, 0.5))),
    imagenet("efficientnet_b7", 600, VISION, |name, x, c| efficientnet::torchvision(name, x, c, scale(2.0, 3.1, 0.5))),
    imagenet("efficientnet_v2_s", 384, VISION, |name, x, c| efficientnet::v2(name, x, c, efficientnet::S)),
    imagenet("efficientnet_v2_m", 480, VISION, |name, x, c| efficientnet::v2(name, x, c, efficientnet::M)),
    imagenet("efficientnet_v2_l", 480, VISION, |name, x, c| efficientnet::v2(name, x, c, efficientnet::L)),
    imagenet("tf_efficientnet_lite0", 224, TIMM, |name, x, c| efficientnet::lite(name, x, c, scale(1.0, 1.0, 0.2))),
    imagenet("tf_efficientnet_lite1", 240, TIMM, |name, x, c| efficientnet::lite(name, x, c, scale(1.0, 1.1, 0.2))),
    imagenet("tf_efficientnet_lite2", 260, TIMM, |name, x, c| efficientnet::lite(name, x, c, scale(1.1, 1.2, 0.3))),
    imagenet("tf_efficientnet_lite3", 300, TIMM, |name, x, c| efficientnet::lite(name, x, c, scale(1.2, 1.4, 0.3))),
    imagenet("tf_efficientnet_lite4", 380, TIMM, |name, x, c| efficientnet::lite(name, x, c, scale(1.4, 1.8, 0.3))),
    imagenet("convnext_tiny", 224, VISION, |name, x, c| convnext::torchvision(name, x, c, convnext::TINY)),
    imagenet("convnext_small", 224, VISION, |name, x, c| convnext::torchvision(name, x, c, convnext::SMALL)),
    imagenet("convnext_base", 224, VISION, |name, x, c| convnext::torchvision(name, x, c, convnext::BASE)),
    imagenet("convnext_large", 224, VISION, |name, x, c| convnext::torchvision(name, x, c, convnext::LARGE)),
    imagenet("regnet_x_400mf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::X_400MF)),
    imagenet("regnet_x_800mf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::X_800MF)),
    imagenet("regnet_x_1_6gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::X_1_6GF)),
    imagenet("regnet_x_3_2gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::X_3_2GF)),
    imagenet("regnet_x_8gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::X_8GF)),
    imagenet("regnet_x_16gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::X_16GF)),
    imagenet("regnet_x_32gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::X_32GF)),
    imagenet("regnet_y_400mf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::Y_400MF)),
    imagenet("regnet_y_800mf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::Y_800MF)),
    imagenet("regnet_y_1_6gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::Y_1_6GF)),
    imagenet("regnet_y_3_2gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::Y_3_2GF)),
    imagenet("regnet_y_8gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::Y_8GF)),
    imagenet("regnet_y_16gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::Y_16GF)),
    imagenet("regnet_y_32gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::Y_32GF)),
    imagenet("regnet_y_128gf", 224, VISION, |name, x, c| regnet::torchvision(name, x, c, regnet::Y_128GF)),
    transformer("vit_b_16", 16, |name, x, c| vit::torchvision(name, x, c, vit::B16)),
    transformer("vit_b_32", 32, |name, x, c| vit::torchvision(name, x, c, vit::B32)),
    transformer("vit_l_16", 16, |name, x, c| vit::torchvision(name, x, c, vit::L16)),
    transformer("vit_l_32", 32, |name, x, c| vit::torchvision(name, x, c, vit::L32)),
    transformer("vit_h_14", 14, |name, x, c| vit::torchvision(name, x, c, vit::H14)),
    Network {
        origin: "Beyer et al. 2022",
        ..transformer("vit_s_16", 16, |name, x, c| vit::averaged(name, x, c, vit::S16))
    },
    Network {
        patch: 4,
        ..ten("vit_ti_4", 3, 32, "Beyer et al. 2022", |name, x, c| vit::averaged(name, x, c, vit::TI4))
    },
    imagenet("swin_t", 224, VISION, |name, x, c| swin::torchvision(name, x, c, swin::T)),
    imagenet("swin_s", 224, VISION, |name, x, c| swin::torchvision(name, x, c, swin::S)),
    imagenet("swin_b", 224, VISION, |name, x, c| swin::torchvision(name, x, c, swin::B)),
    imagenet("swin_v2_t", 256, VISION, |name, x, c| swin::torchvision(name, x, c, swin::V2_T)),
    imagenet("swin_v2_s", 256, VISION, |name, x, c| swin::torchvision(name, x, c, swin::V2_S)),
    imagenet("swin_v2_b", 256, VISION, |name, x, c| swin::torchvision(name, x, c, swin::V2_B)),
    imagenet("maxvit_t", 224, VISION, |name, x, c| maxvit::torchvision(name, x, c, maxvit::T)),
];

const fn scale(width: f64, depth: f64, dropout: f32) -> Scale {
    Scale { width, depth, dropout }
}
