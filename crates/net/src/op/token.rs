//! Selects a single token from a sequence.

use base::text::plural;

use super::shape::Shape;
use super::spec::OpSpec;
use super::toml_keys::{Keys, OpFormat};

/// Selects the position with this index, in row-major order. Index 0 is the class token if there is one. The output is
/// the vector of channels at this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub usize);

impl OpSpec for Token {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        if self.0 >= x[0].plane() {
            let tokens = plural(x[0].plane(), "token");
            return Err(format!("it selects token {} (counted from 0), but its input has {tokens}", self.0));
        }
        Ok(Shape::vector(x[0].c))
    }
}

impl OpFormat for Token {
    const WORDS: &'static [&'static str] = &["token"];
    const CURE: &'static str = "index must be less than the number of tokens";

    fn plain(_: &str) -> Self {
        Self(0)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        keys.key("index", &mut self.0);
    }
}
