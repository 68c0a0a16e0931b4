//! The process that compiles: what it is asked for over stdin it answers over stdout, one text after the other, and it runs no kernel. It ends
//! when stdin does, whatever it is doing then.

use std::convert::Infallible;
use std::env;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};

use super::frame::{Answer, GREETING, MOST_CUBIN_BYTES, Request, Step, TAKEN, read_request};
use crate::compiler::SERVES;
use crate::cuda::context::{Context, Ordinal, Presence, presence};
use crate::cuda::error::{Failure, code};
use crate::cuda::jit::Logs;
use crate::cuda::linker::{keep_no_local_memory, link};
use crate::error::Error;

/// Compiles for a device, in a process that was started to do so ([`ChildCompiler`](super::ChildCompiler)), and ends it; returns at
/// once in any other process.
///
/// A program whose devices compile in processes that run it once more ([`Compiler::this_program`](crate::cuda::Compiler::this_program))
/// calls this first of all in `main`: before it reads its arguments, starts threads or prints.
pub fn serve_compiles() {
    if env::var_os(SERVES).is_none() {
        return;
    }
    // What goes wrong here has no one to be told to; the other process sees that this one ends.
    match serve() {
        Ok(never) => match never {},
        Err(_) => end(),
    }
}

fn serve() -> io::Result<Infallible> {
    // A core would hold the texts of tenants.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    let (sender, requests) = sync_channel(1);
    thread::Builder::new().spawn(move || {
        let mut from = BufReader::new(io::stdin());
        while let Ok(Some(request)) = read_request(&mut from) {
            if sender.send(request).is_err() {
                break;
            }
        }
        end();
    })?;
    let mut to = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    to.write_all(&GREETING)?;
    answer_all(&requests, &mut to)
}

fn answer_all(requests: &Receiver<Request>, to: &mut File) -> io::Result<Infallible> {
    let mut prepared = None;
    loop {
        let request = requests.recv().map_err(io::Error::other)?;
        to.write_all(&TAKEN)?;
        answer(request, &mut prepared).write(to)?;
    }
}

/// Ends this process now: the driver may be busy compiling, and its own clean-up would wait for that.
fn end() -> ! {
    // If that fails, the next line is left.
    kill_process(getpid(), Signal::KILL).unwrap_or_default();
    std::process::abort()
}

/// A device whose context this thread has entered.
struct Prepared {
    number: u32,
    _context: Arc<Context>,
}

fn answer(request: Request, prepared: &mut Option<Prepared>) -> Answer {
    let mut logs = Logs::new();
    let compiled = prepare(request.ordinal, prepared)
        .map_err(|failure| (Step::Prepare, failure.code))
        .and_then(|()| {
            compile(request.text, &mut logs).map_err(|failure| (Step::Compile, failure.code))
        });
    let (step, code, cubin) = match compiled {
        Ok(cubin) => (Step::Compile, 0, cubin),
        Err((step, code)) => (step, code, Vec::new()),
    };
    let [error_log, info_log] = logs.written().map(<[u8]>::to_vec);
    Answer {
        step,
        code,
        error_log,
        info_log,
        cubin,
    }
}

fn prepare(number: u32, prepared: &mut Option<Prepared>) -> Result<(), Failure> {
    if prepared.as_ref().is_some_and(|it| it.number == number) {
        return Ok(());
    }
    *prepared = None;
    let what = "preparing a process that compiles";
    let failure = |code| Failure { what, code };
    let Presence::Devices(_) = presence()? else {
        return Err(failure(code::NO_DEVICE));
    };
    let context = Context::retain(Ordinal::find(number)?)?;
    context.enter().map_err(|error| match error {
        Error::Driver { code, .. } => failure(code),
        _ => failure(code::INVALID_CONTEXT),
    })?;
    // A driver that does not do it compiles all the same.
    keep_no_local_memory().unwrap_or_default();
    *prepared = Some(Prepared {
        number,
        _context: context,
    });
    Ok(())
}

fn compile(text: Vec<u8>, logs: &mut Logs) -> Result<Vec<u8>, Failure> {
    let what = "compiling";
    let failure = |code| Failure { what, code };
    let text = CString::new(text).map_err(|_| failure(code::INVALID_PTX))?;
    let cubin = link(&text, logs)?;
    if cubin.len() > MOST_CUBIN_BYTES {
        return Err(failure(code::OUT_OF_MEMORY));
    }
    Ok(cubin)
}
