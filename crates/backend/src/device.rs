//! A kind of device, and how a rank opens a device of this kind.

use schema::words;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::interface::Backend;

/// The settings with which a rank opens its device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSettings {
    pub threads: usize,
    /// This rank's number among the ranks of its node. It selects the GPU.
    pub node_rank: usize,
    /// Number of ranks on this node, at least 1. They share its memory.
    pub node_ranks: usize,
    pub precision: Precision,
    /// True if products of f32 may use TF32.
    pub tf32: bool,
    /// True if only reproducible algorithms may be used.
    pub deterministic: bool,
}

/// A GPU that a rank has opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Host name of the node.
    pub host: String,
    /// Model name, such as "NVIDIA H100 80GB HBM3".
    pub name: String,
    /// Unique for each GPU, and for each part of a GPU (MIG).
    pub uuid: String,
    /// The PCI address, which all parts of a GPU share.
    pub bus: String,
}

/// The reason why a kind of device cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The reason, and what to try.
    pub why: String,
    /// True if this machine has such a device. `--device auto` then reports that it does not use the device.
    pub present: bool,
}

/// A kind of device, and how a rank opens a device of this kind.
pub trait DeviceKind: Sized {
    type Backend: Backend;

    /// The name for `--device` and the log.
    const NAME: &'static str;

    /// A line of help for `--device`.
    const ABOUT: &'static str;

    /// True if individual devices of this kind can fail, so that an error must name the device.
    const REMOVABLE: bool;

    /// True if the device computes with threads of this process. Otherwise, one thread enqueues work and waits for it.
    const USES_CORES: bool;

    /// Advice for ranks that have planned different memory layouts.
    const LAYOUT_CURE: &'static str;

    /// Looks for such a device on this machine without opening it. `notes` are added to this kind's notes for the log.
    fn find(notes: Vec<String>) -> Result<Self, Unavailable>;

    /// Lets the device's libraries read their environment variables now, if they read them only once. Returns true if
    /// they do. Otherwise, the device must not be used while another thread changes the environment, as MPI does while
    /// it starts.
    fn read_environment(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Opens the device of this rank.
    fn open(&self, settings: &DeviceSettings) -> Result<Self::Backend, Error>;

    /// Returns notes for the log: on the choice of this kind, and on settings that have no effect in this precision.
    fn notes(&self, _precision: Precision, _tf32: bool) -> Vec<String> {
        Vec::new()
    }

    /// Returns why this kind was chosen instead of a better one, as a note for the user. [`DeviceKind::notes`] contains it, too.
    fn why_chosen(&self) -> Option<&str> {
        None
    }

    /// Returns the GPU of an open device, if ranks could share it by mistake.
    fn gpu(&self, _backend: &Self::Backend) -> Option<Gpu> {
        None
    }
}

/// Type of activations, their gradients, and the copies of weights for matrix products. Parameters, their gradients,
/// statistics and losses have at least f32 precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    #[default]
    F32,
    /// 8 bits of exponent, 8 significant bits.
    Bf16,
    /// 5 bits of exponent, 11 significant bits. Losses are scaled so that small gradients do not underflow.
    F16,
}

words! { Precision { F32 = "f32", Bf16 = "bf16", F16 = "f16" } }
