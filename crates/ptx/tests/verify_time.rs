//! The sequences by which a confined text keeps time, BEGIN, GO, HEAD, METER and BACK, are accepted to the letter and nowhere else.
#![expect(clippy::unwrap_used, reason = "a test without its files fails at once")]

mod fixtures;

use fixtures::{confined, confined_texts};
use wasi_cuda_ptx as ptx;

/// Where a sequence lies in the lines of a text.
struct Sequence {
    name: String,
    kind: &'static str,
    text: String,
    first: usize,
    length: usize,
}

/// Every one in the texts of `filetests/verify`.
fn sequences() -> Vec<Sequence> {
    let mut found = Vec::new();
    for (name, text) in confined_texts() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let mut first = at;
            let (kind, length) = if line.trim() == "and.b32 %wu, %wv, 8176;" {
                ("BEGIN", 3)
            } else if line.trim() == "@%wm ld.acquire.sys.global.u32 %wu, [%wstop];" {
                ("GO", 3)
            } else if line.trim() == "min.s32 %wf, %wf, 65536;" {
                // With the labels on either side.
                first -= 1;
                ("HEAD", 3)
            } else if !line.starts_with("    sub.s32 %wf, %wf, ") {
                continue;
            } else if lines[at + 1].contains("%wq") {
                ("BACK", 22)
            } else {
                ("METER", 18)
            };
            found.push(Sequence {
                name: name.clone(),
                kind,
                text: text.clone(),
                first,
                length,
            });
        }
    }
    found
}

impl Sequence {
    fn lines(&self) -> Vec<&str> {
        self.text.lines().collect()
    }

    /// The text with other lines for some of the sequence's.
    fn with(&self, at: usize, removed: usize, new: &[&str]) -> String {
        let lines = self.lines();
        let at = self.first + at;
        [&lines[..at], new, &lines[at + removed..]]
            .concat()
            .join("\n")
            + "\n"
    }

    /// The function that it is in: where the body begins and ends.
    fn function(&self) -> (usize, usize) {
        let lines = self.lines();
        let begin = lines[..self.first].iter().rposition(|line| *line == "{");
        let end = lines[self.first..].iter().position(|line| *line == "}");
        (begin.unwrap(), self.first + end.unwrap())
    }

    fn is_accepted(&self, changed: &str) -> bool {
        ptx::verify(confined(changed, &self.text)).is_ok()
    }
}

/// A line with each of its words of a kind changed, one at a time.
fn each_word(
    line: &str,
    begins: impl Fn(&str) -> bool,
    change: impl Fn(&str) -> Vec<String>,
) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "%_-".contains(c);
    let mut changed = Vec::new();
    let mut start = 0;
    while start < line.len() {
        let rest = &line[start..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        if begins(word) {
            for new in change(word) {
                changed.push(format!("{}{new}{}", &line[..start], &rest[end..]));
            }
        }
        start += end.max(1);
    }
    changed
}

