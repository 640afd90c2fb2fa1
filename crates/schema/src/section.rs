//! The macro that defines a section of a recipe: one line for each key with its type, default and range, and its documentation as
//! a doc comment.

use serde::ser::SerializeMap;

use super::field::Schema;

/// A struct whose fields are keys of a recipe.
pub trait Section {
    /// Its keys.
    const SCHEMA: Schema;

    /// Writes the keys in the order of the schema, those that are absent left out.
    fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

/// The name of a key whose field is a word of Rust, written as `r#match`.
pub const fn bare(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Defines a section of a recipe: the struct, serde, `Default`, and its [`Section`]. Each key is one of
///
/// - `required name: T;`: a recipe without it is refused;
/// - `default name: T = value;`: it is always written;
/// - `optional name: T = value;`: the field is an `Option<T>`, written only where it was given; the method of the same name gives
///   the value or this default;
/// - `absent name: T = "what happens then";`: the field is an `Option<T>` without a default value;
/// - `section name: T;`: a section within this one;
///
/// with `, in RANGE` before the semicolon where not all numbers are allowed, and `=> changeable` where a resumed run may change the
/// key, since it has no influence on what is computed. A section with kinds, see
/// [`kinds!`](crate::kinds), has `(kind: K, first, "doc")` after its name; `first` or `last` says whether the keys of the
/// kind are written before the section's own.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident $((kind: $kind:ty, $order:ident, $kind_doc:literal))? {
            $(
                $(#[doc = $doc:literal])+
                $mode:ident $field:ident: $type:ty $(= $default:expr)? $(, in $range:expr)? $(=> $flag:ident)?;
            )*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(default)]
        $vis struct $name {
            $(
                #[doc = $kind_doc]
                #[serde(flatten)]
                pub kind: $kind,
            )?
            $(
                $(#[doc = $doc])+
                pub $field: $crate::field_type!($mode $type),
            )*
        }

        impl $name {
            $($crate::accessor!($mode $field: $type $(= $default)?);)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $(kind: <$kind>::default(),)?
                    $($field: $crate::default_of!($mode $(= $default)?),)*
                }
            }
        }

        impl $crate::Section for $name {
            const SCHEMA: $crate::Schema = {
                #[allow(unused_mut, unused_assignments)]
                let mut kind = None;
                $(kind = Some($crate::KindField {
                    field: $crate::Field {
                        name: "kind",
                        value_type: $crate::KeyType::Choice(<$kind>::WORDS),
                        default: $crate::DefaultValue::Required,
                        range: $crate::Range::Any,
                        changeable: false,
                        doc: $kind_doc,
                    },
                    kinds: <$kind>::KINDS,
                    first: matches!(stringify!($order).as_bytes(), b"first"),
                });)?
                $crate::Schema {
                    doc: concat!($($about),+),
                    kind,
                    fields: &[$($crate::Field {
                        name: $crate::bare(stringify!($field)),
                        value_type: <$type as $crate::KeyValue>::TYPE,
                        default: $crate::default_text!($mode $type $(= $default)?),
                        range: $crate::range_of!($($range)?),
                        changeable: $crate::changeable!($($flag)?),
                        doc: concat!($($doc),+),
                    }),*],
                }
            };

            fn write_fields<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                $(
                    let first = stringify!($order) == "first";
                    map.serialize_entry("kind", <$kind>::name(&self.kind))?;
                    if first {
                        self.kind.write_fields(map)?;
                    }
                )?
                $(
                    if !$crate::KeyValue::is_absent(&self.$field) {
                        map.serialize_entry($crate::bare(stringify!($field)), &$crate::Written(&self.$field))?;
                    }
                )*
                $(
                    let last = stringify!($order) == "last";
                    if last {
                        self.kind.write_fields(map)?;
                    }
                )?
                let _ = map;
                Ok(())
            }
        }

        impl $crate::KeyValue for $name {
            const TYPE: $crate::KeyType =
                $crate::KeyType::Section(&<Self as $crate::Section>::SCHEMA);

            /// Whether there is nothing to write.
            fn is_absent(&self) -> bool {
                !$crate::is_given!($($kind)?) $(&& $crate::KeyValue::is_absent(&self.$field))*
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                let mut map = out.serialize_map(None)?;
                $crate::Section::write_fields(self, &mut map)?;
                serde::ser::SerializeMap::end(map)
            }
        }
    };
}

/// Type of the field of a key.
#[doc(hidden)]
#[macro_export]
macro_rules! field_type {
    (required $type:ty) => { $type };
    (default $type:ty) => { $type };
    (optional $type:ty) => { Option<$type> };
    (absent $type:ty) => { Option<$type> };
    (section $type:ty) => { $type };
}

/// Value of the field where the key is left out.
#[doc(hidden)]
#[macro_export]
macro_rules! default_of {
    (required) => {
        Default::default()
    };
    (section) => {
        Default::default()
    };
    (default = $default:expr) => {
        $default
    };
    (optional = $default:expr) => {
        None
    };
    (absent = $default:expr) => {
        None
    };
}

/// The method that gives the value of an optional key, or its default.
#[doc(hidden)]
#[macro_export]
macro_rules! accessor {
    (optional $field:ident: $type:ty = $default:expr) => {
        #[doc = concat!("The value of `", stringify!($field), "`, or its default.")]
        pub fn $field(&self) -> $type {
            self.$field.clone().unwrap_or($default)
        }
    };
    ($mode:ident $($rest:tt)*) => {};
}

/// The default for the documentation.
#[doc(hidden)]
#[macro_export]
macro_rules! default_text {
    (required $type:ty) => {
        $crate::DefaultValue::Required
    };
    (section $type:ty) => {
        $crate::DefaultValue::Words("its defaults")
    };
    (absent $type:ty = $words:expr) => {
        $crate::DefaultValue::Words($words)
    };
    ($mode:ident $type:ty = $default:expr) => {
        $crate::DefaultValue::Value(|| $crate::toml_text::<$type>(&$default))
    };
}

/// The range of a key.
#[doc(hidden)]
#[macro_export]
macro_rules! range_of {
    () => {
        $crate::Range::Any
    };
    ($range:expr) => {
        $range
    };
}

/// Whether the key has the flag.
#[doc(hidden)]
#[macro_export]
macro_rules! changeable {
    () => {
        false
    };
    (changeable) => {
        true
    };
}

/// Whether there is a type.
#[doc(hidden)]
#[macro_export]
macro_rules! is_given {
    () => {
        false
    };
    ($type:ty) => {
        true
    };
}

// Sections with a `kind`: an enum with one settings struct for each kind.

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

// Closed sets of words, such as `"f32"`, `"bf16"`, `"f16"`, as enums.

/// Gives an enum without fields the words by which recipes name its variants: `WORDS`, `name`, `Display`, serde and
/// [`KeyValue`](crate::KeyValue).
#[macro_export]
macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// The words of all values.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word that recipes use.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("expected one of {}, got \"{text}\"", $crate::quoted(Self::WORDS))),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                String::deserialize(source)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl $crate::KeyValue for $name {
            const TYPE: $crate::KeyType = $crate::KeyType::Choice(Self::WORDS);
        }
    };
}
