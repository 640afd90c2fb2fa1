//! What policies of augmentation choose from: operations, and how strong each may be.

mod linspace;
mod operation;
mod space;
mod tables;

pub(super) use space::{AUGMIX, AUGMIX_PARTIAL, RAND_AUGMENT, Space, TRIVIAL_AUGMENT, draw_operation, magnitudes};
pub(super) use tables::{CIFAR10, IMAGENET, Policy, SVHN};
