//! What a family of operations says of its nodes.

use crate::models::net::keys::Keys;
use crate::nn::spec::Op;

/// Operations that have the same keys.
pub(in crate::models::net) struct Family {
    /// What `op` says in a file: the kinds of [`OpSpec::kind`](crate::nn::spec::OpSpec::kind), as `trireme models NAME` prints them.
    pub words: &'static [&'static str],
    /// The plain operation of this word, with the defaults of its keys.
    pub plain: fn(&str) -> Op,
    /// Names the keys and what of the operation they are.
    pub keys: fn(&mut Op, &mut Keys<'_>),
    /// What to try where such a node does not fit its inputs.
    pub cure: &'static str,
}
