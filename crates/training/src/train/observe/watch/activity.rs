//! What a rank does beside communication.

/// What a rank does between collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Plans and prepares the run.
    Starting,
    /// Reads the recipe, the data set's description or a checkpoint.
    Reading,
    /// Copies the data set to the node's local disk.
    Staging,
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
    /// Waits for its loader in an evaluation.
    ScoringData {
        /// Number of the last logical batch, or 0 before the first.
        after: u64,
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

impl Activity {
    /// Returns true if this is a wait for files, which takes seconds unless something hangs. All other activities are work, which may take
    /// longer.
    pub fn is_wait(self) -> bool {
        match self {
            Activity::Reading | Activity::Data { .. } | Activity::ScoringData { .. } | Activity::Writing { .. } => true,
            Activity::Starting | Activity::Staging | Activity::Computing { .. } | Activity::Scoring { .. } => false,
        }
    }
}

impl std::fmt::Display for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Activity::Starting => write!(f, "prepares the run"),
            Activity::Reading => write!(f, "reads the recipe, the data set or a checkpoint"),
            Activity::Staging => write!(f, "copies the data set (--stage)"),
            Activity::ScoringData { after } => write!(f, "waits for data to score (after batch {after})"),
            Activity::Data { step, worker } => write!(f, "waits for data (step {step}, worker {worker})"),
            Activity::Computing { step } => write!(f, "computes step {step}"),
            Activity::Scoring { batch } => write!(f, "scores batch {batch}"),
            Activity::Writing { step } => write!(f, "writes the files of step {step}"),
        }
    }
}
