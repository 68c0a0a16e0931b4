//! `wasi-cuda check`: what the kernels of a PTX file take, and what is wrong with it. Nothing is launched.

use std::fmt::Write;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use device::Selector;
use ptx::ast::{Module, Statement};
use ptx::{Admitted, Class, Parameter, Signature, Validated, WindowForm};

use crate::parse::IsolationChoice;
use crate::progress::Progress;
use crate::{KERNEL_IS_WRONG, print, say};

const HELP: &str = "\
Examples:
  wasi-cuda check kernel.ptx
  wasi-cuda check --isolation confined kernel.ptx      whether a guest may bring it to a GPU
  nvcc -ptx -o - kernel.cu | wasi-cuda check --entry vecadd -

Exit codes:
  0          the kernels are in order
  1          they are not, --isolation refuses them, or there is none of the name given
  126        the file could not be read, or the command line is wrong";

/// Check the kernels of a PTX file without running them.
///
/// Prints each kernel's parameters as a launch must give them, what its blocks may be, and whether the CPU device can
/// run it. A text that is not in order is shown with the line, a caret under the mistake, and exit code 1. What only
/// the CPU device refuses is no mistake of the kernel: it is printed, and the exit code is 0. What --isolation refuses
/// has exit code 1.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The PTX text, such as `nvcc -ptx` writes; `-` reads it from stdin.
    kernel: PathBuf,
    /// Also rewrite the text as for a guest's kernel on a GPU at this level, and say what that makes of it or why it is refused.
    #[arg(long, value_enum, value_name = "LEVEL")]
    isolation: Option<IsolationChoice>,
    /// Print this kernel only.
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let (name, source) = read(&args.kernel)?;
    let working = Progress::note(format!("checking {name}"));
    let validated = match ptx::read(&source) {
        Ok(validated) => validated,
        Err(error) => {
            say(format_args!("{name}: {}", error.render(&source).trim_end()));
            return Ok(KERNEL_IS_WRONG);
        }
    };
    let chosen: Vec<&Signature> = match &args.entry {
        None => validated.entries().iter().collect(),
        Some(entry) => match validated.entry(entry) {
            Some(signature) => vec![signature],
            None => {
                say(format_args!(
                    "{name}: no kernel `{entry}`; there {}",
                    listed(&validated)
                ));
                return Ok(KERNEL_IS_WRONG);
            }
        },
    };

    let mut text = format!("{name}: {}\n", title(&validated));
    let admitted = Admitted::checked(validated.clone());
    let cpu = device::open(Selector::Cpu).and_then(|cpu| cpu.load(&admitted));
    for signature in chosen {
        write!(
            text,
            "\nkernel {} (line {})\n",
            signature.entry, signature.line
        )?;
        parameters(&mut text, &signature.parameters)?;
        writeln!(text, "  threads    {}", threads(signature))?;
        writeln!(text, "  shared     {}", shared(signature))?;
        let verdict = match &cpu {
            Ok(module) => verdict(module, signature, &source),
            Err(error) => refusal(error, &source),
        };
        writeln!(text, "  cpu device {verdict}")?;
    }
    let isolated = args
        .isolation
        .map(|level| isolated(&validated, level, &source));
    let code = match &isolated {
        Some(Err(_)) => KERNEL_IS_WRONG,
        _ => 0,
    };
    if let Some(Ok(verdict) | Err(verdict)) = &isolated {
        writeln!(text, "\n{verdict}")?;
    }
    drop(working);
    print(&text)?;
    Ok(code)
}

/// What confining a text makes of it, or what is refused, with the line.
fn isolated(program: &Validated, choice: IsolationChoice, source: &[u8]) -> Result<String, String> {
    let options = choice.isolation().options(WindowForm::Whole);
    let level = choice.name();
    let confined = ptx::confine(program, options)
        .map_err(|error| format!("{level}: refused\n{}", error.render(source).trim_end()))?;
    let verified = ptx::verify(confined).map_err(|error| match error.is_limit() {
        true => format!("{level}: refused, too large to confine: {}", error.kind),
        false => format!("{level}: refused by the verifier, a bug here: {error}"),
    })?;
    let (before, after) = (
        instructions(program.module()),
        instructions(verified.program().module()),
    );
    let growth = after * 100 / before.max(1);
    Ok(format!(
        "{level}: accepted, {before} instructions become {after} ({growth} % of the text before)"
    ))
}

fn instructions(module: &Module) -> usize {
    let bodies = module
        .functions()
        .filter_map(|function| function.body.as_ref());
    let statements = bodies.flat_map(|body| &body.statements);
    statements
        .filter(|statement| matches!(statement, Statement::Instruction(_)))
        .count()
}

