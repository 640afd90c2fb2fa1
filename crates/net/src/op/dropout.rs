//! Dropout: attributes.

use super::spec::{OpSpec, Reads};
use super::toml_keys::{Keys, OpFormat};

/// Inverted dropout: in training, sets values to zero with this probability p and multiplies the others by 1 / (1 - p).
/// In evaluation, the identity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dropout(pub f32);

impl OpSpec for Dropout {
    fn reads(&self) -> Reads {
        Reads::Elements
    }
}

impl OpFormat for Dropout {
    const WORDS: &'static [&'static str] = &["dropout"];

    fn plain(_: &str) -> Self {
        Self(0.0)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        keys.rate("rate", &mut self.0);
    }
}
