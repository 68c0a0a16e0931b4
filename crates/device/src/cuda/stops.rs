//! Words in the device's memory by which the host stops confined kernels, one for each stream of launches. Every thread of a kernel reads its word
//! when it begins, so that it must be near; the host writes one only where a kernel is to end, and so does a thread of
//! the kernel that sees its deadline pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::context::Context;
use super::memory::Allocation;
use super::stream::{Stream, Writer};
use crate::error::Error;

/// Words lie in lines of the device's caches of their own.
const LINE_BYTES: usize = 128;

/// The memory of all words, and the stream that writes them: nothing else is put on it, so that nothing waits in front of a word.
#[derive(Debug)]
struct Words {
    memory: Allocation,
    stream: Stream,
    writer: Writer,
}

/// One word; zero unless a kernel is to end.
#[derive(Debug)]
pub(super) struct Stop {
    words: Arc<Words>,
    at: usize,
    is_raised: AtomicBool,
}

impl Stop {
    /// So many words. Enter the context first.
    pub(super) fn allocate(
        context: &Arc<Context>,
        writer: Writer,
        count: usize,
    ) -> Result<impl Iterator<Item = Self>, Error> {
        let bytes = count * LINE_BYTES;
        let words = Words {
            memory: Allocation::on_device(context, bytes)?,
            stream: Stream::urgent(context)?,
            writer,
        };
        words.memory.clear(&words.stream, 0..bytes)?;
        // Whether the driver writes words at all.
        words.stream.write(writer, &words.memory, 0, 0)?;
        let words = Arc::new(words);
        Ok((0..count).map(move |index| Self {
            words: Arc::clone(&words),
            at: index * LINE_BYTES,
            is_raised: AtomicBool::new(false),
        }))
    }

    /// Where kernels find it.
    pub(super) fn device_address(&self) -> u64 {
        self.words.memory.address() + self.at as u64
    }

    /// Has the kernel that looks at it end.
    pub(super) fn raise(&self) -> Result<(), Error> {
        self.is_raised.store(true, Ordering::Relaxed);
        self.write(1)
    }

    /// Makes it zero again, if it was raised here or its kernel may have raised it, and waits until it is: nothing looks at it any more, and the
    /// next kernel is not to end. Whether a kernel can have raised it is not for the kernel to say.
    pub(super) fn lower(&self, by_kernel: bool) -> Result<(), Error> {
        if by_kernel {
            self.is_raised.store(true, Ordering::Relaxed);
        }
        if !self.is_raised.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.write(0)?;
        self.words.stream.synchronize()?;
        self.is_raised.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it may still stop a kernel that nobody wants stopped.
    pub(super) fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Relaxed)
    }

    fn write(&self, value: u32) -> Result<(), Error> {
        let Words {
            memory,
            stream,
            writer,
        } = &*self.words;
        stream.write(*writer, memory, self.at, value)
    }
}