/// The text, and what to call it.
pub(crate) fn read(path: &Path) -> anyhow::Result<(String, Vec<u8>)> {
    let mut source = Vec::new();
    if path == Path::new("-") {
        io::stdin().read_to_end(&mut source).context("stdin")?;
        return Ok(("stdin".into(), source));
    }
    let name = path.display().to_string();
    let source = std::fs::read(path).with_context(|| name.clone())?;
    Ok((name, source))
}

fn title(validated: &Validated) -> String {
    let module = validated.module();
    let (major, minor) = module.version;
    let target: Vec<&str> = module
        .target
        .iter()
        .map(|&symbol| module.text(symbol))
        .collect();
    let kernels = match validated.entries().len() {
        0 => "no kernels".into(),
        1 => "1 kernel".into(),
        count => format!("{count} kernels"),
    };
    format!("PTX {major}.{minor} for {}, {kernels}", target.join(", "))
}

/// Which kernels there are, in words.
pub(crate) fn listed(validated: &Validated) -> String {
    let names: Vec<String> = validated
        .entries()
        .iter()
        .map(|signature| format!("`{}`", signature.entry))
        .collect();
    match names.len() {
        0 => "are none".into(),
        1 => format!("is {}", names[0]),
        _ => format!("are {}", names.join(", ")),
    }
}

/// A table of what a launch must give, in order.
fn parameters(text: &mut String, parameters: &[Parameter]) -> std::fmt::Result {
    let header = [
        "parameter",
        "offset",
        "size",
        "align",
        "class",
        "declared",
        "ptr",
        "name",
    ]
    .map(String::from);
    let rows = parameters.iter().enumerate().map(|(index, parameter)| {
        let pointer = parameter.pointer.map(|pointer| {
            let space = pointer.space.map_or("generic", |space| space.name());
            format!("{space}, align {}", pointer.align)
        });
        [
            index.to_string(),
            parameter.offset.to_string(),
            parameter.size.to_string(),
            parameter.align.to_string(),
            class(parameter.class).into(),
            parameter.declared.clone(),
            pointer.unwrap_or_else(|| "-".into()),
            parameter.name.clone(),
        ]
    });
    let rows: Vec<[String; 8]> = std::iter::once(header).chain(rows).collect();
    if parameters.is_empty() {
        return writeln!(text, "  parameters none");
    }
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
            write!(line, "  {cell:width$}")?;
        }
        writeln!(text, "{}", line.trim_end())?;
    }
    Ok(())
}

/// What argv records a class takes is in the help of the guest ABI; this is its name.
fn class(class: Class) -> &'static str {
    match class {
        Class::Bits => "bits",
        Class::Bytes => "bytes",
        Class::Float => "float",
        Class::Integer => "integer",
    }
}

fn threads(signature: &Signature) -> String {
    let axes = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
    let mut text = match (signature.required_threads, signature.max_threads) {
        (Some(required), _) => format!("exactly {} a block (.reqntid)", axes(required)),
        (None, Some(most)) => format!("at most {} a block (.maxntid)", axes(most)),
        (None, None) => "as many a block as the device allows".into(),
    };
    match signature.cluster {
        None => {}
        Some([0, 0, 0]) => text += ", clusters of the launch's size (.explicitcluster)",
        Some(blocks) => {
            text += &format!(", clusters of {} blocks (.reqnctapercluster)", axes(blocks))
        }
    }
    text
}

fn shared(signature: &Signature) -> String {
    let dynamic = if signature.uses_dynamic_shared {
        "and what the launch asks for"
    } else {
        "static, no dynamic"
    };
    format!("{} bytes {dynamic}", signature.static_shared_bytes)
}

fn verdict(module: &Arc<dyn device::Module>, signature: &Signature, source: &[u8]) -> String {
    match module.entry(&signature.entry) {
        Ok(_) => "runs it".into(),
        Err(error) => refusal(&error, source),
    }
}

/// Why the CPU device refuses a kernel, with the line that it is about.
fn refusal(error: &device::Error, source: &[u8]) -> String {
    let device::Error::Unsupported { line, what, .. } = error else {
        return format!("refuses it: {error}");
    };
    let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let shown = source
        .split(|&byte| byte == b'\n')
        .nth(index)
        .unwrap_or_default();
    let shown = String::from_utf8_lossy(shown.trim_ascii()).replace('\t', " ");
    format!("refuses it, line {line}: {what} is not supported\n  {line:>10} | {shown}")
}
