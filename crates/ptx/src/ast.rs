//! The tree of a PTX module, as written: opcodes, modifiers and operands stay generic. What a name
//! refers to and whether a statement makes sense is for `validate.rs` to say.
//!
//! The tree is flat: a nested `{ … }` is a pair of statements, so that no depth of nesting costs
//! stack. Comments, `.file`, `.loc`, `.pragma`, `.section` and the `debug` option of the target, which asks
//! for them, are not in the tree, hence never printed.

use std::collections::HashMap;

/// Where something stood in the source, both counted from 1; columns count bytes.
///
/// A position is not part of what a tree *is*: all positions compare equal, so that a tree and its
/// printed and re-read twin do too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
}

impl PartialEq for Position {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Position {}

/// A name of the module: an identifier, opcode or modifier, interned in its [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub(crate) u32);

impl Symbol {
    /// The position of the name in its table: dense, from 0, for tables indexed by symbol.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The names of a module, each held once, in order of first appearance.
#[derive(Clone, Debug, Default)]
pub struct Names {
    texts: Vec<Box<str>>,
    symbols: HashMap<Box<str>, Symbol>,
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

impl Eq for Names {}

impl Names {
    /// The symbol of `text`, made on first use.
    #[expect(
        clippy::expect_used,
        reason = "a source is at most MAX_SOURCE_BYTES long (limits.rs), so it has fewer than 2^32 names"
    )]
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(&symbol) = self.symbols.get(text) {
            return symbol;
        }
        let symbol = Symbol(u32::try_from(self.texts.len()).expect("fewer than 2^32 names"));
        self.texts.push(text.into());
        self.symbols.insert(text.into(), symbol);
        symbol
    }

    /// The symbol of `text`, if the module has such a name.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Symbol> {
        self.symbols.get(text).copied()
    }

    /// The text of a symbol of this table.
    ///
    /// # Panics
    /// If the symbol came from another module's table.
    #[must_use]
    pub fn text(&self, symbol: Symbol) -> &str {
        &self.texts[symbol.index()]
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// A whole source: header, then variables and functions in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Every name in the tree.
    pub names: Names,
    /// `.version`: major and minor.
    pub version: (u32, u32),
    /// `.target`: the architecture (`sm_80`), then its options (`texmode_independent`).
    pub target: Vec<Symbol>,
    /// `.address_size`, 64 where the directive is absent as PTX has it since 64-bit targets.
    pub address_size: u32,
    /// Variables and functions, in order.
    pub items: Vec<Item>,
}

impl Module {
    /// The text of one of this module's symbols.
    #[must_use]
    pub fn text(&self, symbol: Symbol) -> &str {
        self.names.text(symbol)
    }

    /// The functions, entries and others, declarations too.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.items.iter().filter_map(|item| match item {
            Item::Function(function) => Some(function),
            _ => None,
        })
    }

    /// The variables declared outside functions.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.items.iter().filter_map(|item| match item {
            Item::Variable(variable) => Some(variable),
            _ => None,
        })
    }
}

/// What stands at the top level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// `.alias name, target;`
    Alias {
        /// The new name.
        name: Symbol,
        /// The function it stands for.
        target: Symbol,
        /// Where it stood.
        at: Position,
    },
    /// An entry or a device function, with a body or declared only.
    Function(Function),
    /// A variable in `.global`, `.const` or `.shared` space (or `.texref` and the like).
    Variable(Variable),
}

/// How a name is seen by the linker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// `.common`
    Common,
    /// `.extern`
    Extern,
    /// None written: seen in this module only.
    #[default]
    Internal,
    /// `.visible`
    Visible,
    /// `.weak`
    Weak,
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.const`
    Const,
    /// `.global`
    Global,
    /// `.local`
    Local,
    /// `.param`
    Param,
    /// `.reg`
    Reg,
    /// `.shared`
    Shared,
    /// `.sreg`
    Sreg,
    /// `.tex`
    Tex,
}

/// A scalar type, or one of the opaque ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "each variant is the type of the same name in PTX"
)]
pub enum ScalarType {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    F32,
    F64,
    Bf16,
    Bf16x2,
    Pred,
    Texref,
    Samplerref,
    Surfref,
}

/// `.v2`, `.v4`, `.v8`: elements of a vector variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "each variant is the modifier of the same name in PTX"
)]
pub enum Vector {
    V2,
    V4,
    V8,
}

/// One declared variable, register or parameter. A list (`.reg .b32 %a, %b;`) is one of these each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Linkage, at the top level.
    pub linkage: Linkage,
    /// State space.
    pub space: Space,
    /// `.align`, in bytes.
    pub align: Option<u32>,
    /// Vector width, if a vector.
    pub vector: Option<Vector>,
    /// Type of an element.
    pub ty: ScalarType,
    /// `.ptr` attribute of an entry's parameter.
    pub pointer: Option<Pointer>,
    /// Name; with `count` the prefix of several names.
    pub name: Symbol,
    /// `%r<5>` declares `%r0` to `%r4`.
    pub count: Option<u32>,
    /// Array dimensions, outermost first; `None` for `[]`.
    pub dimensions: Vec<Option<u64>>,
    /// Initial value.
    pub initializer: Option<Initializer>,
    /// Where its name stood.
    pub at: Position,
}

/// `.ptr .global .align 16`: what an entry's pointer parameter points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The state space it points into; generic where not written.
    pub space: Option<Space>,
    /// Alignment of what it points to, in bytes.
    pub align: Option<u32>,
}

/// The initial value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initializer {
    /// `name`, `name+8`, `generic(name)+8`: an address.
    Address {
        /// The variable or function.
        name: Symbol,
        /// Whether the generic address is meant.
        generic: bool,
        /// Bytes added.
        offset: i64,
    },
    /// A number.
    Immediate(Immediate),
    /// `{ …, … }`
    List(Vec<Initializer>),
}

/// A literal, with the bits that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Immediate {
    /// `0f3F800000`: the bits of an f32.
    F32(u32),
    /// `0d3FF0000000000000` or `1.0`: the bits of an f64.
    F64(u64),
    /// An integer as 64-bit two's complement (PTX evaluates constants in 64 bits). Both `-1` and
    /// `0xFFFFFFFFFFFFFFFF` are `u64::MAX`.
    Integer(u64),
}

/// An entry or a device function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Linkage.
    pub linkage: Linkage,
    /// `.entry` or `.func`.
    pub kind: FunctionKind,
    /// Return parameters of a `.func` (at most one in practice).
    pub returns: Vec<Variable>,
    /// Name.
    pub name: Symbol,
    /// Parameters, in order; in `.param` space, for a `.func` perhaps registers.
    pub params: Vec<Variable>,
    /// Directives between the parameters and the body, such as `.maxntid 128, 1, 1` and `.noreturn`.
    pub directives: Vec<Directive>,
    /// The body; `None` for a declaration that ends in `;`.
    pub body: Option<Body>,
    /// Where its name stood.
    pub at: Position,
}

/// `.entry` or `.func`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// `.func`: called from device code.
    Device,
    /// `.entry`: launched from the host.
    Entry,
}

/// A performance-tuning or attribute directive of a function: `.name a, b, c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Name without the dot.
    pub name: Symbol,
    /// Its numbers.
    pub values: Vec<u64>,
    /// Where it stood.
    pub at: Position,
}