/// What a line of a sequence may not be instead.
fn instead_of(line: &str) -> Vec<String> {
    const REGISTERS: [&str; 16] = [
        "%wf", "%wu", "%wv", "%wtok", "%wk", "%wt", "%wm", "%wn", "%wq", "%wx", "%wctl", "%wstop",
        "%wuntil", "%wone", "%g1", "%g2",
    ];
    let is_number = |word: &str| word.parse::<i64>().is_ok();
    let is_name = |word: &str| word.starts_with(['%', 'g']) && word.len() > 1;
    let mut all = each_word(line, is_name, |word| {
        let others = REGISTERS.iter().filter(|other| **other != word);
        let special = ["%ctaid", "%clock64", "%tid", "%smid"].map(str::to_owned);
        others
            .map(|&other| other.to_owned())
            .chain(special)
            .collect()
    });
    // How much fuel is taken is the one number that may differ.
    if !line.contains("sub.s32 %wf") {
        all.extend(each_word(line, is_number, |word| {
            let number: i64 = word.parse().unwrap();
            [
                number + 1,
                number - 1,
                number + 4,
                -number - 2,
                number << 1 | 1,
            ]
            .into_iter()
            .map(|number| number.to_string())
            .collect()
        }));
    }
    let shown = line.trim_start();
    // The guard the other way, dropped, and given.
    if let Some(rest) = shown.strip_prefix("@!") {
        all.push(format!("    @{rest}"));
    } else if let Some(rest) = shown.strip_prefix('@') {
        all.push(format!("    @!{rest}"));
    }
    match shown
        .strip_prefix('@')
        .and_then(|rest| rest.split_once(' '))
    {
        Some((_, rest)) => all.push(format!("    {rest}")),
        None if !shown.ends_with(':') => all.push(format!("    @%wx {shown}")),
        None => {}
    }
    // Each modifier dropped or another.
    let op_at = if shown.starts_with('@') {
        line.find(' ').and_then(|_| shown.find(' ')).unwrap() + 5
    } else {
        4
    };
    if !shown.ends_with(':') {
        let op = line[op_at..].split([' ', ';']).next().unwrap();
        let parts: Vec<&str> = op.split('.').collect();
        for index in 1..parts.len() {
            let left = [&parts[..index], &parts[index + 1..]].concat().join(".");
            all.push(line.replacen(op, &left, 1));
        }
        for (from, to) in [
            (".and", ".or"),
            (".ge", ".gt"),
            (".ge", ".le"),
            (".lt", ".le"),
            (".lt", ".ge"),
            (".eq", ".ne"),
            (".ne", ".eq"),
            (".s32", ".u32"),
            (".u32", ".s32"),
            (".u64", ".s64"),
            (".volatile", ".relaxed.gpu"),
            (".gpu", ".cta"),
            (".global", ".shared"),
            ("add", "sub"),
            ("sub", "add"),
            ("and.b32", "or.b32"),
            ("exit", "ret"),
        ] {
            if op.contains(from) {
                all.push(line.replacen(op, &op.replacen(from, to, 1), 1));
            }
        }
    }
    // The sense of what the guest asks for.
    for (from, to) in [("0, %g", "0, !%g"), ("0, !%g", "0, %g")] {
        if line.contains("%wq, %wf") && line.contains(from) {
            all.push(line.replacen(from, to, 1));
        }
    }
    all.sort();
    all.dedup();
    all.retain(|changed| changed != line);
    all
}

/// Fails where one of the changed texts is accepted.
fn all_refused(changes: impl Fn(&Sequence) -> Vec<(String, String)>) {
    let mut accepted = String::new();
    let mut tried = std::collections::BTreeMap::new();
    for sequence in sequences() {
        for (what, changed) in changes(&sequence) {
            *tried.entry(sequence.kind).or_insert(0) += 1;
            if sequence.is_accepted(&changed) {
                accepted += &format!("{} in {}: {what}\n", sequence.kind, sequence.name);
            }
        }
    }
    assert_eq!(
        tried.keys().copied().collect::<Vec<_>>(),
        ["BACK", "BEGIN", "GO", "HEAD", "METER"]
    );
    assert!(accepted.is_empty(), "accepted:\n{accepted}");
}

#[test]
fn no_statement_may_be_left_out_or_doubled() {
    all_refused(|sequence| {
        let mut all = Vec::new();
        for at in 0..sequence.length {
            let line = sequence.lines()[sequence.first + at];
            all.push((format!("without `{line}`"), sequence.with(at, 1, &[])));
            all.push((
                format!("twice `{line}`"),
                sequence.with(at, 1, &[line, line]),
            ));
        }
        all
    });
}

#[test]
fn no_statement_may_be_another() {
    all_refused(|sequence| {
        let mut all = Vec::new();
        for at in 0..sequence.length {
            let line = sequence.lines()[sequence.first + at];
            for new in instead_of(line) {
                all.push((
                    format!("`{new}` for `{line}`"),
                    sequence.with(at, 1, &[&new]),
                ));
            }
        }
        all
    });
}

#[test]
fn nothing_may_move_or_stand_between() {
    all_refused(|sequence| {
        let mut all = Vec::new();
        let lines = sequence.lines();
        let lines = &lines[sequence.first..][..sequence.length];
        for at in 1..sequence.length {
            for new in [
                "    mov.u32 %g1, 0;",
                "g999:",
                "wc_L999:",
                "    @%wx bra g998;\ng998:",
                "    exit;",
                "    membar.gl;",
            ] {
                let changed = sequence.with(at, 0, &[new]);
                all.push((format!("`{new}` before `{}`", lines[at]), changed));
            }
            let exchanged = sequence.with(at - 1, 2, &[lines[at], lines[at - 1]]);
            if lines[at] != lines[at - 1] {
                all.push((format!("`{}` a line up", lines[at]), exchanged));
            }
        }
        // The label at every other place.
        if let Some(label) = lines.last().filter(|line| line.ends_with(':')) {
            for at in 0..sequence.length - 1 {
                let moved = [&[*label], &lines[at..sequence.length - 1]].concat();
                let changed = sequence.with(at, sequence.length - at, &moved);
                all.push((format!("`{label}` before `{}`", lines[at]), changed));
            }
            let next = sequence.lines()[sequence.first + sequence.length];
            let changed = sequence.with(sequence.length - 1, 2, &[next, label]);
            all.push((format!("`{label}` behind `{next}`"), changed));
        }
        all
    });
}

