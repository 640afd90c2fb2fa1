//! What reading one file may cost. Small files can ask for gigabytes and hours: sizes in a header, compressed data that unpacks to a
//! thousand times its length, a photo in thousands of scans. Every decoder and every decompressor gets these limits and compares them
//! with what a file asks for before it spends it.

use crate::fault::Fault;
use crate::spec::ImageSpec;

/// The most that reading one file may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bytes of memory, beside four times the file's own size.
    pub memory: u64,
    /// Pixels of an image.
    pub pixels: u64,
    /// Scans of a JPEG; ordinary progressive ones have about ten.
    pub scans: u32,
    /// Seconds of CPU time, by an estimate that is the same on every machine.
    pub seconds: f64,
}

/// What decoding an image costs, by its header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The image.
    pub spec: ImageSpec,
    /// Bytes of the pixels and of what must be kept until all of them are known.
    pub memory: u64,
    /// Scans of a JPEG, else 1.
    pub scans: u32,
    /// Seconds of CPU time.
    pub seconds: f64,
}

impl Limits {
    /// 512 MiB, that is 178,956,970 pixels of RGB; 500 scans; 5 seconds.
    pub const DEFAULT: Self = Self::with_memory(512 << 20);

    /// These bytes of memory and as many pixels of RGB as fit into them; else as [`Limits::DEFAULT`].
    pub const fn with_memory(memory: u64) -> Self {
        Self { memory, pixels: memory / 3, scans: 500, seconds: 5.0 }
    }

    /// The most bytes of memory for a file of `input` bytes.
    pub const fn allowed(&self, input: u64) -> u64 {
        self.memory.saturating_add(input.saturating_mul(4))
    }

    /// Accepts what reading `what`, of `input` bytes, costs.
    ///
    /// # Errors
    /// The first limit that is exceeded, with what to do.
    pub fn check(&self, what: &'static str, input: u64, cost: &Cost) -> Result<(), Fault> {
        let Cost { spec, memory, scans, seconds } = *cost;
        if spec.pixels() == 0 || spec.pixels() as u64 > self.pixels {
            return Err(Fault::PixelCount { got: spec, limit: self.pixels });
        }
        if memory > self.allowed(input) {
            return Err(self.memory_fault(what, input, Some(memory)));
        }
        if scans > self.scans || seconds > self.seconds {
            return Err(Fault::Time { scans, seconds, most_scans: self.scans, most_seconds: self.seconds });
        }
        Ok(())
    }

    /// The fault of `what`, of `input` bytes, which takes more memory than is allowed.
    pub(crate) fn memory_fault(&self, what: &'static str, input: u64, needed: Option<u64>) -> Fault {
        Fault::Memory { what, needed, allowed: self.allowed(input), extra: self.memory }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(limits: Limits, cost: Cost) -> Option<String> {
        limits.check("JPEG", 1000, &cost).err().map(|fault| fault.to_string())
    }

    #[test]
    fn each_limit_is_told_with_its_flag() {
        let cost = |height, width| Cost { spec: ImageSpec::new(height, width, 3), memory: 0, scans: 1, seconds: 0.0 };
        let limits = Limits::DEFAULT;
        assert_eq!(refused(limits, cost(9500, 11_000)), None);
        assert_eq!(refused(limits, cost(1, limits.pixels as u32)), None);
        let text = "image of 30000x20000x3 (height x width x channels): expected 1 to 178956970 pixels; scale it down \
                    first, or raise --limit-memory (`data convert`, `predict`)";
        assert_eq!(refused(limits, cost(30_000, 20_000)).as_deref(), Some(text));
        assert!(refused(limits, cost(0, 5)).unwrap().starts_with("image of 0x5x3 "));
        let small = cost(2, 2);
        let heavy = Cost { memory: 900_000_000, ..small };
        let text = "the JPEG needs 900.0 MB of memory, 536.9 MB are allowed (512 MiB and four times its size); scale it \
                    down first, or raise --limit-memory (`data convert`, `predict`)";
        assert_eq!(refused(limits, heavy).as_deref(), Some(text));
        assert_eq!(refused(Limits::with_memory(1 << 30), heavy), None);
        let slow = refused(limits, Cost { seconds: 18.0, scans: 499, ..small }).unwrap();
        assert!(slow.contains("18.0 s") && slow.contains("499 scans") && slow.contains("--limit-seconds"), "{slow}");
        assert!(refused(limits, Cost { scans: 501, ..small }).unwrap().contains("at most 500"));
    }
}
