//! The ways to read records, as options name them.

use std::str::FromStr;

/// How records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// By the type of the file system.
    #[default]
    Auto,
    /// From mappings.
    Mmap,
    /// By long reads.
    Read,
}

impl FromStr for Io {
    type Err = String;

    /// From `auto`, `mmap` or `read`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "mmap" => Ok(Self::Mmap),
            "read" => Ok(Self::Read),
            _ => Err(format!("expected \"auto\", \"mmap\" or \"read\", got \"{text}\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_recipe() {
        assert_eq!(["auto", "mmap", "read"].map(str::parse), [Ok(Io::Auto), Ok(Io::Mmap), Ok(Io::Read)]);
        assert!("pread".parse::<Io>().unwrap_err().ends_with("got \"pread\""));
    }
}