#[test]
fn its_label_is_no_target() {
    all_refused(|sequence| {
        let mut all = Vec::new();
        let lines = sequence.lines();
        let label = lines[sequence.first + sequence.length - 1].trim_end_matches(':');
        if sequence.kind == "HEAD" {
            // It is one, of BACK's first branch only.
            let head = lines[sequence.first].trim_end_matches(':');
            let again = format!("    @%wq bra {head};\n");
            let round = format!("    @%wq bra {label};\n");
            for (from, to) in [(&again, &round), (&round, &again)] {
                let changed = sequence.text.replacen(from, to, 1);
                all.push((format!("`{to}` for `{from}`"), changed));
            }
            return all;
        }
        if sequence.kind == "BEGIN" || sequence.kind == "GO" {
            // It has none, and one before it is none either.
            all.push(("a label".to_owned(), sequence.with(0, 0, &["g999:"])));
            all.push((
                "a branch over it".to_owned(),
                sequence.with(sequence.length, 0, &["g999:"]).replacen(
                    lines[sequence.first],
                    &format!("    bra g999;\n{}", lines[sequence.first]),
                    1,
                ),
            ));
            return all;
        }
        let (_, end) = sequence.function();
        let (_, begin) = (0, sequence.first);
        for branch in ["bra", "@%wx bra", "@!%wx bra", "bra.uni"] {
            let line = format!("    {branch} {label};");
            let new = ["    setp.eq.u32 %wx, 0, 0;", &line];
            let before = [&lines[..begin], &new, &lines[begin..]].concat().join("\n") + "\n";
            all.push((format!("`{line}` before it"), before));
            let after = [&lines[..end - 1], &new, &lines[end - 1..]]
                .concat()
                .join("\n")
                + "\n";
            all.push((format!("`{line}` behind it"), after));
        }
        // By a proper branch back, and by a list.
        let back = back(label, label, "65536");
        let after = [&lines[..end - 1], &[&back], &lines[end - 1..]]
            .concat()
            .join("\n")
            + "\n";
        all.push(("a branch back to it".to_owned(), after));
        all
    });
}

/// A branch back to `target`, or by `head` to it, that takes `fuel`.
fn back(target: &str, head: &str, fuel: &str) -> String {
    BACK.replace("{target}", target)
        .replace("{head}", head)
        .replace("{fuel}", fuel)
}

const BACK: &str = "    sub.s32 %wf, %wf, {fuel};\n    \
     setp.ge.s32 %wq, %wf, 0;\n    \
     @%wq bra {target};\n    \
     setp.ge.s32 %wn, %wf, 0;\n    \
     @%wn bra wc_L900;\n    \
     mov.u32 %wk, %clock;\n    \
     sub.u32 %wv, %wk, %wv;\n    \
     setp.lt.u32 %wn, %wv, 33554432;\n    \
     selp.u32 %wv, 0, 33521664, %wn;\n    \
     sub.u32 %wv, %wk, %wv;\n    \
     ld.volatile.global.u32 %wu, [%wstop];\n    \
     mov.u64 %wt, %globaltimer;\n    \
     setp.lt.u64 %wm, %wt, %wuntil;\n    \
     setp.ne.and.u32 %wm, %wu, %wtok, %wm;\n    \
     selp.s32 %wf, 65536, 64, %wn;\n    \
     selp.s32 %wf, %wf, -1, %wm;\n    \
     @!%wm st.volatile.global.u32 [%wctl+8], %wone;\n    \
     @!%wm st.volatile.global.u32 [%wstop], %wtok;\n    \
     @!%wm ld.acquire.sys.global.u32 %wu, [%wstop];\n    \
     setp.ge.s32 %wq, %wf, 0;\n    \
     @%wq bra {head};\nwc_L900:";

