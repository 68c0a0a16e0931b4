//! What the names of a function mean: registers, variables, labels. Scopes nest as blocks do.

use std::collections::HashMap;

use ptx::ast::{Module, ScalarType, Statement, Symbol};

use crate::cpu::code::Width;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Const {
        offset: u32,
    },
    /// A parameter of the entry, by its offset.
    EntryParameter {
        offset: u32,
    },
    /// A `.global` variable of the module, by its generic address.
    Global {
        address: u64,
    },
    /// Bytes of the frame's local memory: a `.local` variable, or a parameter of a device function.
    Local {
        offset: u32,
    },
    Predicate {
        slot: u16,
    },
    /// A register; slots of its components follow each other.
    Register {
        width: Width,
        slot: u16,
        components: u8,
    },
    Shared {
        offset: u32,
    },
}

/// A declaration that is given slots when first used.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegisterDeclaration {
    pub(super) ty: ScalarType,
    pub(super) components: u8,
    /// `name<count>` declares `name0` and so on.
    pub(super) count: Option<u32>,
}

/// What is declared under one name in the scopes that are open, by depth, innermost last.
#[derive(Debug, Default)]
struct Declared {
    meanings: Vec<(usize, Meaning)>,
    registers: Vec<(usize, RegisterDeclaration)>,
}

#[derive(Debug, Default)]
struct Scope {
    /// What to forget at its end.
    names: Vec<Symbol>,
    /// Its place among all blocks of the function, by which labels are found.
    block: usize,
}

/// The scopes that are open. A name is found in the same time however deep they nest.
#[derive(Debug)]
pub(super) struct Scopes {
    open: Vec<Scope>,
    declared: HashMap<Symbol, Declared>,
    blocks: usize,
}

/// How a name was found.
pub(super) enum Found {
    Meaning(Meaning),
    /// Declared, but not used before: the scope by depth, and the declaration.
    Register(usize, RegisterDeclaration),
}

impl Scopes {
    pub(super) fn new() -> Self {
        Self {
            open: vec![Scope::default()],
            declared: HashMap::new(),
            blocks: 1,
        }
    }

    pub(super) fn open(&mut self) {
        self.open.push(Scope {
            block: self.blocks,
            ..Scope::default()
        });
        self.blocks += 1;
    }

    pub(super) fn close(&mut self) {
        if self.open.len() < 2 {
            return;
        }
        let names = self.open.pop().map_or_else(Vec::new, |scope| scope.names);
        let depth = self.open.len();
        for name in names {
            if let Some(declared) = self.declared.get_mut(&name) {
                declared.meanings.retain(|&(at, _)| at < depth);
                declared.registers.retain(|&(at, _)| at < depth);
            }
        }
    }

    /// The open blocks, innermost first.
    pub(super) fn blocks(&self) -> impl Iterator<Item = usize> {
        self.open.iter().rev().map(|scope| scope.block)
    }

    pub(super) fn declare(&mut self, name: Symbol, meaning: Meaning) {
        self.give(self.open.len() - 1, name, meaning);
    }

    pub(super) fn declare_register(&mut self, name: Symbol, declaration: RegisterDeclaration) {
        let depth = self.open.len() - 1;
        self.open[depth].names.push(name);
        let declared = self.declared.entry(name).or_default();
        declared.registers.push((depth, declaration));
    }

    /// Remembers the slots of a register in the scope that declares it.
    pub(super) fn give(&mut self, depth: usize, name: Symbol, meaning: Meaning) {
        if let Some(scope) = self.open.get_mut(depth) {
            scope.names.push(name);
            let declared = self.declared.entry(name).or_default();
            declared.meanings.push((depth, meaning));
        }
    }

    pub(super) fn find(&self, module: &Module, name: Symbol) -> Option<Found> {
        let declared = self.declared.get(&name);
        let meaning = declared.and_then(|declared| declared.meanings.last().copied());
        let plain = declared.and_then(|declared| innermost(declared, |count| count.is_none()));
        // Only a range that is declared further in can hide either.
        let range = numbered(module.text(name)).and_then(|(prefix, number)| {
            let declared = self.declared.get(&module.names.find(prefix)?)?;
            innermost(declared, |count| count.is_some_and(|count| number < count))
        });
        let register = match (plain, range) {
            (Some(plain), Some(range)) if range.0 > plain.0 => Some(range),
            (plain, range) => plain.or(range),
        };
        match (meaning, register) {
            (Some((at, meaning)), found) if found.is_none_or(|(depth, _)| depth <= at) => {
                Some(Found::Meaning(meaning))
            }
            (_, register) => register.map(|(depth, found)| Found::Register(depth, found)),
        }
    }
}

/// The innermost declaration of a register whose count is such.
fn innermost(
    declared: &Declared,
    fits: impl Fn(Option<u32>) -> bool,
) -> Option<(usize, RegisterDeclaration)> {
    let mut inwards = declared.registers.iter().rev();
    inwards.find(|(_, found)| fits(found.count)).copied()
}

/// `%r12` as `%r` and 12.
fn numbered(name: &str) -> Option<(&str, u32)> {
    let prefix = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let digits = &name[prefix.len()..];
    let plain = digits == "0" || !digits.is_empty() && !digits.starts_with('0');
    Some((prefix, digits.parse().ok().filter(|_| plain)?))
}

/// The labels of a function by block and name, numbered.
#[derive(Debug, Default)]
pub(super) struct Labels {
    numbers: HashMap<(usize, Symbol), usize>,
}

impl Labels {
    pub(super) fn of(statements: &[Statement]) -> Self {
        let mut labels = Self::default();
        let (mut open, mut blocks) = (vec![0], 1);
        for statement in statements {
            match statement {
                Statement::BlockStart => {
                    open.push(blocks);
                    blocks += 1;
                }
                Statement::BlockEnd => drop(open.pop()),
                Statement::Label { name, .. } => {
                    let number = labels.numbers.len();
                    labels
                        .numbers
                        .insert((open.last().copied().unwrap_or(0), *name), number);
                }
                _ => {}
            }
        }
        labels
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The label of a name that is seen from within these blocks.
    pub(super) fn find(
        &self,
        mut blocks: impl Iterator<Item = usize>,
        name: Symbol,
    ) -> Option<usize> {
        blocks.find_map(|block| self.numbers.get(&(block, name)).copied())
    }
}
