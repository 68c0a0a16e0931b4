//! Confined texts written by hand, as `docs/confinement.md` has them, and verified: one entry, `k` to its guest. Nothing here knows
//! how a guest's text becomes one.

use std::fmt::Write;

use ptx::{
    Admitted, Confined, ConfinedEntry, ConfinedMap, Globals, Signature, Site, SiteKind, Validated,
    WindowForm,
};

/// Line of the entry in the guest's text, which is not there.
pub(crate) const ENTRY_LINE: u32 = 5;

/// What makes a window's address of the 32-bit register `x`, aligned to 4 bytes, in `%wa` with the number `n`.
pub(crate) fn address(form: WindowForm, n: u32, x: &str) -> String {
    match form {
        WindowForm::Masked => format!(
            "and.b32 %wl{n}, {x}, %wm4; cvt.u64.u32 %wz{n}, %wl{n}; add.u64 %wa{n}, %wbase, %wz{n};"
        ),
        WindowForm::Whole => {
            format!("and.b32 %wl{n}, {x}, -4; mov.b64 %wa{n}, {{%wl{n}, %whi}};")
        }
    }
}

/// How every entry begins.
const BEGIN: &str = "and.b32 %wu, %wv, 8176; setp.eq.u32 %wm, %wu, 0; ld.global.u32 %wu, [%wstop]; \
    @%wm ld.acquire.sys.global.u32 %wu, [%wstop]; setp.eq.u32 %wx, %wu, %wtok; @%wx exit;";

/// Where a loop begins that [`back`] goes round to.
fn start(n: u32) -> String {
    format!("wc_L{n}0: min.s32 %wf, %wf, 65536; g{n}0:")
}

/// Goes back to a [`start`] for so much fuel, and looks at the clock where it is not left; `n` makes a label.
fn back(n: u32, fuel: u32, to: u32) -> String {
    let go = |to| format!("setp.ge.s32 %wq, %wf, 0; @%wq bra {to};");
    let (round, again) = (go(format!("g{to}0")), go(format!("wc_L{to}0")));
    format!(
        "sub.s32 %wf, %wf, {fuel}; {round} setp.ge.s32 %wn, %wf, 0; @%wn bra wc_L{n}; mov.u32 %wk, %clock; \
         sub.u32 %wv, %wk, %wv; setp.lt.u32 %wn, %wv, 33554432; selp.u32 %wv, 0, 33521664, %wn; sub.u32 %wv, %wk, %wv; ld.volatile.global.u32 %wu, [%wstop]; \
         mov.u64 %wt, %globaltimer; setp.lt.u64 %wm, %wt, %wuntil; setp.ne.and.u32 %wm, %wu, %wtok, %wm; selp.s32 %wf, 65536, 64, %wn; \
         selp.s32 %wf, %wf, -1, %wm; @!%wm st.volatile.global.u32 [%wctl+8], %wone; @!%wm st.volatile.global.u32 [%wstop], %wtok; @!%wm ld.acquire.sys.global.u32 %wu, [%wstop]; {again} wc_L{n}:"
    )
}

/// Reports site `site` with the address in the 64-bit register `address`, where nobody has yet, and ends the thread.
pub(crate) fn report(site: u32, address: &str) -> String {
    let mut text = format!(
        "atom.global.cas.b32 %wx1, [%wctl+16], 0, 1; setp.ne.u32 %wx2, %wx1, 0; @%wx2 exit; \
         st.global.u32 [%wctl+20], {site}; st.global.u64 [%wctl+24], {address};"
    );
    for (at, special) in [(32, "ctaid"), (44, "tid")] {
        for (step, axis) in [(0, 'x'), (4, 'y'), (8, 'z')] {
            let at = at + step;
            write!(
                text,
                "mov.u32 %wx1, %{special}.{axis}; st.global.u32 [%wctl+{at}], %wx1;"
            )
            .unwrap();
        }
    }
    text + "exit;"
}

/// A confined program of one entry.
pub(crate) struct Text<'a> {
    /// What the guest calls the entry, and what is printed.
    pub(crate) names: [&'a str; 2],
    /// Parameters of the guest, `.u64` and so on: `g0` and so on. Their values are loaded into `%g0` and so on.
    pub(crate) parameters: &'a [&'a str],
    /// Registers beside those, in declarations.
    pub(crate) registers: &'a str,
    /// What the entry does behind its head.
    pub(crate) body: String,
    pub(crate) sites: &'a [Site],
    pub(crate) globals: Globals,
    /// Lines of the guest's text, by what is in the lines made from them.
    pub(crate) lines: &'a [(&'a str, u32)],
}

impl Default for Text<'_> {
    fn default() -> Self {
        Self {
            names: ["k", "g90"],
            parameters: &[],
            registers: "",
            body: String::new(),
            sites: &[],
            globals: Globals::default(),
            lines: &[],
        }
    }
}

