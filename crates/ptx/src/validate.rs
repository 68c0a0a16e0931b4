//! A tree to a [`Validated`] program: names are declared before they are used, once in a scope, and
//! everything has a size that a device can lay out. Single instructions are not looked at here.

mod body;
mod predefined;
mod scope;
mod variable;

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{
    Directive, Function, FunctionKind, Item, Linkage, Module, Space, Symbol, Variable,
};
use crate::error::{Error, ErrorKind, Excerpt};
use crate::layout::align_up;
use crate::lexer;
use crate::parser::parse_text;
use crate::signature::{self, ModuleShared, Signature};

use body::Body;
use scope::Scopes;
use variable::Totals;

/// A program that [`validate`] let through. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Validated(Arc<Program>);

#[derive(Debug)]
struct Program {
    module: Module,
    source: Option<Arc<str>>,
    entries: Vec<Signature>,
    /// Entries that have a body, as positions in `entries`.
    entry_of: HashMap<Symbol, usize>,
    /// Every function, as the position of its body, or else of its declaration, among the items.
    function_of: HashMap<Symbol, usize>,
}

impl Validated {
    /// The tree.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.0.module
    }

    /// The text that the tree was read from, without NULs at its end; `None` where the tree was built.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.0.source.as_deref()
    }

    /// The interfaces of the entries that have a body, in order.
    #[must_use]
    pub fn entries(&self) -> &[Signature] {
        &self.0.entries
    }

    /// The interface of an entry that has a body.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Signature> {
        let symbol = self.0.module.names.find(name)?;
        self.0
            .entry_of
            .get(&symbol)
            .map(|&index| &self.0.entries[index])
    }

    /// The entry or device function of a name, or of an alias: its definition if the module has it, else
    /// a declaration.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.function_of(self.0.module.names.find(name)?)
    }

    /// [`function`](Self::function) for a name of [`module`](Self::module).
    #[must_use]
    pub fn function_of(&self, name: Symbol) -> Option<&Function> {
        match &self.0.module.items[*self.0.function_of.get(&name)?] {
            Item::Function(function) => Some(function),
            _ => None,
        }
    }

    /// Bytes that the module's variables in global space take, laid out in order and each aligned as declared.
    #[must_use]
    pub fn global_bytes(&self) -> u64 {
        let variables = self.0.module.items.iter().filter_map(|item| match item {
            Item::Variable(variable) if variable.space == Space::Global => Some(variable),
            _ => None,
        });
        variables.fold(0, |end, variable| {
            let bytes = variable.bytes().unwrap_or(0);
            align_up(end, variable.alignment()).saturating_add(bytes)
        })
    }
}

/// Checks a tree.
///
/// # Errors
/// The first mistake found: see [`ErrorKind`].
pub fn validate(module: Module) -> Result<Validated, Error> {
    program(module, None)
}

/// Parses and checks a text, and keeps it beside the tree.
///
/// # Errors
/// The first mistake found: see [`ErrorKind`].
pub fn read(source: &[u8]) -> Result<Validated, Error> {
    let text = lexer::text(source)?;
    program(parse_text(text)?, Some(text.into()))
}

fn program(module: Module, source: Option<Arc<str>>) -> Result<Validated, Error> {
    let mut checker = Checker::new(&module);
    checker.address_size()?;
    for (index, item) in module.items.iter().enumerate() {
        match item {
            Item::Alias { name, target, at } => {
                checker.alias(*name, *target).map_err(|kind| kind.at(*at))?;
            }
            Item::Function(function) => checker.function(index, function)?,
            Item::Variable(variable) => checker.variable(variable)?,
        }
    }
    checker.scopes.close()?;
    let Checker {
        entries,
        mut function_of,
        aliases,
        shared,
        ..
    } = checker;
    for (name, target) in aliases {
        if let Some(&index) = function_of.get(&target) {
            function_of.insert(name, index);
        }
    }
    let mut entry_of = HashMap::new();
    let mut signatures = Vec::with_capacity(entries.len());
    for function in entries {
        entry_of.insert(function.name, signatures.len());
        signatures.push(signature::signature(&module, function, &shared)?);
    }
    Ok(Validated(Arc::new(Program {
        module,
        source,
        entries: signatures,
        entry_of,
        function_of,
    })))
}

/// What has been seen of a module so far.
#[derive(Debug)]
struct Checker<'m> {
    module: &'m Module,
    scopes: Scopes<'m>,
    entries: Vec<&'m Function>,
    function_of: HashMap<Symbol, usize>,
    variable_of: HashMap<Symbol, &'m Variable>,
    aliases: Vec<(Symbol, Symbol)>,
    totals: Totals,
    shared: ModuleShared,
}

impl<'m> Checker<'m> {
    fn new(module: &'m Module) -> Self {
        Self {
            module,
            scopes: Scopes::new(&module.names),
            entries: Vec::new(),
            function_of: HashMap::new(),
            variable_of: HashMap::new(),
            aliases: Vec::new(),
            totals: Totals::default(),
            shared: ModuleShared::default(),
        }
    }

    fn excerpt(&self, name: Symbol) -> Excerpt {
        Excerpt::new(self.module.text(name))
    }

    fn address_size(&self) -> Result<(), Error> {
        match self.module.address_size {
            64 => Ok(()),
            bits => Err(ErrorKind::AddressSize { bits: bits.into() }
                .at(crate::ast::Position { line: 1, column: 1 })),
        }
    }

