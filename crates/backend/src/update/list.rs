//! Lists all optimizers. The tables of update rules here and of optimizers in `engine::optim` are generated from this
//! list. Also defines the type for any update rule, and the arguments of an update.

use std::ops::Range;

use super::rates;
use super::rule::{ElementLoop, GroupStep, Kernel, Real, UpdateRule};

/// Calls the macro `$then` with a line for each update rule. A line begins with the name of the rule's files, here and
/// in `engine::optim`. Then it has the rule's variant of `Rule` and its type. At the end, it has each `optimizer.kind`
/// of a recipe that uses the rule, with the type of its settings. Messages and the manual list optimizers in this
/// order.
#[macro_export]
macro_rules! for_each_optimizer {
    ($then:ident) => {
        $then! {
            sgd: Sgd(SgdRule), "sgd" => Sgd;
            adam: Adam(AdamRule), "adam" => Adam, "adamw" => AdamW;
            rmsprop: RmsProp(RmsPropRule), "rmsprop" => RmsProp;
            lars: Lars(LarsRule), "lars" => Lars;
            adagrad: Adagrad(AdagradRule), "adagrad" => Adagrad;
            lion: Lion(LionRule), "lion" => Lion;
            lamb: Lamb(LambRule), "lamb" => Lamb;
        }
    };
}

/// Defines [`Rule`], which forwards calls to the rule that it holds.
macro_rules! rules {
    ($($file:ident: $name:ident($rule:ident), $($kind:literal => $settings:ident),+;)+) => {
        /// An update rule with its numbers for one step.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Rule {
            $(#[doc = concat!("See `update/", stringify!($file), ".rs` and its kernel in `rules.cu`.")] $name(super::$file::$rule)),+
        }

        impl Rule {
            /// Calls [`UpdateRule::slots`].
            pub fn slots(&self) -> usize {
                match self { $(Rule::$name(rule) => rule.slots()),+ }
            }

            /// Calls [`UpdateRule::run`].
            pub fn run<T: Real>(&self, group: GroupStep, elements: impl ElementLoop<T>) -> bool {
                match self { $(Rule::$name(rule) => rule.run(group, elements)),+ }
            }

            /// Calls [`UpdateRule::kernel`].
            pub fn kernel(&self) -> Kernel {
                match self { $(Rule::$name(rule) => rule.kernel()),+ }
            }

            /// Calls [`UpdateRule::adapts`].
            pub fn adapts(&self) -> bool {
                match self { $(Rule::$name(rule) => rule.adapts()),+ }
            }

            /// Calls [`UpdateRule::second_pass`].
            pub fn second_pass(&self) -> Option<Self> {
                match self { $(Rule::$name(rule) => rule.second_pass().map(Rule::$name)),+ }
            }

            /// Calls [`UpdateRule::trust`].
            pub fn trust(&self, weight: f64, gradient: f64, weight_decay: f64, lr: f64) -> f64 {
                match self { $(Rule::$name(rule) => rule.trust(weight, gradient, weight_decay, lr)),+ }
            }
        }
    };
}

for_each_optimizer!(rules);

/// Consecutive elements of a bucket with the same weight decay and learning rate.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamGroup {
    pub range: Range<usize>,
    pub weight_decay: f32,
    /// Index of the factor on the learning rate in the step's [`rates`].
    pub rate: usize,
}

impl ParamGroup {
    /// Returns the values of this group in a step with these [`rates`].
    pub fn step(&self, update: &Update, rates: &[f32]) -> GroupStep {
        let group_factor = f64::from(rates[self.rate]);
        GroupStep {
            gradient_factor: f64::from(rates[rates::GRADIENT]),
            weight_decay: f64::from(self.weight_decay),
            lr: update.lr * group_factor,
            step_lr: update.lr,
            group_factor,
        }
    }
}

/// An optimizer step. In the rules' formulas, w is a parameter, lr includes the group's factor, and g = c * gradient +
/// weight_decay * w, where c is the factor from clipping by norm. Rules with decoupled weight decay omit the second
/// term of g.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    pub rule: Rule,
    pub lr: f64,
}
