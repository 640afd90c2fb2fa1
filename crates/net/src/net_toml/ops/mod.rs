//! The words of each operation. A family of operations is one file here, with the keys of its nodes, and one line in the list below;
//! reader and writer both go by it.

mod family;

pub(super) use family::Family;

/// The files of the families.
macro_rules! families {
    ($($file:ident),* $(,)?) => {
        $(mod $file;)*

        /// All families.
        pub(super) const FAMILIES: &[Family] = &[$($file::FAMILY),*];
    };
}

families!(
    activation,
    blur,
    conv,
    drop,
    flatten,
    group_norm,
    join,
    layer_norm,
    layer_scale,
    linear,
    lrn,
    norm,
    pool,
    shortcut
);

/// The family that a word is of.
pub(super) fn family(word: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.words.contains(&word))
}

/// Words of all operations.
pub(super) fn words() -> Vec<&'static str> {
    FAMILIES.iter().flat_map(|family| family.words).copied().collect()
}
