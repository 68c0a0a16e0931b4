//! What follows `--arg`: one argument of a kernel, and where its bytes come from and go to. Nothing is opened here.

use std::path::PathBuf;

use super::element::{Element, NAMES};

/// Most elements that are written as a range.
const MAX_RANGE: u64 = 1 << 28;

/// One argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Argument {
    /// Memory that the kernel reads.
    In(Source),
    /// Memory that the kernel reads, and that is shown afterwards.
    InOut {
        source: Source,
        element: Element,
        to: Option<PathBuf>,
    },
    /// Memory of zeroes that is shown afterwards.
    Out {
        element: Element,
        count: usize,
        to: Option<PathBuf>,
    },
    Scalar {
        element: Element,
        bytes: Vec<u8>,
    },
    /// A value of any size.
    Struct(Vec<u8>),
}

/// Where bytes come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    File(PathBuf),
    Values(Vec<u8>),
}

/// `KIND:…` as the help says.
pub(crate) fn argument(text: &str) -> Result<Argument, String> {
    let (kind, rest) = text.split_once(':').ok_or_else(|| {
        let types = NAMES.trim_end();
        format!("expected in:, out:, inout:, bytes: or a type ({types}) and its value")
    })?;
    match kind {
        "in" => Ok(Argument::In(match values(rest)? {
            Some((_, bytes)) => Source::Values(bytes),
            None => Source::File(path(rest)?),
        })),
        "inout" => in_out(rest),
        "out" => out(rest),
        "bytes" => hex(rest).map(Argument::Struct),
        name => {
            let element = element(name)?;
            let bytes = element.read(rest)?;
            Ok(Argument::Scalar { element, bytes })
        }
    }
}

fn element(name: &str) -> Result<Element, String> {
    Element::named(name)
        .ok_or_else(|| format!("`{name}` is none of the types {}", NAMES.trim_end()))
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("expected the name of a file".into());
    }
    Ok(text.into())
}

/// `TYPE=V,V,…` or `TYPE=FROM..TO`, unless it is something else.
fn values(text: &str) -> Result<Option<(Element, Vec<u8>)>, String> {
    let Some((name, list)) = text.split_once('=') else {
        return Ok(None);
    };
    let Some(element) = Element::named(name) else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    match list.split_once("..") {
        Some((from, to)) => {
            let end = |text: &str| text.parse().map_err(|_| format!("`{text}` is no count"));
            let (from, to): (u64, u64) = (end(from)?, end(to)?);
            if to.saturating_sub(from) > MAX_RANGE {
                return Err(format!("{list} is more than {MAX_RANGE} elements"));
            }
            for number in from..to {
                bytes.extend(element.read(&number.to_string())?);
            }
        }
        None => {
            for value in list.split(',') {
                bytes.extend(element.read(value.trim())?);
            }
        }
    }
    Ok(Some((element, bytes)))
}

/// `FILE:TYPE[:TO]` or `TYPE=VALUES[:TO]`.
fn in_out(text: &str) -> Result<Argument, String> {
    let (first, rest) = match text.split_once(':') {
        Some((first, rest)) => (first, Some(rest)),
        None => (text, None),
    };
    if let Some((element, bytes)) = values(first)? {
        let (source, to) = (Source::Values(bytes), rest.map(path).transpose()?);
        return Ok(Argument::InOut {
            source,
            element,
            to,
        });
    }
    let rest = rest.ok_or("expected inout:FILE:TYPE or inout:TYPE=VALUES")?;
    let (name, to) = match rest.split_once(':') {
        Some((name, to)) => (name, Some(path(to)?)),
        None => (rest, None),
    };
    let (source, element) = (Source::File(path(first)?), element(name)?);
    Ok(Argument::InOut {
        source,
        element,
        to,
    })
}

