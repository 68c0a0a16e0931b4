//! The tables of `docs/abi.md` are those of this crate. `BLESS=1` rewrites them.
#![expect(
    clippy::expect_used,
    reason = "a document that cannot be read or written fails the test"
)]

use std::fmt::{Display, Write as _};
use std::fs;
use std::path::Path;

use wasi_cuda_abi::argv::{Dialect, Tag};
use wasi_cuda_abi::info::{
    DeviceInfo, DeviceKind, FEATURES, Field, KernelInfo, ParamClass, ParamInfo, TrapInfo, TrapKind,
};
use wasi_cuda_abi::{AbiError, IMPORTS, MODULE, MODULE_V0_2};
use wasi_cuda_abi::{
    LAST_ERROR_BYTES, MAX_ARGV_BYTES, MAX_ARGV_RECORDS, MAX_ENTRY_NAME_BYTES, MAX_PTX_BYTES,
};

/// A Markdown table.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), " --- |".repeat(N));
    for row in rows {
        writeln!(text, "| {} |", row.join(" | ")).expect("writing to a string");
    }
    text
}

fn code(text: impl Display) -> String {
    format!("`{text}`")
}

fn imports(module: &str) -> String {
    let rows = IMPORTS.iter().filter(|import| import.module == module);
    table(
        ["import", "parameters", "result", "does"],
        rows.map(|import| {
            // Neighbours of one type are written as in `ptx, ptx_len: i32`.
            let mut params = String::new();
            for (index, (name, ty)) in import.param_names.iter().zip(import.params).enumerate() {
                params.push_str(name);
                match import.params.get(index + 1) {
                    Some(next) if next == ty => params.push_str(", "),
                    Some(_) => params.push_str(&format!(": {}; ", ty.name())),
                    None => params.push_str(&format!(": {}", ty.name())),
                }
            }
            let result = import.result.name().to_string();
            [
                code(import.name),
                params,
                result,
                import.summary.to_string(),
            ]
        }),
    )
}

fn codes() -> String {
    table(
        ["code", "name", "when"],
        AbiError::ALL.iter().map(|error| {
            [
                error.code().to_string(),
                error.name().to_string(),
                error.meaning().to_string(),
            ]
        }),
    )
}

fn tags() -> String {
    table(
        ["tag", "name", "value", "bytes with tag", "earlier module"],
        Tag::ALL.iter().map(|tag| {
            let earlier = match Tag::from_byte(tag.byte(), Dialect::V0_2) {
                Some(_) => "yes",
                None => "no",
            };
            let more = if *tag == Tag::Bytes {
                " and the length"
            } else {
                ""
            };
            [
                format!("`{:#04x}`", tag.byte()),
                code(tag.name()),
                tag.layout().to_string(),
                format!("{}{more}", 1 + tag.fixed_len()),
                earlier.to_string(),
            ]
        }),
    )
}

fn fields(fields: &[Field]) -> String {
    table(
        ["byte", "field", "type", "what"],
        fields.iter().map(|field| {
            [
                field.offset.to_string(),
                code(field.name),
                code(field.ty),
                field.doc.to_string(),
            ]
        }),
    )
}

fn numbers<T>(all: &[T], row: impl Fn(&T) -> (u32, String, &'static str)) -> String {
    table(
        ["number", "name", "meaning"],
        all.iter().map(|each| {
            let (number, name, meaning) = row(each);
            [number.to_string(), name, meaning.to_string()]
        }),
    )
}

fn features() -> String {
    table(
        ["bit", "name", "meaning"],
        FEATURES.iter().map(|(mask, name, meaning)| {
            [
                mask.trailing_zeros().to_string(),
                code(name),
                meaning.to_string(),
            ]
        }),
    )
}

fn caps() -> String {
    let row = |limit: &str, value: usize, over: &str| {
        [limit.to_string(), value.to_string(), over.to_string()]
    };
    let unsupported = AbiError::KernelArgsUnsupported.code().to_string();
    let quota = AbiError::QuotaExceeded.code().to_string();
    table(
        ["limit", "value", "code"],
        [
            row("argv bytes", MAX_ARGV_BYTES, &unsupported),
            row("argv records", MAX_ARGV_RECORDS, &unsupported),
            row("bytes of a name", MAX_ENTRY_NAME_BYTES, &quota),
            row("PTX bytes of one load, at most", MAX_PTX_BYTES, &quota),
            row(
                "bytes of the last-error text",
                LAST_ERROR_BYTES,
                "cut, ends in …",
            ),
        ],
    )
}

fn render(section: &str) -> String {
    match section {
        "caps" => caps(),
        "codes" => codes(),
        "device-info" => fields(DeviceInfo::FIELDS),
        "device-kinds" => numbers(DeviceKind::ALL, |k| {
            (k.number(), format!("{k:?}"), k.meaning())
        }),
        "features" => features(),
        "imports" => imports(MODULE),
        "imports-v0-2" => imports(MODULE_V0_2),
        "kernel-info" => fields(KernelInfo::FIELDS),
        "param-classes" => numbers(ParamClass::ALL, |c| {
            (c.number(), format!("{c:?}"), c.meaning())
        }),
        "param-info" => fields(ParamInfo::FIELDS),
        "tags" => tags(),
        "trap-info" => fields(TrapInfo::FIELDS),
        "trap-kinds" => numbers(TrapKind::ALL, |k| {
            (k.number(), format!("{k:?}"), k.meaning())
        }),
        other => panic!("the section `{other}` is not rendered from anything"),
    }
}

#[test]
fn tables_are_rendered_from_this_crate() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/abi.md");
    let found = fs::read_to_string(&path).expect("docs/abi.md");
    let mut rest = found.as_str();
    let mut expected = String::new();
    let mut stale = Vec::new();
    let mut sections = 0;
    while let Some((before, after)) = rest.split_once("<!-- begin: ") {
        let (section, after) = after.split_once(" -->\n").expect("a closed mark");
        let end = format!("<!-- end: {section} -->");
        let (present, after) = after.split_once(&end).expect("an end for each begin");
        let rendered = render(section);
        if present != rendered {
            stale.push(section);
        }
        write!(
            expected,
            "{before}<!-- begin: {section} -->\n{rendered}{end}"
        )
        .expect("writing to a string");
        rest = after;
        sections += 1;
    }
    expected.push_str(rest);
    assert_eq!(sections, 13, "docs/abi.md lacks a section");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, expected).expect("docs/abi.md");
    } else {
        assert!(
            stale.is_empty(),
            "stale in docs/abi.md, BLESS=1 rewrites it: {stale:?}"
        );
    }
}
