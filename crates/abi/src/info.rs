//! The structs that guests read: little-endian, natural alignment, first `u32` = full size. What
//! fills them is the host's; this file only knows where each field lies.
//!
//! A call writes the smaller of the size and the guest's length, and answers the full size. Fields
//! are only ever appended, so a guest reads the fields that it knows; the ones that a host does
//! not know yet read as zero.

/// A field's place in a struct, for documentation and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the struct's beginning.
    pub offset: usize,
    /// The field's name.
    pub name: &'static str,
    /// Its type, as Rust writes it.
    pub ty: &'static str,
    /// What it holds, in one line.
    pub doc: &'static str,
}

/// A type that has a place in a struct. Both functions are given exactly its bytes.
trait Wire {
    fn put(&self, at: &mut [u8]);
    fn take(at: &[u8]) -> Self;
}

impl Wire for u32 {
    fn put(&self, at: &mut [u8]) {
        at.copy_from_slice(&self.to_le_bytes());
    }

    fn take(at: &[u8]) -> Self {
        at.first_chunk().map_or(0, |at| u32::from_le_bytes(*at))
    }
}

impl Wire for u64 {
    fn put(&self, at: &mut [u8]) {
        at.copy_from_slice(&self.to_le_bytes());
    }

    fn take(at: &[u8]) -> Self {
        at.first_chunk().map_or(0, |at| u64::from_le_bytes(*at))
    }
}

impl Wire for [u32; 3] {
    fn put(&self, at: &mut [u8]) {
        for (value, at) in self.iter().zip(at.chunks_exact_mut(4)) {
            value.put(at);
        }
    }

    fn take(at: &[u8]) -> Self {
        [&at[..4], &at[4..8], &at[8..]].map(u32::take)
    }
}

impl Wire for [u8; NAME_BYTES] {
    fn put(&self, at: &mut [u8]) {
        at.copy_from_slice(self);
    }

    fn take(at: &[u8]) -> Self {
        at.first_chunk().copied().unwrap_or([0; NAME_BYTES])
    }
}

/// Defines a struct by its bytes. With `size by`, the first four are what that
/// method answers.
macro_rules! layout {
    (
        $(#[$doc:meta])*
        $name:ident, $size:literal bytes:
        $(size by $full_size:ident = $size_text:literal;)?
        $($offset:literal $field:ident: $ty:ty = $text:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $(
                #[doc = concat!($text, ". At byte ", stringify!($offset), ".")]
                pub $field: $ty,
            )*
        }

        impl $name {
            /// Bytes of this struct.
            pub const SIZE: usize = $size;

            /// The fields and where they lie.
            pub const FIELDS: &'static [Field] = &[
                $(Field {
                    offset: 0,
                    name: "size",
                    ty: "u32",
                    doc: $size_text,
                },)?
                $(Field {
                    offset: $offset,
                    name: stringify!($field),
                    ty: stringify!($ty),
                    doc: $text,
                },)*
            ];

            /// The struct as a guest reads it.
            #[must_use]
            pub fn to_bytes(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $(self.$full_size().put(&mut bytes[..4]);)?
                $(self.$field.put(&mut bytes[$offset..$offset + size_of::<$ty>()]);)*
                bytes
            }

            /// Reads what a call wrote. Bytes that are not there read as zero, bytes after the
            /// struct are left alone.
            #[must_use]
            pub fn from_bytes(bytes: &[u8]) -> Self {
                let mut whole = [0; $size];
                let there = bytes.len().min($size);
                whole[..there].copy_from_slice(&bytes[..there]);
                Self {
                    $($field: Wire::take(&whole[$offset..$offset + size_of::<$ty>()]),)*
                }
            }
        }
    };
}

