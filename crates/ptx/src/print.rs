//! A tree to its text, the same for equal trees. It prints what is in the tree and nothing else.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::ast::{
    AddressBase, Directive, Function, Immediate, Initializer, Instruction, Item, Linkage, Module,
    Operand, Statement, Symbol, Variable,
};

/// Deepest indentation: nested blocks may not make the text grow with the square of its length.
const MAX_INDENT: usize = 8;

/// The text of a tree. It reads back as an equal tree if names were interned in the order in which
/// they are printed, as the parser does.
#[must_use]
pub fn print(module: &Module) -> String {
    Printed {
        module,
        part: module,
    }
    .to_string()
}

/// A part of a tree, to be written with the names of its module.
struct Printed<'m, T> {
    module: &'m Module,
    part: T,
}

/// Parts, written one after the other with a separator.
struct Separated<'m, T> {
    module: &'m Module,
    parts: &'m [T],
    separator: &'static str,
}

impl<'m, T> Printed<'m, T> {
    fn with<U>(&self, part: U) -> Printed<'m, U> {
        Printed {
            module: self.module,
            part,
        }
    }

    fn list<U>(&self, parts: &'m [U]) -> Separated<'m, U> {
        Separated {
            module: self.module,
            parts,
            separator: ", ",
        }
    }

    fn name(&self, symbol: Symbol) -> &'m str {
        self.module.text(symbol)
    }
}

impl<'m, T> Display for Separated<'m, T>
where
    Printed<'m, &'m T>: Display,
{
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                f.write_str(self.separator)?;
            }
            Printed {
                module: self.module,
                part,
            }
            .fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Printed<'_, &Module> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.part.version;
        writeln!(f, ".version {major}.{minor}")?;
        writeln!(f, ".target {}", self.list(&self.part.target))?;
        writeln!(f, ".address_size {}", self.part.address_size)?;
        for item in &self.part.items {
            f.write_char('\n')?;
            match item {
                Item::Alias { name, target, .. } => {
                    writeln!(f, ".alias {}, {};", self.name(*name), self.name(*target))?;
                }
                Item::Function(function) => self.with(function).fmt(f)?,
                Item::Variable(variable) => writeln!(f, "{};", self.with(variable))?,
            }
        }
        Ok(())
    }
}

impl Display for Printed<'_, &Symbol> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name(*self.part))
    }
}

/// Writes a linkage and the space after it.
fn linkage(f: &mut Formatter<'_>, linkage: Linkage) -> fmt::Result {
    match linkage {
        Linkage::Internal => Ok(()),
        _ => write!(f, ".{} ", linkage.name()),
    }
}

impl Display for Printed<'_, &Function> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let function = self.part;
        linkage(f, function.linkage)?;
        write!(f, ".{} ", function.kind.name())?;
        if !function.returns.is_empty() {
            write!(f, "({}) ", self.list(&function.returns))?;
        }
        f.write_str(self.name(function.name))?;
        if function.params.is_empty() {
            f.write_str("()")?;
        } else {
            let params = Separated {
                module: self.module,
                parts: &function.params,
                separator: ",\n    ",
            };
            write!(f, "(\n    {params}\n)")?;
        }
        for directive in &function.directives {
            write!(f, "\n{}", self.with(directive))?;
        }
        let Some(body) = &function.body else {
            return f.write_str(";\n");
        };
        f.write_str("\n{\n")?;
        let mut depth = 1_usize;
        for statement in &body.statements {
            if *statement == Statement::BlockEnd {
                depth = depth.saturating_sub(1);
            }
            if !matches!(statement, Statement::Label { .. }) {
                for _ in 0..depth.min(MAX_INDENT) {
                    f.write_str("    ")?;
                }
            }
            self.with(statement).fmt(f)?;
            f.write_char('\n')?;
            if *statement == Statement::BlockStart {
                depth += 1;
            }
        }
        f.write_str("}\n")
    }
}

