//! `printf` in kernels: the conversions of C, over arguments that lie behind each other as C's variable arguments do.
//! Nothing here reads memory; every text is bounded.

/// Most bytes that one call in one thread prints.
pub(super) const MOST_BYTES: usize = 1024;
/// Most characters of a width or precision.
const MOST_DIGITS: usize = 512;

/// Where the arguments and the texts that they point to come from.
pub(super) trait Source {
    type Fault;
    /// The 4 or 8 bytes at this offset of the arguments.
    fn argument(&mut self, at: u64, bytes: u64) -> Result<u64, Self::Fault>;
    /// A byte of the kernel's memory.
    fn byte(&mut self, address: u64) -> Result<u8, Self::Fault>;
}

/// A conversion: `%-08.3lf`.
#[derive(Clone, Copy, Debug, Default)]
struct Conversion {
    left: bool,
    sign: Option<char>,
    alternate: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    /// Bits of an integer argument that count.
    bits: u32,
}

/// Arguments that have been taken.
struct Arguments<'s, S> {
    source: &'s mut S,
    at: u64,
    count: u32,
}

impl<S: Source> Arguments<'_, S> {
    fn next(&mut self, bytes: u64) -> Result<u64, S::Fault> {
        let at = self.at.next_multiple_of(bytes);
        self.at = at + bytes;
        self.count += 1;
        self.source.argument(at, bytes)
    }
}

/// The text of a format with its arguments, and how many of those there were.
pub(super) fn print<S: Source>(format: &[u8], source: &mut S) -> Result<(Vec<u8>, u32), S::Fault> {
    let mut arguments = Arguments {
        source,
        at: 0,
        count: 0,
    };
    let mut text = Vec::new();
    let mut rest = format;
    while let Some((&first, after)) = rest.split_first() {
        if text.len() >= MOST_BYTES {
            break;
        }
        rest = after;
        if first != b'%' {
            text.push(first);
            continue;
        }
        let start = after;
        let mut conversion = Conversion {
            bits: 32,
            ..Conversion::default()
        };
        rest = flags(rest, &mut conversion);
        (conversion.width, rest) = match rest {
            [b'*', rest @ ..] => {
                let width = signed(arguments.next(4)?, 32);
                conversion.left |= width < 0;
                (bounded(width.unsigned_abs()), rest)
            }
            _ => digits(rest),
        };
        if let [b'.', after @ ..] = rest {
            let (precision, after) = match after {
                [b'*', after @ ..] => {
                    let given = signed(arguments.next(4)?, 32);
                    (u64::try_from(given).ok().map(bounded), after)
                }
                _ => {
                    let (precision, after) = digits(after);
                    (Some(precision), after)
                }
            };
            (conversion.precision, rest) = (precision, after);
        }
        rest = length(rest, &mut conversion);
        let Some((&kind, after)) = rest.split_first() else {
            text.push(b'%');
            text.extend_from_slice(start);
            break;
        };
        rest = after;
        match kind {
            b'%' => text.push(b'%'),
            b'c' => {
                let [byte, ..] = arguments.next(4)?.to_le_bytes();
                pad(&mut text, &[byte], conversion);
            }
            b's' => {
                let address = arguments.next(8)?;
                let most = conversion.precision.unwrap_or(MOST_BYTES);
                let bytes = string(arguments.source, address, most)?;
                pad(&mut text, &bytes, conversion);
            }
            b'p' => {
                let pointer = format!("{:#x}", arguments.next(8)?);
                pad(&mut text, pointer.as_bytes(), conversion);
            }
            b'd' | b'i' | b'u' | b'o' | b'x' | b'X' => {
                let value = arguments.next(if conversion.bits == 64 { 8 } else { 4 })?;
                integer(&mut text, kind, value, conversion);
            }
            b'a' | b'A' | b'e' | b'E' | b'f' | b'F' | b'g' | b'G' => {
                let value = f64::from_bits(arguments.next(8)?);
                float(&mut text, kind, value, conversion);
            }
            _ => {
                text.push(b'%');
                text.extend_from_slice(&start[..start.len() - rest.len()]);
            }
        }
    }
    text.truncate(MOST_BYTES);
    Ok((text, arguments.count))
}