/// A loop of `loops` with so many more instructions and labels in it, that takes so much fuel.
fn lengthened(instructions: usize, labels: usize, fuel: &str) -> (String, String) {
    let text = confined_texts().remove("loops").unwrap();
    let loop_of = "g13:\n    mov.u32 %g1, %g1;\n";
    let start = text.find(loop_of).unwrap();
    let end = start + text[start..].find("    ret;\n").unwrap();
    let more = "    mov.u32 %g1, 0;\n".repeat(instructions);
    let labels: String = (0..labels).map(|n| format!("g{}:\n", 2000 + n)).collect();
    let back = back("g13", "wc_L9", fuel);
    let changed = format!(
        "{}g13:\n{more}{labels}{back}\n{}",
        &text[..start],
        &text[end..]
    );
    (changed, text)
}

fn is_accepted((changed, like): (String, String)) -> bool {
    ptx::verify(confined(&changed, &like)).is_ok()
}

#[test]
fn a_loop_takes_fuel_for_every_256_instructions() {
    // BACK itself has 21, and HEAD one.
    assert!(is_accepted(lengthened(256 - 22, 0, "1")));
    assert!(!is_accepted(lengthened(256 - 21, 0, "1")));
    assert!(is_accepted(lengthened(512 - 22, 0, "2")));
    assert!(!is_accepted(lengthened(512 - 21, 0, "2")));
    // A label takes no time.
    assert!(is_accepted(lengthened(256 - 22, 300, "1")));
}

#[test]
fn fuel_is_a_number_from_1_to_65536() {
    for fuel in ["1", "65535", "65536"] {
        assert!(is_accepted(lengthened(1, 0, fuel)), "{fuel}");
    }
    for fuel in [
        "0",
        "-1",
        "65537",
        "4294967295",
        "4294967297",
        "%g1",
        "%wf",
        "%wone",
    ] {
        assert!(!is_accepted(lengthened(1, 0, fuel)), "{fuel}");
    }
    for sequence in sequences()
        .iter()
        .filter(|sequence| sequence.kind == "METER")
    {
        for fuel in ["0", "-1", "65537", "%g1"] {
            let changed = sequence.with(0, 1, &[&format!("    sub.s32 %wf, %wf, {fuel};")]);
            assert!(!sequence.is_accepted(&changed), "{fuel}");
        }
    }
}

/// `loops` with something replaced, which it has to have.
fn changed(from: &str, to: &str) -> (String, String) {
    let text = confined_texts().remove("loops").unwrap();
    assert!(text.contains(from), "{from}");
    (text.replacen(from, to, 1), text)
}

/// The text between two others.
fn between(from: &str, to: &str) -> String {
    let text = confined_texts().remove("loops").unwrap();
    let start = text.find(from).unwrap();
    let end = start + text[start..].find(to).unwrap();
    text[start..end].to_owned()
}

#[test]
fn an_entry_begins_with_begin_and_nothing_else_does() {
    let begin = between(
        "    and.b32 %wu, %wv, 8176;",
        "    mov.u32 %wx1, 0;\nwc_L7:",
    );
    let ask = between("    and.b32 %wu, %wv, 8176;", "    @%wm ld.acquire");
    let go = between("    @%wm ld.acquire", "    mov.u32 %wx1, 0;\nwc_L7:");
    let meter = between("    sub.s32 %wf, %wf, 3;", "    mov.u32 %wx1, 0;\nwc_L8:");
    let leaves =
        format!("{meter}    setp.lt.s32 %wx, %wf, 0;\n    @%wx exit;\n").replace("L4", "L99");
    for (what, to) in [
        ("nothing", ""),
        ("METER", &leaves),
        ("both, METER first", &(leaves.clone() + &begin)),
        ("BEGIN twice", &(ask.clone() + &begin)),
        ("GO twice", &(begin.clone() + &go)),
        ("both twice", &begin.repeat(2)),
        ("GO first", &(go.clone() + &ask)),
        ("a load before", &format!("{HEAD_LOAD}{begin}")),
        ("a load between", &format!("{ask}{HEAD_LOAD}{go}")),
        ("a fence between", &format!("{ask}    membar.gl;\n{go}")),
        ("a barrier between", &format!("{ask}    bar.sync 0;\n{go}")),
        (
            "too much between",
            &format!("{ask}{}{go}", "    mov.u32 %g1, 7;\n".repeat(256)),
        ),
        (
            "BEGIN behind an exit",
            &format!("    setp.eq.u32 %wx, 0, 1;\n    @%wx exit;\n{begin}"),
        ),
    ] {
        assert!(!is_accepted(changed(&begin, to)), "{what}");
    }
    assert!(is_accepted(changed(&begin, &(begin.clone() + &leaves))));
    // What only computes may stand before them, between them and behind them.
    let more = "    mov.u32 %g1, 7;\n";
    let around = format!("{more}{ask}{}{go}{HEAD_LOAD}", more.repeat(200));
    assert!(is_accepted(changed(&begin, &around)));
    // A function that is called begins with METER.
    assert!(!is_accepted(changed(&meter, &begin)));
    assert!(!is_accepted(changed(&meter, "")));
}

