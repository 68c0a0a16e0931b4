//! How much stack a thread of a confined entry may need, where the driver cannot tell: its compiler adds the frames of calls up, but
//! not those of a function that may call itself. A stack that is too small is a fault, and a fault ends CUDA for the process.

use std::collections::{BTreeMap, BTreeSet};

use ptx::ast::{Function, FunctionKind, Module, Operand, Space, Statement, Symbol};

use crate::error::Error;

/// Stack of a thread at most. The device sets as much aside for every thread that it can run: 32 KiB are 8.5 GiB on an H200.
const MOST_BYTES: u64 = 32 << 10;

/// Bytes of a frame beside its function's values: the return address, and what aligns it.
const LINK_BYTES: u64 = 64;

/// Bytes of stack for an entry of which the driver says that it takes `entry_bytes`, and whose calls nest `call_depth` deep at most.
pub(super) fn stack_bytes(module: &Module, call_depth: u32, entry_bytes: u32) -> u64 {
    if call_depth == 0 || !may_recur(module) {
        return entry_bytes.into();
    }
    let functions = bodies(module).filter(|(function, _)| function.kind == FunctionKind::Device);
    let frames = functions.map(|(_, statements)| frame_bytes(statements));
    let frame = frames.max().unwrap_or(0);
    u64::from(call_depth)
        .saturating_mul(frame)
        .saturating_add(entry_bytes.into())
}

/// Refuses an entry that needs more stack than there may be.
pub(super) fn checked(bytes: u64, entry: &str, line: u32, call_depth: u32) -> Result<u32, Error> {
    let fits = u32::try_from(bytes)
        .ok()
        .filter(|&bytes| u64::from(bytes) <= MOST_BYTES);
    fits.ok_or_else(|| Error::Unsupported {
        device: "cuda",
        line,
        what: format!(
            "`{entry}`, whose calls nest up to {call_depth} deep and so may take {bytes} bytes of stack a thread, more than {MOST_BYTES},"
        ),
    })
}

/// Refuses an entry whose own frame, local variables and all, is larger than a stack may be.
pub(super) fn checked_frame(bytes: u32, line: u32) -> Result<(), Error> {
    if u64::from(bytes) <= MOST_BYTES {
        return Ok(());
    }
    Err(Error::Unsupported {
        device: "cuda",
        line,
        what: format!("local memory of {bytes} bytes a thread, more than {MOST_BYTES},"),
    })
}

/// A frame holds those of a function's values that do not stay in registers, or registers of its caller that it uses for them instead: at most
/// twice what is declared, since the compiler has values of its own. Local variables of the guest are not in it; they are the entry's.
fn frame_bytes(statements: &[Statement]) -> u64 {
    let declared = statements.iter().map(|statement| match statement {
        Statement::Variable(variable) if variable.space == Space::Reg => {
            let count = u64::from(variable.count.unwrap_or(1));
            let bytes = variable.ty.bytes().unwrap_or(4).max(4);
            count.saturating_mul(bytes.into())
        }
        _ => 0,
    });
    let declared = declared.fold(0, u64::saturating_add);
    LINK_BYTES.saturating_add(declared.saturating_mul(2))
}

fn bodies(module: &Module) -> impl Iterator<Item = (&Function, &[Statement])> {
    let bodies = module.functions();
    bodies.filter_map(|function| Some((function, &function.body.as_ref()?.statements[..])))
}

/// Whether a function can be in the middle of a call of itself.
fn may_recur(module: &Module) -> bool {
    let is_call = |symbol: Symbol| module.text(symbol) == "call";
    let mut calls: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (function, statements) in bodies(module) {
        let called = calls.entry(module.text(function.name)).or_default();
        for statement in statements {
            if let Statement::Instruction(instruction) = statement
                && is_call(instruction.opcode)
            {
                called.extend(
                    instruction
                        .operands
                        .iter()
                        .filter_map(|operand| match operand {
                            Operand::Name(name) => Some(module.text(*name)),
                            _ => None,
                        }),
                );
            }
        }
    }
    // Functions that call none that is left cannot be in a cycle. What is left in the end is in one, or calls one that is.
    loop {
        let left: BTreeSet<&str> = calls.keys().copied().collect();
        let before = calls.len();
        calls.retain(|_, called| called.iter().any(|name| left.contains(name)));
        if calls.len() == before {
            return before > 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(calls: &str, second: &str) -> ptx::Validated {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.func b();\n\
             .func a() {{ .reg .b64 %x<3>; .reg .pred %p; {calls} ret; }}\n.func b() {{ {second} ret; }}\n\
             .visible .entry k() {{ .reg .b64 %big<99>; call a; ret; }}\n"
        );
        ptx::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn only_functions_that_call_themselves_take_more_than_the_driver_says() {
        let bytes = |first, second| stack_bytes(module(first, second).module(), 10, 96);
        let frame = LINK_BYTES + 2 * (3 * 8 + 4);
        for (first, second, want) in [
            ("", "", 96),
            ("call b;", "", 96),
            ("call a;", "", 96 + 10 * frame),
            ("call b;", "call a;", 96 + 10 * frame),
            ("call b; call b;", "", 96),
        ] {
            assert_eq!(bytes(first, second), want, "{first} {second}");
        }
        assert_eq!(stack_bytes(module("call a;", "").module(), 0, 96), 96);
    }

    #[test]
    fn more_stack_than_there_may_be_is_refused_with_both_numbers() {
        assert_eq!(checked(32_768, "k", 3, 9), Ok(32_768));
        for bytes in [32_769, u64::MAX] {
            let refused = checked(bytes, "k", 3, 9).unwrap_err().to_string();
            assert!(refused.contains("32768"), "{refused}");
            assert!(refused.contains(&bytes.to_string()), "{refused}");
            assert!(refused.contains("line 3"), "{refused}");
        }
    }
}
