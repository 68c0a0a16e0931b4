//! What the driver's result codes mean: a result becomes a [`Failure`] with the code that the driver really gave, and a
//! failure an [`Error`] with its name and text. Nothing here calls the driver's functions.

use cust::sys::CUresult;

use crate::error::Error;

/// An answer of the driver other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The call.
    pub(super) what: &'static str,
    /// What it answered.
    pub(super) code: u32,
}

/// Turns what a driver call answered into a result. Call it on the thread that made the call, before the next one: of a code
/// that cust does not know, only the layer below knows the number, and only of the last one.
pub(super) fn check(what: &'static str, result: CUresult) -> Result<(), Failure> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_UNKNOWN => Err(Failure {
            what,
            code: cuda_driver::last_result(),
        }),
        known => Err(Failure {
            what,
            code: known as u32,
        }),
    }
}

/// As [`check`], for functions that cust does not know: their result is the number.
pub(super) fn check_number(what: &'static str, code: u32) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err(Failure { what, code }),
    }
}

/// Codes that are acted on (cuda.h, `enum cudaError_enum`).
pub(super) mod code {
    pub(in crate::cuda) const INVALID_VALUE: u32 = 1;
    pub(in crate::cuda) const OUT_OF_MEMORY: u32 = 2;
    pub(in crate::cuda) const NO_DEVICE: u32 = 100;
    pub(in crate::cuda) const INVALID_DEVICE: u32 = 101;
    pub(in crate::cuda) const INVALID_CONTEXT: u32 = 201;
    pub(in crate::cuda) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(in crate::cuda) const INVALID_PTX: u32 = 218;
    pub(in crate::cuda) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(in crate::cuda) const NOT_READY: u32 = 600;
    pub(in crate::cuda) const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
}

/// Codes after which CUDA does not work again in this process, ascending. Of most, cuda.h says that the process must be
/// relaunched; 4 and 709 end the context that everything here lives in.
const FATAL: [u32; 17] = [
    4,   // DEINITIALIZED
    214, // ECC_UNCORRECTABLE
    220, // NVLINK_UNCORRECTABLE
    226, // CONTAINED
    700, // ILLEGAL_ADDRESS
    702, // LAUNCH_TIMEOUT
    709, // CONTEXT_IS_DESTROYED
    710, // ASSERT
    714, // HARDWARE_STACK_ERROR
    715, // ILLEGAL_INSTRUCTION
    716, // MISALIGNED_ADDRESS
    717, // INVALID_ADDRESS_SPACE
    718, // INVALID_PC
    719, // LAUNCH_FAILED
    721, // TENSOR_MEMORY_LEAK
    810, // MPS_CLIENT_TERMINATED
    911, // EXTERNAL_DEVICE
];

impl Failure {
    /// Whether the device is lost to this process.
    pub(super) fn is_fatal(self) -> bool {
        FATAL.binary_search(&self.code).is_ok()
    }

    /// One line for people.
    pub(super) fn text(self) -> String {
        Error::from(self).to_string()
    }
}

impl From<Failure> for Error {
    fn from(Failure { what, code }: Failure) -> Self {
        let (name, text) = cuda_driver::describe(code);
        Self::Driver {
            what,
            code,
            name,
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_fatal_codes_is_ascending() {
        assert!(FATAL.is_sorted());
    }

    #[test]
    fn faults_of_a_kernel_are_fatal_and_refusals_are_not() {
        let fatal = |code| Failure { what: "x", code }.is_fatal();
        for code in [700, 710, 714, 715, 716, 717, 718, 719] {
            assert!(fatal(code), "{code}");
        }
        for code in [0, 1, 2, 100, 201, 218, 222, 500, 600, 701, 720, 999] {
            assert!(!fatal(code), "{code}");
        }
    }

    #[test]
    fn success_is_success_and_a_known_code_keeps_its_number() {
        assert_eq!(check("x", CUresult::CUDA_SUCCESS), Ok(()));
        let refused = check("loading", CUresult::CUDA_ERROR_INVALID_PTX);
        let want = Failure {
            what: "loading",
            code: code::INVALID_PTX,
        };
        assert_eq!(refused, Err(want));
    }

    #[test]
    fn the_text_holds_call_and_number() {
        let text = Failure {
            what: "launching a kernel",
            code: 701,
        }
        .text();
        assert!(text.starts_with("launching a kernel failed: "), "{text}");
        assert!(text.contains("701"), "{text}");
    }
}
