//! Whether the MPI library takes memory of a GPU, by its own word. That is a flag of its build or of its start, and has been wrong
//! before: only a right sum proves it.

use super::{launcher, sys};

/// The library's own word, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whether it takes device memory; `None` where it gives no answer.
    pub yes: Option<bool>,
    /// The function or variable that answers, or what is missing.
    pub by: String,
}

/// Variables that switch it on in a library: name and value.
const VARIABLES: [(&str, &str); 4] =
    [("MPICH_GPU_SUPPORT_ENABLED", "1"), ("MPIR_CVAR_ENABLE_GPU", "1"), ("MV2_USE_CUDA", "1"), ("MVP_USE_CUDA", "1")];

/// Asks the library: its functions first, then the variables that Cray's MPICH, MPICH and MVAPICH are started with.
pub fn claim() -> Claim {
    let gpu = sys::query_gpu_support();
    // one that answers the newer question need not be asked the older, which ends the process in MPICH 3.4
    let cuda = if gpu.is_none() { sys::query_cuda_support() } else { None };
    judge(cuda, gpu, sys::has_cray_gtl(), launcher::variable)
}

fn judge(cuda: Option<bool>, gpu: Option<bool>, gtl: bool, variable: impl Fn(&str) -> Option<String>) -> Claim {
    if variable("MPICH_GPU_SUPPORT_ENABLED").as_deref() == Some("1") && !gtl {
        let by = "MPICH_GPU_SUPPORT_ENABLED=1, but Cray's libmpi_gtl_cuda is not loaded: `module load craype-accel-nvidia90` and \
                  build anew, or preload it";
        return Claim { yes: Some(false), by: by.into() };
    }
    for (answer, name) in [(cuda, "MPIX_Query_cuda_support"), (gpu, "MPIX_GPU_query_support")] {
        if let Some(yes) = answer.filter(|yes| *yes || gpu != Some(true)) {
            return Claim { yes: Some(yes), by: format!("{name} answers {}", u8::from(yes)) };
        }
    }
    match VARIABLES.iter().find(|(name, value)| variable(name).as_deref() == Some(value)) {
        Some((name, value)) => Claim { yes: Some(true), by: format!("{name}={value}") },
        None => Claim { yes: None, by: "the MPI library has no function that tells".into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(cuda: Option<bool>, gpu: Option<bool>, gtl: bool, pairs: &[(&str, &str)]) -> Claim {
        let variable = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        judge(cuda, gpu, gtl, variable)
    }

    #[test]
    fn functions_come_before_variables() {
        assert_eq!(claimed(None, None, false, &[]).yes, None);
        assert_eq!(claimed(Some(false), None, false, &[("MV2_USE_CUDA", "1")]).yes, Some(false));
        assert_eq!(claimed(Some(true), None, false, &[]).by, "MPIX_Query_cuda_support answers 1");
        assert_eq!(claimed(Some(false), Some(true), false, &[]).by, "MPIX_GPU_query_support answers 1");
        assert_eq!(claimed(None, None, false, &[("MVP_USE_CUDA", "1")]).yes, Some(true));
        assert_eq!(claimed(None, None, false, &[("MVP_USE_CUDA", "0")]).yes, None);
    }

    #[test]
    fn cray_needs_its_transport_layer() {
        let enabled = [("MPICH_GPU_SUPPORT_ENABLED", "1")];
        let without = claimed(Some(true), None, false, &enabled);
        assert!(without.yes == Some(false) && without.by.contains("libmpi_gtl_cuda"), "{without:?}");
        assert_eq!(claimed(None, None, true, &enabled).yes, Some(true));
    }
}
