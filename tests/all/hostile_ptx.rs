//! Hostile text: whatever bytes a guest loads, it gets a kernel or a code with a text that is fit for a guest, and in time.

use std::time::{Duration, Instant};

use abi::AbiError;
use host::Limits;
use wasmtime::Val;

use crate::fuzz_calls::Random;
use crate::harness::{
    Harness, KIT, NAME_AT, PTX_AT, Setup, Shape, VECADD, assert_all_usable, name, pages_for_text,
};

const HEADER: &str = ".version 7.8\n.target sm_80\n.address_size 64\n";

/// A guest with memory for texts as long as they may be.
fn roomy() -> Harness {
    let pages = pages_for_text(abi::MAX_PTX_BYTES + 1);
    Harness::new(&Setup {
        pages,
        ..Setup::default()
    })
}

#[track_caller]
fn assert_malformed(guest: &mut Harness, ptx: &[u8], says: &str) {
    let answer = guest.load_bytes(ptx, b"k_empty");
    let text = guest.last_error();
    assert_eq!(name(answer), "MalformedPtx", "{text}");
    assert!(text.contains(says), "{text}");
}

/// Text that is damaged is malformed or, where the damage reads like something that is refused, refused.
#[track_caller]
fn assert_unreadable(guest: &Harness, answer: i64, what: &str) {
    let (code, said) = (name(answer), guest.last_text());
    let says_what = match code.as_str() {
        "MalformedPtx" => said.contains("line ") || said.starts_with("no "),
        "UnsupportedPtx" => said.contains("line "),
        _ => false,
    };
    assert!(says_what, "{what}: {code}: {said}");
}

#[test]
fn nul_bytes_at_the_end_of_a_text_are_ignored() {
    let mut guest = Harness::cpu();
    for nuls in [1, 8, 4096] {
        let text = [KIT.as_bytes(), &vec![0; nuls]].concat();
        let kernel = guest.load_bytes(&text, b"k_empty");
        assert!(kernel > 0, "{}", guest.last_text());
        assert_eq!(guest.launch(kernel, Shape::ONE, &[]), 0);
    }
}

#[test]
fn what_holds_no_text_is_malformed() {
    let mut guest = Harness::cpu();
    for nothing in [&b""[..], b"\0", &[0; 5000]] {
        assert_malformed(&mut guest, nothing, "no PTX text");
    }
    for nothing in [&b"   \n\t\n"[..], b"// only a comment"] {
        assert_malformed(
            &mut guest,
            nothing,
            "expected `.version`, found the end of the text",
        );
    }
    let (half, nul) = (KIT.len() / 2, "\0");
    let interior = [&KIT[..half], nul, &KIT[half..]].concat();
    assert_malformed(&mut guest, interior.as_bytes(), "byte 0x00 is not text");
    for binary in [
        &b"\x7fELF\x02\x01\x01"[..],
        b"\xff\xfe\xfd",
        b"\x1b[31m",
        "\u{202e}".as_bytes(),
    ] {
        assert_malformed(&mut guest, binary, "line 1, column ");
    }
    assert_all_usable(&mut guest);
}

#[test]
fn a_text_that_ends_early_is_malformed_wherever_it_ends() {
    let mut guest = Harness::cpu();
    for text in [KIT, VECADD] {
        let last = text.rfind('}').unwrap();
        for end in (0..=last).step_by(61).chain([last]) {
            let answer = guest.load_bytes(&text.as_bytes()[..end], b"no_such_entry");
            assert_unreadable(&guest, answer, &format!("{end} bytes"));
        }
    }
    assert_all_usable(&mut guest);
}

#[test]
fn random_bytes_are_malformed() {
    let mut guest = Harness::cpu();
    let mut random = Random::new(0x7074_7821);
    for _ in 0..300 {
        let bytes: Vec<u8> = (0..random.below(300)).map(|_| random.byte()).collect();
        let answer = guest.load_bytes(&bytes, b"k");
        assert_eq!(
            name(answer),
            "MalformedPtx",
            "{bytes:?}: {}",
            guest.last_text()
        );
    }
    assert_all_usable(&mut guest);
}

