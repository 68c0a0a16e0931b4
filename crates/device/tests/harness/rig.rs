//! One device and the steps from PTX text to a finished launch, all through the public API.

use std::sync::{Arc, Mutex, PoisonError};

use device::{
    Arguments, Completion, Device, DeviceKind, Error, Geometry, IntegerPointers, Launch,
    LaunchControl, Mode, Module, Program, Region, Value,
};
use ptx::{Admitted, ConfineOptions, Globals, TrustedByEmbedder, Validated};

use super::{Argument, Image, Memory, Recorded, Recorder};

/// How texts are let onto a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// As they are: the device checks each access, or the tests answer for them.
    AsTheyAre,
    /// Rewritten and verified.
    Confined(ConfineOptions),
}

impl Admission {
    /// What a device is given for a text.
    pub(crate) fn admit(self, text: Validated, kind: DeviceKind) -> Result<Admitted, Error> {
        Ok(match (self, kind) {
            (Self::AsTheyAre, DeviceKind::Cpu) => Admitted::checked(text),
            (Self::AsTheyAre, DeviceKind::Cuda) => {
                Admitted::trusted(text, TrustedByEmbedder::i_vouch_for_this_kernel())
            }
            (Self::Confined(options), _) => {
                let confined = ptx::confine(&text, options)?;
                let printed = confined.text.clone();
                let verified = ptx::verify(confined)
                    .unwrap_or_else(|error| panic!("refused by the verifier: {error}\n{printed}"));
                Admitted::confined(verified)
            }
        })
    }
}

/// A module whose entries are remembered with its text and variables.
#[derive(Debug)]
struct Remembered {
    module: Arc<dyn Module>,
    text: Arc<str>,
    entries: Arc<Entries>,
}

impl Module for Remembered {
    fn entry(&self, name: &str) -> Result<Arc<dyn Program>, Error> {
        let program = self.module.entry(name)?;
        self.entries.lock().push(Entry {
            program: Arc::clone(&program),
            text: Arc::clone(&self.text),
            globals: self.module.globals().cloned(),
        });
        Ok(program)
    }

    fn globals(&self) -> Option<&Globals> {
        self.module.globals()
    }
}

/// What is known of an entry.
#[derive(Clone, Debug)]
struct Entry {
    program: Arc<dyn Program>,
    text: Arc<str>,
    /// The variables of its module, where they lie in the window of whoever launches it.
    globals: Option<Globals>,
}

/// The entries that were loaded.
#[derive(Debug, Default)]
struct Entries(Mutex<Vec<Entry>>);

impl Entries {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, program: &Arc<dyn Program>) -> Option<Entry> {
        let entries = self.lock();
        let found = entries
            .iter()
            .find(|known| Arc::ptr_eq(&known.program, program));
        found.cloned()
    }
}

/// Grid, block and dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) mode: Mode,
}

impl Shape {
    /// Blocks and threads along x.
    pub(crate) fn line(blocks: u32, threads: u32) -> Self {
        Self::plane([blocks, 1], [threads, 1])
    }

    /// Blocks and threads along x and y.
    pub(crate) fn plane([x, y]: [u32; 2], [width, height]: [u32; 2]) -> Self {
        Self {
            grid: [x, y, 1],
            block: [width, height, 1],
            shared_bytes: 0,
            mode: Mode::Plain,
        }
    }

    /// The same with dynamic shared memory.
    pub(crate) fn shared(self, shared_bytes: u32) -> Self {
        Self {
            shared_bytes,
            ..self
        }
    }
}

/// A device under test.
pub(crate) struct Rig {
    device: Arc<dyn Device>,
    admission: Admission,
    entries: Arc<Entries>,
    recorder: Option<Arc<Recorder>>,
}

