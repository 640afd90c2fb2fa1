//! How a run ends when it does not end well.

use crate::{backend, checkpoint, comm, nn, optim, recipe, report};

/// An error of training or evaluation; [`Error::code`] is the exit code that it asks for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something failed.
    #[error("{0}")]
    Failed(String),
    /// All ranks know of it, and end together.
    #[error("{text}")]
    Agreed {
        /// Exit code.
        code: u8,
        /// What happened, and to which rank if not to all.
        text: String,
    },
    /// Another rank failed and says why.
    #[error("another rank failed")]
    Elsewhere {
        /// Its exit code.
        code: u8,
    },
    /// The recipe.
    #[error(transparent)]
    Recipe(#[from] recipe::Error),
    /// The learning-rate schedule.
    #[error(transparent)]
    Schedule(#[from] optim::schedule::ScheduleError),
    /// The optimizer.
    #[error(transparent)]
    Optimizer(#[from] optim::OptimizerError),
    /// The data.
    #[error(transparent)]
    Data(#[from] loaders::Error),
    /// The network.
    #[error(transparent)]
    Build(#[from] nn::graph::BuildError),
    /// The device.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// Communication.
    #[error(transparent)]
    Comm(#[from] comm::Error),
    /// A model file.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// The log.
    #[error(transparent)]
    Report(#[from] report::Error),
}

impl Error {
    /// 2 for requests that make no sense, else 1.
    pub fn code(&self) -> u8 {
        match self {
            Error::Usage(_) | Error::Recipe(_) | Error::Schedule(_) | Error::Optimizer(_) => 2,
            Error::Agreed { code, .. } | Error::Elsewhere { code } => *code,
            _ => 1,
        }
    }
}
