//! Checks the loaded MPI library: whether it belongs to the family that the program was built for, and whether it
//! accepts GPU memory.
//!
//! A program that was built for one MPI library also runs with every other library of the same family, in any version.
//! It does not run with another family: handles are pointers in one family and integers in the other, and the mpirun of
//! one cannot start programs of the other.

use std::time::Duration;

use super::error::Error;
use super::launcher::{self, Family, Serving};
use super::sys;

/// Returns name and version from an MPI library's description of itself, which may have more than one line.
pub(super) fn library_line(version: &str) -> String {
    let line = version.lines().next().unwrap_or_default();
    let line = line.split(',').next().unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How long the other ranks of a node wait before they exit, so that the first rank can print the error for all of
/// them.
const TIME_TO_SPEAK: Duration = Duration::from_secs(1);

/// Checks that program, library and mpirun belong to the same family. A mismatch would crash, hang, or start ranks that
/// do not see each other.
///
/// # Errors
///
/// Returns [`Error::Family`] on the first rank of each node. The other ranks exit with code 1 one second later, without
/// a message.
pub(super) fn check_family() -> Result<(), Error> {
    let Some(compiled) = sys::compiled_family() else { return Ok(()) };
    let Some(text) = mismatch(compiled, &sys::library_version(), launcher::serving(&launcher::variable)) else {
        return Ok(());
    };
    if launcher::is_second_of_node() {
        std::thread::sleep(TIME_TO_SPEAK);
        sys::exit_now(1);
    }
    Err(Error::Family(text))
}

/// Describes the mismatch and how to fix it. Returns `None` if program, library and mpirun belong together.
fn mismatch(compiled: Family, version: &str, mpirun: Option<Serving>) -> Option<String> {
    let (ours, library) = (compiled.name(), library_line(version));
    if let Some(found) = Family::from_library_version(version).filter(|&found| found != compiled) {
        let theirs = found.name();
        return Some(format!(
            "this trireme was built for {ours} and compatible MPI libraries, but the dynamic loader found a library of the {theirs} \
             family: {library}. Load the module of an MPI that is compatible with {ours} (`ldd` on the program shows which library is \
             found), or use a trireme that was built for {theirs}"
        ));
    }
    let Serving { name, family, ranks } = mpirun.filter(|mpirun| mpirun.family != compiled)?;
    // An MPICH that was configured with PMIx can also be started by Open MPI's mpirun.
    if compiled == Family::Mpich && version.to_lowercase().contains("pmix") {
        return None;
    }
    Some(format!(
        "{name} started {ranks} ranks, but this trireme was built for {ours} and compatible MPI libraries (found: {library}), so the \
         ranks could not find each other. Start with the mpirun of that MPI, use a trireme that was built for {}, or rebuild with \
         MPICC=/path/to/mpicc of this mpirun's MPI",
        family.name()
    ))
}

// The MPI library's answer about GPU memory. The answer comes from a flag set at build or start time and has been wrong
// before, so only a correct sum of GPU memory proves support.

/// The library's answer about GPU memory, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// True if the library says that it accepts device memory, `None` if it does not say anything.
    pub yes: Option<bool>,
    /// The function or variable that the answer comes from, or what is missing.
    pub by: String,
}

/// Environment variables (name and value) that enable GPU support in a library.
const VARIABLES: [(&str, &str); 4] =
    [("MPICH_GPU_SUPPORT_ENABLED", "1"), ("MPIR_CVAR_ENABLE_GPU", "1"), ("MV2_USE_CUDA", "1"), ("MVP_USE_CUDA", "1")];

/// Asks the library's query functions first, then checks the variables that enable GPU support in Cray MPICH, MPICH and
/// MVAPICH.
pub fn claim() -> Claim {
    let gpu = sys::query_gpu_support();
    // Call the older function only if the newer one does not exist. In MPICH 3.4 the older one ends the process.
    let cuda = if gpu.is_none() { sys::query_cuda_support() } else { None };
    judge(cuda, gpu, sys::has_cray_gtl(), launcher::variable)
}

