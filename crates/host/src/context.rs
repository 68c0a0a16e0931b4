//! What an embedder keeps in its store: [`WasiCudaContext`], one instance's rights, kernels, buffers and last failure.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use abi::AbiError;
use abi::argv::{self, Dialect};
use device::{
    Completion, Device, Geometry, Health, Launch, Program, Region, Signal, StopReason, Trap,
};

use crate::buffers::Buffer;
use crate::component::Held;
use crate::error::Error;
use crate::event::{self, Audit, Event};
use crate::isolation::Isolation;
use crate::kernel_args::LoweredArgSnapshot;
use crate::modules::SharedModules;
use crate::policy::{Limits, Quotas};
use crate::registry::{ById, KernelRegistry, random_handle};
use crate::telemetry::{Counters, Metrics, count};

/// Names an instance: whoever owns a kernel or a buffer. An embedder gives each instance its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceId(u128);

impl InstanceId {
    /// The instance of this number.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// A random instance.
    ///
    /// # Errors
    /// [`Internal`](AbiError::Internal) if the operating system gives no random bytes.
    pub fn random() -> Result<Self, AbiError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|_| AbiError::Internal)?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }
}

/// A store's data that has a context.
pub trait HasWasiCuda {
    /// The context of the instance that runs in the store.
    fn wasi_cuda(&self) -> &WasiCudaContext;
}

/// One instance's side of `wasi_cuda`: which device it uses, what it may, what it has, and what went wrong last.
///
/// The capability is off until [`enable_wasi_cuda`](Self::enable_wasi_cuda): every import then answers -1. Dropping the
/// context releases the instance's kernels and buffers.
#[derive(Debug)]
pub struct WasiCudaContext {
    /// The kernels of this context.
    pub registry: KernelRegistry,
    shared: Arc<Shared>,
}

impl WasiCudaContext {
    /// A context without a device: launches check and record their arguments, then answer -1.
    #[must_use]
    pub fn new(instance: InstanceId) -> Self {
        Self::builder(instance).build()
    }

    /// A context to be configured.
    pub fn builder(instance: InstanceId) -> Builder {
        Builder {
            instance,
            device: None,
            limits: Limits::default(),
            registry: KernelRegistry::default(),
            isolation: None,
            audit: None,
        }
    }

    /// Lets the guest use the imports.
    pub fn enable_wasi_cuda(&mut self) {
        self.shared.enabled.store(true, Ordering::Release);
    }

    /// Takes the right away again; the text of the last failure goes too.
    pub fn disable_wasi_cuda(&mut self) {
        self.shared.enabled.store(false, Ordering::Release);
        self.shared.report().text.clear();
    }

    /// Whether the guest may use the imports.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.shared.enabled.load(Ordering::Acquire)
    }

    /// The instance.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        self.shared.instance
    }

    /// The device, if there is one.
    #[must_use]
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.shared.device.as_ref()
    }

    /// Text of the guest's last failure; empty if there was none.
    #[must_use]
    pub fn last_error(&self) -> String {
        self.shared.report().text.clone()
    }

    /// Report of the last kernel trap.
    #[must_use]
    pub fn last_trap(&self) -> Option<Trap> {
        self.shared.report().trap
    }

    /// The line of the kernel's text that the last kernel trap is about, without the blanks around it; `None` where there was none, or where the
    /// kernel was unloaded meanwhile. It is the guest's own text, with nothing in it that a terminal would obey.
    #[must_use]
    pub fn last_trap_source(&self) -> Option<String> {
        self.shared.report().trap_source.clone()
    }

    /// The arguments of the last launch that got as far as being recorded; empty if a later one did not.
    #[must_use]
    pub fn last_lowered_args(&self) -> Vec<LoweredArgSnapshot> {
        let recorded = self.shared.recorded();
        if !recorded.is_whole {
            return Vec::new();
        }
        let records = argv::decode(&recorded.argv, recorded.dialect);
        records
            .map_while(Result::ok)
            .map(LoweredArgSnapshot::from)
            .collect()
    }

    /// Counters.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let quotas = &self.shared.quotas;
        self.shared.counters.snapshot(
            self.shared.recorded().launches,
            quotas.kernels.used(),
            quotas.buffer_bytes.used(),
        )
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for WasiCudaContext {
    fn drop(&mut self) {
        self.registry.clear(self.shared.instance);
        self.shared.buffers.clear();
    }
}

