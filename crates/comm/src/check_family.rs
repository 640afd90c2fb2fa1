//! Whether program, MPI library and mpirun are of one family, asked before MPI starts.

use std::time::Duration;

use super::error::Error;
use super::family::Family;
use super::launcher::{self, Serving};
use super::sys;
use super::world::library_line;

/// How long the other ranks of a node leave its first one to say what holds for all of them.
const TIME_TO_SPEAK: Duration = Duration::from_secs(1);

/// Whether program, library and mpirun belong together: those that do not crash, hang, or make lone ranks.
///
/// # Errors
/// [`Error::Family`], on the first rank of each node; the others end with exit code 1 a second later, without a word.
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

/// Why they do not belong together, with the cure.
fn mismatch(compiled: Family, version: &str, mpirun: Option<Serving>) -> Option<String> {
    let (ours, library) = (compiled.name(), library_line(version));
    if let Some(found) = Family::of_library(version).filter(|&found| found != compiled) {
        let theirs = found.name();
        return Some(format!(
            "this trireme was built for {ours}'s family of MPI, but the loader found a library of {theirs}'s: {library}. Load the \
             module of an MPI of {ours}'s family (`ldd` on the program shows which library is found), or use the trireme for {theirs}"
        ));
    }
    let Serving { name, family, ranks } = mpirun.filter(|mpirun| mpirun.family != compiled)?;
    // an MPICH that was configured with PMIx can also be started by Open MPI's
    if compiled == Family::Mpich && version.to_lowercase().contains("pmix") {
        return None;
    }
    Some(format!(
        "{name} started {ranks} ranks, but this trireme was built for {ours}'s family of MPI, here {library}: the ranks could not \
         find each other. Start with the mpirun of that MPI, use the trireme for {}, or build again with MPICC=/path/to/mpicc of \
         this one",
        family.name()
    ))
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
    fn every_member_of_a_family_will_do() {
        for version in [CRAY, INTEL, MPICH, "MVAPICH2 Version      :\t2.3.7", "an MPI of 2040"] {
            assert_eq!(mismatch(Family::Mpich, version, by(Family::Mpich)), None, "{version}");
        }
        for version in ["Open MPI v4.1.0, package: Debian OpenMPI", OPEN_MPI_5] {
            assert_eq!(mismatch(Family::OpenMpi, version, by(Family::OpenMpi)), None, "{version}");
            assert_eq!(mismatch(Family::OpenMpi, version, None), None, "{version}");
        }
    }

    #[test]
    fn a_library_of_the_other_family_is_named_with_the_program_s_own() {
        let text = mismatch(Family::Mpich, OPEN_MPI_5, None).unwrap();
        assert!(text.contains("built for MPICH") && text.contains("Open MPI v5.0.7"), "{text}");
        for version in [CRAY, INTEL, MPICH] {
            let text = mismatch(Family::OpenMpi, version, None).unwrap();
            assert!(text.contains("built for Open MPI") && text.contains(&library_line(version)), "{text}");
        }
    }

    #[test]
    fn the_other_family_s_mpirun_is_refused_but_where_mpich_has_pmix() {
        let text = mismatch(Family::OpenMpi, OPEN_MPI_5, by(Family::Mpich)).unwrap();
        assert!(text.contains("its mpirun started 4 ranks") && text.contains("MPICC="), "{text}");
        assert!(mismatch(Family::Mpich, MPICH, by(Family::OpenMpi)).is_some());
        assert_eq!(mismatch(Family::Mpich, &format!("{MPICH} --with-pmix=/usr"), by(Family::OpenMpi)), None);
    }
}
