//! Compiling in processes of their own: [`Compilers`] has a text compiled by a child and gives its [`Cubin`] back. What is said to a child is in
//! `frame.rs`, what happens with one in `child.rs`, and what it does itself in `server.rs`.

mod child;
mod cubin;
mod frame;
mod server;

use std::env;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::cache::Cache;
use super::error::Failure;
use super::jit::{self, LOADING};
use super::threads;
use crate::compiler::{ChildCompiler, SERVES};
use crate::error::Error;

use child::{Child, Unanswered};
use frame::{Answer, Step};

pub(super) use cubin::Cubin;
pub use server::serve_compiles;

/// A text that compiles to nothing.
const EMPTY: &str = ".version 7.0\n.target sm_75\n.address_size 64\n";

/// Cubins that are kept for the next load of their text, and bytes of those texts.
const MOST_KEPT: usize = 64;
const MOST_KEPT_TEXT_BYTES: usize = 32 << 20;

/// Why there is no cubin.
#[derive(Debug, PartialEq)]
pub(super) enum Uncompiled {
    /// The child did not get as far.
    Failed(Error),
    /// The driver of the child says so, in this log.
    Refused { failure: Failure, log: String },
}

impl From<Error> for Uncompiled {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Children that compile for one device: started when there is work for them, kept as long as there is more, and ended with this value.
pub(super) struct Compilers {
    pool: Arc<Pool>,
    kept: Cache<Arc<Cubin>>,
}

#[derive(Debug)]
struct Pool {
    program: ChildCompiler,
    /// The device's number, which the child's driver knows it by too.
    ordinal: u32,
    /// Children that there may be at once.
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The one that waits longest comes first, and is taken last.
    idle: Vec<Child>,
    /// Children that there are, or are about to be: the idle ones too.
    count: usize,
}

impl Compilers {
    /// For the device of a number.
    pub(super) fn new(program: ChildCompiler, ordinal: u32, most: usize) -> Result<Self, Error> {
        if env::var_os(SERVES).is_some() {
            // It would start children without end.
            return Err(Error::NotAvailable {
                reason: "this process was started to compile, and its `main` does not begin with `serve_compiles()`".into(),
            });
        }
        let pool = Pool {
            program,
            ordinal,
            most,
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Ok(Self {
            pool: Arc::new(pool),
            kept: Cache::new(MOST_KEPT, MOST_KEPT_TEXT_BYTES),
        })
    }

    /// As [`compile`](Self::compile), for a text whose every load needs a module of its own: the cubin is kept for the next one. That is for texts of
    /// the embedder; what a cubin takes is not bounded by its text.
    pub(super) fn compile_and_keep(&self, text: &str) -> Result<Arc<Cubin>, Uncompiled> {
        self.kept.get(text, || self.compile(text).map(Arc::new))
    }

    /// Has a text compiled; waits for a child that is free, and then as long as the limits allow.
    pub(super) fn compile(&self, text: &str) -> Result<Cubin, Uncompiled> {
        let answer = match self.ask(text) {
            // It waited for work, and ended meanwhile.
            Err(Unanswered::Gone) => self.ask(text),
            answer => answer,
        };
        let Answer {
            step,
            code,
            error_log,
            info_log,
            cubin,
        } = answer.map_err(Error::from)?;
        if code != 0 {
            let what = match step {
                Step::Compile => LOADING,
                Step::Prepare => "preparing a process that compiles",
            };
            let log = jit::shown(&error_log);
            let failure = Failure { what, code };
            return Err(Uncompiled::Refused { failure, log });
        }
        tracing::debug!(log = jit::shown(&info_log), "a text was compiled");
        Ok(Cubin::new(cubin).map_err(broken)?)
    }

    /// Asks a child that waits for work, or else a new one.
    fn ask(&self, text: &str) -> Result<Answer, Unanswered> {
        let mut place = self.place();
        if place.child.is_none() {
            self.start_another();
        }
        self.pool.ask(&mut place, text)
    }

    /// Starts one more child where one is being started, so that the next text that comes meanwhile need not wait for it: a tenant's first text takes
    /// a child for as long as it likes.
    fn start_another(&self) {
        let Some(mut place) = self.pool.new_place() else {
            return;
        };
        let pool = Arc::clone(&self.pool);
        // It prepares itself for its device with its first text.
        let body = move || match pool.ask(&mut place, EMPTY) {
            Ok(_) => {}
            Err(error) => tracing::debug!(?error, "no process that compiles was started ahead"),
        };
        if let Err(error) = threads::spawn("cuda-compiler-ahead", body) {
            tracing::debug!(%error, "no process that compiles was started ahead");
        }
    }

    /// The right to one of the children, once one is free.
    fn place(&self) -> Place {
        let pool = &self.pool;
        let mut state = pool.state();
        loop {
            while let Some(child) = state.idle.pop() {
                if child.is_alive() {
                    return Place::new(pool, Some(child));
                }
                // Whoever ended it, another takes its place.
                state.count -= 1;
            }
            if state.count < pool.most {
                state.count += 1;
                return Place::new(pool, None);
            }
            let waited = pool.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl fmt::Debug for Compilers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compilers").finish_non_exhaustive()
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to a child that there is not yet, where there may be one more.
    fn new_place(self: &Arc<Self>) -> Option<Place> {
        let mut state = self.state();
        let is_room = state.count < self.most;
        state.count += usize::from(is_room);
        drop(state);
        is_room.then(|| Place::new(self, None))
    }

    /// Asks the child of a place, a new one if it has none.
    fn ask(self: &Arc<Self>, place: &mut Place, text: &str) -> Result<Answer, Unanswered> {
        let request = frame::request(self.ordinal, text)
            .ok_or_else(|| Unanswered::NotAsked(too_long(text)))?;
        let child = match place.child.take() {
            Some(child) => child,
            None => self.start().map_err(Unanswered::NotAsked)?,
        };
        let answer = child.ask(request, &self.program)?;
        if child.may_stay(&self.program) {
            place.child = Some(child);
        }
        Ok(answer)
    }

    fn start(self: &Arc<Self>) -> Result<Child, Error> {
        let pool = Arc::downgrade(self);
        Child::start(&self.program, move |id| {
            pool.upgrade().is_none_or(|pool| pool.retire(id))
        })
    }

    /// Takes the child of an id out of those that wait for work; `false` if it is not one of them.
    fn retire(&self, id: u32) -> bool {
        let mut state = self.state();
        let Some(at) = state.idle.iter().position(|child| child.id() == id) else {
            return false;
        };
        let child = state.idle.remove(at);
        state.count -= 1;
        drop(state);
        drop(child);
        self.changed.notify_one();
        true
    }
}

/// The right to one child, and the child unless it is still to be started. What is in it when it is dropped stays for others.
struct Place {
    pool: Arc<Pool>,
    child: Option<Child>,
}

impl Place {
    fn new(pool: &Arc<Pool>, child: Option<Child>) -> Self {
        let pool = Arc::clone(pool);
        Self { pool, child }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        match self.child.take() {
            Some(child) => state.idle.push(child),
            None => state.count -= 1,
        }
        drop(state);
        self.pool.changed.notify_one();
    }
}

fn too_long(text: &str) -> Error {
    let (given, limit) = (text.len(), frame::MOST_TEXT_BYTES);
    let log = format!("the text has {given} bytes, the limit is {limit}");
    Error::Compile { log }
}

impl From<Unanswered> for Error {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Ended(how) => Self::Compile {
                log: format!("the process that compiled it ended ({how})"),
            },
            Unanswered::Gone => broken("it ended before it had the text"),
            Unanswered::Limit(limit) => Self::CompileLimit(limit),
            Unanswered::Nonsense(what) => broken(what),
            Unanswered::NotAsked(error) => error,
        }
    }
}

fn broken(reason: impl Into<String>) -> Error {
    Error::Backend {
        what: "compiling in a process of its own",
        reason: reason.into(),
    }
}
