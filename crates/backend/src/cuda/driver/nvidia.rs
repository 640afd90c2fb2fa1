//! NVIDIA's libraries by name: what their files are called, what they consist of, and the cure where one is missing.

use std::ffi::CStr;

/// The lowest and the highest major version of CUDA whose libraries are asked for by name.
const MAJORS: std::ops::RangeInclusive<u32> = 11..=19;

/// One library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// libcuda, of the driver's package.
    Driver,
    /// The compiler of our kernels.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Convolutions.
    Cudnn,
    /// Sums over ranks, where they are requested.
    Nccl,
}

/// The libraries that this backend cannot do without, in the order of the search: each after those that it uses.
pub const ALL: [Library; 4] = [Library::Driver, Library::Nvrtc, Library::CublasLt, Library::Cudnn];

impl Library {
    /// Part of the file's name between `lib` and `.so`.
    pub fn stem(self) -> &'static str {
        match self {
            Library::Driver => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::CublasLt => "cublasLt",
            Library::Cudnn => "cudnn",
            Library::Nccl => "nccl",
        }
    }

    /// A function that every version has.
    pub fn function(self) -> &'static CStr {
        match self {
            Library::Driver => c"cuDriverGetVersion",
            Library::Nvrtc => c"nvrtcVersion",
            Library::CublasLt => c"cublasLtGetVersion",
            Library::Cudnn => c"cudnnGetVersion",
            Library::Nccl => c"ncclGetVersion",
        }
    }

    /// How the names of the libraries begin that it opens by itself.
    pub fn companions(self) -> Option<&'static str> {
        match self {
            Library::Nvrtc => Some("libnvrtc-builtins.so"),
            Library::Cudnn => Some("libcudnn_"),
            _ => None,
        }
    }

    /// What to install.
    pub fn cure(self) -> &'static str {
        match self {
            Library::Driver => {
                "install the NVIDIA driver of this machine's GPU (Debian: nvidia-driver), or, in a container, start it with \
                 --gpus all or --nv"
            }
            Library::Nvrtc => "load the CUDA toolkit's module, or `pip install nvidia-cuda-nvrtc`",
            Library::CublasLt => "load the CUDA toolkit's module, or `pip install nvidia-cublas`",
            Library::Cudnn => {
                "load cuDNN's module (version 9), or `pip install nvidia-cudnn-cu13` (-cu12 for a driver of CUDA 12)"
            }
            Library::Nccl => "load NCCL's module, or `pip install nvidia-nccl-cu13`",
        }
    }

    /// The names by which the loader is asked for it: those that suit the driver, the newest first, then the others.
    pub fn names(self, driver: u32) -> Vec<String> {
        let file = |major: u32| format!("lib{}.so.{major}", self.stem());
        let bare = format!("lib{}.so", self.stem());
        match self {
            Library::Driver => {
                // where containers and WSL put it, of which the loader may not know
                let others = ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"].map(|at| format!("{at}/{}", file(1)));
                [file(1), bare].into_iter().chain(others).collect()
            }
            Library::Cudnn => vec![file(9), bare, file(8)],
            Library::Nccl => vec![file(2), bare],
            Library::Nvrtc | Library::CublasLt => {
                let (good, newer): (Vec<u32>, Vec<u32>) = MAJORS.rev().partition(|major| *major <= driver);
                good.into_iter().map(file).chain([bare]).chain(newer.into_iter().map(file)).collect()
            }
        }
    }

    /// Whether a version, as far as the file's name says it, is one that this program and the driver can use.
    pub fn suits(self, version: &[u32], driver: u32) -> bool {
        let Some(&major) = version.first() else { return true };
        match self {
            Library::Driver | Library::Nccl => true,
            Library::Cudnn => major == 9,
            Library::Nvrtc | Library::CublasLt => major <= driver,
        }
    }
}
