//! What reading one file may cost: the flags that the messages of exceeded limits name.

use loaders::Limits;

use super::value::{bytes, duration};

/// What reading one file may cost.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Cost {
    /// Memory to read one file with, beside four times its size; images may have a third of it in pixels [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub limit_memory: Option<usize>,
    /// CPU time to decode one image in, by an estimate from its header [default: 5]
    #[arg(long, value_name = "S", value_parser = duration)]
    pub limit_seconds: Option<f64>,
}

impl Cost {
    /// The limits: those given, else the usual ones. More time is for more scans of a JPEG, too.
    pub fn limits(self) -> Limits {
        let mut limits = self.limit_memory.map_or(Limits::DEFAULT, |memory| Limits::with_memory(memory as u64));
        if let Some(seconds) = self.limit_seconds {
            limits.scans = (f64::from(limits.scans) * seconds / limits.seconds) as u32;
            limits.seconds = seconds;
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_raise_what_they_name() {
        let limits = |limit_memory, limit_seconds| Cost { limit_memory, limit_seconds }.limits();
        assert_eq!(limits(None, None), Limits::DEFAULT);
        let raised = limits(Some(3 << 30), Some(50.0));
        assert_eq!((raised.memory, raised.pixels, raised.scans, raised.seconds), (3 << 30, 1 << 30, 5000, 50.0));
    }
}