fn bounded(number: u64) -> usize {
    usize::try_from(number).map_or(MOST_DIGITS, |number| number.min(MOST_DIGITS))
}

fn flags<'f>(mut rest: &'f [u8], to: &mut Conversion) -> &'f [u8] {
    while let Some((flag, after)) = rest.split_first() {
        match flag {
            b'-' => to.left = true,
            b'+' => to.sign = Some('+'),
            b' ' => to.sign = to.sign.or(Some(' ')),
            b'#' => to.alternate = true,
            b'0' => to.zeros = true,
            _ => break,
        }
        rest = after;
    }
    rest
}

fn digits(rest: &[u8]) -> (usize, &[u8]) {
    let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at(len);
    let value = digits.iter().fold(0, |value: u64, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    (bounded(value), rest)
}

fn length<'f>(rest: &'f [u8], to: &mut Conversion) -> &'f [u8] {
    let (bits, rest) = match rest {
        [b'l', b'l', rest @ ..] => (64, rest),
        [b'l' | b'j' | b'z' | b't', rest @ ..] => (64, rest),
        [b'h', b'h', rest @ ..] => (8, rest),
        [b'h', rest @ ..] => (16, rest),
        _ => (32, rest),
    };
    to.bits = bits;
    rest
}

/// The low bits of a word as a signed number.
fn signed(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)).cast_signed() >> (64 - bits)
}

/// The bytes of a text up to its end.
fn string<S: Source>(source: &mut S, address: u64, most: usize) -> Result<Vec<u8>, S::Fault> {
    let mut bytes = Vec::new();
    if address == 0 {
        bytes.extend_from_slice(b"(null)");
    } else {
        for at in 0..most.min(MOST_BYTES) as u64 {
            match source.byte(address.wrapping_add(at))? {
                0 => break,
                byte => bytes.push(byte),
            }
        }
    }
    bytes.truncate(most);
    Ok(bytes)
}

/// Appends bytes, padded with blanks to the width.
fn pad(text: &mut Vec<u8>, bytes: &[u8], conversion: Conversion) {
    let blanks = std::iter::repeat_n(b' ', conversion.width.saturating_sub(bytes.len()));
    if conversion.left {
        text.extend_from_slice(bytes);
        text.extend(blanks);
    } else {
        text.extend(blanks);
        text.extend_from_slice(bytes);
    }
}

/// Appends a number: a sign or prefix, zeros up to the width where they are wanted, digits.
fn number(text: &mut Vec<u8>, prefix: &str, digits: &str, conversion: Conversion) {
    let room = conversion.width.saturating_sub(prefix.len() + digits.len());
    let zeros = if conversion.zeros && !conversion.left {
        room
    } else {
        0
    };
    let whole = format!("{prefix}{}{digits}", "0".repeat(zeros));
    pad(text, whole.as_bytes(), conversion);
}

fn integer(text: &mut Vec<u8>, kind: u8, value: u64, mut conversion: Conversion) {
    let bits = conversion.bits;
    let unsigned = value & (u64::MAX >> (64 - bits));
    let (mut prefix, mut digits) = match kind {
        b'd' | b'i' => {
            let value = signed(value, bits);
            let sign = conversion.sign.map(String::from).unwrap_or_default();
            let prefix = if value < 0 { "-".into() } else { sign };
            (prefix, value.unsigned_abs().to_string())
        }
        b'o' => (String::new(), format!("{unsigned:o}")),
        b'x' => (String::new(), format!("{unsigned:x}")),
        b'X' => (String::new(), format!("{unsigned:X}")),
        _ => (String::new(), unsigned.to_string()),
    };
    if let Some(precision) = conversion.precision {
        // A precision makes the flag for zeros mean nothing, and no digit is left of zero with none.
        conversion.zeros = false;
        digits = if precision == 0 && unsigned == 0 {
            String::new()
        } else {
            format!("{digits:0>precision$}")
        };
    }
    match kind {
        b'x' | b'X' if conversion.alternate && unsigned != 0 => {
            prefix = if kind == b'x' { "0x" } else { "0X" }.into();
        }
        b'o' if conversion.alternate && !digits.starts_with('0') => digits.insert(0, '0'),
        _ => {}
    }
    number(text, &prefix, &digits, conversion);
}

