//! Results for machines: values, and how they are written. What they mean is the subcommand's.

use std::fmt::{self, Display, Formatter, Write};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    List(Vec<Json>),
    Null,
    /// A number as JSON writes it.
    Number(String),
    Object(Vec<(&'static str, Json)>),
    Text(String),
}

impl Json {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn number(number: impl Into<u64>) -> Self {
        Self::Number(number.into().to_string())
    }

    pub(crate) fn count(count: usize) -> Self {
        Self::Number(count.to_string())
    }

    /// A float; JSON has no number for some of them, which are texts.
    pub(crate) fn float(value: f64) -> Self {
        if value.is_finite() {
            Self::Number(value.to_string())
        } else {
            Self::Text(value.to_string())
        }
    }

    pub(crate) fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(items.into_iter().collect())
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(items) => {
                f.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { "," })?;
                }
                f.write_char(']')
            }
            Self::Null => f.write_str("null"),
            Self::Number(number) => f.write_str(number),
            Self::Object(fields) => {
                f.write_char('{')?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}\"{name}\":{value}", if index == 0 { "" } else { "," })?;
                }
                f.write_char('}')
            }
            Self::Text(text) => {
                f.write_char('"')?;
                for c in text.chars() {
                    match c {
                        '"' | '\\' => write!(f, "\\{c}")?,
                        c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                        c => f.write_char(c)?,
                    }
                }
                f.write_char('"')
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json_has_them() {
        let value = Json::Object(vec![
            ("text", Json::text("a \"b\"\\\n\u{e9}")),
            ("list", Json::list([Json::count(1), Json::Null])),
            (
                "floats",
                Json::list([1.5, 2.0, f64::NAN, -f64::INFINITY].map(Json::float)),
            ),
            ("empty", Json::Object(vec![])),
        ]);
        let written = "{\"text\":\"a \\\"b\\\"\\\\\\u000a\u{e9}\",\"list\":[1,null],\
            \"floats\":[1.5,2,\"NaN\",\"-inf\"],\"empty\":{}}";
        assert_eq!(value.to_string(), written);
    }
}