    fn alias(&mut self, name: Symbol, target: Symbol) -> Result<(), ErrorKind> {
        if !self.function_of.contains_key(&target) {
            return Err(ErrorKind::UnknownName {
                name: self.excerpt(target),
            });
        }
        match self
            .function_of
            .get(&name)
            .map(|&index| &self.module.items[index])
        {
            Some(Item::Function(function)) if function.body.is_none() => {}
            None => self.scopes.declare_function(name)?,
            _ => {
                return Err(ErrorKind::Duplicate {
                    name: self.excerpt(name),
                });
            }
        }
        self.aliases.push((name, target));
        Ok(())
    }

    fn variable(&mut self, variable: &'m Variable) -> Result<(), Error> {
        let space = variable.space;
        if !matches!(
            space,
            Space::Const | Space::Global | Space::Shared | Space::Tex
        ) {
            return Err(ErrorKind::OutsideFunction { space }.at(variable.at));
        }
        self.totals.add(self.module, variable)?;
        if let Some(initializer) = &variable.initializer {
            self.scopes
                .check_initializer(initializer)
                .map_err(|kind| kind.at(variable.at))?;
        }
        if space == Space::Shared {
            self.shared.add(variable);
        }
        match self.variable_of.insert(variable.name, variable) {
            None => self.scopes.declare_variable(variable),
            // A declaration of what another module, or this one, defines.
            Some(earlier) if can_join(earlier, variable) => Ok(()),
            Some(_) => Err(ErrorKind::Duplicate {
                name: self.excerpt(variable.name),
            }
            .at(variable.at)),
        }
    }

    fn function(&mut self, index: usize, function: &'m Function) -> Result<(), Error> {
        let at = function.at;
        match self
            .function_of
            .get(&function.name)
            .map(|&index| &self.module.items[index])
        {
            Some(Item::Function(earlier)) => {
                if earlier.body.is_some() && function.body.is_some() {
                    return Err(ErrorKind::Duplicate {
                        name: self.excerpt(function.name),
                    }
                    .at(at));
                }
                if !same_interface(earlier, function) {
                    return Err(ErrorKind::Redeclared {
                        name: self.excerpt(function.name),
                    }
                    .at(at));
                }
                if function.body.is_some() {
                    self.function_of.insert(function.name, index);
                }
            }
            _ => {
                self.scopes
                    .declare_function(function.name)
                    .map_err(|kind| kind.at(at))?;
                self.function_of.insert(function.name, index);
            }
        }
        for directive in &function.directives {
            self.directive(directive)?;
        }
        let is_entry = function.kind == FunctionKind::Entry;
        let mut body = Body::open(self.module, &mut self.scopes, function.kind);
        body.parameters(&function.returns)?;
        body.parameters(&function.params)?;
        if let Some(statements) = &function.body {
            body.statements(&statements.statements)?;
            if is_entry {
                self.entries.push(function);
            } else {
                self.shared.add_function(statements);
            }
        }
        self.scopes.close()
    }

    /// Whether a directive of a function has the numbers that it takes.
    fn directive(&self, directive: &Directive) -> Result<(), Error> {
        check_directive(self.module.text(directive.name), &directive.values)
            .map_err(|kind| kind.at(directive.at))
    }
}

/// The directives of functions: name, fewest and most numbers, the same in words.
const DIRECTIVES: [(&str, usize, usize, &str); 13] = [
    ("abi_preserve", 1, 1, "one number"),
    ("abi_preserve_control", 1, 1, "one number"),
    ("blocksareclusters", 0, 0, "no numbers"),
    ("explicitcluster", 0, 0, "no numbers"),
    ("maxclusterrank", 1, 1, "one number"),
    ("maxnctapersm", 1, 1, "one number"),
    ("maxnreg", 1, 1, "one number"),
    ("maxntid", 1, 3, "one to three numbers from 1 to 4294967295"),
    ("minnctapersm", 1, 1, "one number"),
    ("noreturn", 0, 0, "no numbers"),
    (
        "reqnctapercluster",
        1,
        3,
        "one to three numbers from 1 to 4294967295",
    ),
    ("reqntid", 1, 3, "one to three numbers from 1 to 4294967295"),
    ("unique", 0, 0, "no numbers"),
];

fn check_directive(name: &str, values: &[u64]) -> Result<(), ErrorKind> {
    let directive = Excerpt::new(name);
    let Some(&(_, least, most, expected)) = DIRECTIVES.iter().find(|row| row.0 == name) else {
        return Err(ErrorKind::UnknownDirective { directive });
    };
    let is_size = |&value: &u64| most == 1 || (value > 0 && u32::try_from(value).is_ok());
    if (least..=most).contains(&values.len()) && values.iter().all(is_size) {
        return Ok(());
    }
    let shown: Vec<String> = values.iter().take(4).map(u64::to_string).collect();
    let found = Excerpt::new(&shown.join(", "));
    Err(ErrorKind::DirectiveValues {
        directive,
        expected,
        found,
    })
}

/// Whether a variable may be declared a second time in this way.
fn can_join(earlier: &Variable, later: &Variable) -> bool {
    let extern_first = earlier.linkage == Linkage::Extern && later.linkage != Linkage::Internal;
    let extern_again = later.linkage == Linkage::Extern && earlier.linkage != Linkage::Internal;
    (extern_first || extern_again) && earlier.space == later.space && earlier.ty == later.ty
}

/// Whether two declarations of a function agree.
fn same_interface(earlier: &Function, later: &Function) -> bool {
    let shape = |variable: &Variable| {
        (
            variable.space,
            variable.ty,
            variable.vector,
            variable.bytes(),
            variable.alignment(),
        )
    };
    let same = |earlier: &[Variable], later: &[Variable]| {
        earlier.iter().map(shape).eq(later.iter().map(shape))
    };
    earlier.kind == later.kind
        && same(&earlier.returns, &later.returns)
        && same(&earlier.params, &later.params)
}
