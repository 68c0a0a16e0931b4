//! Words in the device's memory by which confined kernels are stopped, one for each stream of launches. Every thread of a kernel reads its word
//! when it begins, so that it must be near; the host writes one only where a kernel is to end, and so does a thread of
//! the kernel that sees its deadline pass. What is written is the launch's own token: no other launch on the stream minds it, neither one
//! whose threads find it in a cache nor one that the host's write comes too late for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// One word, and the token of the launch that looks at it.
#[derive(Debug)]
pub(super) struct Stop {
    words: Arc<Words>,
    at: usize,
    token: AtomicU32,
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
            token: AtomicU32::new(0),
        }))
    }

    /// Where kernels find it.
    pub(super) fn device_address(&self) -> u64 {
        self.words.memory.address() + self.at as u64
    }

    /// The token of the next launch: none of those that the word may hold. Nothing runs that looks at it.
    pub(super) fn next_token(&self) -> u32 {
        let token = self.token.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.token.store(token, Ordering::Relaxed);
        token
    }

    /// Has the kernel that looks at it end.
    pub(super) fn raise(&self) -> Result<(), Error> {
        self.write(self.token.load(Ordering::Relaxed))
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