#[test]
fn a_changed_byte_gives_a_kernel_or_a_code() {
    let mut guest = Harness::cpu();
    let mut random = Random::new(0x6269_7421);
    for _ in 0..600 {
        let mut text = KIT.as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let at = random.index(text.len());
            text[at] = random.byte();
        }
        let answer = guest.load_bytes(&text, b"k_store");
        if answer > 0 {
            assert_eq!(guest.call(abi::FN_UNLOAD, &[Val::I64(answer)]), 0);
        } else {
            assert_unreadable(&guest, answer, "changed");
        }
    }
    assert_all_usable(&mut guest);
}

#[test]
fn texts_of_the_longest_length_are_read_in_time() {
    let mut guest = roomy();
    let fill = |unit: &str| unit.repeat((abi::MAX_PTX_BYTES - 100) / unit.len());
    let entry = ".visible .entry k_empty() { ";
    let texts = [
        fill("("),
        fill("{"),
        fill(";"),
        fill("a "),
        format!("/*{}", fill("x")),
        format!("\"{}", fill("x")),
        format!("{entry}{}", fill("{").split_at(1_000_000).0),
        format!("{entry}{}", fill("ret; ").split_at(8_000_000).0),
        format!("{entry}{}", fill("L: ").split_at(8_000_000).0),
        format!("{entry}mov.u32 {}", fill("{").split_at(8_000_000).0),
        format!(".global .u32 a[1] = {}", fill("{").split_at(8_000_000).0),
        format!(".global .u32 a{}", fill("[1]").split_at(8_000_000).0),
        fill(".file 1 \"x\" "),
    ];
    for text in texts {
        let start = Instant::now();
        let answer = guest.load(&format!("{HEADER}{text}"), "k_empty");
        let took = start.elapsed();
        assert_unreadable(&guest, answer, &text[..20]);
        // 8 MiB take a tenth of a second; the rest is room for a busy machine.
        assert!(
            took < Duration::from_secs(5),
            "{took:?}: {}",
            guest.last_text()
        );
    }
    let padded = format!("{KIT}{}", " ".repeat(abi::MAX_PTX_BYTES - KIT.len()));
    guest.kernel(&padded, "k_empty");
    assert_all_usable(&mut guest);
}

#[test]
fn a_text_over_the_cap_is_refused_before_it_is_read() {
    let mut guest = roomy();
    let name = guest.put(NAME_AT, b"k_empty");
    let over = u32::try_from(abi::MAX_PTX_BYTES).unwrap() + 1;
    guest.put(PTX_AT, KIT.as_bytes());
    let answer = guest.load_at(abi::MODULE, (PTX_AT, over), name);
    let text = "bytes of PTX: 8388609 given, the limit is 8388608";
    guest.assert_refused(answer, AbiError::QuotaExceeded, text);
    assert_eq!(guest.cuda().metrics().loads, 0);

    let limits = Limits {
        ptx_bytes: 1000,
        ..Limits::default()
    };
    let mut small = Harness::new(&Setup {
        limits,
        ..Setup::default()
    });
    let answer = small.load(KIT, "k_empty");
    let text = format!("bytes of PTX: {} given, the limit is 1000", KIT.len());
    small.assert_refused(answer, AbiError::QuotaExceeded, &text);
    assert_all_usable(&mut guest);
}

#[test]
fn a_name_that_no_entry_can_have_is_not_found() {
    let mut guest = Harness::cpu();
    for entry in [
        "k_\0store",
        "k_store\0",
        "a.b",
        "$weird_%x",
        "",
        " k_store",
        "k_store\n",
        "\u{1b}[31m",
        "ключ",
    ] {
        let answer = guest.load(KIT, entry);
        let text = guest.last_error();
        assert_eq!(name(answer), "MalformedPtx", "{text}");
        assert!(text.starts_with("no entry `"), "{text}");
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text:?}"
        );
    }
    for entry in [&b"\xff"[..], b"k_\xc3", b"\xed\xa0\x80"] {
        let answer = guest.load_bytes(KIT.as_bytes(), entry);
        guest.assert_refused(answer, AbiError::InvalidArgs, "an entry name is not UTF-8");
    }
    assert_all_usable(&mut guest);
}