fn float(text: &mut Vec<u8>, kind: u8, value: f64, mut conversion: Conversion) {
    let sign = conversion.sign.map(String::from).unwrap_or_default();
    let negative = value.is_sign_negative();
    let mut prefix = if negative { "-".into() } else { sign };
    let size = value.abs();
    let mut digits = if size.is_finite() {
        match kind.to_ascii_lowercase() {
            b'a' => {
                prefix.push_str("0x");
                hexadecimal(size, conversion)
            }
            b'e' => scientific(size, conversion.precision.unwrap_or(6), conversion),
            b'f' => fixed(size, conversion.precision.unwrap_or(6), conversion),
            _ => general(size, conversion),
        }
    } else {
        conversion.zeros = false;
        if size.is_nan() { "nan" } else { "inf" }.into()
    };
    if kind.is_ascii_uppercase() {
        digits.make_ascii_uppercase();
        prefix.make_ascii_uppercase();
    }
    number(text, &prefix, &digits, conversion);
}

fn fixed(value: f64, precision: usize, conversion: Conversion) -> String {
    let point = if precision == 0 && conversion.alternate {
        "."
    } else {
        ""
    };
    format!("{value:.precision$}{point}")
}

/// The digits and the exponent of a number with this many digits behind the point.
fn parts(value: f64, precision: usize) -> (String, i32) {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.into(), exponent.parse().unwrap_or(0))
}

fn scientific(value: f64, precision: usize, conversion: Conversion) -> String {
    let (digits, exponent) = parts(value, precision);
    let point = if precision == 0 && conversion.alternate {
        "."
    } else {
        ""
    };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}{point}e{sign}{:02}", exponent.unsigned_abs())
}