/// Defines the numbers of a field that says which of several things it is.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident: $($variant:ident = $number:literal, $text:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum $name {
            $(
                #[doc = $text]
                $variant = $number,
            )*
        }

        impl $name {
            /// Every one, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The number in the struct.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// What a number stands for, if this version knows it.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }

            /// What it means, in one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}

/// Bytes of [`DeviceInfo::name`].
pub const NAME_BYTES: usize = 64;

/// `DeviceInfo::features`: `wasi_cuda_launch_cooperative` works.
pub const FEATURE_COOPERATIVE: u64 = 1 << 0;
/// `DeviceInfo::features`: an access outside memory ends the kernel and is reported.
pub const FEATURE_TRAPPING: u64 = 1 << 1;
/// `DeviceInfo::features`: kernels of a guest reach nothing but its own window.
pub const FEATURE_CONFINED: u64 = 1 << 2;
/// `DeviceInfo::features`: `wasi_cuda_prefetch` moves memory; without it the call does nothing.
pub const FEATURE_PREFETCH: u64 = 1 << 3;
/// `DeviceInfo::features`: `wasi_cuda_symbol` works.
pub const FEATURE_SYMBOL: u64 = 1 << 4;

/// The bits of `DeviceInfo::features`: bit, name, meaning.
pub const FEATURES: &[(u64, &str, &str)] = &[
    (
        FEATURE_COOPERATIVE,
        "COOPERATIVE",
        "`launch_cooperative` works",
    ),
    (
        FEATURE_TRAPPING,
        "TRAPPING",
        "an access outside memory ends the kernel and is reported",
    ),
    (
        FEATURE_CONFINED,
        "CONFINED",
        "kernels of a guest reach nothing but its own window",
    ),
    (
        FEATURE_PREFETCH,
        "PREFETCH",
        "`prefetch` moves memory; without it the call does nothing",
    ),
    (FEATURE_SYMBOL, "SYMBOL", "`symbol` works"),
];

layout! {
    /// What `wasi_cuda_device_info` writes. A host without a device writes zeros after `kind`.
    DeviceInfo, 144 bytes:
    size by full_size = "bytes of all there is to read";
    4 kind: u32 = "which kind of device, a `DeviceKind`";
    8 compute_major: u32 = "major number of the compute capability that kernels may target";
    12 compute_minor: u32 = "minor number of the compute capability";
    16 multiprocessors: u32 = "multiprocessors, or what comes closest to them";
    20 max_threads_per_block: u32 = "most threads of a block";
    24 max_block: [u32; 3] = "most threads of a block along x, y, z";
    36 max_grid: [u32; 3] = "most blocks of a grid along x, y, z";
    48 warp_size: u32 = "threads of a warp";
    52 max_shared_bytes: u32 = "most bytes of shared memory of a block, static and dynamic";
    56 max_shared_default_bytes: u32 = "of these, what a block may have without asking for more";
    60 max_threads_per_multiprocessor: u32 = "most threads on one multiprocessor, 0 if not known";
    64 features: u64 = "what works on this device, bits `FEATURE_*`";
    72 window_bytes: u64 = "bytes of this instance's window: linear memory and buffers together";
    80 name: [u8; 64] = "the device's name in UTF-8, filled up with NUL, of which there is always one";
}

impl DeviceInfo {
    /// The `size` that is written: the struct alone.
    #[must_use]
    pub const fn full_size(&self) -> u32 {
        144
    }

    /// A name as the struct holds it, cut at a character boundary if it is too long.
    #[must_use]
    pub fn name_bytes(name: &str) -> [u8; NAME_BYTES] {
        let len = name.floor_char_boundary(NAME_BYTES - 1);
        let mut bytes = [0; NAME_BYTES];
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        bytes
    }

    /// The name as text, up to the first NUL; empty if it is not UTF-8.
    #[must_use]
    pub fn name_str(&self) -> &str {
        let text = self.name.split(|&byte| byte == 0).next();
        core::str::from_utf8(text.unwrap_or_default()).unwrap_or_default()
    }
}

numbers! {
    /// The kind of a device: `DeviceInfo::kind`.
    DeviceKind:
    None = 0, "no device";
    Cpu = 1, "the host's processor interprets kernels";
    Cuda = 2, "an NVIDIA GPU";
}

layout! {
    /// What `wasi_cuda_kernel_info` writes first. The parameters follow, `param_count` times
    /// [`ParamInfo`], the first at byte `size - param_count * param_stride`.
    KernelInfo, 28 bytes:
    size by full_size = "bytes of all there is to read";
    4 max_threads: u32 = "most threads of a block of this kernel";
    8 static_shared_bytes: u32 = "bytes of shared memory that the kernel declares";
    12 registers: u32 = "registers of a thread, 0 if not known";
    16 local_bytes: u32 = "bytes of local memory of a thread";
    20 param_count: u32 = "number of parameters";
    24 param_stride: u32 = "bytes from one parameter's record to the next";
}

impl KernelInfo {
    /// The `size` that is written: the struct and the records of its parameters.
    #[must_use]
    pub const fn full_size(&self) -> u32 {
        28_u32.saturating_add(self.param_count.saturating_mul(self.param_stride))
    }

    /// The parameters in what a call wrote, those that are whole in `bytes`.
    pub fn params(bytes: &[u8]) -> impl Iterator<Item = ParamInfo> {
        let info = KernelInfo::from_bytes(bytes);
        let len = info.param_count.saturating_mul(info.param_stride);
        let size = bytes.get(..4).map_or(0, u32::take);
        let usize_of = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let records = bytes.get(usize_of(size.saturating_sub(len))..);
        records
            .unwrap_or_default()
            .chunks_exact(usize_of(info.param_stride.max(1)))
            .take(usize_of(info.param_count))
            .map(ParamInfo::from_bytes)
    }
}

/// `ParamInfo::flags`: the parameter is marked `.ptr`.
pub const PARAM_FLAG_PTR: u32 = 1 << 0;

layout! {
    /// One parameter of a kernel, after [`KernelInfo`].
    ParamInfo, 20 bytes:
    0 offset: u32 = "bytes from the beginning of the parameters";
    4 size: u32 = "bytes of the parameter";
    8 align: u32 = "its alignment in bytes";
    12 class: u32 = "what it takes, a `ParamClass`";
    16 flags: u32 = "bit 0: the parameter is marked `.ptr`";
}

numbers! {
    /// What a parameter takes: `ParamInfo::class`.
    ParamClass:
    Bits = 0, "`.bN`: any scalar of its size";
    Integer = 1, "`.uN` or `.sN`: an integer of its size, or an address";
    Float = 2, "`.fN`: a float of its size";
    Bytes = 3, "an array: bytes of its size";
}

layout! {
    /// What `wasi_cuda_trap_info` writes: the last trap of a kernel of this instance, all zero
    /// after `size` when there was none.
    TrapInfo, 48 bytes:
    size by full_size = "bytes of all there is to read";
    4 kind: u32 = "what happened, a `TrapKind`";
    8 line: u32 = "line of the PTX text, from 1; 0 if not known";
    12 block: [u32; 3] = "index of the block";
    24 thread: [u32; 3] = "index of the thread in its block";
    36 access_bytes: u32 = "bytes of the access, 0 if it was none";
    40 address: u64 = "address of the access, as the kernel computed it: an offset in guest memory";
}

impl TrapInfo {
    /// No trap.
    pub const NONE: TrapInfo = TrapInfo {
        kind: 0,
        line: 0,
        block: [0; 3],
        thread: [0; 3],
        access_bytes: 0,
        address: 0,
    };

    /// The `size` that is written: the struct alone.
    #[must_use]
    pub const fn full_size(&self) -> u32 {
        48
    }
}

numbers! {
    /// What ended a kernel: `TrapInfo::kind`.
    TrapKind:
    None = 0, "no kernel has trapped";
    OutOfBounds = 1, "an access outside the memory that the kernel may touch";
    Misaligned = 2, "an access whose address is no multiple of its width";
    TrapInstruction = 3, "`trap`, or a failed assertion";
    BarrierDeadlock = 4, "a barrier that can never be complete";
    CallDepth = 5, "calls nested deeper than the device allows";
    OutOfTime = 6, "fuel or time ran out, or the kernel was stopped";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn align_of(ty: &str) -> (usize, usize) {
        match ty {
            "u32" => (4, 4),
            "u64" => (8, 8),
            "[u32; 3]" => (12, 4),
            "[u8; 64]" => (64, 1),
            other => panic!("no size is known for {other}"),
        }
    }

    #[test]
    fn fields_lie_one_after_another_at_their_natural_alignment() {
        for (fields, size) in [
            (DeviceInfo::FIELDS, DeviceInfo::SIZE),
            (KernelInfo::FIELDS, KernelInfo::SIZE),
            (ParamInfo::FIELDS, ParamInfo::SIZE),
            (TrapInfo::FIELDS, TrapInfo::SIZE),
        ] {
            let mut end = 0;
            for field in fields {
                let (bytes, align) = align_of(field.ty);
                assert_eq!(field.offset, end, "{}", field.name);
                assert_eq!(field.offset % align, 0, "{}", field.name);
                end += bytes;
            }
            assert_eq!(end, size);
        }
    }

    #[test]
    fn trap_info_bytes_are_pinned() {
        let trap = TrapInfo {
            kind: TrapKind::Misaligned.number(),
            line: 0x0102,
            block: [1, 2, 3],
            thread: [4, 5, 6],
            access_bytes: 8,
            address: 0x1122_3344_5566_7788,
        };
        #[rustfmt::skip]
        let bytes = [
            48, 0, 0, 0,  2, 0, 0, 0,  2, 1, 0, 0,
            1, 0, 0, 0,  2, 0, 0, 0,  3, 0, 0, 0,
            4, 0, 0, 0,  5, 0, 0, 0,  6, 0, 0, 0,
            8, 0, 0, 0,  0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
        ];
        assert_eq!(trap.to_bytes(), bytes);
        assert_eq!(TrapInfo::from_bytes(&bytes), trap);
    }

    #[test]
    fn missing_bytes_read_as_zero_and_later_ones_are_ignored() {
        let device = DeviceInfo {
            kind: DeviceKind::Cpu.number(),
            compute_major: 9,
            compute_minor: 0,
            multiprocessors: 2,
            max_threads_per_block: 1024,
            max_block: [1024, 1024, 64],
            max_grid: [u32::MAX, 65_535, 65_535],
            warp_size: 32,
            max_shared_bytes: 232_448,
            max_shared_default_bytes: 49_152,
            max_threads_per_multiprocessor: 2048,
            features: FEATURE_TRAPPING,
            window_bytes: 1 << 32,
            name: DeviceInfo::name_bytes("cpu"),
        };
        let mut longer = [0xff; 200];
        longer[..144].copy_from_slice(&device.to_bytes());
        assert_eq!(DeviceInfo::from_bytes(&longer), device);

        let short = DeviceInfo::from_bytes(&longer[..20]);
        assert_eq!((short.kind, short.multiprocessors), (1, 2));
        assert_eq!((short.features, short.name_str()), (0, ""));
        assert_eq!(DeviceInfo::from_bytes(&[]).kind, DeviceKind::None.number());
    }

    #[test]
    fn a_long_name_is_cut_at_a_character_and_ends_in_nul() {
        let mut long = [b'x'; 100];
        long[61..64].copy_from_slice("…".as_bytes());
        let text = core::str::from_utf8(&long).expect("ascii and one ellipsis");
        let bytes = DeviceInfo::name_bytes(text);
        assert_eq!(bytes[..61], [b'x'; 61]);
        assert_eq!(bytes[61..], [0; 3]);
    }

    #[test]
    fn parameters_are_found_behind_a_longer_header_and_in_a_longer_stride() {
        let param = ParamInfo {
            offset: 8,
            size: 4,
            align: 4,
            class: ParamClass::Float.number(),
            flags: 0,
        };
        // As a later host would write it: 4 more bytes of header, 4 more of each record.
        let mut bytes = [0; 32 + 2 * 24];
        bytes[..4].copy_from_slice(&80_u32.to_le_bytes());
        bytes[20..24].copy_from_slice(&2_u32.to_le_bytes());
        bytes[24..28].copy_from_slice(&24_u32.to_le_bytes());
        bytes[56..76].copy_from_slice(&param.to_bytes());
        assert_eq!(KernelInfo::params(&bytes).nth(1), Some(param));
        assert_eq!(KernelInfo::params(&bytes).count(), 2);
        assert_eq!(KernelInfo::params(&bytes[..79]).count(), 1);
        assert_eq!(KernelInfo::params(&[]).count(), 0);
        assert_eq!(KernelInfo::params(&[0xff; 64]).count(), 0);
    }

    #[test]
    fn the_full_size_of_a_kernel_counts_its_parameters() {
        let info = KernelInfo {
            max_threads: 1024,
            static_shared_bytes: 0,
            registers: 0,
            local_bytes: 0,
            param_count: 4,
            param_stride: 20,
        };
        assert_eq!(info.full_size(), 108);
        assert_eq!(info.to_bytes()[..4], 108_u32.to_le_bytes());
        assert_eq!(KernelInfo::from_bytes(&info.to_bytes()), info);
    }

    #[test]
    fn numbers_of_kinds_are_pinned() {
        for (number, kind) in (0..).zip(DeviceKind::ALL) {
            assert_eq!(
                (kind.number(), DeviceKind::from_number(number)),
                (number, Some(*kind))
            );
        }
        for (number, kind) in (0..).zip(TrapKind::ALL) {
            assert_eq!(
                (kind.number(), TrapKind::from_number(number)),
                (number, Some(*kind))
            );
        }
        for (number, class) in (0..).zip(ParamClass::ALL) {
            assert_eq!(
                (class.number(), ParamClass::from_number(number)),
                (number, Some(*class))
            );
        }
        assert_eq!(DeviceKind::from_number(3), None);
        assert_eq!(TrapKind::from_number(7), None);
        assert_eq!(ParamClass::from_number(4), None);
    }
}
