//! The `[optimizer]` section of a recipe with its `[[optimizer.groups]]`.

use backend::for_each_optimizer;
use schema::{Range, Section, check_section, kinds, matches, section};

use super::method::{Method, OptimizerError};
use super::sgd::Sgd;

/// Defines [`OptimizerKind`] from the list of optimizers.
macro_rules! optimizer_kinds {
    ($($file:ident: $name:ident($rule:ident), $($kind:literal => $settings:ident),+;)+) => {
        kinds! {
            /// The optimizers that a recipe can name.
            pub enum OptimizerKind: Method {
                $($($kind => $settings(super::$file::$settings),)+)+
            }
        }
    };
}

for_each_optimizer!(optimizer_kinds);

impl Default for OptimizerKind {
    fn default() -> Self {
        Self::Sgd(Sgd::default())
    }
}

section! {
    /// Update rule, weight decay, and clipping of gradients.
    pub struct OptimizerSpec (kind: OptimizerKind, first, "Update rule.") {
        /// L2 coefficient: gradient += weight_decay * weight. adamw: weight -= lr * weight_decay * weight.
        default weight_decay: f64 = 0.0, in Range::AtLeast(0.0);
        /// Patterns of parameters without weight decay, such as "*.bias". `*` matches any characters and `?` matches a single character. In
        /// every pattern list of the optimizer, "norm" selects all parameters of normalisation layers and "bias" selects all biases.
        absent no_decay: Vec<String> = "[]; lars: all of one dimension";
        /// Maximum norm of all gradients together. The log has the norm as grad_norm.
        absent clip_norm: f64 = "no limit", in Range::PositiveF32;
        /// Maximum magnitude of each element of a gradient. Cannot be combined with clip_norm.
        absent clip_value: f64 = "no limit", in Range::PositiveF32;
        /// Adaptive clipping: maximum norm of an output unit's gradient as a fraction of the norm of its weights, such as 0.01. Cannot be
        /// combined with clip_norm or clip_value.
        absent clip_agc: f64 = "no limit", in Range::PositiveF32;
        /// Patterns of parameters to which clip_agc does not apply.
        absent no_agc: Vec<String> = "the last layer's";
        /// Sharpness-aware minimisation, with any kind: norm by which the parameters move along the gradient before the gradient of the
        /// step is computed, such as 0.05. Each step then computes two gradients.
        absent sam_rho: f64 = "none", in Range::PositiveF32;
        /// Parameters with different settings: tables with `match` (patterns), `lr` (factor on the learning rate) and `weight_decay`. The
        /// first table that matches a parameter applies.
        absent groups: Vec<Group> = "[]";
    }
}

impl OptimizerSpec {
    /// Returns an optimizer without weight decay and clipping.
    pub fn new(kind: OptimizerKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Returns SGD with momentum and weight decay.
    pub fn sgd(momentum: f64, nesterov: bool, weight_decay: f64) -> Self {
        Self { weight_decay, ..Self::new(OptimizerKind::Sgd(Sgd::new(momentum, nesterov))) }
    }

    /// Checks each value with the schema, and combinations of values.
    pub fn check(&self) -> Result<(), OptimizerError> {
        let table = toml::Table::try_from(self).map_err(|e| OptimizerError { key: "kind", why: e.to_string() })?;
        check_section(&Self::SCHEMA, &table).map_err(|fault| OptimizerError { key: fault.key, why: fault.why })?;
        self.kind.settings().check()?;
        let refuse = |key, why: &str| Err(OptimizerError { key, why: why.into() });
        match (self.clip_norm, self.clip_value, self.clip_agc) {
            (Some(_), Some(_), _) => refuse("clip_value", "cannot be combined with clip_norm; choose one of the two"),
            (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
                refuse("clip_agc", "cannot be combined with clip_norm or clip_value; choose one of them")
            }
            (.., None) if self.no_agc.is_some() => {
                refuse("no_agc", "has no meaning without clip_agc; set clip_agc, or remove this key")
            }
            _ => Ok(()),
        }
    }

    pub fn method(&self) -> Box<dyn Method> {
        self.kind.boxed()
    }

    /// Returns how many forward and backward passes over its images each step needs.
    pub fn passes(&self) -> u64 {
        1 + u64::from(self.sam_rho.is_some())
    }

    /// Returns the first group with a pattern that matches the parameter.
    fn group_of(&self, parameter: &str) -> Option<&Group> {
        self.groups.iter().flatten().find(|group| group.names(parameter))
    }

    /// Returns the factor on the learning rate of the parameter.
    pub fn rate_of(&self, parameter: &str) -> f64 {
        self.group_of(parameter).map_or(1.0, |group| group.lr)
    }

    /// Returns the weight decay of the parameter. If the parameter's group has a weight decay, it is used. Otherwise,
    /// returns `weight_decay`, or 0 if the parameter matches `no_decay`.
    pub fn decay_of(&self, parameter: &str, shape: &[usize]) -> f64 {
        if let Some(decay) = self.group_of(parameter).and_then(|group| group.weight_decay) {
            return decay;
        }
        let decays = match &self.no_decay {
            Some(patterns) => !patterns.iter().any(|pattern| matches(pattern, parameter)),
            None => self.kind.settings().decays(shape),
        };
        if decays { self.weight_decay } else { 0.0 }
    }

    /// Returns true if `clip_agc` limits the gradient of the parameter. `last` says whether it belongs to the last
    /// layer.
    pub fn limits_units(&self, parameter: &str, last: bool) -> bool {
        match &self.no_agc {
            Some(patterns) => !patterns.iter().any(|pattern| matches(pattern, parameter)),
            None => !last,
        }
    }

    /// Returns true if the learning rate of the parameter may be scaled by a trust ratio.
    pub fn adapts(&self, parameter: &str, shape: &[usize]) -> bool {
        self.kind.settings().adapts(parameter, shape, self.decay_of(parameter, shape))
    }
}

section! {
    /// Parameters with another learning rate or weight decay. The first group that matches a parameter applies.
    pub struct Group {
        /// Parameters, as patterns, such as "fc.*".
        required r#match: Vec<String>;
        /// Factor on the learning rate.
        default lr: f64 = 1.0, in Range::NonNegativeF32;
        /// Weight decay. If it is absent, the weight decay is the same as without the group.
        absent weight_decay: f64 = "that of the optimizer", in Range::AtLeast(0.0);
    }
}

impl Group {
    /// Returns true if a pattern matches the parameter.
    pub fn names(&self, parameter: &str) -> bool {
        self.r#match.iter().any(|pattern| matches(pattern, parameter))
    }
}
