//! A component's launch: arguments that are values become argv and buffers of the launch's own, and what it answers is read
//! back. The launch itself is the one of every guest.

use std::sync::Arc;

use abi::argv::{self, Arg, Dialect};
use device::Mode;
use wasmtime::component::Resource;

use super::answer::failure;
use super::{Host, KernelHandle, api, buffer_of, copies, kernel_of, window};
use crate::buffers;
use crate::context::Shared;
use crate::error::Error;
use crate::guest_mem::GuestMemory;
use crate::lower::LaunchCall;
use crate::ops;

pub(super) async fn launch(
    host: &mut Host<'_>,
    kernel: Resource<KernelHandle>,
    shape: api::Shape,
    args: Vec<api::KernelArg>,
    mode: Mode,
) -> Result<Vec<Vec<u8>>, api::Error> {
    tokio::task::consume_budget().await;
    let kernel = host.call(|shared| kernel_of(shared, &kernel))?;
    let shared = host.0.shared();
    let failed = |error| failure(shared, &error);
    let mut own = OwnMemory::new(shared);
    let mut argv = own.argv(args).await.map_err(failed)?;
    let permit = host.call(|shared| {
        let window = window(shared)?;
        let mut memory = GuestMemory::of_call(&mut argv, Some(&window));
        let call = LaunchCall {
            kernel,
            grid: axes(shape.grid),
            block: axes(shape.block),
            shared_bytes: shape.shared_bytes,
            argv: memory.whole("argv"),
            mode,
            dialect: Dialect::Current,
        };
        ops::launch(shared, &mut memory, &call)
    })?;
    permit.await.map_err(|error| failed(error.into()))?;
    own.answers().await.map_err(failed)
}

fn axes(api::Extent { x, y, z }: api::Extent) -> [u32; 3] {
    [x, y, z]
}

/// Buffers that are made for one launch. Dropping it gives them back.
struct OwnMemory {
    shared: Arc<Shared>,
    buffers: Vec<i64>,
    /// Which buffers are answered, and how many bytes of each.
    answered: Vec<(i64, u32)>,
}

impl OwnMemory {
    fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            buffers: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// Arguments as argv, in buffers where they are memory.
    async fn argv(&mut self, args: Vec<api::KernelArg>) -> Result<Vec<u8>, Error> {
        use api::KernelArg as A;
        let mut argv = Argv::default();
        for arg in args {
            if argv.is_over_caps() {
                break;
            }
            match arg {
                A::Buffer((buffer, offset)) => {
                    let handle = buffer_of(&self.shared, &buffer)?;
                    argv.push(&Arg::Buffer { handle, offset });
                }
                A::Bytes(bytes) => argv.push(&Arg::Bytes(&bytes)),
                A::F32(value) => argv.push(&Arg::F32(value)),
                A::F64(value) => argv.push(&Arg::F64(value)),
                A::S32(value) => argv.push(&Arg::I32(value)),
                A::S64(value) => argv.push(&Arg::I64(value)),
                A::U32(value) => argv.push(&Arg::U32(value)),
                A::U64(value) => argv.push(&Arg::U64(value)),
                A::Input(bytes) => {
                    let handle = self.holding(bytes).await?;
                    argv.push(&Arg::Buffer { handle, offset: 0 });
                }
                A::InOut(bytes) => {
                    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    let handle = self.holding(bytes).await?;
                    self.answered.push((handle, len));
                    argv.push(&Arg::Buffer { handle, offset: 0 });
                }
                A::Output(len) => {
                    let handle = self.alloc(len.into()).await?;
                    self.answered.push((handle, len));
                    argv.push(&Arg::Buffer { handle, offset: 0 });
                }
            }
        }
        Ok(argv.bytes)
    }

    async fn alloc(&mut self, bytes: u64) -> Result<i64, Error> {
        // An empty list has an address as well.
        let buffer = copies::alloc(&self.shared, bytes.max(1)).await?;
        self.buffers.push(buffer);
        Ok(buffer)
    }

    async fn holding(&mut self, mut bytes: Vec<u8>) -> Result<i64, Error> {
        let buffer = self.alloc(bytes.len() as u64).await?;
        copies::write(&self.shared, buffer, 0, &mut bytes).await?;
        Ok(buffer)
    }

    /// What the launch answers.
    async fn answers(&self) -> Result<Vec<Vec<u8>>, Error> {
        let mut answers = Vec::new();
        for &(buffer, len) in &self.answered {
            answers.push(copies::read(&self.shared, buffer, 0, len).await?);
        }
        Ok(answers)
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        for &buffer in &self.buffers {
            // Where the device is lost there is nothing to give back.
            buffers::free(&self.shared, buffer).unwrap_or_default();
        }
    }
}

/// Records of argv. Once they are over the caps, whatever they hold, no more is of any use.
#[derive(Default)]
struct Argv {
    bytes: Vec<u8>,
    records: usize,
}

impl Argv {
    fn is_over_caps(&self) -> bool {
        self.bytes.len() > abi::MAX_ARGV_BYTES || self.records > abi::MAX_ARGV_RECORDS
    }

    fn push(&mut self, arg: &Arg<'_>) {
        let at = self.bytes.len();
        let len = arg.encoded_len().min(abi::MAX_ARGV_BYTES + 1);
        self.bytes.resize(at + len, 0);
        self.records += 1;
        // What is not encoded is over the caps, which the launch says.
        argv::encode(std::slice::from_ref(arg), &mut self.bytes[at..]).unwrap_or_default();
    }
}
