//! A device with a guest's memory, on which small texts run.

use std::sync::Arc;

use device::cpu::{Config, CpuDevice};
use device::{
    Arguments, Completion, Device, Error, Geometry, IntegerPointers, Launch, LaunchControl, Mode,
    Program, Region, RegionSpec, Value,
};
use ptx::Admitted;

/// Bytes of the memory.
pub(crate) const MEMORY: u64 = 1 << 16;

pub(crate) const HEADER: &str = ".version 8.4\n.target sm_90\n.address_size 64\n";

pub(crate) struct Bench {
    pub(crate) device: Arc<CpuDevice>,
    pub(crate) region: Arc<Region>,
}

/// Grid, block and how blocks are scheduled.
#[derive(Clone, Copy)]
pub(crate) struct Shape(pub(crate) u32, pub(crate) u32, pub(crate) Mode);

impl Bench {
    pub(crate) fn new(threads: usize) -> Self {
        let device = CpuDevice::new(Config {
            threads,
            ..Config::default()
        })
        .unwrap();
        let spec = RegionSpec {
            window_bytes: MEMORY,
            initial_bytes: MEMORY,
            maximum_bytes: MEMORY,
            reserved_bytes: MEMORY,
            guard_bytes: 0,
        };
        let region = device.new_region(spec).unwrap();
        Self { device, region }
    }

    /// Loads the only entry of a text.
    pub(crate) fn load(&self, text: &str) -> Result<Arc<dyn Program>, Error> {
        let program = ptx::read(text.as_bytes())?;
        let entry = program.entries()[0].entry.clone();
        self.device.load(&Admitted::checked(program))?.entry(&entry)
    }

    pub(crate) fn start(
        &self,
        program: &Arc<dyn Program>,
        Shape(blocks, threads, mode): Shape,
        values: &[Value<'_>],
        control: LaunchControl,
    ) -> Completion {
        let attributes = program.attributes();
        let limits = &self.device.info().limits;
        let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
        let geometry = Geometry::new(grid, block, 0, mode, limits, Some(attributes)).unwrap();
        let arguments = Arguments::new(values, attributes, IntegerPointers::Accept).unwrap();
        let mut launch = Arc::default();
        let region = Some(&self.region);
        Launch::prepare(&mut launch, geometry, arguments, region, control).unwrap();
        launch.start(Arc::clone(program))
    }

    /// Runs a text whose entry takes the address of `count` words, which are zero at first, and gives those.
    pub(crate) fn words(&self, text: &str, shape: Shape, count: usize) -> Result<Vec<u32>, Error> {
        let program = self.load(text)?;
        self.region
            .window()
            .store_run(0, &vec![0_u32; count])
            .unwrap();
        let pointer = Value::Pointer {
            offset: 0,
            len: 4 * count as u64,
        };
        self.start(&program, shape, &[pointer], LaunchControl::default())
            .wait()?;
        let mut words = vec![0; count];
        self.region.window().load_run(0, &mut words).unwrap();
        Ok(words)
    }
}

/// One block of this many threads.
pub(crate) fn block(threads: u32) -> Shape {
    Shape(1, threads, Mode::Plain)
}

/// A text of one entry `k` with the parameter `out`, whose statements are `body`. `%o` is the address of the thread's word,
/// `%t` its number.
pub(crate) fn entry(body: &str) -> String {
    format!(
        "{HEADER}.visible .entry k(.param .u64 out) {{
.reg .b64 %o, %base, %x<9>; .reg .b32 %t, %r<9>; .reg .b16 %h<9>; .reg .pred %p<9>;
ld.param.u64 %base, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.u64 %o, %o, %base;
{body}
}}"
    )
}
