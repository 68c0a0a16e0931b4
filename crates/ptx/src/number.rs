//! Literals to the bits that they stand for. Signs and expressions are not here.

use crate::ast::Immediate;
use crate::error::{ErrorKind, Excerpt};

/// How a prefix makes the digits after it be read. The first that fits counts, so `0` is last.
const PREFIXES: [(&str, Digits); 9] = [
    ("0x", Digits::Integer(16)),
    ("0X", Digits::Integer(16)),
    ("0b", Digits::Integer(2)),
    ("0B", Digits::Integer(2)),
    ("0f", Digits::Float(8)),
    ("0F", Digits::Float(8)),
    ("0d", Digits::Float(16)),
    ("0D", Digits::Float(16)),
    ("0", Digits::Integer(8)),
];

#[derive(Clone, Copy)]
enum Digits {
    /// The bits of a float in so many hexadecimal digits.
    Float(usize),
    /// An integer in this radix.
    Integer(u32),
}

/// The value of a literal.
pub(crate) fn immediate(text: &str) -> Result<Immediate, ErrorKind> {
    let malformed = || ErrorKind::Number {
        text: Excerpt::new(text),
    };
    let is_hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    if !is_hexadecimal && text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        let has_bits = matches!(text.as_bytes().get(1), Some(b'f' | b'F' | b'd' | b'D'));
        if !has_bits {
            let is_decimal = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
            if !text.bytes().all(is_decimal) {
                return Err(malformed());
            }
            let value: f64 = text.parse().map_err(|_| malformed())?;
            if value.is_infinite() {
                return Err(ErrorKind::NumberRange {
                    text: Excerpt::new(text),
                    bits: 64,
                });
            }
            return Ok(Immediate::F64(value.to_bits()));
        }
    }
    let prefixed = PREFIXES.iter().find_map(|&(prefix, digits)| {
        let rest = text.strip_prefix(prefix)?;
        (!rest.is_empty() && rest != "U").then_some((rest, digits))
    });
    match prefixed.unwrap_or((text, Digits::Integer(10))) {
        (digits, Digits::Float(length)) => {
            let is_exact = digits.len() == length && digits.bytes().all(|d| d.is_ascii_hexdigit());
            let bits = u64::from_str_radix(digits, 16).ok().filter(|_| is_exact);
            let bits = bits.ok_or_else(malformed)?;
            Ok(
                u32::try_from(bits).map_or(Immediate::F64(bits), |bits| match length {
                    8 => Immediate::F32(bits),
                    _ => Immediate::F64(u64::from(bits)),
                }),
            )
        }
        (digits, Digits::Integer(radix)) => {
            let digits = digits.strip_suffix('U').unwrap_or(digits);
            if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
                return Err(malformed());
            }
            u64::from_str_radix(digits, radix)
                .map(Immediate::Integer)
                .map_err(|_| ErrorKind::NumberRange {
                    text: Excerpt::new(text),
                    bits: 64,
                })
        }
    }
}

/// The literal with a minus sign before it.
pub(crate) fn negate(value: Immediate) -> Immediate {
    match value {
        Immediate::F32(bits) => Immediate::F32(bits ^ 1 << 31),
        Immediate::F64(bits) => Immediate::F64(bits ^ 1 << 63),
        Immediate::Integer(bits) => Immediate::Integer(bits.wrapping_neg()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_radix_and_width_is_read() {
        let cases = [
            ("0", Immediate::Integer(0)),
            ("0U", Immediate::Integer(0)),
            ("42U", Immediate::Integer(42)),
            ("017", Immediate::Integer(15)),
            ("0b101", Immediate::Integer(5)),
            ("0xfFU", Immediate::Integer(255)),
            ("0xe", Immediate::Integer(14)),
            ("18446744073709551615", Immediate::Integer(u64::MAX)),
            ("0f3F800000", Immediate::F32(0x3f80_0000)),
            ("0F3f8000e0", Immediate::F32(0x3f80_00e0)),
            ("0d3FF0000000000000", Immediate::F64(0x3ff0_0000_0000_0000)),
            ("0d0000000000000001", Immediate::F64(1)),
            ("1.0", Immediate::F64(1.0_f64.to_bits())),
            ("1e-5", Immediate::F64(1e-5_f64.to_bits())),
            ("2.5E+3", Immediate::F64(2500.0_f64.to_bits())),
        ];
        for (text, value) in cases {
            assert_eq!(immediate(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        for text in [
            "0x",
            "0xg",
            "08",
            "0b2",
            "0f3F80000",
            "0d3FF",
            "12abc",
            "1.0f",
            "0f+0000000",
            "1e5U",
        ] {
            let expected = ErrorKind::Number {
                text: Excerpt::new(text),
            };
            assert_eq!(immediate(text), Err(expected), "{text}");
        }
        for text in ["18446744073709551616", "0x10000000000000000", "1e309"] {
            let expected = ErrorKind::NumberRange {
                text: Excerpt::new(text),
                bits: 64,
            };
            assert_eq!(immediate(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_sign_negates_floats_and_wraps_integers() {
        assert_eq!(negate(Immediate::Integer(1)), Immediate::Integer(u64::MAX));
        assert_eq!(
            negate(Immediate::F32(0x3f80_0000)),
            Immediate::F32(0xbf80_0000)
        );
        assert_eq!(negate(Immediate::F64(0)), Immediate::F64(1 << 63));
    }
}
