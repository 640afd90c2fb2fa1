//! What operations, networks and optimizers compute: against PyTorch, the reference backend, finite differences and each other.

#[path = "../support/mod.rs"]
mod support;

mod bf16;
mod freeze;
mod golden;
mod gradients;
mod graph;
mod ops;
mod optim;
mod remote;
mod sync_bn;
