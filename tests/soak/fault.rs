//! The kinds of faults, and how one is chosen at random.

use loaders::Draws;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL to one rank.
    KillRank,
    /// SIGKILL to the launcher, or to the process if there is no launcher.
    KillLauncher,
    /// SIGKILL to all ranks while a checkpoint is written.
    KillWriting,
    /// SIGKILL to a rank in its first two seconds.
    KillEarly,
    /// SIGTERM to one rank.
    Terminate,
    /// SIGTERM to the launcher.
    TerminateLauncher,
    /// The disk of the output folder becomes completely full.
    FullDisk,
    /// A flipped byte in each record of a shard.
    CorruptShard,
    /// SIGSTOP to one rank, and SIGCONT after some seconds.
    Pause,
    /// For some seconds, each read from the data set takes longer.
    SlowReads,
    /// For some seconds, each write to the output folder takes longer.
    SlowWrites,
    /// Checkpoints find no space, but the log does, until one checkpoint has failed.
    NoRoomForCheckpoints,
}

impl Fault {
    pub const SURVIVABLE: [Self; 4] = [Self::Pause, Self::SlowReads, Self::SlowWrites, Self::NoRoomForCheckpoints];

    /// The faults that must end a run. The run must then be able to resume. [`Fault::KillEarly`] is not in the list,
    /// because the test causes it only during a resume after one of these faults.
    pub const FATAL: [Self; 7] = [
        Self::KillRank,
        Self::KillLauncher,
        Self::KillWriting,
        Self::Terminate,
        Self::TerminateLauncher,
        Self::FullDisk,
        Self::CorruptShard,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::KillRank => "kill a rank",
            Self::KillLauncher => "kill the launcher",
            Self::KillWriting => "kill while writing",
            Self::KillEarly => "kill at the start",
            Self::Terminate => "SIGTERM to a rank",
            Self::TerminateLauncher => "SIGTERM to mpirun",
            Self::FullDisk => "full disk",
            Self::CorruptShard => "corrupt shard",
            Self::Pause => "stop and continue",
            Self::SlowReads => "slow reads",
            Self::SlowWrites => "slow writes",
            Self::NoRoomForCheckpoints => "no room for checkpoints",
        }
    }
}

pub fn one_of<T: Copy>(draws: &mut Draws, from: &[T]) -> T {
    from[draws.below(from.len() as u32) as usize]
}
