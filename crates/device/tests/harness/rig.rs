//! One device and the steps from PTX text to a finished launch, all through the public API.

use std::sync::Arc;

use device::{
    Arguments, Completion, Device, DeviceKind, Error, Geometry, IntegerPointers, Launch,
    LaunchControl, Mode, Module, Program, Region, Value,
};
use ptx::{Admitted, TrustedByEmbedder};

use super::Memory;

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
}

impl Rig {
    /// For a device.
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        Self { device }
    }

    /// The device.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Whether the device keeps the kernels of these tests to their own memory: one that checks every access does,
    /// one that runs them on the embedder's word does not.
    pub(crate) fn isolates(&self) -> bool {
        self.device.info().kind == DeviceKind::Cpu
    }

    /// Memory of one guest.
    pub(crate) fn memory(&self) -> Memory {
        Memory::new(self.device())
    }

    /// Loads a text.
    pub(crate) fn module(&self, text: &str) -> Result<Arc<dyn Module>, Error> {
        let validated = ptx::read(text.as_bytes())?;
        let admitted = match self.device.info().kind {
            DeviceKind::Cpu => Admitted::checked(validated),
            DeviceKind::Cuda => {
                Admitted::trusted(validated, TrustedByEmbedder::i_vouch_for_this_kernel())
            }
        };
        self.device.load(&admitted)
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
        let arguments = Arguments::new(values, &attributes.signature, IntegerPointers::Refuse)?;
        let mut launch = Arc::default();
        Launch::prepare(&mut launch, geometry, arguments, region, control)?;
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
        let (_launch, completion) = self.start(
            program,
            shape,
            values,
            Some(memory),
            LaunchControl::default(),
        )?;
        let outcome = completion.wait();
        memory.check_canaries();
        outcome
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
