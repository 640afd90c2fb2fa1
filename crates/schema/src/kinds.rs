//! Sections with a `kind`: an enum with one settings struct for each kind.

/// Defines the enum of the kinds of a section. Each line is the word of a kind, its variant and its settings, a
/// [`Section`](crate::Section) that implements the given trait.
#[macro_export]
macro_rules! kinds {
    ($(#[$meta:meta])* $vis:vis enum $name:ident: $behaviour:path {
        $($(#[$variant_meta:meta])* $word:literal => $variant:ident($settings:ty)),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(tag = "kind")]
        $vis enum $name {
            $(
                #[doc = concat!("`", $word, "`.")]
                $(#[$variant_meta])*
                #[serde(rename = $word)]
                $variant($settings),
            )+
        }

        impl $name {
            /// The words of all kinds.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// All kinds with their keys.
            pub const KINDS: &'static [$crate::Kind] = &[$($crate::Kind {
                name: $word,
                doc: <$settings as $crate::Section>::SCHEMA.doc,
                fields: <$settings as $crate::Section>::SCHEMA.fields,
            }),+];

            /// The word of this kind.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $word),+
                }
            }

            /// The settings of this kind, by what all kinds can do.
            pub fn settings(&self) -> &dyn $behaviour {
                match self {
                    $(Self::$variant(settings) => settings),+
                }
            }

            /// A copy of these settings.
            pub fn boxed(&self) -> Box<dyn $behaviour> {
                match self {
                    $(Self::$variant(settings) => Box::new(settings.clone())),+
                }
            }

            /// Writes the keys of the kind, without `kind`.
            pub(crate) fn write_fields<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                match self {
                    $(Self::$variant(settings) => $crate::Section::write_fields(settings, map)),+
                }
            }
        }
    };
}
