//! Launches as they were made, to be made again elsewhere. Nothing here compares.

use std::sync::{Arc, Mutex, PoisonError};

use device::Value;

use super::{Image, Shape};

/// An argument of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Argument {
    Bytes(Vec<u8>),
    Scalar(Value<'static>),
}

impl Argument {
    /// A copy of a value.
    pub(crate) fn of(value: &Value<'_>) -> Self {
        Self::Scalar(match *value {
            Value::Bytes(bytes) => return Self::Bytes(bytes.into()),
            Value::F32(number) => Value::F32(number),
            Value::F64(number) => Value::F64(number),
            Value::I32(number) => Value::I32(number),
            Value::I64(number) => Value::I64(number),
            Value::U32(number) => Value::U32(number),
            Value::U64(number) => Value::U64(number),
            Value::Pointer { offset, len } => Value::Pointer { offset, len },
        })
    }

    /// As a launch takes it.
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Scalar(value) => *value,
        }
    }
}

/// A launch, and the memory that it found.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) text: Arc<str>,
    pub(crate) entry: String,
    pub(crate) shape: Shape,
    pub(crate) values: Vec<Argument>,
    pub(crate) memory: Image,
}

/// The launches of some rigs that ended well, in order.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Vec<Recorded>>);

impl Recorder {
    /// Adds one.
    pub(crate) fn push(&self, recorded: Recorded) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(recorded);
    }

    /// What was recorded so far.
    pub(crate) fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
