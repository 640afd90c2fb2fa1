//! The catalogue. Each network is a function from the image's shape and the number of classes to a [`NetSpec`].
//!
//! A new network is one file here and one line in [`CATALOGUE`].

mod alexnet;
mod blocks;
mod catalogue;
mod convnext;
mod densenet;
mod efficientnet;
mod googlenet;
mod inception;
mod mobilenet;
mod resnet;
mod small;
mod squeezenet;
mod vgg;

#[cfg(test)]
mod tests;

pub use catalogue::{CATALOGUE, Network};

use loaders::text::did_you_mean;

use crate::{NetSpec, Shape};

/// The network of this name.
pub fn find(name: &str) -> Option<&'static Network> {
    CATALOGUE.iter().find(|network| network.name == name)
}

/// Names of all networks.
pub fn names() -> Vec<&'static str> {
    CATALOGUE.iter().map(|network| network.name).collect()
}

/// What to say where no network has this name.
pub fn unknown(name: &str) -> String {
    format!("no network {name}; `trireme models` lists them{}", did_you_mean(name, &names()))
}

/// Shape of the images that a network is meant for.
pub fn input(name: &str) -> Option<Shape> {
    find(name).map(|network| network.input)
}

/// Number of classes that a network is meant for.
pub fn classes(name: &str) -> Option<usize> {
    find(name).map(|network| network.classes)
}

/// The network of this name for these images and classes.
pub fn build(name: &str, input: Shape, classes: usize) -> Option<NetSpec> {
    find(name).map(|network| (network.build)(name, input, classes))
}
