//! Observers of a run: timing, trace, notices, watchdog, diagnosis, requests to stop. Nothing here changes what is computed, or imports
//! anything else of training.

pub mod notices;
pub mod stop;
pub mod timing;
pub mod trace;
pub mod watch;
