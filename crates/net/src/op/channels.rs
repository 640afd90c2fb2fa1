//! Channel ranges and the channel shuffle.

use base::text::plural;

use super::shape::Shape;
use super::spec::OpSpec;
use super::toml_keys::{Keys, OpFormat};

/// Selects `count` channels from `first` on, divides them into `groups` groups, and interleaves the groups: first
/// channel 0 from each group, then channel 1, and so on. With a single group the order does not change. If all channels
/// are selected, this is the channel shuffle by Zhang et al. 2017 (arXiv 1707.01083).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    pub first: usize,
    pub count: usize,
    pub groups: usize,
}

impl Channels {
    /// Selects a channel range and keeps its order.
    pub fn range(first: usize, count: usize) -> Self {
        Self { first, count, groups: 1 }
    }

    /// Interleaves `groups` groups of channels, for an input with `count` channels.
    pub fn shuffle(count: usize, groups: usize) -> Self {
        Self { first: 0, count, groups }
    }

    /// Returns which input channel becomes this output channel.
    pub fn source(&self, channel: usize) -> usize {
        self.first + channel % self.groups * (self.count / self.groups) + channel / self.groups
    }
}

impl OpSpec for Channels {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        let Self { first, count, groups } = *self;
        let x = x[0];
        if count == 0 || first.saturating_add(count) > x.c {
            return Err(format!(
                "it takes {} starting at channel {first} (counted from 0), but its input has {}",
                plural(count, "channel"),
                x.c
            ));
        }
        if groups == 0 || !count.is_multiple_of(groups) {
            return Err(format!("{count} channels cannot be divided into {groups} groups of equal size"));
        }
        Ok(Shape { c: count, ..x })
    }
}

impl OpFormat for Channels {
    const WORDS: &'static [&'static str] = &["channels"];

    fn cure(&self, inputs: &[Shape]) -> &'static str {
        match *inputs {
            [x] if self.first.saturating_add(self.count) > x.c => {
                "first + channels must be at most the number of input channels"
            }
            [_] => "groups must divide channels",
            _ => "",
        }
    }

    fn plain(_: &str) -> Self {
        Self { first: 0, count: 0, groups: 1 }
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { first, count, groups } = self;
        keys.needed("channels", count);
        keys.key("first", first);
        keys.key("groups", groups);
    }
}
