//! What holds for any bytes and for any damage to a good text: see `oracle.rs`.

mod fixtures;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::sample::{Index, select};
use proptest::test_runner::Config;
use wasi_cuda_ptx as ptx;

/// Pieces that PTX is made of, whole and broken.
const PIECES: [&str; 64] = [
    ".version 8.0\n",
    ".target sm_80\n",
    ".address_size 64\n",
    ".visible ",
    ".extern ",
    ".entry ",
    ".func ",
    ".global ",
    ".shared ",
    ".param ",
    ".reg ",
    ".local ",
    ".const ",
    ".align 16 ",
    ".ptr ",
    ".b32 ",
    ".u64 ",
    ".f32 ",
    ".pred ",
    ".v4 ",
    "k",
    "%r1",
    "%r",
    "%p",
    "_",
    "%tid.x",
    "$L",
    "x",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    ",",
    ";",
    ":",
    "+",
    "-",
    "|",
    "!",
    "@",
    "=",
    ".",
    "0",
    "1",
    "0x7f",
    "0f3F800000",
    "1.5",
    "4294967296",
    "18446744073709551616",
    "ld",
    ".shared::cta",
    "bra ",
    "call ",
    ".callprototype ",
    ".branchtargets ",
    ".section ",
    "\"text\"",
    "// comment\n",
    "/*",
    "*/",
];

/// One change to a text.
#[derive(Clone, Debug)]
enum Damage {
    /// Copies some bytes to another place.
    Copy(Index, Index, usize),
    /// Ends the text early.
    Cut(Index),
    /// Puts a piece of PTX in.
    Insert(Index, &'static str),
    /// Takes some bytes out.
    Remove(Index, usize),
    /// Puts another byte in place of one.
    Replace(Index, u8),
}

fn damage() -> impl Strategy<Value = Damage> {
    let piece = select(PIECES.to_vec());
    prop_oneof![
        (any::<Index>(), any::<Index>(), 1_usize..64)
            .prop_map(|(from, to, n)| Damage::Copy(from, to, n)),
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), piece).prop_map(|(at, piece)| Damage::Insert(at, piece)),
        (any::<Index>(), 1_usize..32).prop_map(|(at, n)| Damage::Remove(at, n)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
    ]
}

impl Damage {
    fn apply(&self, text: &mut Vec<u8>) {
        let place = |index: &Index| index.index(text.len() + 1);
        match self {
            Self::Copy(from, to, length) => {
                let (from, to) = (place(from), place(to));
                let bytes: Vec<_> = text.iter().skip(from).take(*length).copied().collect();
                text.splice(to..to, bytes);
            }
            Self::Cut(at) => text.truncate(place(at)),
            Self::Insert(at, piece) => {
                let at = place(at);
                text.splice(at..at, piece.bytes());
            }
            Self::Remove(at, length) => {
                let at = place(at);
                let end = text.len().min(at + length);
                text.drain(at..end);
            }
            Self::Replace(at, byte) => {
                let at = place(at);
                if let Some(old) = text.get_mut(at) {
                    *old = *byte;
                }
            }
        }
    }
}

/// The shorter half of the corpus and the texts of `filetests`.
fn good_texts() -> Vec<Vec<u8>> {
    let mut texts: Vec<_> = fixtures::corpus()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    texts.sort_by_key(Vec::len);
    texts.truncate(38);
    texts.extend(
        fixtures::parse_filetests()
            .into_iter()
            .map(|(_, text)| text),
    );
    texts
}

/// Runs the oracle, whose promises are the property. Either outcome is right.
fn check(source: &[u8]) {
    drop(ptx::oracle::check_program(source));
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(512) })]

    #[test]
    fn any_bytes_end_as_a_tree_or_an_error(source in vec(any::<u8>(), 0..256)) {
        check(&source);
    }

    #[test]
    fn any_pieces_of_ptx_end_as_a_tree_or_an_error(pieces in vec(select(PIECES.to_vec()), 0..64)) {
        let header = ".version 8.0 .target sm_80 .address_size 64 ";
        check(pieces.concat().as_bytes());
        check((header.to_owned() + &pieces.concat()).as_bytes());
        check(format!("{header} .entry e() {{ {} }}", pieces.concat()).as_bytes());
    }

    #[test]
    fn any_damage_ends_as_a_tree_or_an_error(
        (mut text, damages) in (select(good_texts()), vec(damage(), 1..6)),
    ) {
        damages.iter().for_each(|damage| damage.apply(&mut text));
        check(&text);
    }

    #[test]
    fn space_and_comments_change_nothing(
        text in select(good_texts()),
        place in any::<Index>(),
        space in select(vec![" ", "\n", "\t", "\r\n", "/* ; */", "// }\n"]),
    ) {
        let text = String::from_utf8(text).expect("a good text");
        let ends = statement_ends(&text);
        let mut changed = text.clone();
        changed.insert_str(*place.get(&ends), space);
        let tree = ptx::parse(text.as_bytes()).expect("a good text");
        assert!(ptx::parse(changed.as_bytes()).expect("a good text still") == tree);
    }
}

/// Where semicolons stand that are no part of a comment or string.
fn statement_ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.split("//").next().unwrap_or_default();
        if !code.contains(['"', '*']) {
            ends.extend(code.match_indices(';').map(|(index, _)| start + index));
        }
        start += line.len();
    }
    ends
}
