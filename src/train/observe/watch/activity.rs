//! What a rank does beside communication.

/// What a rank does between collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Reads the recipe, opens the data, plans.
    Starting,
    /// Waits for its loader.
    Data {
        /// The optimizer step under way, from 1.
        step: u64,
        /// The worker whose share is waited for.
        worker: usize,
    },
    /// Forward, backward, update.
    Computing {
        /// The optimizer step under way, from 1.
        step: u64,
    },
    /// Evaluation.
    Scoring {
        /// Logical batch.
        batch: u64,
    },
    /// Rank 0 writes a model or a checkpoint.
    Writing {
        /// Optimizer steps done.
        step: u64,
    },
}

impl std::fmt::Display for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Activity::Starting => write!(f, "prepares the run"),
            Activity::Data { step, worker } => write!(f, "waits for data (step {step}, worker {worker})"),
            Activity::Computing { step } => write!(f, "computes step {step}"),
            Activity::Scoring { batch } => write!(f, "scores batch {batch}"),
            Activity::Writing { step } => write!(f, "writes the files of step {step}"),
        }
    }
}
