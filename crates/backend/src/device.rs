//! A kind of device, and how a rank opens its own.

use schema::words;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::interface::Backend;

/// The settings with which a rank opens its device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSettings {
    /// Compute threads.
    pub threads: usize,
    /// This rank's number among those of its node, which picks the GPU.
    pub node_rank: usize,
    /// Number format of the arithmetic.
    pub precision: Precision,
    /// Whether products of f32 may be rounded to tf32.
    pub tf32: bool,
    /// Only algorithms that give the same bits again.
    pub deterministic: bool,
}

/// A GPU that a rank has opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The node that it is in.
    pub host: String,
    /// Its model.
    pub name: String,
    /// Identifies it wherever it is.
    pub uuid: String,
}

/// Why a kind of device cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The reason, and what to try.
    pub why: String,
    /// Whether this machine has such a device, which `--device auto` then leaves unused with a note.
    pub present: bool,
}

/// A kind of device, and how a rank opens its own.
pub trait DeviceKind: Sized {
    /// How it computes.
    type Backend: Backend;

    /// As `--device` and the log name it.
    const NAME: &'static str;

    /// One line of help for `--device`.
    const ABOUT: &'static str;

    /// Whether devices of this kind fail one by one, so that an error must name the one it comes from.
    const REMOVABLE: bool;

    /// What to do where ranks have planned different memory layouts.
    const LAYOUT_CURE: &'static str;

    /// Looks for such a device on this machine, and opens none. `notes` go to the log with those of this kind.
    fn find(notes: Vec<String>) -> Result<Self, Unavailable>;

    /// Has the device's libraries read the environment if they do so once for all, and says whether they do. Else nothing of the device
    /// may be used while another thread changes the environment, as MPI does while it starts.
    fn read_environment(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Compute threads of a rank with so many cores, unless the user sets them.
    fn threads(&self, cores: usize) -> usize;

    /// Opens the device of this rank.
    fn open(&self, settings: &DeviceSettings) -> Result<Self::Backend, Error>;

    /// Notes on the choice of this kind, and on settings without effect in this number format, for the log.
    fn notes(&self, _precision: Precision) -> Vec<String> {
        Vec::new()
    }

    /// The GPU behind an open device, where ranks could share one by mistake.
    fn gpu(&self, _backend: &Self::Backend) -> Option<Gpu> {
        None
    }
}

// The number format of the arithmetic.

/// Type of activations, their gradients and the copies of weights that matrix products take. Parameters, their gradients,
/// statistics and losses are f32 or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits everywhere.
    #[default]
    F32,
    /// 8 bits of exponent, 8 of mantissa.
    Bf16,
    /// 5 bits of exponent, 11 of mantissa; losses are scaled so that small gradients survive.
    F16,
}

words! { Precision { F32 = "f32", Bf16 = "bf16", F16 = "f16" } }
