//! What a name means at a place. Scopes are a stack; `%r<5>` stands for five names without there being
//! five of anything.

use super::predefined::is_predefined;
use crate::ast::{Initializer, Names, Position, ScalarType, Space, Symbol, Variable};
use crate::error::{Error, ErrorKind, Excerpt};

/// What a name was declared as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Function,
    Label,
    /// A special register, `WARP_SZ` or `_`.
    Predefined,
    Register(ScalarType),
    Variable,
}

#[derive(Clone, Copy, Debug)]
struct Declared {
    name: Symbol,
    meaning: Meaning,
    /// `name<count>` instead of `name`.
    count: Option<u32>,
    /// The declaration of the same name and form that this one hides.
    hidden: Option<usize>,
    at: Position,
}

/// All declarations that can be seen.
#[derive(Debug)]
pub(super) struct Scopes<'m> {
    names: &'m Names,
    declared: Vec<Declared>,
    /// Where each open scope begins in `declared`.
    starts: Vec<usize>,
    /// By symbol: the latest declaration of `name`, of `name<…>`.
    latest: [Vec<Option<usize>>; 2],
    /// How many of `declared` are of the form `name<…>`.
    ranges: usize,
}

impl<'m> Scopes<'m> {
    /// The scope of the module, open.
    pub(super) fn new(names: &'m Names) -> Self {
        let none = vec![None; names.len()];
        let latest = [none.clone(), none];
        Self {
            names,
            declared: Vec::new(),
            starts: vec![0],
            latest,
            ranges: 0,
        }
    }

    /// Opens a scope within the innermost one.
    pub(super) fn open(&mut self) {
        self.starts.push(self.declared.len());
    }

