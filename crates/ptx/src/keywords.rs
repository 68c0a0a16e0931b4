//! The fixed words of PTX that the tree holds as values: one table for each type, read in both
//! directions. Opcodes and modifiers have no table here, they stay text.

use crate::ast::{FunctionKind, Linkage, ScalarType, Space, Vector};

macro_rules! words {
    ($type:ident: $($variant:ident = $word:literal,)*) => {
        impl $type {
            /// The word for it, without the dot.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// What `word`, given without its dot, stands for.
            #[must_use]
            pub fn from_name(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

words! { FunctionKind:
    Device = "func",
    Entry = "entry",
}

// `Internal` has no word of its own: nothing is written for it, and nothing reads as it.
words! { Linkage:
    Common = "common",
    Extern = "extern",
    Internal = "",
    Visible = "visible",
    Weak = "weak",
}

words! { Space:
    Const = "const",
    Global = "global",
    Local = "local",
    Param = "param",
    Reg = "reg",
    Shared = "shared",
    Sreg = "sreg",
    Tex = "tex",
}

words! { ScalarType:
    B8 = "b8",
    B16 = "b16",
    B32 = "b32",
    B64 = "b64",
    B128 = "b128",
    U8 = "u8",
    U16 = "u16",
    U32 = "u32",
    U64 = "u64",
    S8 = "s8",
    S16 = "s16",
    S32 = "s32",
    S64 = "s64",
    F16 = "f16",
    F16x2 = "f16x2",
    F32 = "f32",
    F64 = "f64",
    Bf16 = "bf16",
    Bf16x2 = "bf16x2",
    Pred = "pred",
    Texref = "texref",
    Samplerref = "samplerref",
    Surfref = "surfref",
}

words! { Vector:
    V2 = "v2",
    V4 = "v4",
    V8 = "v8",
}

impl ScalarType {
    /// Bytes of one value in memory; `None` for predicates and the opaque types, which have no size
    /// that a program could see.
    #[must_use]
    pub const fn bytes(self) -> Option<u32> {
        match self {
            Self::B8 | Self::U8 | Self::S8 => Some(1),
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => Some(2),
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 => Some(4),
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => Some(8),
            Self::B128 => Some(16),
            Self::Pred | Self::Texref | Self::Samplerref | Self::Surfref => None,
        }
    }
}

impl Vector {
    /// Elements.
    #[must_use]
    pub const fn width(self) -> u32 {
        match self {
            Self::V2 => 2,
            Self::V4 => 4,
            Self::V8 => 8,
        }
    }
}
