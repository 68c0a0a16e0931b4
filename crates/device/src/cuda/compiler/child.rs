//! One child process that compiles: [`Child`], from its start to its end. A thread of its own speaks with it, so that whoever waits for an answer
//! can look at the clock and at the child's memory meanwhile, and end it.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::frame::{Answer, GREETING, TAKEN, read_word};
use crate::compiler::{ChildCompiler, SERVES};
use crate::cuda::threads;
use crate::error::{CompileLimit, Error};

/// How long a child may take before it is ready to be asked: it loads its program, and has not called the driver yet.
const START_TIME: Duration = Duration::from_secs(10);
/// How often clock and memory of one that works are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A process that compiles, ready to be asked. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Child {
    process: Process,
    requests: Sender<Vec<u8>>,
    told: Receiver<Told>,
}

/// What the child's thread tells whoever asks.
#[derive(Debug)]
enum Told {
    Answer(Answer),
    /// The process has ended, in words.
    Ended(String),
    /// It had ended before it had the text.
    Gone,
    Greeting,
    /// It said what it should not have, and was ended.
    Nonsense(String),
}

/// Why there is no answer. The child is of no use any more.
#[derive(Debug)]
pub(super) enum Unanswered {
    Ended(String),
    /// It had ended before it had the text: another may be asked.
    Gone,
    Limit(CompileLimit),
    Nonsense(String),
    /// There is no child to ask, or no asking with this text.
    NotAsked(Error),
}