impl Rig {
    /// For a device, and texts as they are.
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        Self::with(device, Admission::AsTheyAre)
    }

    /// For a device, and how texts are let onto it.
    pub(crate) fn with(device: Arc<dyn Device>, admission: Admission) -> Self {
        Self {
            device,
            admission,
            entries: Arc::default(),
            recorder: None,
        }
    }

    /// The same, which tells of each launch that ends well.
    pub(crate) fn recorded(self, recorder: Arc<Recorder>) -> Self {
        Self {
            recorder: Some(recorder),
            ..self
        }
    }

    /// The device.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Whether a kernel of these tests that goes wrong is stopped there and then: a device that checks every access does so,
    /// one that runs kernels on the embedder's word or confined does not.
    pub(crate) fn isolates(&self) -> bool {
        self.admission == Admission::AsTheyAre && self.device.info().kind == DeviceKind::Cpu
    }

    /// Whether the device is given texts as they are.
    pub(crate) fn takes_texts_as_they_are(&self) -> bool {
        self.admission == Admission::AsTheyAre
    }

    /// Memory of one guest.
    pub(crate) fn memory(&self) -> Memory {
        Memory::new(self.device(), self.admission)
    }

    /// Loads a text.
    pub(crate) fn module(&self, text: &str) -> Result<Arc<dyn Module>, Error> {
        let validated = ptx::read(text.as_bytes())?;
        let kind = self.device.info().kind;
        let module = self.device.load(&self.admission.admit(validated, kind)?)?;
        Ok(Arc::new(Remembered {
            module,
            text: text.into(),
            entries: Arc::clone(&self.entries),
        }))
    }

    /// Loads a text and an entry of it, or says why not.
    pub(crate) fn try_load(&self, text: &str, entry: &str) -> Result<Arc<dyn Program>, Error> {
        self.module(text)?.entry(entry)
    }

    /// Loads an entry of a text.
    pub(crate) fn load(&self, text: &str, entry: &str) -> Arc<dyn Program> {
        match self.try_load(text, entry) {
            Ok(program) => program,
            Err(error) => panic!("`{entry}` does not load: {error}"),
        }
    }

    /// Starts a launch on the memory given, or on none.
    pub(crate) fn start(
        &self,
        program: &Arc<dyn Program>,
        shape: Shape,
        values: &[Value<'_>],
        memory: Option<&Memory>,
        control: LaunchControl,
    ) -> Result<(Arc<Launch>, Completion), Error> {
        let region = memory.map(|memory| Arc::clone(memory.region()));
        let globals = memory.and_then(|memory| {
            let globals = self.entries.of(program)?.globals?;
            memory.variables_at(&globals)
        });
        let control = LaunchControl {
            globals: globals.unwrap_or(control.globals),
            ..control
        };
        self.start_on(program, shape, values, region, control)
    }

    /// Starts a launch on the region given, or on none.
    pub(crate) fn start_on(
        &self,
        program: &Arc<dyn Program>,
        shape: Shape,
        values: &[Value<'_>],
        region: Option<Arc<Region>>,
        control: LaunchControl,
    ) -> Result<(Arc<Launch>, Completion), Error> {
        let attributes = program.attributes();
        let geometry = Geometry::new(
            shape.grid,
            shape.block,
            shape.shared_bytes,
            shape.mode,
            &self.device.info().limits,
            Some(attributes),
        )?;
        let arguments = Arguments::new(values, attributes, IntegerPointers::Refuse)?;
        let mut launch = Arc::default();
        Launch::prepare(&mut launch, geometry, arguments, region.as_ref(), control)?;
        let completion = Arc::clone(&launch).start(Arc::clone(program));
        Ok((launch, completion))
    }

    /// Runs a launch to its end, then looks for bytes written outside of the buffers.
    pub(crate) fn try_launch(
        &self,
        program: &Arc<dyn Program>,
        shape: Shape,
        values: &[Value<'_>],
        memory: &Memory,
    ) -> Result<(), Error> {
        let before = self.recorder.as_ref().map(|_| memory.image());
        let (_launch, completion) = self.start(
            program,
            shape,
            values,
            Some(memory),
            LaunchControl::default(),
        )?;
        let outcome = completion.wait();
        memory.check_canaries();
        if let (Some(recorder), Some(memory), Some(entry), Ok(())) =
            (&self.recorder, before, self.entries.of(program), &outcome)
        {
            recorder.push(Recorded {
                text: entry.text,
                entry: program.attributes().signature.entry.clone(),
                shape,
                values: values.iter().map(Argument::of).collect(),
                memory,
            });
        }
        outcome
    }

    /// Makes a launch that was recorded again, on memory of its own and with another image of it, and gives what is in it then.
    pub(crate) fn replay(
        &self,
        program: &Arc<dyn Program>,
        shape: Shape,
        values: &[Argument],
        image: &Image,
        control: LaunchControl,
    ) -> Result<Image, Error> {
        let mut memory = self.memory();
        memory.become_as(image);
        let mut values = values.to_vec();
        for value in &mut values {
            if let Argument::Bytes(bytes) = value {
                image.move_addresses(bytes, 0, memory.origin());
            }
        }
        let values: Vec<Value<'_>> = values.iter().map(Argument::value).collect();
        let (_launch, completion) = self.start(program, shape, &values, Some(&memory), control)?;
        completion.wait()?;
        Ok(memory.image())
    }

    /// As [`Rig::try_launch`], for a launch that must succeed.
    pub(crate) fn launch(
        &self,
        program: &Arc<dyn Program>,
        shape: Shape,
        values: &[Value<'_>],
        memory: &Memory,
    ) {
        if let Err(error) = self.try_launch(program, shape, values, memory) {
            let entry = &program.attributes().signature.entry;
            panic!("`{entry}` {shape:?}: {error}");
        }
    }
}
