//! Lowering of calls: of functions by name or address, and of those that CUDA brings along.

use ptx::ast::{FunctionKind, Operand, Symbol, Variable};

use crate::cpu::code::{CallSite, Callee, Copied, Op, System, SystemSite, Width};

use super::function::{Interface, Lowering};
use super::types::{Lowered, Refusal};

/// The operands of a call.
struct Call<'o> {
    results: &'o [Operand],
    /// A function, or a register with its address.
    of: Symbol,
    arguments: &'o [Operand],
    /// The label of what a function that is called by address takes and gives.
    prototype: Option<Symbol>,
}

impl<'o> Call<'o> {
    fn of(operands: &'o [Operand]) -> Option<Self> {
        let (results, rest): (&[Operand], _) = match operands {
            [Operand::List(results), rest @ ..] => (results, rest),
            rest => (&[], rest),
        };
        let [Operand::Name(of), rest @ ..] = rest else {
            return None;
        };
        let (arguments, rest): (&[Operand], _) = match rest {
            [Operand::List(arguments), rest @ ..] => (arguments, rest),
            rest => (&[], rest),
        };
        let prototype = match rest {
            [] => None,
            [Operand::Name(label)] => Some(*label),
            _ => return None,
        };
        Some(Self {
            results,
            of: *of,
            arguments,
            prototype,
        })
    }
}

/// What is known of CUDA's own function of this name: what it is, and the bytes of what it takes and gives.
fn system(name: &str) -> Option<(System, &'static [u64], &'static [u64])> {
    match name {
        "free" => Some((System::Free, &[8], &[])),
        "malloc" => Some((System::Malloc, &[8], &[8])),
        "vprintf" => Some((System::Print, &[8, 8], &[4])),
        _ => None,
    }
}

impl Lowering<'_, '_> {
    /// Whether a function can be called by its address.
    pub(super) fn is_callable(&self, name: Symbol) -> bool {
        let function = self.program.program.function_of(name);
        function.is_some_and(|of| of.body.is_some() && of.kind == FunctionKind::Device)
    }

    /// A call. Arguments and results are parameters of the caller's, registers or literals.
    pub(super) fn call(&mut self, operands: &[Operand]) -> Lowered<()> {
        let unnamed = || Refusal::Other("of a function that is not named".into());
        let call = Call::of(operands).ok_or_else(unnamed)?;
        let text = self.program.module.text(call.of);
        let Some(function) = self.program.program.function_of(call.of) else {
            return self.call_indirect(&call);
        };
        let (params, returns) = (&function.params, &function.returns);
        if function.body.is_none() {
            // An assertion that fails is a trap; nothing returns from it.
            if text == "__assertfail" {
                return self.emit(Op::Trap);
            }
            let bytes = |list: &[Variable]| list.iter().map(Variable::bytes).collect::<Vec<_>>();
            let fits = |list: &[Variable], want: &[u64]| {
                bytes(list).into_iter().eq(want.iter().copied().map(Some))
            };
            return match system(text) {
                Some((of, takes, gives)) if fits(params, takes) && fits(returns, gives) => {
                    self.call_system(of, &call, params, returns)
                }
                _ => Err(Refusal::Other(format!("of `{text}`, which has no body,"))),
            };
        }
        let number = self.program.numbers.get(&function.name).copied();
        let number = number.ok_or(Refusal::Form)?;
        let interface = self.program.interfaces.get(number).ok_or(Refusal::Form)?;
        let interface = interface.clone();
        let callee = Callee::Direct(u32::try_from(number).map_err(|_| Refusal::Form)?);
        self.call_site(&call, callee, &interface, params, returns)
    }

    /// A call by address, of functions that take and give what a prototype says.
    fn call_indirect(&mut self, call: &Call<'_>) -> Lowered<()> {
        let unnamed = || Refusal::Other("of a function that is not named".into());
        let label = call.prototype.ok_or_else(unnamed)?;
        let mut blocks = self.scopes.blocks();
        let prototype = blocks.find_map(|block| self.prototypes.get(&(block, label)).copied());
        drop(blocks);
        let prototype = prototype.ok_or_else(unnamed)?;
        let slot = self.register(call.of, Width::B64)?;
        let interface = Interface::new(prototype.params, prototype.returns).ok_or(Refusal::Form)?;
        let list = match self.program.callees.get(&interface) {
            Some(&list) => u32::try_from(list).map_err(|_| Refusal::Form)?,
            None => {
                // No function is such, so whatever is called is a trap.
                self.image.callees.push(Vec::new());
                u32::try_from(self.image.callees.len() - 1).map_err(|_| Refusal::Form)?
            }
        };
        let callee = Callee::Indirect { slot, list };
        self.call_site(
            call,
            callee,
            &interface,
            prototype.params,
            prototype.returns,
        )
    }

    fn counted(&self, call: &Call<'_>, params: usize, returns: usize) -> Lowered<()> {
        if call.arguments.len() == params && call.results.len() == returns {
            return Ok(());
        }
        let text = self.program.module.text(call.of);
        Err(Refusal::Other(format!(
            "of `{text}` with another number of arguments"
        )))
    }

    fn call_site(
        &mut self,
        call: &Call<'_>,
        callee: Callee,
        interface: &Interface,
        params: &[Variable],
        returns: &[Variable],
    ) -> Lowered<()> {
        self.counted(call, interface.parameters.len(), interface.results.len())?;
        let mut site = CallSite {
            caller: u32::try_from(self.number).map_err(|_| Refusal::Form)?,
            callee,
            arguments: Vec::new(),
            results: Vec::new(),
        };
        let arguments = call.arguments.iter().zip(&interface.parameters);
        for ((operand, &(callee, words)), variable) in arguments.zip(params) {
            let caller = self.passed(operand, variable.ty, words, true)?;
            site.arguments.push(Copied {
                caller,
                callee,
                words,
            });
        }
        let mut loads = Vec::new();
        let results = call.results.iter().zip(&interface.results);
        for ((operand, &(callee, words)), variable) in results.zip(returns) {
            let caller = self.passed(operand, variable.ty, words, false)?;
            site.results.push(Copied {
                caller,
                callee,
                words,
            });
            loads.push((operand, variable.ty, caller));
        }
        let index = u32::try_from(self.image.calls.len()).map_err(|_| Refusal::Form)?;
        self.image.calls.push(site);
        self.emit(Op::Call { site: index })?;
        for (operand, ty, word) in loads {
            self.fetch_result(operand, ty, word)?;
        }
        Ok(())
    }

    /// A call of a function that CUDA brings along.
    fn call_system(
        &mut self,
        of: System,
        call: &Call<'_>,
        params: &[Variable],
        returns: &[Variable],
    ) -> Lowered<()> {
        self.counted(call, params.len(), returns.len())?;
        let mut site = SystemSite {
            of,
            arguments: Vec::new(),
            result: None,
        };
        for (operand, variable) in call.arguments.iter().zip(params) {
            let word = self.passed(operand, variable.ty, 2, true)?;
            site.arguments.push(word);
        }
        let result = call.results.iter().zip(returns).next();
        if let Some((operand, variable)) = result {
            let words = if variable.bytes() == Some(8) { 2 } else { 1 };
            site.result = Some(self.passed(operand, variable.ty, words, false)?);
        }
        let index = u32::try_from(self.image.systems.len()).map_err(|_| Refusal::Form)?;
        let word = site.result;
        self.image.systems.push(site);
        self.emit(Op::System { site: index })?;
        if let (Some((operand, variable)), Some(word)) = (result, word) {
            self.fetch_result(operand, variable.ty, word)?;
        }
        Ok(())
    }
}
