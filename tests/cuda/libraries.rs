//! The program finds NVIDIA's libraries and reports where. The emulated libraries are laid out as in PyTorch's wheels.

use std::fs;
use std::path::Path;

use support::program::{Folder, ProgramOutput, start, trireme};
use support::{emulator, gpu, mentions};

/// NVIDIA's wheels: the name of each folder and the libraries in it.
const WHEELS: [(&str, &[&str]); 3] =
    [("cu13", &["libnvrtc.so.13", "libcublasLt.so.13"]), ("cudnn", &["libcudnn.so.9"]), ("nccl", &["libnccl.so.2"])];

/// Copies libraries. A link would lead the program to the folder that has all emulated libraries.
fn copy(names: &[&str], to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for name in names {
        fs::copy(emulator::folder().join(name), to.join(name)).expect("a copy");
    }
}

/// A folder with a driver and a virtual environment with the wheels.
struct Machine(Folder);

impl Machine {
    fn new() -> Self {
        let machine = Self(Folder::new());
        copy(&["libcuda.so.1"], &machine.0.path().join("driver"));
        WHEELS.iter().for_each(|(wheel, names)| copy(names, Path::new(&machine.wheel(wheel))));
        emulator::empty_library(&Path::new(&machine.wheel("cudnn")).join("libcudnn_graph.so.9"));
        machine
    }

    fn wheel(&self, name: &str) -> String {
        self.0.at(&format!("venv/lib/python3.12/site-packages/nvidia/{name}/lib"))
    }

    fn run(&self, more: &[&Path], arguments: &[&str]) -> ProgramOutput {
        let driver = self.0.path().join("driver");
        let folders = std::env::join_paths([&driver as &Path].iter().chain(more)).expect("folders");
        let mut program = trireme(0, arguments);
        program.env("LD_LIBRARY_PATH", folders).env("VIRTUAL_ENV", self.0.at("venv"));
        start(gpu::see(program)).wait(gpu::PATIENCE)
    }

    fn doctor(&self, more: &[&Path], library: &str) -> String {
        let report = self.run(more, &["doctor"]).stdout;
        let line = report.lines().find(|line| line.contains(&format!("{library}: ")));
        line.unwrap_or_else(|| panic!("no {library} in:\n{report}")).to_string()
    }
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn libraries_are_found_in_the_packages_of_python() {
    let machine = Machine::new();
    for (library, version, file) in [
        ("libcuda", "CUDA 13.0", machine.0.at("driver/libcuda.so.1")),
        ("libnvrtc", "13.0", format!("{}/libnvrtc.so.13", machine.wheel("cu13"))),
        ("libcublasLt", "13.", format!("{}/libcublasLt.so.13", machine.wheel("cu13"))),
        ("libcudnn", "9.", format!("{}/libcudnn.so.9 and 1 more from its folder", machine.wheel("cudnn"))),
        ("libnccl", "2.", format!("{}/libnccl.so.2", machine.wheel("nccl"))),
    ] {
        let line = machine.doctor(&[], library);
        assert!(line.contains(&format!("{library}: {version}")) && line.ends_with(&file), "{line}\nexpected {file}");
    }
    let bench = ["bench", "step", "--model", "lenet", "--batch", "2", "--device", "cuda", "--seconds", "0.01"];
    let figures = machine.run(&[], &bench).succeeded().stdout;
    assert!(figures.contains("\"device\":\"cuda\""), "{figures}");
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_folder_that_was_chosen_comes_first_if_the_driver_can_use_it() {
    let machine = Machine::new();
    let chosen = machine.0.path().join("chosen");
    copy(&["libcudnn.so.9"], &chosen);
    let line = machine.doctor(&[&chosen], "libcudnn");
    assert!(line.ends_with(&chosen.join("libcudnn.so.9").display().to_string()), "{line}");
    // this folder has a library that is named like NVRTC of CUDA 14, which the driver does not support, and a link
    // `libnvrtc.so`, which the program tries first
    let newer = machine.0.path().join("newer");
    copy(&["libnvrtc.so.13"], &newer);
    fs::rename(newer.join("libnvrtc.so.13"), newer.join("libnvrtc.so.14")).expect("renamed");
    std::os::unix::fs::symlink("libnvrtc.so.14", newer.join("libnvrtc.so")).expect("a link");
    let line = machine.doctor(&[&newer], "libnvrtc");
    assert!(line.ends_with(&format!("{}/libnvrtc.so.13", machine.wheel("cu13"))), "{line}");
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_library_that_does_not_load_is_named() {
    let machine = Machine::new();
    fs::write(Path::new(&machine.wheel("cudnn")).join("libcudnn.so.9"), "no library").expect("written");
    let ended = machine.run(&[], &["bench", "step", "--model", "lenet", "--batch", "2", "--device", "cuda"]);
    ended.failed(1, &["libcudnn", &machine.wheel("cudnn"), "too short", "pip install"]);
    fs::remove_dir_all(machine.wheel("nccl")).expect("removed");
    let line = machine.doctor(&[], "libnccl");
    mentions(line, &["several GPUs", "`reduce.path`", "pip install nvidia-nccl-cu13"]);
}
