//! Observers of a run: timing, trace, notices, watchdog, diagnosis, requests to stop. Nothing here changes what is computed, or imports
//! anything else of training.

pub mod diagnose;
pub mod loading;
pub mod notices;
pub mod record;
pub mod stop;
pub mod timing;
pub mod trace;
pub mod watch;
