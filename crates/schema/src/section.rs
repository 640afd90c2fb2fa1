//! The macro that defines a section of a recipe. Each key has a line with its type, default and range, and a doc
//! comment with its documentation.

use serde::ser::SerializeMap;

use super::field::Schema;

/// A struct with a field for each key of a section.
pub trait Section {
    const SCHEMA: Schema;

    /// Writes the keys in the schema's order and omits absent ones.
    fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

/// Returns the key's name for a field that is a Rust keyword and is written as `r#match`.
pub const fn bare(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Defines a section of a recipe: the struct, serde, `Default`, and its [`Section`]. Each key has one of these forms:
///
/// - `required name: T;`: a recipe without the key is invalid.
/// - `default name: T = value;`: the key is always written.
/// - `optional name: T = value;`: the field is an `Option<T>`, written only if it was set. The method with the same
///   name returns its value or this default.
/// - `absent name: T = "what happens then";`: the field is an `Option<T>` without a default value.
/// - `section name: T;`: a nested section.
///
/// Add `, in RANGE` before the semicolon if not all numbers are allowed. Add `=> changeable` if a resumed run may
/// change the key, because it does not affect results. A section with kinds, see [`kinds!`](crate::kinds), has
/// `(kind: K, first, "doc")` after its name. `first` or `last` tells whether the kind's keys are written before or
/// after the section's own.
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

            /// Returns true if all keys of the section are absent, so that there is nothing to write.
            fn is_absent(&self) -> bool {
                <Self as $crate::Section>::SCHEMA.kind.is_none() $(&& $crate::KeyValue::is_absent(&self.$field))*
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

/// Expands to the type of a key's field in the struct.
#[doc(hidden)]
#[macro_export]
macro_rules! field_type {
    (required $type:ty) => { $type };
    (default $type:ty) => { $type };
    (optional $type:ty) => { Option<$type> };
    (absent $type:ty) => { Option<$type> };
    (section $type:ty) => { $type };
}

/// Expands to the value that the struct's field has if the key is omitted.
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

/// Defines the method that returns the value of an optional key or its default.
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

/// Expands to the key's [`DefaultValue`](crate::DefaultValue).
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

/// Expands to `true` if the key has the flag `changeable`.
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

// Sections with a `kind`: an enum with a settings struct for each kind.

/// Defines the enum for the kinds of a section. Each line has the kind's name, its variant and its settings, a
/// [`Section`] that implements the given trait.
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
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            pub const KINDS: &'static [$crate::Kind] = &[$($crate::Kind {
                name: $word,
                doc: <$settings as $crate::Section>::SCHEMA.doc,
                fields: <$settings as $crate::Section>::SCHEMA.fields,
            }),+];

            /// Returns the kind's name in recipes.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $word),+
                }
            }

            /// Returns the kind's settings as the trait that all kinds implement.
            pub fn settings(&self) -> &dyn $behaviour {
                match self {
                    $(Self::$variant(settings) => settings),+
                }
            }

            /// Returns a copy of the kind's settings.
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

/// Implements the names that recipes use for the variants of an enum without fields: `WORDS`, `name`, `Display`, serde
/// and [`KeyValue`](crate::KeyValue).
#[macro_export]
macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// Returns the name that recipes use.
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
