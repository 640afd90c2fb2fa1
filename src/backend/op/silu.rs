//! SiLU, also called swish.

use super::spec::{OpSpec, Reads};

/// x sigmoid(x) = x / (1 + exp(-x)) (Hendrycks and Gimpel 2016, arXiv 1606.08415; Ramachandran et al. 2017, arXiv 1710.05941).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Silu;

impl OpSpec for Silu {
    fn kind(&self) -> &'static str {
        "silu"
    }

    fn reads(&self) -> Reads {
        Reads::Elements
    }
}
