//! Who calls whom, how deep it can get, and where each call is paid for.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::access::{accesses, spelled};
use super::names::{Base, Code, Instruction, Program, Step, Value, VariableId, refuse};
use crate::ast::Symbol;
use crate::error::Error;
use crate::isa::{self, Action};

/// How deep calls nest where functions call themselves. Compilers' recursive kernels stay far below; each level takes stack of every
/// thread that is resident.
pub(super) const MAX_DEPTH: u32 = 32;

/// Who calls whom.
#[derive(Debug)]
pub(super) struct Graph {
    /// By the name of a function that has a body: its place.
    pub(super) place_of: HashMap<Symbol, usize>,
    /// By function: those that it calls.
    pub(super) callees: Vec<Vec<usize>>,
    /// By function: the number of the cycle that it is in.
    pub(super) cycle_of: Vec<Option<usize>>,
    /// Functions so that callers come before those that they call, but for cycles.
    pub(super) order: Vec<usize>,
    pub(super) has_cycle: bool,
}

/// The function that a call names, what it passes and what it gets.
#[derive(Debug)]
pub(super) struct Parts<'i, 'm> {
    pub(super) callee: Symbol,
    pub(super) results: &'i [Value<'m>],
    pub(super) arguments: &'i [Value<'m>],
}

/// Takes a call apart.
pub(super) fn parts<'i, 'm>(instruction: &'i Instruction<'m>) -> Result<Parts<'i, 'm>, Error> {
    let (results, callee, arguments) = match &instruction.operands[..] {
        [Value::Function(callee)] => (&[][..], callee, &[][..]),
        [Value::Function(callee), Value::List(arguments)] => (&[][..], callee, &arguments[..]),
        [Value::List(results), Value::Function(callee)] => (&results[..], callee, &[][..]),
        [
            Value::List(results),
            Value::Function(callee),
            Value::List(arguments),
        ] => (&results[..], callee, &arguments[..]),
        _ => {
            return Err(refuse(
                &spelled(instruction),
                "only named functions are called",
                instruction.at,
            ));
        }
    };
    Ok(Parts {
        callee: *callee,
        results,
        arguments,
    })
}

/// Finds out who calls whom.
pub(super) fn graph(program: &Program<'_>) -> Result<Graph, Error> {
    let place_of: HashMap<_, _> = program
        .functions
        .iter()
        .enumerate()
        .map(|(place, code)| (code.source.name, place))
        .collect();
    let mut callees = Vec::new();
    for code in &program.functions {
        let mut called = Vec::new();
        for step in &code.statements {
            if let Step::Instruction(instruction) = step
                && instruction.opcode == "call"
                && let Some(&place) = place_of.get(&parts(instruction)?.callee)
            {
                if program.functions[place].is_entry() {
                    return Err(refuse(
                        &spelled(instruction),
                        "it calls an entry",
                        instruction.at,
                    ));
                }
                called.push(place);
            }
        }
        called.sort_unstable();
        called.dedup();
        callees.push(called);
    }
    let (cycle_of, order) = components(&callees);
    let has_cycle = cycle_of.iter().any(Option::is_some);
    Ok(Graph {
        place_of,
        callees,
        cycle_of,
        order,
        has_cycle,
    })
}

impl Graph {
    /// By function: whether it is one of those chosen, or called by one.
    pub(super) fn reached(&self, is_chosen: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut reached: Vec<_> = (0..self.callees.len()).map(is_chosen).collect();
        let mut open: Vec<_> = (0..reached.len()).filter(|&place| reached[place]).collect();
        while let Some(place) = open.pop() {
            for &callee in &self.callees[place] {
                if !std::mem::replace(&mut reached[callee], true) {
                    open.push(callee);
                }
            }
        }
        reached
    }
}

/// Tarjan's strongly connected components without recursion: the cycle that each node is in, and an order in which nodes come before
/// their successors.
fn components(successors: &[Vec<usize>]) -> (Vec<Option<usize>>, Vec<usize>) {
    let count = successors.len();
    let (mut number, mut low) = (vec![usize::MAX; count], vec![0; count]);
    let mut on_stack = vec![false; count];
    let mut stack = Vec::new();
    let mut cycle_of = vec![None; count];
    let mut order = Vec::new();
    let (mut next, mut cycles) = (0, 0);
    for root in 0..count {
        if number[root] != usize::MAX {
            continue;
        }
        let mut path = vec![(root, 0)];
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                number[node] = next;
                low[node] = next;
                next += 1;
                stack.push(node);
                on_stack[node] = true;
            }
            if let Some(&successor) = successors[node].get(edge) {
                path.push((node, edge + 1));
                if number[successor] == usize::MAX {
                    path.push((successor, 0));
                } else if on_stack[successor] {
                    low[node] = low[node].min(number[successor]);
                }
                continue;
            }
            if let Some(&(parent, _)) = path.last() {
                low[parent] = low[parent].min(low[node]);
            }
            if low[node] == number[node] {
                let start = stack
                    .iter()
                    .rposition(|&member| member == node)
                    .unwrap_or(0);
                let members = stack.split_off(start);
                let is_cycle = members.len() > 1 || successors[node].contains(&node);
                for &member in &members {
                    on_stack[member] = false;
                    cycle_of[member] = is_cycle.then_some(cycles);
                }
                cycles += usize::from(is_cycle);
                order.extend(members);
            }
        }
    }
    order.reverse();
    (cycle_of, order)
}