impl Display for Printed<'_, &Directive> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.name(self.part.name))?;
        for (index, value) in self.part.values.iter().enumerate() {
            write!(f, "{} {value}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl Display for Printed<'_, &Variable> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let variable = self.part;
        linkage(f, variable.linkage)?;
        write!(f, ".{} ", variable.space.name())?;
        if let Some(align) = variable.align {
            write!(f, ".align {align} ")?;
        }
        if let Some(vector) = variable.vector {
            write!(f, ".{} ", vector.name())?;
        }
        write!(f, ".{} ", variable.ty.name())?;
        if let Some(pointer) = variable.pointer {
            f.write_str(".ptr ")?;
            if let Some(space) = pointer.space {
                write!(f, ".{} ", space.name())?;
            }
            if let Some(align) = pointer.align {
                write!(f, ".align {align} ")?;
            }
        }
        f.write_str(self.name(variable.name))?;
        if let Some(count) = variable.count {
            write!(f, "<{count}>")?;
        }
        for dimension in &variable.dimensions {
            match dimension {
                Some(dimension) => write!(f, "[{dimension}]")?,
                None => f.write_str("[]")?,
            }
        }
        if let Some(initializer) = &variable.initializer {
            write!(f, " = {}", self.with(initializer))?;
        }
        Ok(())
    }
}

impl Display for Printed<'_, &Initializer> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.part {
            Initializer::Address {
                name,
                generic,
                offset,
            } => {
                let name = self.name(*name);
                match generic {
                    true => write!(f, "generic({name})")?,
                    false => f.write_str(name)?,
                }
                match offset {
                    0 => Ok(()),
                    _ => write!(f, "+{offset}"),
                }
            }
            Initializer::Immediate(value) => write!(f, "{value}"),
            Initializer::List(elements) => write!(f, "{{{}}}", self.list(elements)),
        }
    }
}

/// As PTX writes it: floats by their bits, integers as signed decimals.
impl Display for Immediate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32(bits) => write!(f, "0f{bits:08X}"),
            Self::F64(bits) => write!(f, "0d{bits:016X}"),
            // The one value whose magnitude is no signed number.
            Self::Integer(bits) if bits.cast_signed() == i64::MIN => write!(f, "{bits:#x}"),
            Self::Integer(bits) => write!(f, "{}", bits.cast_signed()),
        }
    }
}

impl Display for Printed<'_, &Statement> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.part {
            Statement::BlockEnd => f.write_char('}'),
            Statement::BlockStart => f.write_char('{'),
            Statement::Instruction(instruction) => self.with(instruction).fmt(f),
            Statement::Label { name, .. } => write!(f, "{}:", self.name(*name)),
            Statement::Prototype {
                returns,
                params,
                directives,
                ..
            } => {
                f.write_str(".callprototype ")?;
                if !returns.is_empty() {
                    write!(f, "({}) ", self.list(returns))?;
                }
                write!(f, "_ ({})", self.list(params))?;
                for directive in directives {
                    write!(f, " {}", self.with(directive))?;
                }
                f.write_char(';')
            }
            Statement::Targets {
                directive, names, ..
            } => {
                write!(f, ".{} {};", self.name(*directive), self.list(names))
            }
            Statement::Variable(variable) => write!(f, "{};", self.with(variable)),
        }
    }
}

impl Display for Printed<'_, &Instruction> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let instruction = self.part;
        if let Some(guard) = instruction.guard {
            f.write_str(if guard.negated { "@!" } else { "@" })?;
            f.write_str(self.name(guard.register))?;
            f.write_char(' ')?;
        }
        f.write_str(self.name(instruction.opcode))?;
        for &modifier in &instruction.modifiers {
            f.write_char('.')?;
            f.write_str(self.name(modifier))?;
        }
        if !instruction.operands.is_empty() {
            f.write_char(' ')?;
            self.list(&instruction.operands).fmt(f)?;
        }
        f.write_char(';')
    }
}

impl Display for Printed<'_, &Operand> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.part {
            Operand::Address {
                base,
                offset,
                parts,
            } => {
                f.write_char('[')?;
                match base {
                    AddressBase::Immediate(address) => write!(f, "{address}")?,
                    AddressBase::Name(name) => f.write_str(self.name(*name))?,
                }
                if *offset != 0 {
                    write!(f, "+{offset}")?;
                }
                for part in parts {
                    f.write_str(", ")?;
                    self.with(part).fmt(f)?;
                }
                f.write_char(']')
            }
            Operand::Component { name, component } => {
                write!(f, "{}.{}", self.name(*name), self.name(*component))
            }
            Operand::Immediate(value) => write!(f, "{value}"),
            Operand::List(operands) => write!(f, "({})", self.list(operands)),
            Operand::Name(name) => f.write_str(self.name(*name)),
            Operand::Negated(name) => write!(f, "!{}", self.name(*name)),
            Operand::Offset { name, offset } => write!(f, "{}+{offset}", self.name(*name)),
            Operand::Pair(pair) => write!(f, "{}|{}", self.with(&pair.0), self.with(&pair.1)),
            Operand::Vector(operands) => write!(f, "{{{}}}", self.list(operands)),
        }
    }
}
