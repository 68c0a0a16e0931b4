//! What the rewriter makes of the corpus is accepted by the verifier.
#![expect(clippy::unwrap_used, reason = "a test without its files fails at once")]

mod fixtures;

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::sample::{Index, select};
use proptest::test_runner::Config;
use wasi_cuda_ptx::{self as ptx, ConfineOptions, Level, WindowForm};

#[test]
fn all_that_the_rewriter_prints_is_accepted() {
    let mut refused = Vec::new();
    let mut accepted = 0;
    let mut files = fixtures::corpus();
    files.extend(fixtures::parse_filetests());
    for path in fixtures::ptx_files(&fixtures::repository("fixtures/kernels")) {
        files.push((path.clone(), std::fs::read(path).unwrap()));
    }
    for (path, source) in files {
        let program = ptx::read(&source).unwrap();
        for level in [Level::Confined, Level::Trapping] {
            for window in [WindowForm::Masked, WindowForm::Whole] {
                for clear_shared in [false, true] {
                    let options = ConfineOptions {
                        level,
                        window,
                        clear_shared,
                    };
                    let Ok(confined) = ptx::confine(&program, options) else {
                        continue;
                    };
                    let text = confined.text.clone();
                    match ptx::verify(confined) {
                        Ok(_) => accepted += 1,
                        Err(error) => {
                            let line = text.lines().nth((error.line as usize).saturating_sub(1));
                            let name = fixtures::name(&path);
                            refused.push(format!(
                                "{name} {options:?}: {error}\n  {}\n",
                                line.unwrap_or("")
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(
        refused.is_empty(),
        "{accepted} accepted, {} not:\n{}",
        refused.len(),
        refused.concat()
    );
}

#[test]
fn a_loop_of_more_labels_than_fuel_pays_instructions_for_is_accepted() {
    let labels: String = (0..1000).map(|number| format!("L{number}:\n")).collect();
    let text = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n{labels}bra L0;\n}}\n"
    );
    let program = ptx::read(text.as_bytes()).unwrap();
    let options = ConfineOptions {
        level: Level::Confined,
        window: WindowForm::Masked,
        clear_shared: false,
    };
    let confined = ptx::confine(&program, options).unwrap();
    assert_eq!(ptx::verify(confined).map(drop), Ok(()));
}

/// Opcode, first operand and operands of a statement without a guard.
fn pieces(line: &str) -> Option<(&str, &str, &str)> {
    let line = line.trim().strip_suffix(';')?;
    let (op, operands) = line.split_once(' ')?;
    let to = operands.split([',', ' ']).next()?;
    (!op.starts_with(['@', '.'])).then_some((op, to, operands))
}

/// Changes of one statement of a confined text that must not pass, whatever the statement is for.
fn changes(lines: &[&str], index: usize) -> Vec<(&'static str, Vec<String>)> {
    let line = lines[index];
    let mut changes = Vec::new();
    let Some((op, to, operands)) = pieces(line) else {
        return changes;
    };
    let is_reserved = to.starts_with("%w") && !to.starts_with("%wx");
    let is_used = |name: &str| {
        let mut words = lines[index + 1..].iter().take_while(|line| **line != "}");
        words.any(|line| {
            let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '%');
            words.any(|word| word == name)
        })
    };
    if is_reserved && is_used(to) {
        changes.push(("left out", vec![]));
        changes.push(("predicated", vec![format!("    @%wx {op} {operands};")]));
        changes.push((
            "written again",
            vec![line.to_owned(), format!("    add.u32 {to}, {to}, 4;")],
        ));
        changes.push(("into a free register", vec![line.replacen(to, "%wx0", 1)]));
        // What a head derives, such as `%wlb`, holds behind labels too.
        let is_numbered = to.ends_with(|last: char| last.is_ascii_digit());
        if is_numbered
            && ["%wa", "%ws", "%wo", "%wl"]
                .iter()
                .any(|kind| to.starts_with(kind) && !to.starts_with("%wsm"))
        {
            changes.push((
                "before a label",
                vec![line.to_owned(), "g7777777:".to_owned()],
            ));
        }
    }
    if op == "min.u32" && is_reserved {
        changes.push(("signed", vec![line.replacen("min.u32", "min.s32", 1)]));
    }
    let is_memory = ["ld.", "st.", "atom.", "red."]
        .iter()
        .any(|word| op.starts_with(word));
    if let (true, Some(start)) = (is_memory && !op.contains(".param"), line.find("[%w")) {
        let end = start + line[start..].find(']').unwrap();
        let base = line[start + 1..end].split('+').next().unwrap();
        for (what, address) in [
            ("elsewhere", "%wx0".to_owned()),
            ("at the window's own address", "%wbase".to_owned()),
            ("far", format!("{base}+1073741824")),
            ("before", format!("{base}+-1073741824")),
            ("at an odd place", format!("{base}+{}", 4097)),
            ("at a number", "4096".to_owned()),
        ] {
            let changed = format!("{}{address}{}", &line[..=start], &line[end..]);
            changes.push((what, vec![changed]));
        }
        for (from, to) in [
            (".global", ".shared"),
            (".shared", ".local"),
            (".local", ".global"),
            (".const", ".global"),
        ] {
            if op.contains(from) {
                changes.push(("in another space", vec![line.replacen(from, to, 1)]));
                break;
            }
        }
    }
    if op == "sub.s32" && to == "%wf" {
        changes.push(("for nothing", vec!["    sub.s32 %wf, %wf, 0;".to_owned()]));
    }
    changes
}

/// How many changed texts are tried: some seconds' worth.
const TRIALS: usize = 4000;

#[test]
fn what_the_rewriter_prints_is_refused_with_a_statement_changed() {
    let mut texts = Vec::new();
    for (number, (path, source)) in fixtures::corpus().into_iter().enumerate() {
        let program = ptx::read(&source).unwrap();
        let level = [Level::Confined, Level::Trapping][number % 2];
        let window = [WindowForm::Masked, WindowForm::Whole][number / 2 % 2];
        let options = ConfineOptions {
            level,
            window,
            clear_shared: false,
        };
        if let Ok(confined) = ptx::confine(&program, options)
            && ptx::verify(confined.clone()).is_ok()
            && confined.text.len() < 100_000
        {
            texts.push((fixtures::name(&path), confined));
        }
    }
    assert!(texts.len() > 40, "{} texts", texts.len());
    let mut accepted = Vec::new();
    let mut kinds = std::collections::BTreeMap::new();
    let mut tried = 0;
    let mut unread = 0;
    let all: usize = texts
        .iter()
        .map(|(_, confined)| {
            let lines: Vec<_> = confined.text.lines().collect();
            (0..lines.len())
                .map(|index| changes(&lines, index).len())
                .sum::<usize>()
        })
        .sum();
    let step = all.div_ceil(TRIALS);
    for (name, confined) in &texts {
        let lines: Vec<_> = confined.text.lines().collect();
        for index in 0..lines.len() {
            for (what, new) in changes(&lines, index) {
                tried += 1;
                if tried % step != 0 {
                    continue;
                }
                let new: Vec<&str> = new.iter().map(String::as_str).collect();
                let text = [&lines[..index], &new, &lines[index + 1..]]
                    .concat()
                    .join("\n");
                let changed = ptx::Confined {
                    text,
                    map: confined.map.clone(),
                };
                *kinds.entry(what).or_insert(0) += 1;
                match ptx::verify(changed).map_err(|error| error.kind) {
                    Ok(_) => {
                        accepted.push(format!("{name}:{}: {what}: {}", index + 1, lines[index]));
                    }
                    Err(ptx::VerifyErrorKind::Unreadable { .. }) => unread += 1,
                    Err(_) => {}
                }
            }
        }
    }
    assert!(kinds.len() >= 12, "{kinds:?}");
    // What the parser refuses shows nothing of the verifier.
    assert!(unread * 10 < TRIALS, "{unread} do not even read back");
    assert!(
        accepted.is_empty(),
        "{kinds:?}\naccepted:\n{}",
        accepted.join("\n")
    );
}

/// Corpus files that are short enough to be tried often.
fn short_texts() -> Vec<String> {
    let files = fixtures::corpus().into_iter();
    let texts = files.map(|(_, source)| String::from_utf8(source).unwrap());
    texts.filter(|text| text.len() < 12_000).collect()
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(512) })]

    // A refusal would be answered with an internal error, for a guest's own text.
    #[test]
    fn whatever_the_rewriter_takes_is_accepted(
        text in select(short_texts()),
        moves in vec((any::<Index>(), any::<Index>(), 0..4_u8), 1..5),
        trapping in any::<bool>(),
        whole in any::<bool>(),
    ) {
        let mut lines: Vec<&str> = text.lines().collect();
        for (from, to, what) in moves {
            let (from, to) = (from.index(lines.len()), to.index(lines.len()));
            match what {
                0 => drop(lines.remove(from)),
                1 => lines.insert(to, lines[from]),
                2 => lines.swap(from, to),
                _ => lines[to] = lines[from],
            }
        }
        let options = ConfineOptions {
            level: if trapping { Level::Trapping } else { Level::Confined },
            window: if whole { WindowForm::Whole } else { WindowForm::Masked },
            clear_shared: false,
        };
        let confined = ptx::read(lines.join("\n").as_bytes());
        if let Ok(confined) = confined.and_then(|program| ptx::confine(&program, options)) {
            let text = confined.text.clone();
            if let Err(error) = ptx::verify(confined) {
                let line = text.lines().nth((error.line as usize).saturating_sub(1));
                panic!("{error}\n{}\n{}", line.unwrap_or(""), lines.join("\n"));
            }
        }
    }
}