/// The shorter of both, without zeros at the end.
fn general(value: f64, conversion: Conversion) -> String {
    let precision = conversion.precision.unwrap_or(6).max(1);
    let (_, exponent) = parts(value, precision - 1);
    let behind = i64::try_from(precision).unwrap_or(i64::MAX) - 1 - i64::from(exponent);
    let (text, tail) = match usize::try_from(behind) {
        Ok(behind) if exponent >= -4 => (fixed(value, behind, conversion), String::new()),
        _ => {
            let text = scientific(value, precision - 1, conversion);
            let at = text.find('e').unwrap_or(text.len());
            (text[..at].to_owned(), text[at..].to_owned())
        }
    };
    if conversion.alternate || !text.contains('.') {
        return text + &tail;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned() + &tail
}

/// `1.8p+1` behind the `0x`.
fn hexadecimal(value: f64, conversion: Conversion) -> String {
    const DIGITS: usize = 13;
    let bits = value.to_bits();
    let stored = i64::try_from(bits >> 52).unwrap_or(0);
    let mut mantissa = bits & ((1 << 52) - 1);
    let exponent = if bits == 0 { 0 } else { stored.max(1) - 1023 };
    if stored > 0 {
        mantissa |= 1 << 52;
    }
    let digits = conversion.precision.unwrap_or(DIGITS);
    if digits < DIGITS {
        let spare = 4 * u32::try_from(DIGITS - digits).unwrap_or(0);
        let (half, odd) = (1_u64 << (spare - 1), mantissa >> spare & 1);
        mantissa = (mantissa + half - 1 + odd) >> spare << spare;
    }
    let behind = format!("{:013x}", mantissa & ((1 << 52) - 1));
    let behind = match conversion.precision {
        None => behind.trim_end_matches('0').to_owned(),
        Some(digits) => format!("{behind:0<digits$}")[..digits].to_owned(),
    };
    let point = if behind.is_empty() && !conversion.alternate {
        ""
    } else {
        "."
    };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}{point}{behind}p{sign}{}", mantissa >> 52, exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Given<'g>(&'g [u8], &'g [u8]);

    impl Source for Given<'_> {
        type Fault = u64;
        fn argument(&mut self, at: u64, bytes: u64) -> Result<u64, u64> {
            let (at, len) = (
                usize::try_from(at).unwrap(),
                usize::try_from(bytes).unwrap(),
            );
            let mut word = [0; 8];
            word[..len].copy_from_slice(self.0.get(at..at + len).ok_or(bytes)?);
            Ok(u64::from_le_bytes(word))
        }
        fn byte(&mut self, address: u64) -> Result<u8, u64> {
            let at = usize::try_from(address).unwrap();
            self.1.get(at).copied().ok_or(address)
        }
    }

    fn one(format: &str, bytes: &[u8]) -> String {
        let (text, _) = print(format.as_bytes(), &mut Given(bytes, b"?text\0")).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn integers_are_as_c_prints_them() {
        let cases: [(&str, i64, &str); 18] = [
            ("%d", -5, "-5"),
            ("%u", -1, "4294967295"),
            ("%+d|", 7, "+7|"),
            ("% d", 7, " 7"),
            ("%5d|", 42, "   42|"),
            ("%-5d|", 42, "42   |"),
            ("%05d", -42, "-0042"),
            ("%.3d", 7, "007"),
            ("%08.3d|", 7, "     007|"),
            ("%.0d|", 0, "|"),
            ("%x", 255, "ff"),
            ("%#X", 255, "0XFF"),
            ("%#x", 0, "0"),
            ("%#o", 8, "010"),
            ("%hhd", 0x1ff, "-1"),
            ("%hu", 0x1_ffff, "65535"),
            ("%lld", i64::MIN, "-9223372036854775808"),
            ("%c%%", 65, "A%"),
        ];
        for (format, value, want) in cases {
            assert_eq!(one(format, &value.to_le_bytes()), want, "{format}");
        }
    }

    #[test]
    fn floats_are_as_c_prints_them() {
        let cases: [(&str, f64, &str); 22] = [
            ("%f", -1.5, "-1.500000"),
            ("%.0f", 2.5, "2"),
            ("%#.0f", 3.0, "3."),
            ("%10.3f|", 2.71, "     2.710|"),
            ("%-10.3f|", 2.71, "2.710     |"),
            ("%010.3f", -2.71, "-00002.710"),
            ("%e", 0.0, "0.000000e+00"),
            ("%.2E", 123_456.0, "1.23E+05"),
            ("%e", 1e-300, "1.000000e-300"),
            ("%g", 0.0001, "0.0001"),
            ("%g", 0.00001, "1e-05"),
            ("%g", 1e6, "1e+06"),
            ("%g", 123_456.0, "123456"),
            ("%g", 100.0, "100"),
            ("%#g", 1.0, "1.00000"),
            ("%.3g", 2.0 / 3.0, "0.667"),
            ("%G", 1e-10, "1E-10"),
            ("%05f", f64::INFINITY, "  inf"),
            ("%F", -f64::INFINITY, "-INF"),
            ("%a", 3.0, "0x1.8p+1"),
            ("%.1a", 1.999, "0x2.0p+0"),
            ("%A", 5e-324, "0X0.0000000000001P-1022"),
        ];
        for (format, value, want) in cases {
            assert_eq!(one(format, &value.to_le_bytes()), want, "{format}");
        }
    }

    #[test]
    fn arguments_lie_at_multiples_of_their_size() {
        let mut bytes = 3_u32.to_le_bytes().to_vec();
        bytes.resize(8, 0xff);
        bytes.extend(2.5_f64.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(6_u32.to_le_bytes());
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(1.25_f64.to_le_bytes());
        assert_eq!(one("%d %g %s %*.*f!", &bytes), "3 2.5 text   1.25!");
    }

    #[test]
    fn what_is_printed_is_bounded() {
        let bytes = [0xff_u8; 64];
        for format in [
            "%999999999d",
            "%.999999999f",
            "%0999999999999999999999u%500d%500d",
        ] {
            let (text, _) = print(format.as_bytes(), &mut Given(&bytes, &[])).unwrap();
            assert!(text.len() <= MOST_BYTES, "{format}");
        }
        let long = vec![b'x'; 10 * MOST_BYTES];
        let (text, _) = print(&long, &mut Given(&[], &[])).unwrap();
        assert_eq!(text.len(), MOST_BYTES);
    }

    #[test]
    fn what_is_no_conversion_is_printed_as_it_stands() {
        assert_eq!(one("%q 100%", &[]), "%q 100%");
        assert_eq!(print(b"%d", &mut Given(&[], &[])).unwrap_err(), 4);
    }
}
