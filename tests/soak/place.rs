//! The folders that a series of training runs uses, including its own folders for temporary files, and slow and failing file
//! access: the library `preload.c`, which is preloaded into a training run, and the file that controls it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::program::{Folder, compile_c};

pub struct Place {
    pub data: String,
    pub out: String,
    /// Controls slow and failing access to the files of the data set and of the output folder.
    pub preload: Preload,
    /// Folders for MPI's temporary files, which killed processes leave behind.
    temporary: [PathBuf; 2],
}

impl Place {
    pub fn new(folder: &Folder, series: &str, data: String, out: String) -> Self {
        let own = folder.path().join(series);
        let shared = Path::new("/dev/shm");
        let shared = if shared.is_dir() { shared } else { folder.path() };
        let temporary = [own.join("tmp"), shared.join(format!("trireme-soak-{}-{series}", std::process::id()))];
        for path in &temporary {
            fs::create_dir_all(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        Self { preload: Preload::new(&own, &data, &out), data, out, temporary }
    }

    /// Sets the environment so that a program uses these folders. Open MPI uses the second temporary folder, other MPIs do not need it.
    pub fn apply(&self, command: &mut Command) {
        self.preload.apply(command);
        command.env("TMPDIR", &self.temporary[0]).env("OMPI_MCA_btl_vader_backing_directory", &self.temporary[1]);
    }

    pub fn tidy(&self) {
        for path in &self.temporary {
            let _ = fs::remove_dir_all(path);
            fs::create_dir_all(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }

    pub fn log(&self) -> PathBuf {
        Path::new(&self.out).join("metrics.jsonl")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.temporary[1]);
    }
}

/// The delays and failures that the library should cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interference {
    /// Additional milliseconds for each read from the data set.
    pub read_ms: u32,
    /// Additional milliseconds for each write to the output folder.
    pub write_ms: u32,
    /// Which writes to the output folder fail.
    pub no_space: NoSpace,
}

/// The writes that fail because there is no space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoSpace {
    #[default]
    Never,
    /// Writes of checkpoints and models.
    Models,
    Always,
}

/// How often the library has interfered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterferenceCount {
    pub slow_reads: u64,
    pub slow_writes: u64,
    pub refused: u64,
}

/// Size of `struct control` in `preload.c`: four u32 and three u64.
const BYTES: usize = 40;

/// The library and the control file of one series of training runs.
pub struct Preload {
    library: PathBuf,
    control: PathBuf,
    file: File,
    data: String,
    out: String,
}

impl Preload {
    /// Prepares the library for runs that read from `data` and write to `out`. The control file is in `folder`.
    pub fn new(folder: &Path, data: &str, out: &str) -> Self {
        let control = folder.join("control");
        fs::write(&control, [0; BYTES]).unwrap_or_else(|e| panic!("{}: {e}", control.display()));
        let file = OpenOptions::new().read(true).write(true).open(&control);
        let file = file.unwrap_or_else(|e| panic!("{}: {e}", control.display()));
        let library = folder.join("preload.so");
        let flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"];
        compile_c("tests/soak/preload.c", &library, &flags);
        Self { library, control, file, data: data.into(), out: out.into() }
    }

    /// Makes the run and its launcher load the library.
    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("TRIREME_SOAK_CONTROL", &self.control);
        command.env("TRIREME_SOAK_DATA", &self.data).env("TRIREME_SOAK_OUT", &self.out);
    }

    pub fn set(&self, interference: Interference) {
        let no_space = match interference.no_space {
            NoSpace::Never => 0u32,
            NoSpace::Models => 1,
            NoSpace::Always => 2,
        };
        let words = [interference.read_ms, interference.write_ms, no_space];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, 0).expect("the control file can be written");
    }

    pub fn done(&self) -> InterferenceCount {
        let mut bytes = [0; BYTES];
        self.file.read_exact_at(&mut bytes, 0).expect("the control file can be read");
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        InterferenceCount { slow_reads: word(16), slow_writes: word(24), refused: word(32) }
    }
}
