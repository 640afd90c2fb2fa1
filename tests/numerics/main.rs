//! Results of operations, networks and optimizers, compared with PyTorch, the reference backend, finite differences and each other.

mod agc;
mod alike;
mod bf16;
mod catalogue;
mod channels;
mod freeze;
mod fusion;
mod ghost_bn;
mod golden;
mod gradients;
mod graph;
mod heads;
mod memory;
mod onnx;
mod ops;
mod optim;
mod parity;
mod remote;
mod rounding;
mod sizes;
mod soft_loss;
mod sync_bn;
mod training;
mod whiten;
