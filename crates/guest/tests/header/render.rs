//! The header's tables, rendered from the ABI crate.

use std::fmt::{Display, Write as _};
use std::fs;
use std::path::Path;

use abi::argv::Tag;
use abi::info::{
    DeviceInfo, DeviceKind, FEATURES, Field, KernelInfo, PARAM_FLAG_PTR, ParamClass, ParamInfo,
    TrapInfo, TrapKind,
};
use abi::{
    AbiError, IMPORTS, Import, LAST_ERROR_BYTES, MAX_ARGV_BYTES, MAX_ARGV_RECORDS,
    MAX_ENTRY_NAME_BYTES, MAX_PTX_BYTES, MODULE, PREFETCH_DEVICE, PREFETCH_HOST, VERSION, ValType,
};

/// `InvalidPointer` as `INVALID_POINTER`.
fn shout(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 && !name[..at].ends_with(char::is_uppercase) {
            out.push('_');
        }
        out.extend(letter.to_uppercase());
    }
    out
}

fn lines(rows: impl IntoIterator<Item = String>) -> String {
    rows.into_iter().fold(String::new(), |mut text, row| {
        writeln!(text, "{row}").unwrap();
        text
    })
}

fn define(name: &str, value: impl Display, comment: &str) -> String {
    format!("#define WASI_CUDA_{name} {value} /* {comment} */")
}

/// A call's pointer as C says it: what it reads, what it writes, and text.
fn c_type(import: &Import, param: &str, ty: ValType) -> &'static str {
    match (ty, param) {
        (ValType::I64, "offset" | "bytes") => "uint64_t ",
        (ValType::I64, _) => "int64_t ",
        (ValType::I32, "dst") => "void *",
        (ValType::I32, "ptr") if import.name == abi::FN_READ => "void *",
        (ValType::I32, "ptr" | "argv") => "const void *",
        (ValType::I32, "ptx" | "entry" | "name") => "const char *",
        (ValType::I32, "side") => "int32_t ",
        (ValType::I32, name) if name == "len" || name.ends_with("_len") => "size_t ",
        (ValType::I32, _) => "uint32_t ",
    }
}

fn imports() -> String {
    let ours = IMPORTS.iter().filter(|import| import.module == MODULE);
    lines(ours.map(|import| {
        let params: Vec<String> = import
            .param_names
            .iter()
            .zip(import.params)
            .map(|(name, &ty)| format!("{}{name}", c_type(import, name, ty)))
            .collect();
        let params = match params.is_empty() {
            true => "void".to_owned(),
            false => params.join(", "),
        };
        let result = match import.result {
            ValType::I32 => "int32_t",
            ValType::I64 => "int64_t",
        };
        let (name, summary) = (import.name, import.summary);
        format!("/* {summary} */\nWASI_CUDA_IMPORT(\"{name}\")\nextern {result} {name}({params});")
    }))
}

fn structure(name: &str, size: usize, fields: &[Field], doc: &str) -> String {
    let mut text = format!("/* {doc} */\ntypedef struct {{\n");
    let mut asserts = String::new();
    for Field {
        offset,
        name: field,
        ty,
        doc,
    } in fields
    {
        // A keyword of C++.
        let field = if *field == "class" {
            "param_class"
        } else {
            field
        };
        let declared = match *ty {
            "u32" => format!("uint32_t {field}"),
            "u64" => format!("uint64_t {field}"),
            "[u32; 3]" => format!("uint32_t {field}[3]"),
            "[u8; 64]" => format!("char {field}[64]"),
            other => panic!("`{other}` has no type in C here"),
        };
        writeln!(text, "    {declared}; /* {doc} */").unwrap();
        writeln!(
            asserts,
            "WASI_CUDA_ASSERT(offsetof({name}, {field}) == {offset}, \"{field} is where the ABI has it\");"
        )
        .unwrap();
    }
    format!(
        "{text}}} {name};\nWASI_CUDA_ASSERT(sizeof({name}) == {size}, \"its size is the ABI's\");\n{asserts}"
    )
}

fn structs() -> String {
    [
        structure(
            "wasi_cuda_device_info_t",
            DeviceInfo::SIZE,
            DeviceInfo::FIELDS,
            "What wasi_cuda_device_info writes.",
        ),
        structure(
            "wasi_cuda_kernel_info_t",
            KernelInfo::SIZE,
            KernelInfo::FIELDS,
            "What wasi_cuda_kernel_info writes first. The parameters begin at byte size - param_count * param_stride.",
        ),
        structure(
            "wasi_cuda_param_info_t",
            ParamInfo::SIZE,
            ParamInfo::FIELDS,
            "One parameter of a kernel.",
        ),
        structure(
            "wasi_cuda_trap_info_t",
            TrapInfo::SIZE,
            TrapInfo::FIELDS,
            "What wasi_cuda_trap_info writes: the last trap of a kernel of this instance.",
        ),
    ]
    .join("\n")
}