/// `COUNT TYPE[:TO]`, without the space.
fn out(text: &str) -> Result<Argument, String> {
    let (what, to) = match text.split_once(':') {
        Some((what, to)) => (what, Some(path(to)?)),
        None => (text, None),
    };
    let digits = what.bytes().take_while(u8::is_ascii_digit).count();
    let (count, name) = what.split_at(digits);
    let expected = || format!("expected a count and a type, such as out:1024f32, not `{what}`");
    let count: usize = count.parse().map_err(|_| expected())?;
    let element = Element::named(name).ok_or_else(expected)?;
    if count.checked_mul(element.bytes()).is_none() {
        return Err(expected());
    }
    Ok(Argument::Out { element, count, to })
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let expected = || format!("`{text}` is no even number of hexadecimal digits");
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err(expected());
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| expected()))
        .collect()
}

/// `X`, `X,Y` or `X,Y,Z`.
pub(crate) fn extent(text: &str) -> Result<[u32; 3], String> {
    let expected = || "expected one to three numbers, such as 16 or 8,8,1".to_owned();
    let mut axes = [1; 3];
    let mut parts = text.split([',', 'x']);
    let first = parts.next().unwrap_or_default();
    axes[0] = first.parse().map_err(|_| expected())?;
    for axis in &mut axes[1..] {
        let Some(part) = parts.next() else { break };
        *axis = part.parse().map_err(|_| expected())?;
    }
    if parts.next().is_some() {
        return Err(expected());
    }
    Ok(axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_what_they_are() {
        let file = |name: &str| Source::File(name.into());
        for (text, expected) in [
            ("in:a.bin", Argument::In(file("a.bin"))),
            ("in:a=b", Argument::In(file("a=b"))),
            ("in:u8=1,2", Argument::In(Source::Values(vec![1, 2]))),
            (
                "in:u16=1..3",
                Argument::In(Source::Values(vec![1, 0, 2, 0])),
            ),
            (
                "out:4f32",
                Argument::Out {
                    element: Element::F32,
                    count: 4,
                    to: None,
                },
            ),
            (
                "out:4s64:o:p",
                Argument::Out {
                    element: Element::I64,
                    count: 4,
                    to: Some("o:p".into()),
                },
            ),
            (
                "inout:a.bin:u32:b.bin",
                Argument::InOut {
                    source: file("a.bin"),
                    element: Element::U32,
                    to: Some("b.bin".into()),
                },
            ),
            (
                "inout:u8=7:b.bin",
                Argument::InOut {
                    source: Source::Values(vec![7]),
                    element: Element::U8,
                    to: Some("b.bin".into()),
                },
            ),
            (
                "i16:-2",
                Argument::Scalar {
                    element: Element::I16,
                    bytes: vec![0xfe, 0xff],
                },
            ),
            ("bytes:00ff", Argument::Struct(vec![0, 255])),
        ] {
            assert_eq!(argument(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_argument_is_refused_with_what_was_expected() {
        for (text, expected) in [
            ("", "expected in:, out:"),
            ("5", "u32 u64) and its value"),
            ("f16:1", "`f16` is none of the types f32 f64"),
            ("u32:-1", "`-1` is no u32"),
            ("in:", "the name of a file"),
            ("in:f32=1,x", "`x` is no f32"),
            ("in:f32=0..999999999999", "more than"),
            ("out:f32", "a count and a type"),
            ("out:4", "a count and a type"),
            ("out:99999999999999999999f32", "a count and a type"),
            ("out:18446744073709551615f32", "a count and a type"),
            ("inout:a.bin", "inout:FILE:TYPE"),
            ("bytes:0", "hexadecimal"),
            ("bytes:zz", "hexadecimal"),
            ("bytes:\u{e9}", "hexadecimal"),
        ] {
            let refusal = argument(text).unwrap_err();
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
    }

    #[test]
    fn extents_have_up_to_three_axes() {
        assert_eq!(extent("7"), Ok([7, 1, 1]));
        assert_eq!(extent("7,8"), Ok([7, 8, 1]));
        assert_eq!(extent("7x8x9"), Ok([7, 8, 9]));
        for text in ["", "1,2,3,4", "1,,2", "-1", "a"] {
            assert!(extent(text).is_err(), "{text}");
        }
    }
}
