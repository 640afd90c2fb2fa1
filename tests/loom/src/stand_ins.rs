//! Replacements for code that the loader's ring calls, but that does not affect its protocol: records, transforms and
//! priorities. Nothing is read, and a batch contains the ids of its job.

use std::cell::Cell;

/// The id of a sample whose record is invalid.
pub const FAULTY: u64 = 1000;

/// The id of a sample whose record cannot even be requested.
pub const LOST: u64 = 3000;

/// Returns the number of buffers made since the last call. All threads of a loom model run on one system thread, so a
/// thread-local counter works.
pub fn buffers() -> usize {
    BUFFERS.take()
}

thread_local! {
    static BUFFERS: Cell<usize> = const { Cell::new(0) };
}

pub mod error {
    #[derive(Debug)]
    pub enum Error {
        Nice { nice: i32, source: std::io::Error },
        Thread { source: std::io::Error },
        Panic { thread: usize, message: String },
        SlotsHeld { slots: usize },
        Stopped,
        Record,
    }
}

pub mod storage {
    pub mod mapping {
        /// Counts new buffers. The real function populates a buffer's memory piece by piece. Here a single piece covers
        /// a whole buffer, so the ring calls this once per buffer.
        pub fn populate_fresh(_: &mut [f32]) {
            super::super::BUFFERS.set(super::super::BUFFERS.get() + 1);
        }
    }

    pub mod fetch {
        /// Replaces the type that fetches records ahead of time. The tests do not read records.
        #[derive(Debug)]
        pub struct Fetch;
    }

    pub mod dataset {
        /// A split with any number of samples.
        #[derive(Debug)]
        pub struct Split;
    }

    pub mod read_plan {
        use crate::error::Error;

        /// Replaces the loader's read plan. If `ahead` is set, a thread receives its next job before it fills the batch
        /// of the previous job.
        #[derive(Debug)]
        pub struct ReadPlan {
            pub ahead: bool,
            pub text: String,
            pub local: bool,
        }

        impl ReadPlan {
            pub fn new(_: &super::dataset::Split, options: &bool) -> Result<Self, Error> {
                Ok(Self { ahead: *options, text: String::new(), local: true })
            }

            pub fn looks_ahead(&self) -> bool {
                self.ahead
            }

            pub fn readers(&self) -> usize {
                0
            }
        }

        #[derive(Debug)]
        pub struct OpenShards(ReadPlan);

        impl OpenShards {
            pub fn new(_: std::sync::Arc<super::dataset::Split>, plan: ReadPlan) -> Self {
                Self(plan)
            }

            pub fn plan(&self) -> &ReadPlan {
                &self.0
            }

            pub fn stop(&self) {}
        }
    }
}

pub mod mix {
    /// Replaces the settings of mixup and CutMix. The tests do not mix images.
    #[derive(Debug, Clone, Copy)]
    pub struct Mix;
}

pub mod transform {
    use crate::spec::ImageSpec;

    /// Replaces the transforms. An image consists of a single value.
    #[derive(Debug)]
    pub struct Pipeline;

    impl Pipeline {
        pub fn output(&self) -> ImageSpec {
            ImageSpec::new(1, 1, 1)
        }

        pub fn dtype(&self) -> Dtype {
            Dtype
        }
    }

    /// Replaces the type of stored values with bytes.
    #[derive(Debug, Clone, Copy)]
    pub struct Dtype;

    impl Dtype {
        pub fn bytes(self) -> usize {
            1
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CropRect;
}

pub mod options {
    use crate::ring::shared::Division;
    use crate::storage::read_plan::ReadPlan;

    /// The loader's options without those for reading.
    #[derive(Debug, Clone, Copy)]
    pub struct Options {
        pub threads: usize,
        pub slots: usize,
        pub nice: i32,
        pub skip: bool,
        pub ahead: bool,
    }

    impl Options {
        pub fn reading(&self) -> bool {
            self.ahead
        }

        pub fn slot_count(&self, _: &ReadPlan, _: usize) -> usize {
            self.slots
        }

        pub(crate) fn division(&self, plan: &ReadPlan, _: usize) -> Division {
            Division { pieces: if plan.ahead { 1 } else { 2 * self.threads }, samples: 1 }
        }
    }
}

pub mod nice {
    pub fn lower_current_thread(_: i32) -> std::io::Result<()> {
        Ok(())
    }
}

pub mod reader {
    use crate::storage::read_plan::OpenShards;
    use crate::sync::Receiver;

    pub enum ReadRequest {
        Shard(usize),
        Stop,
    }

    pub fn run(_: &OpenShards, _: i32, requests: &Receiver<ReadRequest>) {
        while !matches!(requests.recv(), Ok(ReadRequest::Stop) | Err(_)) {}
    }
}

pub mod fill {
    use super::{FAULTY, LOST};
    use crate::error::Error;
    use crate::ring::piece::Piece;
    use crate::ring::shared::Shared;
    use crate::ring::slot::Slot;
    use crate::storage::fetch::Fetch;

    #[derive(Default)]
    pub struct ThreadState {
        pub fetches: Vec<Fetch>,
        pub pieces: Vec<Piece>,
    }

    pub enum Outcome {
        Filled,
        Stopped,
    }

    pub fn request(_: &Shared, piece: &mut Piece, _: &mut ThreadState) -> Result<(), Error> {
        if piece.job.ids.contains(&LOST) { Err(Error::Record) } else { Ok(()) }
    }

    pub fn request_ahead(shared: &Shared, piece: &mut Piece, state: &mut ThreadState) -> Result<(), Error> {
        request(shared, piece, state)
    }

    pub fn fill(shared: &Shared, piece: &mut Piece, _: &mut ThreadState) -> Result<Outcome, Error> {
        let Piece { job, memory, samples, index, .. } = piece;
        // like the loader, check before each sample whether to stop
        for (at, id) in job.ids.iter().enumerate() {
            match *id {
                _ if shared.stops() => return Ok(Outcome::Stopped),
                FAULTY => return Err(Error::Record),
                _ => {}
            }
            if *index == 0 {
                memory.populate(at);
                memory.values(at)[0] = *id as f32;
            }
            samples.ids.push(*id);
        }
        Ok(Outcome::Filled)
    }

    pub fn finish(_: &Shared, _: &mut Slot) {}
}