impl Child {
    /// Starts a process. Once it has had no work for long, `retire` is asked, with its id, whether it may end.
    pub(super) fn start(
        of: &ChildCompiler,
        retire: impl Fn(u32) -> bool + Send + 'static,
    ) -> Result<Self, Error> {
        let mut command = Command::new(&of.program);
        command.args(&of.arguments).env(SERVES, "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().map_err(not_started)?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let process = Process::new(child);
        let (Some(stdin), Some(stdout)) = pipes else {
            process.end();
            return Err(not_started("it has no pipes"));
        };
        let (requests, to_do) = channel();
        let (sender, told) = channel();
        let speaker = Speaker {
            stdin,
            stdout,
            process: process.clone(),
            told: sender,
        };
        let idle_time = of.idle_time;
        let body = move || speaker.serve(&to_do, idle_time, retire);
        if let Err(error) = threads::spawn("cuda-compiler", body) {
            process.end();
            return Err(error);
        }
        let child = Self {
            process,
            requests,
            told,
        };
        match child.told.recv_timeout(START_TIME) {
            Ok(Told::Greeting) => Ok(child),
            Ok(Told::Ended(how)) => Err(not_started(format!("it ended ({how})"))),
            Ok(Told::Answer(_) | Told::Gone | Told::Nonsense(_)) => {
                Err(not_started("it does not begin with `serve_compiles()`"))
            }
            Err(_) => Err(not_started(format!(
                "it was not ready after {START_TIME:?}"
            ))),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id
    }

    /// Whether it can be asked.
    pub(super) fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// Whether it can be asked again: what it holds on to leaves enough of its limit to the next text.
    pub(super) fn may_stay(&self, limits: &ChildCompiler) -> bool {
        let resident = self.process.resident_bytes();
        resident.is_some_and(|bytes| bytes <= limits.resident_bytes / 2)
    }

    /// Sends a request and waits for the answer within the limits. A child that gave none is to be dropped.
    pub(super) fn ask(
        &self,
        request: Vec<u8>,
        limits: &ChildCompiler,
    ) -> Result<Answer, Unanswered> {
        let begin = Instant::now();
        // Where nobody takes it, nobody answers either.
        self.requests.send(request).unwrap_or_default();
        loop {
            match self.told.recv_timeout(LOOK) {
                Ok(Told::Answer(answer)) => return Ok(answer),
                Ok(Told::Ended(how)) => return Err(Unanswered::Ended(how)),
                Ok(Told::Gone) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(Unanswered::Gone);
                }
                Ok(Told::Nonsense(what)) => return Err(Unanswered::Nonsense(what)),
                Ok(Told::Greeting) => {
                    return Err(Unanswered::Nonsense("a greeting".into()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let limit = limits.text_time;
            if begin.elapsed() > limit {
                return Err(Unanswered::Limit(CompileLimit::Time { limit }));
            }
            let bytes = limits.resident_bytes;
            if self
                .process
                .resident_bytes()
                .is_some_and(|held| held > bytes)
            {
                return Err(Unanswered::Limit(CompileLimit::Memory { bytes }));
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The thread waits for its end.
        self.process.kill();
    }
}

fn not_started(reason: impl ToString) -> Error {
    Error::Backend {
        what: "starting a process that compiles",
        reason: reason.to_string(),
    }
}

/// The thread that speaks with a child, and sees to it that its process is gone at last.
struct Speaker {
    stdin: ChildStdin,
    stdout: ChildStdout,
    process: Process,
    told: Sender<Told>,
}

impl Speaker {
    /// Hands requests and answers on until nobody asks any more, or the process has ended or is of no use.
    fn serve(
        mut self,
        requests: &Receiver<Vec<u8>>,
        idle_time: Duration,
        retire: impl Fn(u32) -> bool,
    ) {
        let mut next = self.greeting();
        loop {
            let is_last = !matches!(next, Told::Answer(_) | Told::Greeting);
            if self.told.send(next).is_err() || is_last {
                break;
            }
            let request = loop {
                match requests.recv_timeout(idle_time) {
                    Ok(request) => break Some(request),
                    Err(RecvTimeoutError::Timeout) if !retire(self.process.id) => {}
                    Err(_) => break None,
                }
            };
            let Some(request) = request else { break };
            next = self.answer(&request);
        }
        self.process.end();
    }

    fn greeting(&mut self) -> Told {
        match read_word(&mut self.stdout, GREETING) {
            Ok(()) => Told::Greeting,
            Err(error) => self.failed(&error),
        }
    }

    fn answer(&mut self, request: &[u8]) -> Told {
        let sent = self.stdin.write_all(request);
        let taken = sent.and_then(|()| read_word(&mut self.stdout, TAKEN));
        let read = match taken {
            Ok(()) => Answer::read(&mut self.stdout),
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(error),
            Err(_) => return Told::Gone,
        };
        match read {
            Ok(answer) => Told::Answer(answer),
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &io::Error) -> Told {
        let how = self.process.end();
        if error.kind() == ErrorKind::InvalidData {
            Told::Nonsense(error.to_string())
        } else {
            Told::Ended(how)
        }
    }
}

/// A process of ours. Its id is its own until it was waited for, which [`end`](Self::end) does.
#[derive(Clone, Debug)]
struct Process {
    child: Arc<Mutex<process::Child>>,
    id: u32,
}

impl Process {
    fn new(child: process::Child) -> Self {
        let id = child.id();
        let child = Arc::new(Mutex::new(child));
        Self { child, id }
    }

    fn child(&self) -> MutexGuard<'_, process::Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_alive(&self) -> bool {
        match self.child.try_lock() {
            Ok(mut child) => matches!(child.try_wait(), Ok(None)),
            // It is being ended.
            Err(_) => false,
        }
    }

    /// Has it end, without waiting for that.
    fn kill(&self) {
        let killed = match self.child.try_lock() {
            Ok(mut child) => child.kill(),
            Err(TryLockError::Poisoned(child)) => child.into_inner().kill(),
            // It is being ended.
            Err(TryLockError::WouldBlock) => Ok(()),
        };
        if let Err(error) = killed {
            tracing::warn!(%error, "a process that compiles was not ended");
        }
    }

    /// Ends it, waits until it is gone, and says how it went.
    fn end(&self) -> String {
        let mut child = self.child();
        // One that has ended by itself is told apart by its status.
        let ended = child.kill().and_then(|()| child.wait());
        ended.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// Memory of the host that it holds; `None` where that is not known, as of one that has ended.
    fn resident_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    }
}
