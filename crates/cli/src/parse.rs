//! The values of flags: text to sizes, durations, folders, variables and levels. What they are used for is not here.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use host::Isolation;

/// What becomes of a kernel's access outside the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationChoice {
    /// An access outside the kernel's memory lands somewhere inside it.
    Confined,
    /// An access outside the kernel's memory is reported, and the launch fails.
    Trapping,
}

impl IsolationChoice {
    pub(crate) fn isolation(self) -> Isolation {
        match self {
            Self::Confined => Isolation::Confined,
            Self::Trapping => Isolation::Trapping,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Confined => "confined",
            Self::Trapping => "trapping",
        }
    }
}

/// Least and most bytes of a guest's memory: one page, and all that 32 bits address.
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 30;

/// Digits, then a unit. Both as written.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}

/// Bytes of memory: `65536`, `64K`, `256MiB`, `4G`.
pub(crate) fn memory_bytes(text: &str) -> Result<u64, String> {
    let expected = || "expected a size from 64K to 4G, such as 256M".to_owned();
    let (number, unit) = number_and_unit(text).ok_or_else(expected)?;
    let factor = match unit {
        "" | "B" => 1,
        "K" | "k" | "KiB" => 1_u64 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        _ => return Err(expected()),
    };
    let bytes = number.checked_mul(factor);
    bytes
        .filter(|bytes| MEMORY_BYTES.contains(bytes))
        .ok_or_else(expected)
}

/// A time: `500ms`, `5s`, `2m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time with its unit, such as 500ms, 5s, 2m or 1h".to_owned();
    let (number, unit) = number_and_unit(text).ok_or_else(expected)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(expected()),
    };
    match number.checked_mul(milliseconds) {
        Some(0) | None => Err(expected()),
        Some(milliseconds) => Ok(Duration::from_millis(milliseconds)),
    }
}

/// A folder of the host and the name that the guest sees it under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preopen {
    pub(crate) host: PathBuf,
    pub(crate) guest: String,
}

/// `HOST` or `HOST::GUEST`.
pub(crate) fn preopen(text: &str) -> Result<Preopen, String> {
    let (host, guest) = text.split_once("::").unwrap_or((text, text));
    if host.is_empty() || guest.is_empty() {
        return Err("expected HOST or HOST::GUEST".into());
    }
    Ok(Preopen {
        host: host.into(),
        guest: guest.into(),
    })
}

/// An environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// `NAME=VALUE`.
pub(crate) fn variable(text: &str) -> Result<Variable, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Variable {
            name: name.into(),
            value: value.into(),
        }),
        _ => Err("expected NAME=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units_and_bounds() {
        for (text, bytes) in [
            ("65536", 65_536),
            ("64K", 65_536),
            ("3MiB", 3 << 20),
            ("4G", 4 << 30),
        ] {
            assert_eq!(memory_bytes(text), Ok(bytes), "{text}");
        }
        let refused = [
            "",
            "M",
            "1",
            "63K",
            "5G",
            "64Q",
            "-1M",
            "1.5M",
            "99999999999999999999",
            "18014398509481984K",
        ];
        for text in refused {
            let refusal = memory_bytes(text).unwrap_err();
            assert!(refusal.contains("64K to 4G"), "{text}");
        }
    }

    #[test]
    fn times_need_a_unit_and_are_not_zero() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("5s", 5000),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(
                duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in ["", "5", "s", "0s", "-1s", "1.5s", "18446744073709551615h"] {
            let refusal = duration(text).unwrap_err();
            assert!(refusal.contains("unit"), "{text}");
        }
    }

    #[test]
    fn a_folder_has_the_guest_name_given_or_its_own() {
        let both = preopen("/data::in").unwrap();
        assert_eq!((both.host, both.guest), ("/data".into(), "in".into()));
        let one = preopen("data").unwrap();
        assert_eq!((one.host, one.guest), ("data".into(), "data".into()));
        for text in ["", "::", "a::", "::b"] {
            assert!(preopen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_variable_has_a_name_and_perhaps_an_empty_value() {
        let pairs = [
            ("A=b=c", Some(("A", "b=c"))),
            ("A=", Some(("A", ""))),
            ("A", None),
            ("=b", None),
        ];
        for (text, expected) in pairs {
            let found = variable(text).ok();
            let found = found
                .as_ref()
                .map(|found| (found.name.as_str(), found.value.as_str()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