fn numbers() -> String {
    let kinds = DeviceKind::ALL.iter().map(|kind| {
        let name = format!("DEVICE_{}", shout(&format!("{kind:?}")));
        define(&name, kind.number(), kind.meaning())
    });
    let features = FEATURES.iter().map(|(mask, name, meaning)| {
        let bit = format!("(UINT64_C(1) << {})", mask.trailing_zeros());
        define(&format!("FEATURE_{name}"), bit, meaning)
    });
    let classes = ParamClass::ALL.iter().map(|class| {
        let name = format!("PARAM_{}", shout(&format!("{class:?}")));
        define(&name, class.number(), class.meaning())
    });
    let flag = define(
        "PARAM_FLAG_PTR",
        format!("{PARAM_FLAG_PTR}u"),
        "the parameter is marked `.ptr`",
    );
    let traps = TrapKind::ALL.iter().map(|kind| {
        let name = format!("TRAP_{}", shout(&format!("{kind:?}")));
        define(&name, kind.number(), kind.meaning())
    });
    let sides = [
        define("PREFETCH_HOST", PREFETCH_HOST, "bring a range to the host"),
        define(
            "PREFETCH_DEVICE",
            PREFETCH_DEVICE,
            "bring a range to the device",
        ),
    ];
    lines(
        kinds
            .chain(features)
            .chain(classes)
            .chain([flag])
            .chain(traps)
            .chain(sides),
    )
}

fn caps() -> String {
    let version = format!("0x{VERSION:08x}");
    lines([
        define(
            "ABI_VERSION",
            version,
            "major << 16 | minor, of this header",
        ),
        define("MAX_ARGV_BYTES", MAX_ARGV_BYTES, "of one launch"),
        define("MAX_ARGV_RECORDS", MAX_ARGV_RECORDS, "of one launch"),
        define("MAX_NAME_BYTES", MAX_ENTRY_NAME_BYTES, "of a kernel's name"),
        define(
            "MAX_PTX_BYTES",
            MAX_PTX_BYTES,
            "of one load; an embedder may allow less",
        ),
        define("LAST_ERROR_BYTES", LAST_ERROR_BYTES, "of a failure's text"),
    ])
}

fn codes() -> String {
    lines(AbiError::ALL.iter().map(|error| {
        let value = format!("({})", error.code());
        define(&shout(error.name()), value, error.meaning())
    }))
}

fn cases<T>(all: &[T], row: impl Fn(&T) -> (String, String)) -> String {
    lines(all.iter().map(|each| {
        let (case, value) = row(each);
        format!("    case WASI_CUDA_{case}: return {value};")
    }))
}

fn render(section: &str) -> String {
    match section {
        "caps" => caps(),
        "code-meanings" => cases(AbiError::ALL, |error| {
            (shout(error.name()), format!("\"{}\"", error.meaning()))
        }),
        "code-names" => cases(AbiError::ALL, |error| {
            (shout(error.name()), format!("\"{}\"", error.name()))
        }),
        "codes" => codes(),
        "imports" => imports(),
        "numbers" => numbers(),
        "structs" => structs(),
        "tags" => lines(Tag::ALL.iter().map(|tag| {
            let name = format!("TAG_{}", shout(tag.name()));
            define(&name, format!("{:#04x}u", tag.byte()), tag.layout())
        })),
        "value-bytes" => cases(Tag::ALL, |tag| {
            let case = format!("TAG_{}", shout(tag.name()));
            (case, tag.fixed_len().to_string())
        }),
        other => panic!("the section `{other}` is not rendered from anything"),
    }
}

#[test]
fn tables_are_those_of_the_abi() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/wasi_cuda.h");
    let found = fs::read_to_string(&path).unwrap();
    let mut rest = found.as_str();
    let (mut expected, mut stale, mut sections) = (String::new(), Vec::new(), 0);
    while let Some((before, after)) = rest.split_once("/* begin: ") {
        let (section, after) = after.split_once(" */\n").expect("a closed mark");
        let end = format!("/* end: {section} */");
        let (present, after) = after.split_once(&end).expect("an end for each begin");
        let rendered = render(section);
        if present != rendered {
            stale.push(section);
        }
        write!(expected, "{before}/* begin: {section} */\n{rendered}{end}").unwrap();
        (rest, sections) = (after, sections + 1);
    }
    expected.push_str(rest);
    assert_eq!(sections, 9, "the header lacks a section");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, expected).unwrap();
    } else {
        assert!(
            stale.is_empty(),
            "stale in wasi_cuda.h, BLESS=1 rewrites it: {stale:?}"
        );
    }
}