/// Configures a [`WasiCudaContext`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    instance: InstanceId,
    device: Option<Arc<dyn Device>>,
    limits: Limits,
    registry: KernelRegistry,
    isolation: Option<Isolation>,
    audit: Option<Arc<dyn Audit>>,
}

impl Builder {
    /// Runs kernels on `device`.
    pub fn device(mut self, device: Arc<dyn Device>) -> Self {
        self.device = Some(device);
        self
    }

    /// Sets limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long a kernel may run.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.limits.deadline = Some(deadline);
        self
    }

    /// Uses a registry that other contexts use too; each finds the kernels of its own instance only.
    pub fn registry(mut self, registry: KernelRegistry) -> Self {
        self.registry = registry;
        self
    }

    /// Sets what becomes of stray accesses of the guest's kernels. By default the CPU device reports them, which costs it nothing, and a
    /// GPU confines them.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = Some(isolation);
        self
    }

    /// Has what happens in the instance told to `audit`.
    pub fn audit(mut self, audit: Arc<dyn Audit>) -> Self {
        self.audit = Some(audit);
        self
    }

    /// The context.
    #[must_use]
    pub fn build(self) -> WasiCudaContext {
        let shared = Shared {
            instance: self.instance,
            enabled: AtomicBool::new(false),
            device: self.device,
            limits: self.limits,
            quotas: Quotas::new(&self.limits),
            registry: self.registry.clone(),
            isolation: self.isolation,
            audit: self.audit,
            buffers: ById::default(),
            components: Held::default(),
            modules: SharedModules::default(),
            report: Mutex::default(),
            recorded: Mutex::new(Recorded {
                argv: Vec::new(),
                dialect: Dialect::Current,
                is_whole: false,
                launch: None,
                region: None,
                in_flight: 0,
                launches: 0,
            }),
            is_quarantined: AtomicBool::new(false),
            stuck: Mutex::default(),
            counters: Counters::default(),
        };
        WasiCudaContext {
            registry: self.registry,
            shared: Arc::new(shared),
        }
    }
}

/// What imports work on. It outlives the store while a call that was dropped is being cleaned up.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) instance: InstanceId,
    enabled: AtomicBool,
    device: Option<Arc<dyn Device>>,
    pub(crate) limits: Limits,
    pub(crate) quotas: Quotas,
    pub(crate) registry: KernelRegistry,
    isolation: Option<Isolation>,
    audit: Option<Arc<dyn Audit>>,
    buffers: ById<i64, Arc<Buffer>>,
    pub(crate) components: Held,
    pub(crate) modules: SharedModules,
    report: Mutex<Report>,
    recorded: Mutex<Recorded>,
    /// Whether there is anything to look at in `stuck`.
    is_quarantined: AtomicBool,
    stuck: Mutex<Vec<Arc<Signal>>>,
    pub(crate) counters: Counters,
}

/// What the guest can ask about its last failure.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) trap: Option<Trap>,
    trap_source: Option<String>,
}

/// What a launch leaves behind: its arguments for the embedder to look at, and all that the next one uses again.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The arguments as the guest encoded them.
    pub(crate) argv: Vec<u8>,
    pub(crate) dialect: Dialect,
    /// Whether the arguments are in order, and so are what the embedder is shown.
    pub(crate) is_whole: bool,
    /// None while a launch of this instance runs; one that begins meanwhile makes its own.
    pub(crate) launch: Option<Arc<Launch>>,
    /// The memory that the launch ran on. It lives as long as its instance's store, which holds this context as well.
    pub(crate) region: Option<Arc<Region>>,
    /// Launches in flight: [`LaunchPermit`]s that there are.
    pub(crate) in_flight: u64,
    /// Launches that a device started.
    pub(crate) launches: u64,
}

/// The right to one launch. Dropping it stops what was launched and gives back what it holds.
#[derive(Debug)]
pub(crate) struct LaunchPermit<'a> {
    shared: &'a Shared,
    kernel: i64,
    completion: Option<Completion>,
    has_ended: bool,
    /// If anybody wants to know.
    started: Option<Box<Started>>,
}

/// What was started, and when.
#[derive(Debug)]
struct Started {
    program: Arc<dyn Program>,
    geometry: Geometry,
    at: Instant,
    span: tracing::Span,
}

