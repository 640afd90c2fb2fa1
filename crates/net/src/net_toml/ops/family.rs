//! What a family of operations says of its nodes.

use crate::Op;
use crate::net_toml::keys::Keys;

/// Operations that have the same keys.
pub(in crate::net_toml) struct Family {
    /// What `op` says in a file: the kinds of [`OpSpec::kind`](crate::OpSpec::kind), as `trireme models NAME` prints them.
    pub words: &'static [&'static str],
    /// The plain operation of this word, with the defaults of its keys.
    pub plain: fn(&str) -> Op,
    /// Names the keys and what of the operation they are.
    pub keys: fn(&mut Op, &mut Keys<'_>),
    /// What to try where such a node does not fit its inputs.
    pub cure: &'static str,
}