#[test]
fn names_are_as_long_as_the_cap() {
    let mut guest = Harness::cpu();
    for (len, code) in [
        (256, None),
        (257, Some("QuotaExceeded")),
        (512, Some("QuotaExceeded")),
    ] {
        let entry = "k".repeat(len);
        let answer = guest.load(
            &format!("{HEADER}.visible .entry {entry}() {{ ret; }}"),
            &entry,
        );
        match code {
            None => assert_eq!(guest.launch(answer, Shape::ONE, &[]), 0),
            Some(code) => assert_eq!(name(answer), code, "{}", guest.last_text()),
        }
    }
    // Names in the text may be longer; texts about them stay short.
    let entry = "k".repeat(4000);
    let text = format!("{HEADER}.visible .entry {entry}() {{ ret; }}");
    assert_malformed(&mut guest, text.as_bytes(), "no entry `k_empty`");
    assert_malformed(
        &mut guest,
        format!("{HEADER}.visible .entry a.b() {{ ret; }}").as_bytes(),
        "line 4",
    );
    let weird = guest.load(
        &format!("{HEADER}.visible .entry $weird_x() {{ ret; }}"),
        "$weird_x",
    );
    assert_eq!(
        guest.launch(weird, Shape::ONE, &[]),
        0,
        "{}",
        guest.last_text()
    );
}

#[test]
fn one_unknown_instruction_gives_one_message_with_its_line() {
    let mut guest = Harness::cpu();
    let body = "{\n .reg .b32 %r<4>;\n mov.u32 %r1, 1;\n frobnicate.u32 %r2, %r1;\n ret;\n}";
    let answer = guest.load(&format!("{HEADER}.visible .entry k() {body}"), "k");
    let text = guest.last_error();
    assert_eq!(name(answer), "UnsupportedPtx", "{text}");
    assert!(
        text.starts_with("line 7") && text.contains("frobnicate"),
        "{text}"
    );
    assert_all_usable(&mut guest);
}

#[test]
fn module_variables_count_against_the_memory_of_the_instance() {
    let limits = Limits {
        buffer_bytes_total: 1 << 20,
        ..Limits::default()
    };
    let mut guest = Harness::new(&Setup {
        limits,
        ..Setup::default()
    });
    let module = |bytes: u64| {
        format!("{HEADER}.global .align 8 .b8 big[{bytes}];\n.visible .entry k() {{ ret; }}")
    };
    for bytes in [(1 << 32) + 1, 1 << 40, u64::MAX] {
        let answer = guest.load(&module(bytes), "k");
        guest.knows(&[bytes]);
        let text = guest.last_error();
        assert_eq!(name(answer), "UnsupportedPtx", "{bytes}: {text}");
    }
    for bytes in [(1 << 20) + 1, 1 << 30, 1 << 32] {
        let answer = guest.load(&module(bytes), "k");
        let text = format!(
            "bytes of device buffers and module variables: {bytes} given, the limit is 1048576"
        );
        guest.assert_refused(answer, AbiError::QuotaExceeded, &text);
    }
    let alloc = |guest: &mut Harness| guest.call(abi::FN_ALLOC, &[Val::I64(1)]);
    let kernels = [(); 2].map(|()| guest.kernel(&module(1 << 20), "k"));
    assert_eq!(
        name(alloc(&mut guest)),
        "QuotaExceeded",
        "both kernels share one module"
    );
    assert_eq!(guest.cuda().metrics().buffer_bytes, 1 << 20);
    for kernel in kernels {
        assert_eq!(
            guest.launch(kernel, Shape::ONE, &[]),
            0,
            "{}",
            guest.last_text()
        );
        assert_eq!(guest.call(abi::FN_UNLOAD, &[Val::I64(kernel)]), 0);
    }
    assert!(alloc(&mut guest) > 0);
    assert_all_usable(&mut guest);
}

#[test]
fn padding_between_module_variables_counts_too() {
    let limits = Limits {
        buffer_bytes_total: 16 << 20,
        ..Limits::default()
    };
    let mut guest = Harness::new(&Setup {
        limits,
        ..Setup::default()
    });
    let aligned: String = (0..10)
        .map(|n| format!(".global .align 2097152 .b8 a{n};\n"))
        .collect();
    let answer = guest.load(
        &format!("{HEADER}{aligned}.visible .entry k() {{ ret; }}"),
        "k",
    );
    let given = 9 * (2 << 20) + 1;
    let text = format!(
        "bytes of device buffers and module variables: {given} given, the limit is 16777216"
    );
    guest.assert_refused(answer, AbiError::QuotaExceeded, &text);
}
