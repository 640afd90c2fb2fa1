//! The kinds of faults, and how one is drawn.

use loaders::Draws;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL of one rank.
    KillRank,
    /// SIGKILL of the launcher, or of the process that runs without one.
    KillLauncher,
    /// SIGKILL of all ranks while a checkpoint is written.
    KillWriting,
    /// SIGKILL of a rank in its first two seconds.
    KillEarly,
    /// SIGTERM to one rank.
    Terminate,
    /// SIGTERM to the launcher.
    TerminateLauncher,
    /// The disk of OUT is full to the last byte.
    FullDisk,
    /// A flipped byte in each record of a shard.
    CorruptShard,
    /// SIGSTOP of one rank, SIGCONT after some seconds.
    Pause,
    /// Each read of the data set takes longer for some seconds.
    SlowReads,
    /// Each write to OUT takes longer for some seconds.
    SlowWrites,
    /// Checkpoints find no space, the log does, until one has failed.
    NoRoomForCheckpoints,
}

impl Fault {
    /// Those that a run must go on through.
    pub const SURVIVABLE: [Self; 4] = [Self::Pause, Self::SlowReads, Self::SlowWrites, Self::NoRoomForCheckpoints];

    /// Those that a run must end with, so that it can go on. [`Fault::KillEarly`] is not among them: it follows one of them.
    pub const FATAL: [Self; 7] = [
        Self::KillRank,
        Self::KillLauncher,
        Self::KillWriting,
        Self::Terminate,
        Self::TerminateLauncher,
        Self::FullDisk,
        Self::CorruptShard,
    ];

    /// For the table.
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

/// One of `from`.
pub fn one_of<T: Copy>(draws: &mut Draws, from: &[T]) -> T {
    from[draws.below(from.len() as u32) as usize]
}
