//! RMSProp in its two forms, which differ in more than a sign: PyTorch's has eps outside the root, the rate outside the momentum
//! and a mean square that starts at 0; TensorFlow 1's has both inside, and starts at 1. With eps = 1, as Inception's recipe has
//! it, they are different optimizers.

use super::{Entry, Form, Method};
use crate::backend::{RmsProp, Rule};

/// Its line in the catalogue.
pub(super) const ENTRY: Entry = Entry {
    name: "rmsprop",
    keys: &["form", "alpha", "eps", "momentum", "centered"],
    build: |spec| {
        let form = spec.form.unwrap_or(Form::Torch);
        let (alpha, eps) = match form {
            Form::Torch => (0.99, 1e-8),
            Form::Tf => (0.9, 1e-10),
        };
        let numbers = RmsProp {
            alpha: spec.alpha.unwrap_or(alpha),
            eps: spec.eps.unwrap_or(eps),
            momentum: spec.momentum.unwrap_or(0.0),
            centered: spec.centered.unwrap_or(false),
        };
        Box::new(Settings { form, numbers })
    },
};

/// RMSProp's settings.
#[derive(Clone, Copy, Debug)]
struct Settings {
    form: Form,
    numbers: RmsProp,
}

impl Method for Settings {
    fn slots(&self) -> &'static [(&'static str, f32)] {
        match (self.form, self.numbers.centered) {
            (Form::Torch, false) => &[("square_avg", 0.0), ("momentum_buffer", 0.0)],
            (Form::Torch, true) => &[("square_avg", 0.0), ("momentum_buffer", 0.0), ("grad_avg", 0.0)],
            (Form::Tf, false) => &[("square_avg", 1.0), ("momentum_buffer", 0.0)],
            (Form::Tf, true) => &[("square_avg", 1.0), ("momentum_buffer", 0.0), ("grad_avg", 0.0)],
        }
    }

    fn rule(&self, _step: u64) -> Rule {
        match self.form {
            Form::Torch => Rule::RmsPropTorch(self.numbers),
            Form::Tf => Rule::RmsPropTf(self.numbers),
        }
    }
}
