//! The form of all operators.

use super::build::Build;
use super::graph::Node;
use super::value::Value;

/// Takes a node over, and gives what it makes; the error says why it cannot.
pub(super) type Handler = for<'a> fn(&mut Build<'a>, &Node<'a>) -> Result<Value, String>;

/// An operator: its name, the most inputs that are understood (none beyond is passed over in silence), and what takes it over.
pub(super) type Operator = (&'static str, usize, Handler);

/// Of an operator that looks at all of its inputs.
pub(super) const ANY: usize = usize::MAX;
