//! The kernel of ours that reads the device's clock. What the numbers mean is said in `clock.rs`.
#![expect(unsafe_code, reason = "starts a kernel of ours")]

use std::time::Instant;

use cust::sys;

use super::clock::{Clock, Reading};
use super::control::Control;
use super::core::Core;
use super::jit::Logs;
use super::module::{Binary, Code, Function, Image};
use super::stream::Stream;
use crate::error::Error;

/// It writes the clock to the address that it is given. Its target is the oldest that compilers for today's devices take.
const TEXT: &std::ffi::CStr = c".version 6.4
.target sm_75
.address_size 64
.visible .entry wc_clock(.param .u64 wc_answer)
{
.reg .b64 %at, %time;
ld.param.u64 %at, [wc_answer];
mov.u64 %time, %globaltimer;
st.volatile.global.u64 [%at], %time;
ret;
}
";

/// Readings made: of the first one or two, the kernel is still on its way to the device.
const READINGS: usize = 8;

impl Core {
    /// Reads the device's clock, once. Where that fails, the host alone sees to deadlines. Enter the context first.
    pub(super) fn read_clock(&self) {
        self.clock.get_or_init(|| match self.clock_read() {
            Ok(clock) => clock,
            Err(error) => {
                tracing::warn!(%error, "the clock of the CUDA device was not read");
                None
            }
        });
    }

    fn clock_read(&self) -> Result<Option<Clock>, Error> {
        let mut logs = Logs::new();
        let binary = Binary::load(&self.context, Code::Text(TEXT), &mut logs);
        let binary = binary.map_err(|failure| self.context.error(failure))?;
        let function = Image::new(binary, &self.reaper).function(c"wc_clock")?;
        let mut readings = Vec::with_capacity(READINGS);
        while readings.len() < READINGS {
            // Others may launch in between.
            let Ok(lane) = self.lanes.for_launch() else {
                break;
            };
            let Some(control) = lane.stream().control() else {
                break;
            };
            readings.push(self.reading(&function, lane.stream(), control)?);
        }
        Ok(Clock::of(readings))
    }

    fn reading(
        &self,
        function: &Function,
        stream: &Stream,
        control: &Control,
    ) -> Result<Reading, Error> {
        control.clear();
        let mut at = control.device_address();
        let mut params = [(&raw mut at).cast()];
        let none = std::ptr::null_mut();
        let before = Instant::now();
        // SAFETY: the function is the one of `TEXT`, whose one parameter is the address in `at`, which the driver copies before it returns.
        // The kernel writes 8 bytes there, which are the control block of a stream that nothing else runs on (`Lanes::for_launch`).
        let result = unsafe {
            sys::cuLaunchKernel(
                function.raw(),
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream.raw(),
                params.as_mut_ptr(),
                none,
            )
        };
        self.context.check("launching a kernel", result)?;
        stream.synchronize()?;
        let after = Instant::now();
        Ok(Reading {
            before,
            device: control.answer(),
            after,
        })
    }
}
