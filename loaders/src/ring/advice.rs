//! Which stage limits a loader, and what would make it faster.

use std::time::Duration;

use crate::ring::stats::{LoaderStats, Stages};

/// A consumer that waited for less of the time than this needs no advice.
const NEGLIGIBLE: f64 = 0.02;
/// A consumer that waited for more of the time than this does nothing else.
const IDLE: f64 = 0.95;
/// Bytes per second and thread that no disk delivers.
const MEMORY: f64 = 1e9;

impl LoaderStats {
    /// One line: whether the loader with so many threads kept up over `time`, which stage limited it, and what to try. `local`: it maps
    /// files of this machine, which no copy would make faster.
    pub fn advice(&self, time: Duration, threads: usize, local: bool) -> String {
        let seconds = Seconds::of(self, time);
        let busy = seconds.read + seconds.decode + seconds.transform;
        if seconds.wait < NEGLIGIBLE * seconds.time || self.images == 0 {
            let share = 100.0 * busy / (seconds.time * threads.max(1) as f64);
            return format!("the loader keeps up; its threads were busy {:.0} % of the time", share.min(100.0));
        }
        let idle = seconds.wait > IDLE * seconds.time;
        let rate = |seconds: f64| grouped(self.images as f64 / seconds.max(1e-9));
        let speed = match idle {
            true => format!("{} img/s", rate(seconds.time)),
            false => format!("{} of {} img/s wanted", rate(seconds.time), rate(seconds.time - seconds.wait)),
        };
        // as many threads of this speed as would keep up; a consumer that does nothing else sets no pace
        let needed = (busy / (seconds.time - seconds.wait).max(1e-9)).ceil() as usize;
        let threads = match (idle, needed.saturating_sub(threads).max(1)) {
            (true, _) => "more loader threads".to_owned(),
            (false, 1) => "1 more loader thread".to_owned(),
            (false, more) => format!("{more} more loader threads"),
        };
        let (stage, cure) = seconds.cure(self.bytes, &threads, local);
        format!("{stage}-bound: {speed}; {cure}")
    }
}

/// The times of a loader in seconds.
struct Seconds {
    time: f64,
    wait: f64,
    read: f64,
    decode: f64,
    transform: f64,
}

impl Seconds {
    fn of(stats: &LoaderStats, time: Duration) -> Self {
        let Stages { read, decode, transform, .. } = stats.stages;
        Self {
            time: time.as_secs_f64().max(1e-9),
            wait: stats.wait.as_secs_f64(),
            read: read.as_secs_f64(),
            decode: decode.as_secs_f64(),
            transform: transform.as_secs_f64(),
        }
    }

    /// The stage that took longest, and what to do about it.
    fn cure(&self, bytes: u64, threads: &str, local: bool) -> (&'static str, String) {
        let from_storage = bytes as f64 / self.read.max(1e-9);
        if self.decode >= self.read && self.decode >= self.transform {
            ("decode", format!("convert with --resize 256 (or --raw) or give {threads}"))
        } else if self.transform > self.read {
            ("transform", format!("give {threads}"))
        } else if from_storage > MEMORY {
            ("read", format!("the records come from memory, their checksums take the time; give {threads}"))
        } else {
            let rate = from_storage / 1e6;
            let copy = if local { "" } else { "copy to a local disk with --stage, use shuffle = \"window(8)\", or " };
            ("read", format!("a thread gets {rate:.0} MB/s; {copy}give {threads}"))
        }
    }
}

/// `1234.5` as `1,234`.
fn grouped(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(images: u64, wait: f64, read: f64, decode: f64, transform: f64) -> LoaderStats {
        let seconds = Duration::from_secs_f64;
        let stages =
            Stages { read: seconds(read), decode: seconds(decode), transform: seconds(transform), ..Stages::default() };
        LoaderStats { wait: seconds(wait), images, bytes: images * 100_000, stages, ..LoaderStats::default() }
    }

    #[test]
    fn advice_names_what_holds_up() {
        let ten = Duration::from_secs(10);
        // 6,400 images in 10 s, of which compute took 5.82 s: 1,100 a second wanted; 2 threads were busy all the time
        let text = stats(6400, 4.18, 1.0, 17.0, 2.0).advice(ten, 2, false);
        assert_eq!(
            text,
            "decode-bound: 640 of 1,100 img/s wanted; convert with --resize 256 (or --raw) or give 2 more loader threads"
        );
        let text = stats(6400, 5.0, 9.0, 0.5, 0.5).advice(ten, 1, false);
        assert!(text.starts_with("read-bound: 640 of 1,280 img/s wanted; a thread gets 71 MB/s; "), "{text}");
        assert!(text.contains("--stage") && text.ends_with("give 1 more loader thread"), "{text}");
        let local = stats(6400, 5.0, 9.0, 0.5, 0.5).advice(ten, 1, true);
        assert!(local.ends_with("a thread gets 71 MB/s; give 1 more loader thread"), "{local}");
        let text = stats(6400, 5.0, 1.0, 1.0, 8.0).advice(ten, 1, false);
        assert_eq!(text, "transform-bound: 640 of 1,280 img/s wanted; give 1 more loader thread");
        let text = stats(6400, 9.9, 1.0, 6.0, 1.0).advice(ten, 1, false);
        assert!(text.starts_with("decode-bound: 640 img/s; ") && text.ends_with("give more loader threads"), "{text}");
        let text = stats(6400, 5.0, 0.5, 0.1, 0.1).advice(ten, 1, false);
        assert!(text.contains("come from memory"), "{text}");
        let text = stats(6400, 0.1, 1.0, 3.0, 1.0).advice(ten, 1, false);
        assert_eq!(text, "the loader keeps up; its threads were busy 50 % of the time");
    }
}
