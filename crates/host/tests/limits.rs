//! The defaults in `docs/abi.md` are those of `Limits`.

use std::time::Duration;

use wasi_cuda::Limits;

const ABI: &str = include_str!("../../../docs/abi.md");

/// A count as the document writes it: `4,096`.
fn count(mut number: u64) -> String {
    let mut groups = Vec::new();
    while number >= 1000 {
        groups.push(format!("{:03}", number % 1000));
        number /= 1000;
    }
    groups.push(number.to_string());
    groups.reverse();
    groups.join(",")
}

/// A size as the document writes it: `8 MiB`.
fn size(bytes: u64) -> String {
    let (unit, name) = if bytes.is_multiple_of(1 << 30) {
        (1 << 30, "GiB")
    } else {
        (1 << 20, "MiB")
    };
    assert!(
        bytes.is_multiple_of(unit),
        "{bytes} is no whole number of {name}"
    );
    format!("{} {name}", bytes / unit)
}

fn optional<T>(limit: Option<T>, text: impl FnOnce(T) -> String) -> String {
    limit.map_or_else(|| "none".into(), text)
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let Limits {
        kernels,
        ptx_bytes,
        ptx_bytes_total,
        buffers,
        buffer_bytes,
        buffer_bytes_total,
        loads,
        launches,
        blocks,
        deadline,
        budget,
    } = Limits::default();
    let seconds = |deadline: Duration| format!("{} s", deadline.as_secs());
    let rows = [
        ("kernels loaded at once", count(kernels), -6),
        ("PTX bytes of one load", size(ptx_bytes), -6),
        (
            "PTX bytes of all kernels loaded at once",
            size(ptx_bytes_total),
            -6,
        ),
        ("buffers at once", count(buffers), -6),
        ("bytes of one buffer", size(buffer_bytes), -6),
        (
            "bytes of all buffers and module variables at once",
            size(buffer_bytes_total),
            -6,
        ),
        ("loads under way at once", count(loads), -6),
        ("launches in flight", count(launches), -6),
        (
            "blocks of a grid, the product of its axes",
            count(blocks),
            -8,
        ),
        ("time of a kernel", optional(deadline, seconds), -14),
        (
            "instructions of a kernel, on devices that count them",
            optional(budget, count),
            -14,
        ),
    ];
    for (what, default, code) in rows {
        let row = format!("| {what} | {default} | {code} |");
        assert!(
            ABI.lines().any(|line| line == row),
            "docs/abi.md has no row {row}"
        );
    }
}
