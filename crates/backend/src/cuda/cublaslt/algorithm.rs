//! The algorithm of a product: cuBLASLt's own proposal, or one that was chosen before, by a text that names it.

use cudarc::cublaslt::sys::{self, cublasLtMatmulAlgo_t};

use super::descriptor::{Layout, ProductDescriptor, preference};
use super::handle::Handle;
use crate::Error;
use crate::cuda::driver::status::{attempted, cublaslt};
use crate::cuda::settings::Settings;

/// An algorithm and its work space.
pub struct Algorithm {
    pub raw: cublasLtMatmulAlgo_t,
    /// Bytes.
    pub workspace: usize,
}

/// The product that it is for. The layouts are those of the second factor, the first and the result.
pub struct Problem<'a> {
    pub handle: &'a Handle,
    pub product: &'a ProductDescriptor,
    pub layouts: &'a [Layout; 3],
    pub settings: &'a Settings,
}

/// An answer about algorithms, before the library fills it.
const NO_RESULT: sys::cublasLtMatmulHeuristicResult_t = sys::cublasLtMatmulHeuristicResult_t {
    algo: cublasLtMatmulAlgo_t { data: [0; 8] },
    workspaceSize: 0,
    state: sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS,
    wavesCount: 0.0,
    reserved: [0; 4],
};

impl Algorithm {
    /// The text: its eight words, which cuBLASLt's manual allows to be kept for the same version.
    pub fn text(&self) -> String {
        self.raw.data.map(|word| format!("{word:x}")).join(" ")
    }
}

fn parse(text: &str) -> Option<cublasLtMatmulAlgo_t> {
    let words: Option<Vec<u64>> = text.split(' ').map(|word| u64::from_str_radix(word, 16).ok()).collect();
    Some(cublasLtMatmulAlgo_t { data: words?.try_into().ok()? })
}

impl Problem<'_> {
    /// What cuBLASLt proposes first; `name` is for messages.
    pub fn propose(&self, name: &str) -> Result<Algorithm, Error> {
        let preference = preference(self.settings)?;
        let (mut found, mut count) = (NO_RESULT, 0);
        let [b, a, c] = self.layouts.each_ref().map(Layout::raw);
        let (handle, product) = (self.handle.raw(), self.product.raw());
        // SAFETY: handle and descriptors live, and there is room for the one result that the call may give.
        let status = unsafe {
            let preference = preference.raw();
            sys::cublasLtMatmulAlgoGetHeuristic(handle, product, b, a, c, c, preference, 1, &mut found, &mut count)
        };
        cublaslt(status, "cublasLtMatmulAlgoGetHeuristic", name)?;
        if count < 1 {
            let why = format!("cuBLASLt has no algorithm for this product on this GPU, in {}", self.settings.precision);
            return Err(Error::Unsupported { op: name.into(), why });
        }
        Ok(Algorithm { raw: found.algo, workspace: found.workspaceSize })
    }

    /// The algorithm of this text, if it runs; an error where the GPU has failed.
    pub fn again(&self, text: &str) -> Result<Option<Algorithm>, Error> {
        let Some(raw) = parse(text) else { return Ok(None) };
        let mut found = NO_RESULT;
        let [b, a, c] = self.layouts.each_ref().map(Layout::raw);
        let (handle, product) = (self.handle.raw(), self.product.raw());
        // SAFETY: handle and descriptors live; cuBLASLt checks the algorithm's words.
        let status = unsafe { sys::cublasLtMatmulAlgoCheck(handle, product, b, a, c, c, &raw, &mut found) };
        let runs =
            attempted(cublaslt(status, "cublasLtMatmulAlgoCheck", "an algorithm that was chosen before"))?.is_some();
        let workspace = found.workspaceSize;
        Ok((runs && workspace <= self.settings.workspace).then_some(Algorithm { raw, workspace }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_survive_as_text() {
        let raw = cublasLtMatmulAlgo_t { data: [1, u64::MAX, 0, 7, 0, 0, 0, 0x1f] };
        let text = Algorithm { raw, workspace: 0 }.text();
        assert_eq!(parse(&text).map(|a| a.data), Some(raw.data));
        for odd in ["", "1 2 3", "1 2 3 4 5 6 7 x", "1 2 3 4 5 6 7 8 9"] {
            assert!(parse(odd).is_none(), "{odd:?}");
        }
    }
}
