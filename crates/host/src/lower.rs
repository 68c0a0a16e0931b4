//! From what a guest asks for to what a device runs: [`LaunchCall`] (alleged) through decoded values to a prepared launch. Every
//! way to launch comes through [`lower`], in this order of checks.

use std::borrow::Cow;
use std::sync::Arc;

use abi::argv::{self, Arg, DecodeError, Dialect};
use device::{
    Arguments, Device, DeviceLimits, Geometry, HostAddr, IntegerPointers, Launch, LaunchControl,
    Mode, Program, Region, Value,
};

use crate::context::{LaunchPermit, Recorded, Shared};
use crate::error::Error;
use crate::guest_mem::{GuestMemory, GuestSlice};

/// The arguments of a launch import.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchCall {
    pub(crate) kernel: i64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) argv: GuestSlice,
    pub(crate) mode: Mode,
    pub(crate) dialect: Dialect,
}

/// A launch that may start, and the right to it.
pub(crate) struct Lowered<'a> {
    pub(crate) program: Arc<dyn Program>,
    pub(crate) launch: Arc<Launch>,
    pub(crate) permit: LaunchPermit<'a>,
}

/// Checks a launch and puts it together. What argv says is recorded once it is decoded.
pub(crate) fn lower<'a>(
    shared: &'a Shared,
    memory: &mut GuestMemory<'_>,
    call: &LaunchCall,
) -> Result<Lowered<'a>, Error> {
    let base = memory.base();
    let memory = &*memory;
    let mut recorded = shared.recorded();
    let Recorded {
        argv,
        dialect,
        is_whole,
        launch: kept,
        region: last_region,
        in_flight,
        launches,
    } = &mut *recorded;
    *is_whole = false;
    *dialect = call.dialect;
    // The guest is suspended and its memory borrowed until this function returns: nobody can change what is decoded here.
    let given = capped(memory.read(call.argv)?);

    let kernel = shared.registry.borrow(call.kernel, shared.instance)?;
    let code = kernel.code();
    let device = shared.device();
    let mut limits = device
        .as_ref()
        .map_or(DeviceLimits::ARCHITECTURAL, |device| device.info().limits);
    limits.blocks = limits.blocks.min(shared.limits.blocks);
    let attributes = code.as_ref().ok().map(|code| code.program.attributes());
    let geometry = Geometry::new(
        call.grid,
        call.block,
        call.shared_bytes,
        call.mode,
        &limits,
        attributes,
    )?;

    let decode = Decode {
        argv: given,
        dialect: call.dialect,
        memory_bytes: memory.size(),
    };
    // Room for few arguments is made sooner than for many.
    let (mut few, mut many) = ([Value::U32(0); FEW], None);
    let (values, has_buffers) = match decode.values_in(&mut few)? {
        Some(decoded) => decoded,
        None => {
            let room = many.insert([Value::U32(0); abi::MAX_ARGV_RECORDS]);
            let decoded = decode.values_in(room)?;
            decoded.ok_or(Error::Argv(DecodeError::TooMany))?
        }
    };
    argv.clear();
    argv.extend_from_slice(given);
    *is_whole = true;

    let device = device?;
    let code = code?;
    let program = &code.program;
    let region = region(last_region, device, base, memory.size())?;
    let region = region.as_deref();
    if has_buffers {
        let args = argv::decode(given, call.dialect).map_while(Result::ok);
        for (index, (value, arg)) in values.iter_mut().zip(args).enumerate() {
            if let Arg::Buffer { handle, offset } = arg {
                *value = buffer(shared, region, index, handle, offset)?;
            }
        }
    }
    let integers = match call.dialect {
        Dialect::Current => IntegerPointers::Refuse,
        Dialect::V0_2 => IntegerPointers::Accept,
    };
    let arguments = Arguments::new(values, program.attributes(), integers)?;
    let limits = &shared.limits;
    if *in_flight >= limits.launches {
        return Err(Error::Quota {
            what: "launches in flight",
            given: *in_flight + 1,
            limit: limits.launches,
        });
    }
    let control = LaunchControl {
        time: limits.deadline,
        budget: limits.budget,
        globals: code.module.globals_at(),
    };
    let mut launch = kept.take().unwrap_or_default();
    if let Err(error) = Launch::prepare(&mut launch, geometry, arguments, region, control) {
        *kept = Some(launch);
        return Err(error.into());
    }
    *in_flight += 1;
    *launches += 1;
    Ok(Lowered {
        program: Arc::clone(program),
        launch,
        permit: LaunchPermit::counted(shared, call.kernel),
    })
}

