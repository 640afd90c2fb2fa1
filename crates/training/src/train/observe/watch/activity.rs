//! What a rank does between collective operations, as the watchdog reports it.

use std::fmt;

/// The activity of a rank between collective operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Not recorded, so that the watchdog reports only waits in MPI operations.
    Unrecorded,
    /// Plans and prepares the run.
    Starting,
    /// Reads the recipe, the data set's description or a checkpoint.
    Reading,
    /// Copies the data set to the node's local disk.
    Staging,
    /// Waits for the loader during training.
    Data {
        /// Number of the current step, starting at 1.
        step: u64,
        /// The worker that needs the data.
        worker: usize,
    },
    /// Computes forward, backward or update.
    Computing {
        /// Number of the current step, starting at 1.
        step: u64,
    },
    /// Waits until the device has computed a pass.
    Device {
        /// Number of the step, starting at 1.
        step: u64,
    },
    /// Waits until the devices of all ranks have summed the gradients.
    DeviceSums {
        /// Number of the step, starting at 1.
        step: u64,
    },
    /// Waits for the loader during an evaluation.
    ScoringData {
        /// Number of the last logical batch that was scored, or 0 before the first.
        after: u64,
    },
    /// Computes one logical batch of an evaluation.
    Scoring {
        batch: u64,
        /// True if this rank waits for a device that computes the batch.
        on_device: bool,
    },
    /// Rank 0 writes a model or a checkpoint.
    Writing {
        /// Number of steps that the file contains.
        step: u64,
    },
}

impl Activity {
    /// Returns true if this is a wait for files or a device, which takes seconds unless something hangs. All other activities are work,
    /// which may take longer.
    pub fn is_wait(self) -> bool {
        match self {
            Activity::Reading | Activity::Data { .. } | Activity::ScoringData { .. } | Activity::Writing { .. } => true,
            activity if activity.is_on_device() => true,
            _ => false,
        }
    }

    pub(super) fn is_on_device(self) -> bool {
        matches!(
            self,
            Activity::Device { .. } | Activity::DeviceSums { .. } | Activity::Scoring { on_device: true, .. }
        )
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activity::Unrecorded => Ok(()),
            Activity::Starting => write!(f, "prepares the run"),
            Activity::Reading => write!(f, "reads the recipe, the data set or a checkpoint"),
            Activity::Staging => write!(f, "copies the data set (--stage)"),
            Activity::ScoringData { after } => write!(f, "waits for data to score (after batch {after})"),
            Activity::Data { step, worker } => write!(f, "waits for data (step {step}, worker {worker})"),
            Activity::Device { step } => write!(f, "waits for the GPU to compute step {step}"),
            Activity::DeviceSums { step } => write!(f, "gradient sums in step {step}"),
            Activity::Computing { step } => write!(f, "computes step {step}"),
            Activity::Scoring { batch, .. } => write!(f, "scores batch {batch}"),
            Activity::Writing { step } => write!(f, "writes the files of step {step}"),
        }
    }
}
