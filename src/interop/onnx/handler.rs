//! The form of all operators.

use super::build::Build;
use super::graph::Node;
use super::value::Value;

/// Takes a node over, and gives what it makes; the error says why it cannot.
pub(super) type Handler = for<'a> fn(&mut Build<'a>, &Node<'a>) -> Result<Value, String>;

/// An operator by its name.
pub(super) type Operator = (&'static str, Handler);