impl<'a> LaunchPermit<'a> {
    /// The right to a launch that was counted in [`Recorded::in_flight`]. It must not be dropped under that lock.
    pub(crate) fn counted(shared: &'a Shared, kernel: i64) -> Self {
        Self {
            shared,
            kernel,
            completion: None,
            has_ended: false,
            started: None,
        }
    }

    /// Starts the launch that the right is used for. A device that panics has not taken it: nothing is left to wait for.
    pub(crate) fn start(&mut self, launch: Arc<Launch>, program: Arc<dyn Program>) {
        if event::is_told(self.shared.audit.as_ref()) {
            let kernel = program.attributes().signature.entry.as_str();
            let instance = self.shared.instance;
            self.started = Some(Box::new(Started {
                span: tracing::debug_span!("launch", ?instance, kernel),
                program: Arc::clone(&program),
                geometry: launch.geometry(),
                at: Instant::now(),
            }));
        }
        self.completion = Some(launch.start(program));
    }

    /// Takes note of the end of what was started.
    fn note(&self, outcome: &Result<(), device::Error>) {
        let counters = &self.shared.counters;
        match outcome {
            Ok(()) => {
                if let Some(started) = &self.started {
                    self.shared.tell(&Event::Launch {
                        kernel: &started.program.attributes().signature.entry,
                        geometry: started.geometry,
                        took: started.at.elapsed(),
                    });
                }
            }
            Err(device::Error::Trap(trap)) => {
                count(&counters.traps);
                self.shared.report().trap_source = self.shared.source(self.kernel, trap.line);
            }
            Err(device::Error::Stopped(_)) => count(&counters.stopped),
            Err(_) => {}
        }
    }
}

/// The end of what was started.
impl Future for LaunchPermit<'_> {
    type Output = Result<(), device::Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            completion,
            started,
            ..
        } = &mut *self;
        let Some(completion) = completion else {
            return Poll::Ready(Ok(()));
        };
        let inside = started.as_ref().map(|started| started.span.enter());
        let outcome = ready!(Pin::new(completion).poll(context));
        drop(inside);
        self.has_ended = true;
        self.note(&outcome);
        Poll::Ready(outcome)
    }
}

