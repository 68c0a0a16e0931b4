//! A note that work goes on, where a person watches and it takes long. Results and errors are not written here.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Work that ends sooner needs no note.
const PATIENCE: Duration = Duration::from_secs(1);

/// Work in progress: from when it is made until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress(Option<Watch>);

#[derive(Debug)]
struct Watch {
    ended: Sender<()>,
    thread: JoinHandle<()>,
}

impl Progress {
    /// Notes on stderr, if it is a terminal, what is going on once it has taken a second.
    pub(crate) fn note(what: String) -> Self {
        if io::stderr().is_terminal() {
            Self::watch(PATIENCE, what, io::stderr())
        } else {
            Self(None)
        }
    }

    fn watch(patience: Duration, what: String, mut to: impl Write + Send + 'static) -> Self {
        let (ended, end) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("progress".into())
            .spawn(move || {
                if end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                    writeln!(to, "wasi-cuda: {what} ...").unwrap_or_default();
                }
            });
        // Without a thread there is no note, which is no reason not to work.
        Self(thread.ok().map(|thread| Watch { ended, thread }))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(Watch { ended, thread }) = self.0.take() {
            drop(ended);
            // Joined so that a note cannot be written after what follows the work.
            thread.join().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn long_work_is_noted_once() {
        let written = Written::default();
        let work = Progress::watch(Duration::ZERO, "counting".into(), written.clone());
        while written.text().is_empty() {
            thread::yield_now();
        }
        drop(work);
        assert_eq!(written.text(), "wasi-cuda: counting ...\n");
    }

    #[test]
    fn short_work_is_not_noted() {
        let written = Written::default();
        let hour = Duration::from_secs(3600);
        drop(Progress::watch(hour, "counting".into(), written.clone()));
        assert_eq!(written.text(), "");
    }
}
