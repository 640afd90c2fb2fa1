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