/// As many arguments as most kernels have.
const FEW: usize = 8;

/// As much of argv as decoding looks at: one byte over the cap shows that it is too long.
fn capped(argv: &[u8]) -> &[u8] {
    &argv[..argv.len().min(abi::MAX_ARGV_BYTES + 1)]
}

/// The memory that the guest runs on, most likely the `last` one; `None` if the device cannot address it. Memory that the
/// embedder made addressable is asked about every time, since nothing tells when it is gone.
fn region<'a>(
    last: &'a mut Option<Arc<Region>>,
    device: &Arc<dyn Device>,
    base: Option<HostAddr>,
    bytes: u64,
) -> Result<Option<Cow<'a, Arc<Region>>>, Error> {
    let Some(base) = base else { return Ok(None) };
    if last.as_ref().is_none_or(|last| last.base() != base) {
        *last = device.regions().find(base);
    }
    match last {
        Some(region) => Ok(Some(Cow::Borrowed(region))),
        None => Ok(device.adopt(base, bytes)?.map(Cow::Owned)),
    }
}

/// Argv to be decoded, and what its ranges must lie in.
struct Decode<'a> {
    argv: &'a [u8],
    dialect: Dialect,
    memory_bytes: u64,
}

impl<'a> Decode<'a> {
    /// The values in `room` and whether buffers among them are still to be looked up; `None` if there is not room for all.
    fn values_in<'v>(
        &self,
        room: &'v mut [Value<'a>],
    ) -> Result<Option<(&'v mut [Value<'a>], bool)>, Error> {
        let mut records = argv::decode(self.argv, self.dialect);
        let (mut count, mut has_buffers) = (0, false);
        for value in &mut *room {
            let Some(record) = records.whole() else { break };
            *value = match record {
                Arg::Buffer { offset, .. } => {
                    has_buffers = true;
                    Value::U64(offset)
                }
                Arg::Bytes(bytes) => Value::Bytes(bytes),
                Arg::F32(value) => Value::F32(value),
                Arg::F64(value) => Value::F64(value),
                Arg::I32(value) => Value::I32(value),
                Arg::I64(value) => Value::I64(value),
                Arg::Ptr { offset, len } => self.pointer(count, offset, len)?,
                Arg::U32(value) => Value::U32(value),
                Arg::U64(value) => Value::U64(value),
            };
            count += 1;
        }
        if count == room.len() && records.whole().is_some() {
            return Ok(None);
        }
        records.finish().map_err(Error::Argv)?;
        Ok(Some((&mut room[..count], has_buffers)))
    }

    fn pointer(&self, index: usize, at: u32, len: u32) -> Result<Value<'a>, Error> {
        let size = self.memory_bytes;
        if u64::from(at) + u64::from(len) > size {
            return Err(Error::ArgumentPastEnd {
                index,
                at,
                len,
                size,
            });
        }
        Ok(Value::Pointer {
            offset: at.into(),
            len: len.into(),
        })
    }
}

/// A place in a buffer that was carved from the memory that the kernel runs on.
fn buffer<'a>(
    shared: &Shared,
    region: Option<&Arc<Region>>,
    index: usize,
    handle: i64,
    at: u64,
) -> Result<Value<'a>, Error> {
    let buffer = shared.buffer(handle)?;
    let size = buffer.bytes();
    let Some(len) = size.checked_sub(at) else {
        return Err(Error::ArgumentPastBuffer { index, at, size });
    };
    if !region.is_some_and(|region| Arc::ptr_eq(region, buffer.region())) {
        return Err(Error::BufferOfOtherMemory { index });
    }
    Ok(Value::Pointer {
        offset: buffer.start() + at,
        len,
    })
}