impl Text<'_> {
    /// As it is printed.
    fn text(&self) -> String {
        let (mut declared, mut loaded, mut registers) =
            (String::new(), String::new(), String::new());
        for (number, ty) in self.parameters.iter().enumerate() {
            write!(declared, ".param {ty} g{number}, ").unwrap();
            write!(registers, ".reg {ty} %g{number};").unwrap();
            write!(loaded, "ld.param{ty} %g{number}, [g{number}];").unwrap();
        }
        for number in 1..4 {
            write!(
                registers,
                ".reg .b32 %wl{number}; .reg .b64 %wz{number}, %wa{number};"
            )
            .unwrap();
        }
        let (body, more, [_, printed]) = (&self.body, self.registers, self.names);
        let text = format!(
            ".version 8.0 .target sm_80 .address_size 64 .visible .entry {printed}({declared}.param .u64 wc_base, \
             .param .u64 wc_control, .param .u64 wc_stop, .param .u64 wc_until, .param .u32 wc_globals, .param .u32 wc_mask, .param .u32 wc_first, .param .u32 wc_span, .param .u32 wc_token) {{ \
             .reg .b64 %wbase, %wctl, %wstop, %wuntil, %wt; .reg .u32 %wu, %wk, %wv, %wtok; .reg .b32 %wglob, %wmask, %wm4, %wlow, %whi, %wone, %wx1; .reg .s32 %wf; \
             .reg .pred %wn, %wm, %wq, %wx, %wx2; {registers} {more} \
             ld.param.u64 %wbase, [wc_base]; ld.param.u64 %wctl, [wc_control]; ld.param.u64 %wstop, [wc_stop]; ld.param.u64 %wuntil, [wc_until]; ld.param.u32 %wtok, [wc_token]; ld.param.u32 %wglob, [wc_globals]; \
             ld.param.u32 %wmask, [wc_mask]; and.b32 %wm4, %wmask, -4; mov.b64 {{%wlow, %whi}}, %wbase; \
             mov.u32 %wone, 1; mov.s32 %wf, 2048; mov.u32 %wv, %clock; {BEGIN} {loaded} {body} }}"
        );
        let module = ptx::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        ptx::print(&module)
    }

    /// As it is verified.
    pub(crate) fn admitted(&self) -> Admitted {
        let text = self.text();
        let program = ptx::read(text.as_bytes()).unwrap();
        let lines = text.lines().map(|line| {
            let known = self.lines.iter().find(|(part, _)| line.contains(part));
            known.map_or(0, |&(_, line)| line)
        });
        let map = ConfinedMap {
            entries: vec![self.entry(&program)],
            sites: self.sites.to_vec(),
            globals: self.globals.clone(),
            lines: lines.collect(),
        };
        match ptx::verify(Confined { text, map }) {
            Ok(verified) => Admitted::confined(verified),
            Err(error) => panic!("{error}\n{}", self.text()),
        }
    }

    /// The entry as its guest declared it: under another name, without the hidden parameters.
    fn entry(&self, program: &Validated) -> ConfinedEntry {
        let [name, printed] = self.names;
        let printed = program.entry(printed).unwrap();
        let mut parameters = printed.parameters.clone();
        parameters.truncate(parameters.len() - 9);
        let size = parameters.last().map_or(0, |last| last.offset + last.size);
        ConfinedEntry {
            signature: Signature {
                entry: name.into(),
                parameters,
                size,
                line: ENTRY_LINE,
                ..printed.clone()
            },
            printed: printed.entry.clone(),
            shared_before_dynamic: 0,
        }
    }
}

/// Stores a word at an address of which only the low half counts.
pub(crate) fn store(form: WindowForm) -> Text<'static> {
    let address = address(form, 1, "%g2");
    Text {
        names: ["store", "g91"],
        parameters: &[".u64", ".u32"],
        registers: ".reg .b32 %g2;",
        body: format!("cvt.u32.u64 %g2, %g0; {address} st.global.u32 [%wa1], %g1; ret;"),
        ..Text::default()
    }
}

/// Goes round until its time is up, at which it looks every other time, and then stores a word at offset 64.
pub(crate) fn endless() -> Text<'static> {
    let (start, back) = (start(5), back(1, 65_536, 5));
    let at = address(WindowForm::Masked, 1, "%g2");
    Text {
        names: ["endless", "g92"],
        registers: ".reg .b32 %g2;",
        body: format!("{start} {back} mov.u32 %g2, 64; {at} st.global.u32 [%wa1], %g2; ret;"),
        ..Text::default()
    }
}

/// Reports a site and an address in the last thread of a block in the middle of a grid of (3, 2) blocks of (32, 2) threads.
pub(crate) fn reporting(site: u32) -> Text<'static> {
    const SITES: &[Site] = &[
        Site {
            kind: SiteKind::GlobalAccess,
            line: 31,
            bytes: 8,
        },
        Site {
            kind: SiteKind::Trap,
            line: 32,
            bytes: 0,
        },
    ];
    let report = report(site, "%g0");
    Text {
        names: ["report", "g93"],
        parameters: &[".u64"],
        registers: ".reg .b32 %g2; .reg .pred %g3;",
        body: format!(
            "mov.u32 %g2, %ctaid.x; setp.ne.u32 %g3, %g2, 1; @%g3 exit; mov.u32 %g2, %ctaid.y; setp.ne.u32 %g3, %g2, 1; \
             @%g3 exit; mov.u32 %g2, %tid.x; setp.ne.u32 %g3, %g2, 31; @%g3 exit; mov.u32 %g2, %tid.y; setp.ne.u32 %g3, %g2, 1; \
             @%g3 exit; {report}"
        ),
        sites: SITES,
        ..Text::default()
    }
}