impl Drop for LaunchPermit<'_> {
    fn drop(&mut self) {
        let completion = self.completion.take();
        if completion.is_some() && !self.has_ended {
            count(&self.shared.counters.stopped);
            self.shared.tell(&Event::Stop {
                reason: StopReason::Requested,
            });
        }
        let launch = completion.and_then(Completion::into_launch);
        self.shared.return_launch(launch);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The first check of every import: the capability, and that no launch of the instance is stuck.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        if !self.enabled.load(Ordering::Acquire) {
            return Err(Error::Disabled);
        }
        if self.is_quarantined.load(Ordering::Acquire) {
            return self.leave_quarantine();
        }
        Ok(())
    }

    /// Lifts the quarantine if the device has let go meanwhile.
    fn leave_quarantine(&self) -> Result<(), Error> {
        let mut stuck = lock(&self.stuck);
        stuck.retain(|signal| signal.is_stuck());
        if !stuck.is_empty() {
            return Err(Error::Stuck);
        }
        self.is_quarantined.store(false, Ordering::Release);
        Ok(())
    }

    /// The device, if there is one that works.
    pub(crate) fn device(&self) -> Result<&Arc<dyn Device>, Error> {
        let Some(device) = &self.device else {
            let reason = "this instance was given none".into();
            return Err(Error::NoDevice { reason });
        };
        match device.health() {
            Health::Good => Ok(device),
            Health::Lost { reason } => Err(device::Error::DeviceLost { reason }.into()),
        }
    }

    /// What becomes of stray accesses of the guest's kernels on `device`.
    pub(crate) fn isolation_on(&self, device: &dyn Device) -> Isolation {
        self.isolation
            .unwrap_or_else(|| Isolation::default_on(device))
    }

    pub(crate) fn report(&self) -> MutexGuard<'_, Report> {
        lock(&self.report)
    }

    pub(crate) fn recorded(&self) -> MutexGuard<'_, Recorded> {
        lock(&self.recorded)
    }

    /// Counts a launch as no longer in flight and keeps it for the next one, or notes that the device does not let go of it.
    fn return_launch(&self, launch: Option<Arc<Launch>>) {
        let stuck = launch.as_ref().filter(|launch| launch.signal().is_stuck());
        if let Some(launch) = stuck {
            tracing::error!(instance = ?self.instance, "a kernel did not stop; its instance is quarantined");
            lock(&self.stuck).push(Arc::clone(launch.signal()));
            self.is_quarantined.store(true, Ordering::Release);
        }
        let is_free = stuck.is_none();
        let mut recorded = self.recorded();
        recorded.in_flight -= 1;
        if is_free && launch.is_some() {
            recorded.launch = launch;
        }
    }

    /// A line of the text of a kernel that is loaded, fit to be shown.
    fn source(&self, kernel: i64, line: u32) -> Option<String> {
        let kernel = self.registry.get(kernel, self.instance).ok()?;
        let text = &kernel.code().ok()?.module.text;
        let index = usize::try_from(line.checked_sub(1)?).ok()?;
        let line = text.split(|&byte| byte == b'\n').nth(index)?;
        let line = String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]);
        Some(clip(&line.trim().replace('\t', " ")).into_owned())
    }

    /// Tells whoever listens what happened.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        event::tell(self.audit.as_ref(), self.instance, event);
    }

    /// Records a failure for the guest to ask about, and gives its code.
    pub(crate) fn fail(&self, error: &Error) -> AbiError {
        count(&self.counters.failures);
        let code = error.abi();
        if *error == Error::Disabled {
            self.tell(&Event::Refuse { code, text: "" });
            return code;
        }
        let text = error.to_string();
        let text = clip(&text);
        self.tell(&match error {
            Error::Device(device::Error::Trap(trap)) => Event::Trap { trap: *trap },
            Error::Device(device::Error::Stopped(reason)) => Event::Stop { reason: *reason },
            _ => Event::Refuse { code, text: &text },
        });
        let mut report = self.report();
        if let Error::Device(device::Error::Trap(trap)) = error {
            report.trap = Some(*trap);
        }
        report.text.clear();
        report.text.push_str(&text);
        code
    }

    pub(crate) fn add_buffer(&self, buffer: Buffer) -> Result<i64, Error> {
        let handle = random_handle().map_err(|_| Error::Internal {
            what: "making a handle",
        })?;
        self.buffers.insert(handle, Arc::new(buffer));
        Ok(handle)
    }

    pub(crate) fn buffer(&self, handle: i64) -> Result<Arc<Buffer>, Error> {
        let found = self
            .buffers
            .get(&handle)
            .ok_or(Error::InvalidHandle { handle })?;
        Ok(Arc::clone(&found))
    }

    pub(crate) fn remove_buffer(&self, handle: i64) -> Result<(), Error> {
        self.buffers
            .remove(&handle)
            .map(drop)
            .ok_or(Error::InvalidHandle { handle })
    }
}

/// Bytes of a line of a kernel's text that are shown.
const SHOWN_BYTES: usize = 120;

/// Makes a text fit to be shown: control characters, which guests can put in names, are replaced, and it is cut at
/// [`abi::LAST_ERROR_BYTES`], at a character boundary and with an ellipsis.
pub(crate) fn clip(text: &str) -> Cow<'_, str> {
    const ELLIPSIS: &str = "…";
    let is_hidden = |c: char| c.is_control() && c != '\n';
    let mut text = Cow::from(text);
    if text.contains(is_hidden) {
        text = text.replace(is_hidden, "\u{FFFD}").into();
    }
    if text.len() > abi::LAST_ERROR_BYTES {
        let end = text.floor_char_boundary(abi::LAST_ERROR_BYTES - ELLIPSIS.len());
        text = format!("{}{ELLIPSIS}", &text[..end]).into();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character_and_marked() {
        assert_eq!(clip("short"), "short");
        let exact = "x".repeat(abi::LAST_ERROR_BYTES);
        assert_eq!(clip(&exact), exact);
        let long = "ä".repeat(abi::LAST_ERROR_BYTES);
        let cut = clip(&long);
        assert!(cut.len() <= abi::LAST_ERROR_BYTES);
        assert!(cut.ends_with("ä…"));
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(
            clip("a\0b\x1b[31m\nc\u{9b}"),
            "a\u{FFFD}b\u{FFFD}[31m\nc\u{FFFD}"
        );
    }
}
