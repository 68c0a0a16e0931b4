//! The status codes that a guest can receive: one enum, its numbers and its names.
//! Texts about a particular failure do not live here; the host records those.

use core::fmt;

macro_rules! error_codes {
    ($($name:ident = $code:literal, $meaning:literal;)*) => {
        /// Why an import refused or failed: the negative numbers of the guest ABI.
        ///
        /// Numbers are part of the contract and never change; new ones are appended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[non_exhaustive]
        pub enum AbiError {
            $(
                #[doc = $meaning]
                $name = $code,
            )*
        }

        impl AbiError {
            /// Every code, from -1 downwards.
            pub const ALL: &'static [AbiError] = &[$(AbiError::$name),*];

            /// The code's name, as written in this enum.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(AbiError::$name => stringify!($name),)*
                }
            }

            /// What the code means, in one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(AbiError::$name => $meaning,)*
                }
            }

            /// The error that a number stands for, if it is one of ours.
            #[must_use]
            pub const fn from_code(code: i32) -> Option<AbiError> {
                match code {
                    $($code => Some(AbiError::$name),)*
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    NotAvailable = -1, "the capability is off, or there is no usable device";
    InvalidPointer = -2, "a range is not inside the guest's present memory, or there is no usable memory";
    InvalidKernel = -3, "no kernel of this instance has this handle";
    MalformedPtx = -4, "the PTX is not text, does not parse, or lacks the entry";
    LaunchFailed = -5, "the driver failed, or a pointer is not memory that the device may touch";
    QuotaExceeded = -6, "a limit of this instance, of the process or of the device's memory is reached";
    Internal = -7, "the host broke one of its own rules";
    InvalidDimensions = -8, "the grid, the block or the shared memory is outside the limits";
    InvalidArgs = -9, "argv bytes or arguments are wrong, or do not match the kernel's parameters";
    KernelArgsUnsupported = -10, "argv is over its caps";
    InvalidHandle = -11, "no buffer of this instance has this handle";
    DeviceLost = -12, "the device is in an error that only a new process clears";
    KernelTrap = -13, "the kernel trapped; `trap_info` says where";
    DeadlineExceeded = -14, "the kernel ran out of fuel or time, or was stopped";
    UnsupportedPtx = -15, "the PTX is understood but refused; the text names the instruction and its line";
}

impl AbiError {
    /// The number that an import answers.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// What the earlier module answers in this code's place: it has none of -12 to -15.
    #[must_use]
    pub const fn to_v0_2(self) -> AbiError {
        match self {
            AbiError::DeviceLost | AbiError::KernelTrap => AbiError::LaunchFailed,
            AbiError::DeadlineExceeded => AbiError::QuotaExceeded,
            AbiError::UnsupportedPtx => AbiError::MalformedPtx,
            known => known,
        }
    }
}

impl fmt::Display for AbiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.meaning())
    }
}

impl core::error::Error for AbiError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_pinned() {
        let pinned = [
            (-1, "NotAvailable", -1),
            (-2, "InvalidPointer", -2),
            (-3, "InvalidKernel", -3),
            (-4, "MalformedPtx", -4),
            (-5, "LaunchFailed", -5),
            (-6, "QuotaExceeded", -6),
            (-7, "Internal", -7),
            (-8, "InvalidDimensions", -8),
            (-9, "InvalidArgs", -9),
            (-10, "KernelArgsUnsupported", -10),
            (-11, "InvalidHandle", -11),
            (-12, "DeviceLost", -5),
            (-13, "KernelTrap", -5),
            (-14, "DeadlineExceeded", -6),
            (-15, "UnsupportedPtx", -4),
        ];
        assert_eq!(AbiError::ALL.len(), pinned.len());
        for (error, (code, name, earlier)) in AbiError::ALL.iter().zip(pinned) {
            assert_eq!(error.code(), code);
            assert_eq!(error.name(), name);
            assert_eq!(error.to_v0_2().code(), earlier);
            assert_eq!(AbiError::from_code(code), Some(*error));
        }
    }

    #[test]
    fn other_numbers_are_no_error() {
        for code in [0, 1, -16, i32::MIN, i32::MAX] {
            assert_eq!(AbiError::from_code(code), None);
        }
    }
}
