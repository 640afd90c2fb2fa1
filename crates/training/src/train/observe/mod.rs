//! Observers of a run: timing, trace, notices, watchdog and requests to stop. They do not change any result and do not
//! import other parts of `train`.

pub mod notices;
pub mod stop;
pub mod timing;
pub mod trace;
pub mod watch;