/// The calls of one function: where each is paid for, and what it gives.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// By the statement before which it is paid: the call.
    metered: HashMap<usize, usize>,
    /// By call: the statement before which it is paid.
    first: HashMap<usize, usize>,
    /// Statements that take a result.
    pub(super) results: HashSet<usize>,
}

impl Calls {
    /// The call that is paid for before a statement.
    pub(super) fn metered_at(&self, statement: usize) -> Option<usize> {
        self.metered.get(&statement).copied()
    }

    /// The bytes of a call's arguments that nothing is stored to.
    pub(super) fn bytes_left(
        &self,
        program: &Program<'_>,
        code: &Code<'_>,
        call: usize,
        parts: &Parts<'_, '_>,
    ) -> Vec<(VariableId, u32)> {
        let mut stored: BTreeMap<VariableId, Vec<bool>> = BTreeMap::new();
        for id in names(parts.arguments) {
            let bytes = program.variables[id].bytes();
            let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
            stored.insert(id, vec![false; bytes.unwrap_or(0)]);
        }
        let first = self.first.get(&call).copied().unwrap_or(call);
        for step in &code.statements[first..call] {
            if let Step::Instruction(instruction) = step
                && let Some(argument) = parameter(instruction, "st")
                && let Some(is_stored) = stored.get_mut(&argument)
                && let Some(Value::Address { offset, .. }) = instruction.operands.first()
                && let Ok([Some(access), _]) = accesses(instruction, Action::Access)
                && let Ok(start) = usize::try_from(*offset)
            {
                let end = start.saturating_add(access.width as usize);
                let end = end.min(is_stored.len());
                is_stored[start.min(end)..end].fill(true);
            }
        }
        let mut left = Vec::new();
        for (id, is_stored) in stored {
            let bytes = is_stored
                .iter()
                .zip(0..)
                .filter(|(is_stored, _)| !**is_stored);
            left.extend(bytes.map(|(_, at)| (id, at)));
        }
        left
    }
}

/// Finds the calls of functions with a body. A call is paid for before its first argument is stored.
pub(super) fn calls(code: &Code<'_>, graph: &Graph) -> Result<Calls, Error> {
    let mut calls = Calls::default();
    // Variables that calls pass or get, and the statements that store or load them beside their call.
    let (mut passed, mut beside) = (HashSet::<VariableId>::new(), HashSet::new());
    for (index, step) in code.statements.iter().enumerate() {
        let Step::Instruction(call) = step else {
            continue;
        };
        if call.opcode != "call" {
            continue;
        }
        let parts = parts(call)?;
        if !graph.place_of.contains_key(&parts.callee) {
            continue;
        }
        let (arguments, results) = (names(parts.arguments), names(parts.results));
        passed.extend(arguments.iter().chain(&results));
        let mut first = index;
        for before in (0..index).rev() {
            let Step::Instruction(instruction) = &code.statements[before] else {
                break;
            };
            if !is_plain(instruction) {
                break;
            }
            if parameter(instruction, "st").is_some_and(|variable| arguments.contains(&variable)) {
                first = before;
                beside.insert(before);
            }
        }
        if let Some(guard) = call.guard {
            let between = code.statements[first..index].iter();
            let changes = between.into_iter().any(|step| match step {
                Step::Instruction(instruction) => {
                    let mut changes = false;
                    if let Some(row) = isa::row(instruction.opcode) {
                        super::flow::written(instruction, row, &mut |register| {
                            changes |= register == guard.register
                        });
                    }
                    changes
                }
                Step::Label(_) => false,
            });
            if changes {
                return Err(refuse(
                    &spelled(call),
                    "its guard is computed among its arguments",
                    call.at,
                ));
            }
        }
        calls.metered.insert(first, index);
        calls.first.insert(index, first);
        for (after, step) in code.statements.iter().enumerate().skip(index + 1) {
            let Step::Instruction(instruction) = step else {
                break;
            };
            if !is_plain(instruction) {
                break;
            }
            if parameter(instruction, "ld").is_some_and(|variable| results.contains(&variable)) {
                calls.results.insert(after);
                beside.insert(after);
            }
        }
    }
    for (index, step) in code.statements.iter().enumerate() {
        if let Step::Instruction(instruction) = step
            && let Some(variable) = parameter(instruction, instruction.opcode)
            && passed.contains(&variable)
            && !beside.contains(&index)
        {
            let reason = "a label, a branch or another call is between it and its call";
            return Err(refuse(&spelled(instruction), reason, instruction.at));
        }
    }
    Ok(calls)
}

/// Whether an instruction gets no label or branch of ours.
fn is_plain(instruction: &Instruction<'_>) -> bool {
    isa::row(instruction.opcode).is_some_and(|row| {
        matches!(
            row.action,
            Action::Access
                | Action::ConvertAddress
                | Action::CopyAsync
                | Action::Drop
                | Action::Keep
        )
    })
}

/// The parameter variable that an instruction loads or stores.
pub(super) fn parameter(instruction: &Instruction<'_>, opcode: &str) -> Option<VariableId> {
    if instruction.opcode != opcode
        || !instruction
            .modifiers
            .iter()
            .any(|word| word.starts_with("param"))
    {
        return None;
    }
    instruction
        .operands
        .iter()
        .find_map(|operand| match operand {
            Value::Address {
                base: Base::Variable(id),
                ..
            } => Some(*id),
            _ => None,
        })
}

fn names(values: &[Value<'_>]) -> HashSet<VariableId> {
    let name = |value: &Value<'_>| match value {
        Value::Variable(id, _) => Some(*id),
        _ => None,
    };
    values.iter().filter_map(name).collect()
}
