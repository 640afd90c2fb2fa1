//! Closed sets of words, such as `"f32"`, `"bf16"`, `"f16"`, as enums.

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