/// The statements of a function, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Flat: blocks are [`Statement::BlockStart`] and [`Statement::BlockEnd`], always balanced.
    pub statements: Vec<Statement>,
}

/// One statement of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// `}`
    BlockEnd,
    /// `{`: opens a scope for names.
    BlockStart,
    /// `name: .branchtargets a, b;` or `.calltargets`; the label is a [`Statement::Label`] before it.
    Targets {
        /// `branchtargets` or `calltargets`.
        directive: Symbol,
        /// Labels or functions.
        names: Vec<Symbol>,
        /// Where it stood.
        at: Position,
    },
    /// `name: .callprototype (ret) _ (params);`; the label is a [`Statement::Label`] before it.
    Prototype {
        /// Return parameters.
        returns: Vec<Variable>,
        /// Parameters.
        params: Vec<Variable>,
        /// Directives after the parameters (`.noreturn`).
        directives: Vec<Directive>,
        /// Where it stood.
        at: Position,
    },
    /// An instruction.
    Instruction(Instruction),
    /// `name:`
    Label {
        /// The label.
        name: Symbol,
        /// Where it stood.
        at: Position,
    },
    /// A declaration.
    Variable(Variable),
}

impl Statement {
    /// Where it stood; braces are not said.
    #[must_use]
    pub fn at(&self) -> Option<Position> {
        match self {
            Self::BlockEnd | Self::BlockStart => None,
            Self::Instruction(Instruction { at, .. })
            | Self::Label { at, .. }
            | Self::Prototype { at, .. }
            | Self::Targets { at, .. }
            | Self::Variable(Variable { at, .. }) => Some(*at),
        }
    }
}

/// `@!%p opcode.modifier.modifier operand, operand;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The predicate that guards it.
    pub guard: Option<Guard>,
    /// First part of the opcode, such as `ld`.
    pub opcode: Symbol,
    /// The dotted parts after it, without dots: `global`, `L1::evict_last`, `v4`, `f32`.
    pub modifiers: Vec<Symbol>,
    /// Operands, in order.
    pub operands: Vec<Operand>,
    /// Where the opcode stood.
    pub at: Position,
}

/// `@%p` or `@!%p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate register.
    pub register: Symbol,
    /// `!`: runs where the predicate is false.
    pub negated: bool,
}

/// An operand, uninterpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// `[base+offset]`, and `[base, {x, y}]` with more parts.
    Address {
        /// What stands first.
        base: AddressBase,
        /// Bytes added to it.
        offset: i64,
        /// Further parts after a comma (textures, tensor maps); empty else.
        parts: Vec<Operand>,
    },
    /// `name.x`: a component of a register or special register; `component` is the text after the dot.
    Component {
        /// Register, with its `%`.
        name: Symbol,
        /// `x`, `y`, `z`, `w`, …
        component: Symbol,
    },
    /// A literal.
    Immediate(Immediate),
    /// `(a, b)`: parameters or results of a call.
    List(Vec<Operand>),
    /// A register, variable, label, function, special register, or `_`.
    Name(Symbol),
    /// `!name`: the negation of a predicate.
    Negated(Symbol),
    /// `name+4`: an address of a variable, with an offset.
    Offset {
        /// The variable.
        name: Symbol,
        /// Bytes added.
        offset: i64,
    },
    /// `a|b`: two destinations; `a` and `b` are never pairs themselves.
    Pair(Box<(Operand, Operand)>),
    /// `{a, b}`
    Vector(Vec<Operand>),
}

/// What an address starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressBase {
    /// An absolute address.
    Immediate(u64),
    /// A register or a variable.
    Name(Symbol),
}
