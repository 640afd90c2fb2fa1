//! The catalogue of networks. Each network is a function from image shape and number of classes to a [`NetSpec`].
//! Comments abbreviate layers: `conv 7x7/2-64` is a convolution with 7x7 kernels, stride 2 and 64 output channels, and
//! `fc 4096` is a fully connected layer with 4096 outputs. `fc` without a number computes the scores.
//!
//! A new network needs a file here and a line in [`CATALOGUE`].

mod alexnet;
mod blocks;
mod catalogue;
mod convnext;
mod densenet;
mod efficientnet;
mod googlenet;
mod inception;
mod maxvit;
mod mnasnet;
mod mobilenet;
mod regnet;
mod resnet;
mod shufflenet;
mod small;
mod squeezenet;
mod swin;
mod vgg;
mod vit;

#[cfg(test)]
mod tests;

pub use catalogue::{CATALOGUE, Network};

use base::text::did_you_mean;

use crate::{NetSpec, Shape};

pub fn find(name: &str) -> Option<&'static Network> {
    CATALOGUE.iter().find(|network| network.name == name)
}

pub fn names() -> Vec<&'static str> {
    CATALOGUE.iter().map(|network| network.name).collect()
}

/// Returns the message for a name that is not in the catalogue.
pub fn unknown(name: &str) -> String {
    format!("no network {name}; `trireme models` lists them{}", did_you_mean(name, &names()))
}

/// Returns the image shape that a network was designed for.
pub fn input(name: &str) -> Option<Shape> {
    find(name).map(|network| network.input)
}

/// Returns the number of classes that a network was designed for.
pub fn classes(name: &str) -> Option<usize> {
    find(name).map(|network| network.classes)
}

/// Builds the network with this name for these images and classes. Returns `None` if the name is unknown.
pub fn build(name: &str, input: Shape, classes: usize) -> Option<NetSpec> {
    find(name).map(|network| (network.build)(name, input, classes))
}
