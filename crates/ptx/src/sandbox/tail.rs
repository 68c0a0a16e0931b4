//! What stands behind the last statement: where threads go that return, and where those that have something to report end.

use super::emit::Emitter;
use super::head::NO_SITE;
use super::names::Step;
use super::text::{put, put_in};

impl Emitter<'_, '_> {
    /// What stands behind the last statement.
    pub(super) fn tails(&mut self) {
        let last = if self.code.is_entry() { "exit" } else { "ret" };
        if self.used.strays {
            let end = self.label();
            if let Some(label) = self.tails.exit {
                let ret = self.tails.ret.unwrap_or_else(|| self.label());
                self.tails.ret = Some(ret);
                put_in!(self.body, "bra wc_L{ret};");
                put!(self.body, "wc_L{label}:");
                let (flag, record) = (self.used.flag(), self.record_label());
                put_in!(self.body, "setp.ne.u32 %wxp{flag}, %wxsite, {NO_SITE};");
                put_in!(self.body, "@%wxp{flag} bra wc_L{record};");
                put_in!(self.body, "exit;");
            }
            if let Some(label) = self.tails.ret {
                put!(self.body, "wc_L{label}:");
            }
            let flag = self.used.flag();
            put_in!(self.body, "setp.eq.u32 %wxp{flag}, %wxsite, {NO_SITE};");
            put_in!(self.body, "@%wxp{flag} bra wc_L{end};");
            let record = self.record_label();
            self.record(record);
            put!(self.body, "wc_L{end}:");
            put_in!(self.body, "{last};");
            return;
        }
        if let Some(label) = self.tails.ret {
            put!(self.body, "wc_L{label}:");
        }
        if self.tails.ret.is_some() || self.falls_off() {
            put_in!(self.body, "{last};");
        }
        if let Some(label) = self.tails.exit {
            put!(self.body, "wc_L{label}:");
            put_in!(self.body, "exit;");
        }
        if let Some(record) = self.tails.record {
            self.record(record);
        }
    }

    /// Whether what is written of the statements does not end the function.
    fn falls_off(&self) -> bool {
        match self.code.statements.last() {
            Some(Step::Instruction(last)) => {
                self.is_trapping() || last.guard.is_some() || !matches!(last.opcode, "exit" | "ret")
            }
            _ => true,
        }
    }

    /// Claims the record, fills it and ends the thread.
    fn record(&mut self, label: u32) {
        self.used.reports = true;
        let (state, flag) = (self.used.word(), self.used.flag());
        put!(self.body, "wc_L{label}:");
        put_in!(
            self.body,
            "atom.global.cas.b32 %wx{state}, [%wctl+16], 0, 1;"
        );
        put_in!(self.body, "setp.ne.u32 %wxp{flag}, %wx{state}, 0;");
        put_in!(self.body, "@%wxp{flag} exit;");
        put_in!(self.body, "st.global.u32 [%wctl+20], %wxsite;");
        let address = self.used.double();
        put_in!(self.body, "cvt.u64.u32 %wxd{address}, %wxaddr;");
        put_in!(self.body, "st.global.u64 [%wctl+24], %wxd{address};");
        for (register, at) in [("ctaid", 32), ("tid", 44)] {
            for (axis, more) in [("x", 0), ("y", 4), ("z", 8)] {
                let word = self.used.word();
                put_in!(self.body, "mov.u32 %wx{word}, %{register}.{axis};");
                put_in!(self.body, "st.global.u32 [%wctl+{}], %wx{word};", at + more);
            }
        }
        put_in!(self.body, "exit;");
    }
}