/// A load that may stand behind GO.
const HEAD_LOAD: &str = "    ld.global.u32 %wx1, [%wctl+16];\n";

#[test]
fn begin_needs_what_it_reads() {
    for from in [
        "    ld.param.u64 %wctl, [wc_control];\n",
        "    ld.param.u64 %wstop, [wc_stop];\n",
        "    ld.param.u64 %wuntil, [wc_until];\n",
        "    ld.param.u32 %wtok, [wc_token];\n",
        "    mov.u32 %wone, 1;\n",
        "    mov.s32 %wf, 2048;\n",
        "    mov.u32 %wv, %clock;\n",
    ] {
        assert!(!is_accepted(changed(from, "")), "{from}");
        let (text, like) = changed(from, "");
        let behind = text.replacen("    @%wx exit;\n", &format!("    @%wx exit;\n{from}"), 1);
        assert!(!is_accepted((behind, like)), "{from}");
    }
}

#[test]
fn what_a_branch_back_asks_for_is_the_guests_to_read() {
    // Both tests have it.
    let test = |predicate: &str| {
        let (text, like) = changed("", "");
        (
            text.replace(", %wf, 0, !%g2;", &format!(", %wf, 0, {predicate};")),
            like,
        )
    };
    for predicate in ["%g2", "!%g3", "%wx2"] {
        let (text, like) = test(predicate);
        let declared = ".reg .pred %wx2;\n    .reg .pred %wx;\n";
        let text = text.replacen(".reg .pred %wx;\n", declared, 1);
        let text = text.replacen("g10:\n", "g10:\n    setp.eq.u32 %wx2, %g1, 7;\n", 1);
        assert!(is_accepted((text, like)), "{predicate}");
    }
    for predicate in [
        "%wm", "!%wn", "%wq", "!%wq", "%wx", "%g99", "%wstop", "%wt", "1",
    ] {
        assert!(!is_accepted(test(predicate)), "{predicate}");
    }
}

#[test]
fn nothing_is_left_of_a_branch_back() {
    // Neither a call nor a branch goes by what it set.
    let call =
        "    @%wq call g2, (%wbase, %wctl, %wstop, %wuntil, %wglob, %wmask, %wlocal, %wnext);\n";
    for new in [
        call.to_owned(),
        format!("    setp.ge.s32 %wq, %wf, 0;\n{call}"),
        "    setp.ge.s32 %wq, %wf, 0;\n    @%wq bra g10;\n".to_owned(),
        "    @%wq bra g10;\n".to_owned(),
        "    @!%wq mov.u32 %g1, 0;\n".to_owned(),
        "    nanosleep.u32 1;\n".to_owned(),
        "    bra g10;\n".to_owned(),
    ] {
        assert!(
            !is_accepted(changed("wc_L3:\n", &format!("wc_L3:\n{new}"))),
            "{new}"
        );
    }
}

#[test]
fn registers_of_the_sequences_have_the_types_that_they_work_with() {
    for (declared, others) in [
        (".reg .s32 %wf;", ["f32", "b64", "pred"]),
        (".reg .u32 %wu;", ["f32", "b16", "u64"]),
        (".reg .u32 %wk;", ["f32", "b16", "u64"]),
        (".reg .u32 %wv;", ["f32", "b16", "u64"]),
        (".reg .u64 %wt;", ["f64", "u16", "u32"]),
        (".reg .pred %wm;", ["b32", "u16", "u64"]),
    ] {
        for other in others {
            let name = declared.rsplit(' ').next().unwrap();
            let wrong = format!(".reg .{other} {name}");
            assert!(!is_accepted(changed(declared, &wrong)), "{wrong}");
        }
    }
}