    /// Closes the innermost scope.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        let start = self.starts.pop().unwrap_or(0);
        self.check_ranges(start)?;
        for declared in self.declared.drain(start..).rev() {
            let form = usize::from(declared.count.is_some());
            self.latest[form][declared.name.index()] = declared.hidden;
            self.ranges -= form;
        }
        Ok(())
    }

    pub(super) fn declare_function(&mut self, name: Symbol) -> Result<(), ErrorKind> {
        self.declare(name, Meaning::Function, None, Position::default())
    }

    pub(super) fn declare_label(&mut self, name: Symbol, at: Position) -> Result<(), Error> {
        self.declare(name, Meaning::Label, None, at)
            .map_err(|kind| kind.at(at))
    }

    pub(super) fn declare_variable(&mut self, variable: &Variable) -> Result<(), Error> {
        let meaning = match variable.space {
            Space::Reg => Meaning::Register(variable.ty),
            _ => Meaning::Variable,
        };
        self.declare(variable.name, meaning, variable.count, variable.at)
            .map_err(|kind| kind.at(variable.at))
    }

    fn declare(
        &mut self,
        name: Symbol,
        meaning: Meaning,
        count: Option<u32>,
        at: Position,
    ) -> Result<(), ErrorKind> {
        let text = self.names.text(name);
        if is_predefined(text) {
            return Err(ErrorKind::ReservedName {
                name: Excerpt::new(text),
            });
        }
        let form = usize::from(count.is_some());
        let hidden = self.latest[form][name.index()];
        if hidden.is_some_and(|index| index >= self.innermost_start()) {
            return Err(ErrorKind::Duplicate {
                name: Excerpt::new(text),
            });
        }
        self.latest[form][name.index()] = Some(self.declared.len());
        self.declared.push(Declared {
            name,
            meaning,
            count,
            hidden,
            at,
        });
        self.ranges += form;
        Ok(())
    }

    fn innermost_start(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Refuses a name of the innermost scope, which begins at `start`, that a range of that scope has
    /// too.
    fn check_ranges(&self, start: usize) -> Result<(), Error> {
        let scope = &self.declared[start..];
        if self.ranges == 0 || scope.iter().all(|declared| declared.count.is_none()) {
            return Ok(());
        }
        for declared in scope.iter().filter(|declared| declared.count.is_none()) {
            if self
                .range(declared.name)
                .is_some_and(|index| index >= start)
            {
                let name = Excerpt::new(self.names.text(declared.name));
                return Err(ErrorKind::Duplicate { name }.at(declared.at));
            }
        }
        Ok(())
    }

    /// What a name means here.
    pub(super) fn meaning(&self, name: Symbol) -> Result<Meaning, ErrorKind> {
        let single = self.latest[0][name.index()];
        let is_near = single.is_some_and(|index| index >= self.innermost_start());
        // Later in the stack is further in.
        let found = if is_near {
            single
        } else {
            single.max(self.range(name))
        };
        if let Some(index) = found {
            return Ok(self.declared[index].meaning);
        }
        let text = self.names.text(name);
        let name = Excerpt::new(text);
        match text.as_bytes().first() {
            _ if is_predefined(text) => Ok(Meaning::Predefined),
            Some(b'%') => Err(ErrorKind::UnknownRegister { name }),
            _ => Err(ErrorKind::UnknownName { name }),
        }
    }

    /// The innermost range that has a name.
    fn range(&self, name: Symbol) -> Option<usize> {
        if self.ranges == 0 {
            return None;
        }
        let (prefix, number) = split(self.names.text(name))?;
        let mut next = self.latest[1][self.names.find(prefix)?.index()];
        while let Some(index) = next {
            let declared = &self.declared[index];
            if declared.count.is_some_and(|count| number < count) {
                return Some(index);
            }
            next = declared.hidden;
        }
        None
    }

    /// Whether a name is a predicate register here.
    pub(super) fn check_predicate(&self, name: Symbol) -> Result<(), ErrorKind> {
        match self.meaning(name)? {
            Meaning::Register(ScalarType::Pred) => Ok(()),
            _ => Err(ErrorKind::PredicateExpected {
                name: Excerpt::new(self.names.text(name)),
            }),
        }
    }

    /// Whether a name is a label here.
    pub(super) fn check_label(&self, name: Symbol) -> Result<(), ErrorKind> {
        match self.meaning(name) {
            Ok(Meaning::Label) => Ok(()),
            _ => Err(ErrorKind::UnknownLabel {
                name: Excerpt::new(self.names.text(name)),
            }),
        }
    }

    /// Whether the addresses in an initial value are those of functions or variables.
    pub(super) fn check_initializer(&self, initializer: &Initializer) -> Result<(), ErrorKind> {
        match initializer {
            Initializer::Address { name, .. } => match self.meaning(*name)? {
                Meaning::Function | Meaning::Variable => Ok(()),
                _ => Err(ErrorKind::UnknownName {
                    name: Excerpt::new(self.names.text(*name)),
                }),
            },
            Initializer::Immediate(_) => Ok(()),
            Initializer::List(elements) => elements
                .iter()
                .try_for_each(|element| self.check_initializer(element)),
        }
    }
}

/// A name as the prefix of a range and a number in it: `%r12` is `%r` and 12. All digits at the end
/// are the number, which is written without leading zeros.
fn split(name: &str) -> Option<(&str, u32)> {
    let prefix = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let number = &name[prefix.len()..];
    let is_plain = number.len() == 1 || !number.starts_with('0');
    number
        .parse()
        .ok()
        .filter(|_| is_plain)
        .map(|number| (prefix, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_digits_at_the_end_are_the_number() {
        assert_eq!(split("%r12"), Some(("%r", 12)));
        assert_eq!(split("%r0"), Some(("%r", 0)));
        assert_eq!(split("%a1_2"), Some(("%a1_", 2)));
        assert_eq!(split("%x4294967295"), Some(("%x", u32::MAX)));
        for name in ["%r", "%r00", "%r012", "%x4294967296", "_"] {
            assert_eq!(split(name), None, "{name}");
        }
    }
}
