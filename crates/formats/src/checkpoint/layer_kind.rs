//! The kind of a layer with weights in files: how its op stores tensors, and the image that was flattened before it.

use net::{Op, Stored};

/// A kind of layer, as far as its tensors depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerKind {
    /// Names and orders of its tensors.
    pub stored: &'static Stored,
    /// Channels, height and width of the image that a flatten right before it joins to its inputs.
    pub flatten: Option<[usize; 3]>,
}

impl LayerKind {
    /// A layer without a flatten before it.
    pub fn new(stored: &'static Stored) -> Self {
        Self { stored, flatten: None }
    }

    /// The kind of this name.
    ///
    /// # Errors
    /// A text that lists the kinds there are.
    pub fn named(kind: &str) -> Result<Self, String> {
        let known = || Op::all_stored().map(|stored| stored.kind).collect::<Vec<_>>().join(", ");
        let found = Op::all_stored().find(|stored| stored.kind == kind);
        found.map(Self::new).ok_or_else(|| format!("kind is one of {}, got {kind:?}", known()))
    }

    /// The kind's name, behind a flatten with the image's sizes: `linear 16 5 5`.
    pub(super) fn to_text(self) -> String {
        match self.flatten {
            Some([c, h, w]) => format!("{} {c} {h} {w}", self.stored.kind),
            None => self.stored.kind.into(),
        }
    }

    /// The reverse of [`LayerKind::to_text`].
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, sizes) = text.split_once(' ').map_or((text, None), |(kind, sizes)| (kind, Some(sizes)));
        let kind = Self::named(kind).ok()?;
        let Some(sizes) = sizes else { return Some(kind) };
        let sizes: Vec<usize> = sizes.split(' ').map(|size| size.parse().ok()).collect::<Option<_>>()?;
        let flatten = Some(sizes.try_into().ok()?).filter(|_| kind.stored.depends_on_flatten())?;
        Some(Self { flatten: Some(flatten), ..kind })
    }
}