fn judge(cuda: Option<bool>, gpu: Option<bool>, gtl: bool, variable: impl Fn(&str) -> Option<String>) -> Claim {
    if variable("MPICH_GPU_SUPPORT_ENABLED").as_deref() == Some("1") && !gtl {
        let by = "MPICH_GPU_SUPPORT_ENABLED=1, but Cray's libmpi_gtl_cuda is not loaded: run `module load craype-accel-nvidia90` and \
                  rebuild, or preload the library";
        return Claim { yes: Some(false), by: by.into() };
    }
    for (answer, name) in [(cuda, "MPIX_Query_cuda_support"), (gpu, "MPIX_GPU_query_support")] {
        if let Some(yes) = answer.filter(|yes| *yes || gpu != Some(true)) {
            return Claim { yes: Some(yes), by: format!("{name} answers {}", u8::from(yes)) };
        }
    }
    match VARIABLES.iter().find(|(name, value)| variable(name).as_deref() == Some(value)) {
        Some((name, value)) => Claim { yes: Some(true), by: format!("{name}={value}") },
        None => {
            Claim { yes: None, by: "the MPI library has no function that says whether it supports GPU memory".into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI_5: &str = "Open MPI v5.0.7, package: Debian OpenMPI, ident: 5.0.7, repo rev: v5.0.7, Feb 14, 2025";
    const CRAY: &str =
        "MPI VERSION    : CRAY MPICH version 8.1.28.15 (ANL base 3.4a2)\nMPI BUILD INFO : Wed Nov 15 2023";
    const INTEL: &str = "Intel(R) MPI Library 2021.16 for Linux* OS\n";
    const MPICH: &str =
        "MPICH Version:      4.2.1\nMPICH Device:       ch4:ucx\nMPICH configure:    --with-device=ch4:ucx";

    fn by(family: Family) -> Option<Serving> {
        Some(Serving { name: "its mpirun", family, ranks: 4 })
    }

    #[test]
    fn every_library_of_the_right_family_is_accepted() {
        for version in [CRAY, INTEL, MPICH, "MVAPICH2 Version      :\t2.3.7", "an MPI of 2040"] {
            assert_eq!(mismatch(Family::Mpich, version, by(Family::Mpich)), None, "{version}");
        }
        for version in ["Open MPI v4.1.0, package: Debian OpenMPI", OPEN_MPI_5] {
            assert_eq!(mismatch(Family::OpenMpi, version, by(Family::OpenMpi)), None, "{version}");
            assert_eq!(mismatch(Family::OpenMpi, version, None), None, "{version}");
        }
    }

    #[test]
    fn errors_name_the_programs_family_and_the_library() {
        let others = [CRAY, INTEL, MPICH].map(|version| (Family::OpenMpi, version));
        for (compiled, version) in others.into_iter().chain([(Family::Mpich, OPEN_MPI_5)]) {
            let text = mismatch(compiled, version, None).unwrap();
            let own = format!("built for {}", compiled.name());
            assert!(text.contains(&own) && text.contains(&library_line(version)), "{text}");
        }
    }

    #[test]
    fn the_other_familys_mpirun_is_refused_unless_mpich_has_pmix() {
        let text = mismatch(Family::OpenMpi, OPEN_MPI_5, by(Family::Mpich)).unwrap();
        assert!(["its mpirun", "4 ranks", "MPICC="].iter().all(|part| text.contains(part)), "{text}");
        assert!(mismatch(Family::Mpich, MPICH, by(Family::OpenMpi)).is_some());
        assert_eq!(mismatch(Family::Mpich, &format!("{MPICH} --with-pmix=/usr"), by(Family::OpenMpi)), None);
    }

    #[test]
    fn names_the_library_on_one_line() {
        let open_mpi = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022";
        assert_eq!(library_line(open_mpi), "Open MPI v4.1.4");
        let mpich = "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n";
        assert_eq!(library_line(mpich), "MPICH Version: 4.0.2");
        assert_eq!(library_line(""), "");
    }

    fn claimed(cuda: Option<bool>, gpu: Option<bool>, gtl: bool, pairs: &[(&str, &str)]) -> Claim {
        let variable = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        judge(cuda, gpu, gtl, variable)
    }

    #[test]
    fn query_functions_take_precedence_over_variables() {
        assert_eq!(claimed(None, None, false, &[]).yes, None);
        assert_eq!(claimed(Some(false), None, false, &[("MV2_USE_CUDA", "1")]).yes, Some(false));
        for (gpu, function) in [(None, "MPIX_Query_cuda_support"), (Some(true), "MPIX_GPU_query_support")] {
            let claim = claimed(Some(gpu.is_none()), gpu, false, &[]);
            assert!(claim.yes == Some(true) && claim.by.contains(function), "{claim:?}");
        }
        assert_eq!(claimed(None, None, false, &[("MVP_USE_CUDA", "1")]).yes, Some(true));
        assert_eq!(claimed(None, None, false, &[("MVP_USE_CUDA", "0")]).yes, None);
    }

    #[test]
    fn cray_device_support_needs_the_transport_library() {
        let enabled = [("MPICH_GPU_SUPPORT_ENABLED", "1")];
        let without = claimed(Some(true), None, false, &enabled);
        assert!(without.yes == Some(false) && without.by.contains("libmpi_gtl_cuda"), "{without:?}");
        assert_eq!(claimed(None, None, true, &enabled).yes, Some(true));
    }
}
