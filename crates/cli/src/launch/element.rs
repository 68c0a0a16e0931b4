//! The types of elements: their names, and how their values are read and shown. What they are elements of is not here.

/// The type of a scalar, or of the elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F32,
    F64,
    I16,
    I32,
    I64,
    I8,
    U16,
    U32,
    U64,
    U8,
}

macro_rules! elements {
    ($($element:ident $type:ty, $name:literal $other:literal;)*) => {
        impl Element {
            /// The type of this name: Rust's, or the one that PTX has.
            pub(crate) fn named(name: &str) -> Option<Self> {
                match name {
                    $($name | $other => Some(Self::$element),)*
                    _ => None,
                }
            }

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$element => $name,)*
                }
            }

            pub(crate) fn bytes(self) -> usize {
                match self {
                    $(Self::$element => size_of::<$type>(),)*
                }
            }

            /// The bytes of a value.
            pub(crate) fn read(self, text: &str) -> Result<Vec<u8>, String> {
                match self {
                    $(Self::$element => match text.parse::<$type>() {
                        Ok(value) => Ok(value.to_le_bytes().into()),
                        Err(error) => Err(format!("`{text}` is no {}: {error}", self.name())),
                    },)*
                }
            }

            /// A value as it is read, of the right number of bytes.
            pub(crate) fn show(self, bytes: &[u8]) -> String {
                match self {
                    $(Self::$element => bytes
                        .try_into()
                        .map_or(String::new(), |bytes| <$type>::from_le_bytes(bytes).to_string()),)*
                }
            }

        }

        /// Every name, for texts.
        pub(crate) const NAMES: &str = concat!($($name, " ",)*);
    };
}

elements! {
    F32 f32, "f32" "float";
    F64 f64, "f64" "double";
    I8 i8, "i8" "s8";
    I16 i16, "i16" "s16";
    I32 i32, "i32" "s32";
    I64 i64, "i64" "s64";
    U8 u8, "u8" "b8";
    U16 u16, "u16" "b16";
    U32 u32, "u32" "b32";
    U64 u64, "u64" "b64";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read() {
        for (name, values) in [
            ("f32", ["0.1", "-0", "inf"]),
            ("f64", ["0.1", "NaN", "-1.5"]),
            ("s8", ["-128", "0", "127"]),
            ("u64", ["0", "1", "18446744073709551615"]),
        ] {
            let element = Element::named(name).unwrap();
            for value in values {
                let bytes = element.read(value).unwrap();
                assert_eq!(bytes.len(), element.bytes());
                assert_eq!(element.show(&bytes), value);
            }
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let refusal = Element::U8.read("256").unwrap_err();
        assert!(refusal.starts_with("`256` is no u8: "), "{refusal}");
        let refusal = Element::I32.read("1.5").unwrap_err();
        assert!(refusal.starts_with("`1.5` is no i32: "), "{refusal}");
        assert_eq!(Element::named("f16"), None);
    }
}
