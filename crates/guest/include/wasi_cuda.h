/*
 * CUDA kernels for WebAssembly guests, from C11 and C++17: the guest ABI of wasi-cuda in one header.
 * There is nothing to link. The parts between `begin` and `end` are rendered from the ABI's own tables.
 *
 *     int64_t kernel = wasi_cuda_load(ptx, "vecadd");   // PTX text, as `nvcc -ptx` writes it
 *     int32_t code = wasi_cuda_run(kernel, wasi_cuda_x(blocks), wasi_cuda_x(256), 0, WASI_CUDA_ARGS(
 *         WASI_CUDA_ELEMENTS(a, n), WASI_CUDA_ELEMENTS(b, n), WASI_CUDA_ELEMENTS(c, n), wasi_cuda_u32(n)));
 *     if (code != 0) {
 *         char text[WASI_CUDA_LAST_ERROR_BYTES + 1];
 *         fprintf(stderr, "%s: %s\n", wasi_cuda_code_name(code), wasi_cuda_error_text(code, text, sizeof text));
 *     }
 *
 * A kernel works on the guest's own memory, in place. It sees the guest's pointers; null is null there too.
 * Handles are positive; a negative answer is one of the codes below.
 */
#ifndef WASI_CUDA_H
#define WASI_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __wasm__
#define WASI_CUDA_IMPORT(name) __attribute__((import_module("wasi_cuda"), import_name(name)))
#else
#define WASI_CUDA_IMPORT(name)
#endif

#ifdef __cplusplus
#define WASI_CUDA_ASSERT(fact, text) static_assert(fact, text)
extern "C" {
#else
#define WASI_CUDA_ASSERT(fact, text) _Static_assert(fact, text)
#endif

/* Codes. Numbers below the last may be added: treat one that you do not know as a failure. */
/* begin: codes */
#define WASI_CUDA_NOT_AVAILABLE (-1) /* the capability is off, or there is no usable device */
#define WASI_CUDA_INVALID_POINTER (-2) /* a range is not inside the guest's present memory, or there is no usable memory */
#define WASI_CUDA_INVALID_KERNEL (-3) /* no kernel of this instance has this handle */
#define WASI_CUDA_MALFORMED_PTX (-4) /* the PTX is not text, does not parse, or lacks the entry */
#define WASI_CUDA_LAUNCH_FAILED (-5) /* the driver failed, or a pointer is not memory that the device may touch */
#define WASI_CUDA_QUOTA_EXCEEDED (-6) /* a limit of this instance, of the process or of the device's memory is reached */
#define WASI_CUDA_INTERNAL (-7) /* the host broke one of its own rules */
#define WASI_CUDA_INVALID_DIMENSIONS (-8) /* the grid, the block or the shared memory is outside the limits */
#define WASI_CUDA_INVALID_ARGS (-9) /* argv bytes or arguments are wrong, or do not match the kernel's parameters */
#define WASI_CUDA_KERNEL_ARGS_UNSUPPORTED (-10) /* argv is over its caps */
#define WASI_CUDA_INVALID_HANDLE (-11) /* no buffer of this instance has this handle */
#define WASI_CUDA_DEVICE_LOST (-12) /* the device is in an error that only a new process clears */
#define WASI_CUDA_KERNEL_TRAP (-13) /* the kernel trapped; `trap_info` says where */
#define WASI_CUDA_DEADLINE_EXCEEDED (-14) /* the kernel ran out of fuel or time, or was stopped */
#define WASI_CUDA_UNSUPPORTED_PTX (-15) /* the PTX is understood but refused; the text names the instruction and its line */
/* end: codes */

/* Limits that are the same for every host. */
/* begin: caps */
#define WASI_CUDA_ABI_VERSION 0x00010000 /* major << 16 | minor, of this header */
#define WASI_CUDA_MAX_ARGV_BYTES 4096 /* of one launch */
#define WASI_CUDA_MAX_ARGV_RECORDS 128 /* of one launch */
#define WASI_CUDA_MAX_NAME_BYTES 256 /* of a kernel's name */
#define WASI_CUDA_MAX_PTX_BYTES 8388608 /* of one load; an embedder may allow less */
#define WASI_CUDA_LAST_ERROR_BYTES 512 /* of a failure's text */
/* end: caps */

/* The structs that calls write. Pass the size that you know: an older host writes less, a newer one no more. */
/* begin: structs */
/* What wasi_cuda_device_info writes. */
typedef struct {
    uint32_t size; /* bytes of all there is to read */
    uint32_t kind; /* which kind of device, a `DeviceKind` */
    uint32_t compute_major; /* major number of the compute capability that kernels may target */
    uint32_t compute_minor; /* minor number of the compute capability */
    uint32_t multiprocessors; /* multiprocessors, or what comes closest to them */
    uint32_t max_threads_per_block; /* most threads of a block */
    uint32_t max_block[3]; /* most threads of a block along x, y, z */
    uint32_t max_grid[3]; /* most blocks of a grid along x, y, z */
    uint32_t warp_size; /* threads of a warp */
    uint32_t max_shared_bytes; /* most bytes of shared memory of a block, static and dynamic */
    uint32_t max_shared_default_bytes; /* of these, what a block may have without asking for more */
    uint32_t max_threads_per_multiprocessor; /* most threads on one multiprocessor, 0 if not known */
    uint64_t features; /* what works on this device, bits `FEATURE_*` */
    uint64_t window_bytes; /* bytes of this instance's window: linear memory and buffers together */
    char name[64]; /* the device's name in UTF-8, filled up with NUL, of which there is always one */
} wasi_cuda_device_info_t;
WASI_CUDA_ASSERT(sizeof(wasi_cuda_device_info_t) == 144, "its size is the ABI's");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, size) == 0, "size is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, kind) == 4, "kind is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, compute_major) == 8, "compute_major is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, compute_minor) == 12, "compute_minor is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, multiprocessors) == 16, "multiprocessors is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, max_threads_per_block) == 20, "max_threads_per_block is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, max_block) == 24, "max_block is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, max_grid) == 36, "max_grid is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, warp_size) == 48, "warp_size is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, max_shared_bytes) == 52, "max_shared_bytes is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, max_shared_default_bytes) == 56, "max_shared_default_bytes is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, max_threads_per_multiprocessor) == 60, "max_threads_per_multiprocessor is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, features) == 64, "features is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, window_bytes) == 72, "window_bytes is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_device_info_t, name) == 80, "name is where the ABI has it");

/* What wasi_cuda_kernel_info writes first. The parameters begin at byte size - param_count * param_stride. */
typedef struct {
    uint32_t size; /* bytes of all there is to read */
    uint32_t max_threads; /* most threads of a block of this kernel */
    uint32_t static_shared_bytes; /* bytes of shared memory that the kernel declares */
    uint32_t registers; /* registers of a thread, 0 if not known */
    uint32_t local_bytes; /* bytes of local memory of a thread */
    uint32_t param_count; /* number of parameters */
    uint32_t param_stride; /* bytes from one parameter's record to the next */
} wasi_cuda_kernel_info_t;
WASI_CUDA_ASSERT(sizeof(wasi_cuda_kernel_info_t) == 28, "its size is the ABI's");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_kernel_info_t, size) == 0, "size is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_kernel_info_t, max_threads) == 4, "max_threads is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_kernel_info_t, static_shared_bytes) == 8, "static_shared_bytes is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_kernel_info_t, registers) == 12, "registers is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_kernel_info_t, local_bytes) == 16, "local_bytes is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_kernel_info_t, param_count) == 20, "param_count is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_kernel_info_t, param_stride) == 24, "param_stride is where the ABI has it");

/* One parameter of a kernel. */
typedef struct {
    uint32_t offset; /* bytes from the beginning of the parameters */
    uint32_t size; /* bytes of the parameter */
    uint32_t align; /* its alignment in bytes */
    uint32_t param_class; /* what it takes, a `ParamClass` */
    uint32_t flags; /* bit 0: the parameter is marked `.ptr` */
} wasi_cuda_param_info_t;
WASI_CUDA_ASSERT(sizeof(wasi_cuda_param_info_t) == 20, "its size is the ABI's");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_param_info_t, offset) == 0, "offset is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_param_info_t, size) == 4, "size is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_param_info_t, align) == 8, "align is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_param_info_t, param_class) == 12, "param_class is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_param_info_t, flags) == 16, "flags is where the ABI has it");

/* What wasi_cuda_trap_info writes: the last trap of a kernel of this instance. */
typedef struct {
    uint32_t size; /* bytes of all there is to read */
    uint32_t kind; /* what happened, a `TrapKind` */
    uint32_t line; /* line of the PTX text, from 1; 0 if not known */
    uint32_t block[3]; /* index of the block */
    uint32_t thread[3]; /* index of the thread in its block */
    uint32_t access_bytes; /* bytes of the access, 0 if it was none */
    uint64_t address; /* address of the access, as the kernel computed it: an offset in guest memory */
} wasi_cuda_trap_info_t;
WASI_CUDA_ASSERT(sizeof(wasi_cuda_trap_info_t) == 48, "its size is the ABI's");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_trap_info_t, size) == 0, "size is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_trap_info_t, kind) == 4, "kind is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_trap_info_t, line) == 8, "line is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_trap_info_t, block) == 12, "block is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_trap_info_t, thread) == 24, "thread is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_trap_info_t, access_bytes) == 36, "access_bytes is where the ABI has it");
WASI_CUDA_ASSERT(offsetof(wasi_cuda_trap_info_t, address) == 40, "address is where the ABI has it");
/* end: structs */

/* Values of their fields. */
/* begin: numbers */
#define WASI_CUDA_DEVICE_NONE 0 /* no device */
#define WASI_CUDA_DEVICE_CPU 1 /* the host's processor interprets kernels */
#define WASI_CUDA_DEVICE_CUDA 2 /* an NVIDIA GPU */
#define WASI_CUDA_FEATURE_COOPERATIVE (UINT64_C(1) << 0) /* `launch_cooperative` works */
#define WASI_CUDA_FEATURE_TRAPPING (UINT64_C(1) << 1) /* an access outside memory ends the kernel and is reported */
#define WASI_CUDA_FEATURE_CONFINED (UINT64_C(1) << 2) /* kernels of a guest reach nothing but its own window */
#define WASI_CUDA_FEATURE_PREFETCH (UINT64_C(1) << 3) /* `prefetch` moves memory; without it the call does nothing */
#define WASI_CUDA_FEATURE_SYMBOL (UINT64_C(1) << 4) /* `symbol` works */
#define WASI_CUDA_PARAM_BITS 0 /* `.bN`: any scalar of its size */
#define WASI_CUDA_PARAM_INTEGER 1 /* `.uN` or `.sN`: an integer of its size, or an address */
#define WASI_CUDA_PARAM_FLOAT 2 /* `.fN`: a float of its size */
#define WASI_CUDA_PARAM_BYTES 3 /* an array: bytes of its size */
#define WASI_CUDA_PARAM_FLAG_PTR 1u /* the parameter is marked `.ptr` */
#define WASI_CUDA_TRAP_NONE 0 /* no kernel has trapped */
#define WASI_CUDA_TRAP_OUT_OF_BOUNDS 1 /* an access outside the memory that the kernel may touch */
#define WASI_CUDA_TRAP_MISALIGNED 2 /* an access whose address is no multiple of its width */
#define WASI_CUDA_TRAP_TRAP_INSTRUCTION 3 /* `trap`, or a failed assertion */
#define WASI_CUDA_TRAP_BARRIER_DEADLOCK 4 /* a barrier that can never be complete */
#define WASI_CUDA_TRAP_CALL_DEPTH 5 /* calls nested deeper than the device allows */
#define WASI_CUDA_TRAP_OUT_OF_TIME 6 /* fuel or time ran out, or the kernel was stopped */
#define WASI_CUDA_PREFETCH_HOST 0 /* bring a range to the host */
#define WASI_CUDA_PREFETCH_DEVICE 1 /* bring a range to the device */
/* end: numbers */

/* The imports. What each does in full is in the ABI's document. */
/* begin: imports */
/* the version of this ABI: the major number in the upper 16 bits, the minor in the lower */
WASI_CUDA_IMPORT("wasi_cuda_abi_version")
extern int32_t wasi_cuda_abi_version(void);
/* write `DeviceInfo`, answer its full size */
WASI_CUDA_IMPORT("wasi_cuda_device_info")
extern int32_t wasi_cuda_device_info(void *dst, size_t len);
/* check and compile PTX, answer a handle of one of its kernels */
WASI_CUDA_IMPORT("wasi_cuda_load_ptx")
extern int64_t wasi_cuda_load_ptx(const char *ptx, size_t ptx_len, const char *entry, size_t entry_len);
/* a handle of a kernel that the embedder registered for this instance */
WASI_CUDA_IMPORT("wasi_cuda_find_kernel")
extern int64_t wasi_cuda_find_kernel(const char *name, size_t len);
/* a buffer over a variable of the kernel's module */
WASI_CUDA_IMPORT("wasi_cuda_symbol")
extern int64_t wasi_cuda_symbol(int64_t kernel, const char *name, size_t len);
/* give a kernel back */
WASI_CUDA_IMPORT("wasi_cuda_unload")
extern int32_t wasi_cuda_unload(int64_t kernel);
/* write `KernelInfo` and its parameters, answer their full size */
WASI_CUDA_IMPORT("wasi_cuda_kernel_info")
extern int32_t wasi_cuda_kernel_info(int64_t kernel, void *dst, size_t len);
/* run a kernel; answers when it has ended */
WASI_CUDA_IMPORT("wasi_cuda_launch")
extern int32_t wasi_cuda_launch(int64_t kernel, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z, uint32_t shared_bytes, const void *argv, size_t argv_len);
/* run a kernel with all its blocks resident at once */
WASI_CUDA_IMPORT("wasi_cuda_launch_cooperative")
extern int32_t wasi_cuda_launch_cooperative(int64_t kernel, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z, uint32_t shared_bytes, const void *argv, size_t argv_len);
/* wait for this instance's work */
WASI_CUDA_IMPORT("wasi_cuda_sync")
extern int32_t wasi_cuda_sync(void);
/* a device buffer */
WASI_CUDA_IMPORT("wasi_cuda_alloc")
extern int64_t wasi_cuda_alloc(uint64_t bytes);
/* give a device buffer back */
WASI_CUDA_IMPORT("wasi_cuda_free")
extern int32_t wasi_cuda_free(int64_t buffer);
/* copy guest memory into a device buffer */
WASI_CUDA_IMPORT("wasi_cuda_write")
extern int32_t wasi_cuda_write(int64_t buffer, uint64_t offset, const void *ptr, size_t len);
/* copy from a device buffer into guest memory */
WASI_CUDA_IMPORT("wasi_cuda_read")
extern int32_t wasi_cuda_read(int64_t buffer, uint64_t offset, void *ptr, size_t len);
/* hint that a range is wanted on the host (0) or on the device (1) */
WASI_CUDA_IMPORT("wasi_cuda_prefetch")
extern int32_t wasi_cuda_prefetch(const void *ptr, size_t len, int32_t side);
/* bytes of the text of the last failure, 0 if there is none */
WASI_CUDA_IMPORT("wasi_cuda_last_error_len")
extern int32_t wasi_cuda_last_error_len(void);
/* copy that text, answer the bytes copied */
WASI_CUDA_IMPORT("wasi_cuda_last_error_copy")
extern int32_t wasi_cuda_last_error_copy(void *dst, size_t len);
/* write `TrapInfo` of the last kernel trap, answer its full size */
WASI_CUDA_IMPORT("wasi_cuda_trap_info")
extern int32_t wasi_cuda_trap_info(void *dst, size_t len);
/* end: imports */

/* Tags of the records that a launch's arguments are sent as. */
/* begin: tags */
#define WASI_CUDA_TAG_I32 0x01u /* i32 */
#define WASI_CUDA_TAG_I64 0x02u /* i64 */
#define WASI_CUDA_TAG_F32 0x03u /* f32 */
#define WASI_CUDA_TAG_F64 0x04u /* f64 */
#define WASI_CUDA_TAG_U32 0x05u /* u32 */
#define WASI_CUDA_TAG_U64 0x06u /* u64 */
#define WASI_CUDA_TAG_PTR 0x07u /* u32 offset, u32 length */
#define WASI_CUDA_TAG_BUFFER 0x08u /* i64 handle, u64 offset */
#define WASI_CUDA_TAG_BYTES 0x09u /* u16 length, then that many bytes */
/* end: tags */

/* ---- What the imports are easier to use with ---- */

/* The name of a code, such as "InvalidArgs". */
static inline const char *wasi_cuda_code_name(int32_t code)
{
    switch (code) {
/* begin: code-names */
    case WASI_CUDA_NOT_AVAILABLE: return "NotAvailable";
    case WASI_CUDA_INVALID_POINTER: return "InvalidPointer";
    case WASI_CUDA_INVALID_KERNEL: return "InvalidKernel";
    case WASI_CUDA_MALFORMED_PTX: return "MalformedPtx";
    case WASI_CUDA_LAUNCH_FAILED: return "LaunchFailed";
    case WASI_CUDA_QUOTA_EXCEEDED: return "QuotaExceeded";
    case WASI_CUDA_INTERNAL: return "Internal";
    case WASI_CUDA_INVALID_DIMENSIONS: return "InvalidDimensions";
    case WASI_CUDA_INVALID_ARGS: return "InvalidArgs";
    case WASI_CUDA_KERNEL_ARGS_UNSUPPORTED: return "KernelArgsUnsupported";
    case WASI_CUDA_INVALID_HANDLE: return "InvalidHandle";
    case WASI_CUDA_DEVICE_LOST: return "DeviceLost";
    case WASI_CUDA_KERNEL_TRAP: return "KernelTrap";
    case WASI_CUDA_DEADLINE_EXCEEDED: return "DeadlineExceeded";
    case WASI_CUDA_UNSUPPORTED_PTX: return "UnsupportedPtx";
/* end: code-names */
    default: return code < 0 ? "an unknown code" : "no failure";
    }
}

/* What a code means, in one line. */
static inline const char *wasi_cuda_code_meaning(int32_t code)
{
    switch (code) {
/* begin: code-meanings */
    case WASI_CUDA_NOT_AVAILABLE: return "the capability is off, or there is no usable device";
    case WASI_CUDA_INVALID_POINTER: return "a range is not inside the guest's present memory, or there is no usable memory";
    case WASI_CUDA_INVALID_KERNEL: return "no kernel of this instance has this handle";
    case WASI_CUDA_MALFORMED_PTX: return "the PTX is not text, does not parse, or lacks the entry";
    case WASI_CUDA_LAUNCH_FAILED: return "the driver failed, or a pointer is not memory that the device may touch";
    case WASI_CUDA_QUOTA_EXCEEDED: return "a limit of this instance, of the process or of the device's memory is reached";
    case WASI_CUDA_INTERNAL: return "the host broke one of its own rules";
    case WASI_CUDA_INVALID_DIMENSIONS: return "the grid, the block or the shared memory is outside the limits";
    case WASI_CUDA_INVALID_ARGS: return "argv bytes or arguments are wrong, or do not match the kernel's parameters";
    case WASI_CUDA_KERNEL_ARGS_UNSUPPORTED: return "argv is over its caps";
    case WASI_CUDA_INVALID_HANDLE: return "no buffer of this instance has this handle";
    case WASI_CUDA_DEVICE_LOST: return "the device is in an error that only a new process clears";
    case WASI_CUDA_KERNEL_TRAP: return "the kernel trapped; `trap_info` says where";
    case WASI_CUDA_DEADLINE_EXCEEDED: return "the kernel ran out of fuel or time, or was stopped";
    case WASI_CUDA_UNSUPPORTED_PTX: return "the PTX is understood but refused; the text names the instruction and its line";
/* end: code-meanings */
    default: return code < 0 ? "an unknown code" : "no failure";
    }
}

static inline size_t wasi_cuda_length_(const char *text)
{
    size_t length = 0;
    while (text[length] != 0) {
        length++;
    }
    return length;
}

/* The text of the last failure, ended by NUL, in `room`; WASI_CUDA_LAST_ERROR_BYTES + 1 bytes hold any. Where the host
 * has no text, what `code` means. */
static inline const char *wasi_cuda_error_text(int32_t code, char *room, size_t bytes)
{
    int32_t copied = bytes > 0 ? wasi_cuda_last_error_copy(room, bytes - 1) : 0;
    if (copied <= 0) {
        return wasi_cuda_code_meaning(code);
    }
    room[copied] = 0;
    return room;
}

/* Loads PTX text and finds one of its kernels: a handle, or a negative code. Both texts end with NUL. */
static inline int64_t wasi_cuda_load(const char *ptx, const char *entry)
{
    return wasi_cuda_load_ptx(ptx, wasi_cuda_length_(ptx), entry, wasi_cuda_length_(entry));
}

/* How many along x, y and z: the size of a grid in blocks, or of a block in threads. */
typedef struct {
    uint32_t x, y, z;
} wasi_cuda_extent_t;

static inline wasi_cuda_extent_t wasi_cuda_xyz(uint32_t x, uint32_t y, uint32_t z)
{
    wasi_cuda_extent_t extent;
    extent.x = x;
    extent.y = y;
    extent.z = z;
    return extent;
}

static inline wasi_cuda_extent_t wasi_cuda_xy(uint32_t x, uint32_t y)
{
    return wasi_cuda_xyz(x, y, 1);
}

static inline wasi_cuda_extent_t wasi_cuda_x(uint32_t x)
{
    return wasi_cuda_xyz(x, 1, 1);
}

/* One argument. Make it by the functions and macros below: WASI_CUDA_ARGS takes nothing else, so that a bare number,
 * whose type the kernel might not share, does not compile. */
typedef struct {
    uint32_t tag;
    uint32_t bytes;   /* of the range, or of the data */
    const void *data; /* the range of a pointer, the data of bytes */
    uint64_t bits;    /* a number's bits, or a buffer's handle */
    uint64_t offset;  /* in a buffer */
} wasi_cuda_arg_t;

static inline wasi_cuda_arg_t wasi_cuda_arg_(uint32_t tag, uint64_t bits)
{
    wasi_cuda_arg_t arg;
    arg.tag = tag;
    arg.bytes = 0;
    arg.data = 0;
    arg.bits = bits;
    arg.offset = 0;
    return arg;
}

/* Numbers, by the kernel's type for them: its `int` is an i32, its `unsigned long long` a u64. */
static inline wasi_cuda_arg_t wasi_cuda_i32(int32_t value)
{
    return wasi_cuda_arg_(WASI_CUDA_TAG_I32, (uint32_t)value);
}

static inline wasi_cuda_arg_t wasi_cuda_u32(uint32_t value)
{
    return wasi_cuda_arg_(WASI_CUDA_TAG_U32, value);
}

static inline wasi_cuda_arg_t wasi_cuda_i64(int64_t value)
{
    return wasi_cuda_arg_(WASI_CUDA_TAG_I64, (uint64_t)value);
}

static inline wasi_cuda_arg_t wasi_cuda_u64(uint64_t value)
{
    return wasi_cuda_arg_(WASI_CUDA_TAG_U64, value);
}

static inline wasi_cuda_arg_t wasi_cuda_f32(float value)
{
    union {
        float value;
        uint32_t bits;
    } number;
    number.value = value;
    return wasi_cuda_arg_(WASI_CUDA_TAG_F32, number.bits);
}

static inline wasi_cuda_arg_t wasi_cuda_f64(double value)
{
    union {
        double value;
        uint64_t bits;
    } number;
    number.value = value;
    return wasi_cuda_arg_(WASI_CUDA_TAG_F64, number.bits);
}

/* Memory that the kernel is given, in bytes. Null with a length, as after a failed malloc, fails the launch. */
static inline wasi_cuda_arg_t wasi_cuda_ptr(const void *data, size_t bytes)
{
    wasi_cuda_arg_t arg = wasi_cuda_arg_(WASI_CUDA_TAG_PTR, 0);
    arg.data = data;
    arg.bytes = (uint32_t)bytes;
    return arg;
}

/* A pointer to nothing. */
static inline wasi_cuda_arg_t wasi_cuda_null(void)
{
    return wasi_cuda_ptr(0, 0);
}

/* A device buffer, from a byte of it on. */
static inline wasi_cuda_arg_t wasi_cuda_buffer(int64_t buffer, uint64_t offset)
{
    wasi_cuda_arg_t arg = wasi_cuda_arg_(WASI_CUDA_TAG_BUFFER, (uint64_t)buffer);
    arg.offset = offset;
    return arg;
}

/* Bytes that the kernel takes by value: a struct, a small integer, a half. */
static inline wasi_cuda_arg_t wasi_cuda_bytes(const void *data, size_t bytes)
{
    wasi_cuda_arg_t arg = wasi_cuda_arg_(WASI_CUDA_TAG_BYTES, 0);
    arg.data = data;
    arg.bytes = (uint32_t)bytes;
    return arg;
}

/* `count` elements from a typed pointer on; the pointer's type says how large they are. */
#define WASI_CUDA_ELEMENTS(pointer, count) wasi_cuda_ptr((pointer), (size_t)(count) * sizeof *(pointer))

/* A variable that the kernel takes by value. */
#define WASI_CUDA_VALUE(variable) wasi_cuda_bytes(&(variable), sizeof(variable))

/* Puts `count` bytes of a number, the lowest first, to argv. */
static inline uint8_t *wasi_cuda_put_(uint8_t *at, uint64_t number, int count)
{
    for (int index = 0; index < count; index++) {
        *at++ = (uint8_t)(number >> (8 * index));
    }
    return at;
}

static inline size_t wasi_cuda_value_bytes_(uint32_t tag)
{
    switch (tag) {
/* begin: value-bytes */
    case WASI_CUDA_TAG_I32: return 4;
    case WASI_CUDA_TAG_I64: return 8;
    case WASI_CUDA_TAG_F32: return 4;
    case WASI_CUDA_TAG_F64: return 8;
    case WASI_CUDA_TAG_U32: return 4;
    case WASI_CUDA_TAG_U64: return 8;
    case WASI_CUDA_TAG_PTR: return 8;
    case WASI_CUDA_TAG_BUFFER: return 16;
    case WASI_CUDA_TAG_BYTES: return 2;
/* end: value-bytes */
    default: return 0;
    }
}

/* Writes the records of `count` arguments to `out`: their bytes, or a negative code. */
static inline int32_t wasi_cuda_encode(
    const wasi_cuda_arg_t *args, size_t count, uint8_t out[WASI_CUDA_MAX_ARGV_BYTES])
{
    uint8_t *at = out;
    if (count > WASI_CUDA_MAX_ARGV_RECORDS) {
        return WASI_CUDA_KERNEL_ARGS_UNSUPPORTED;
    }
    for (size_t index = 0; index < count; index++) {
        const wasi_cuda_arg_t arg = args[index];
        const size_t length = wasi_cuda_value_bytes_(arg.tag);
        const size_t data = arg.tag == WASI_CUDA_TAG_BYTES ? arg.bytes : 0;
        const size_t room = WASI_CUDA_MAX_ARGV_BYTES - (size_t)(at - out);
        if (room < 1 + length || room - 1 - length < data) {
            return WASI_CUDA_KERNEL_ARGS_UNSUPPORTED;
        }
        *at++ = (uint8_t)arg.tag;
        switch (arg.tag) {
        case WASI_CUDA_TAG_PTR:
            if (arg.data == 0 && arg.bytes != 0) {
                return WASI_CUDA_INVALID_POINTER;
            }
            at = wasi_cuda_put_(at, (uint32_t)(uintptr_t)arg.data, 4);
            at = wasi_cuda_put_(at, arg.bytes, 4);
            break;
        case WASI_CUDA_TAG_BUFFER:
            at = wasi_cuda_put_(at, arg.bits, 8);
            at = wasi_cuda_put_(at, arg.offset, 8);
            break;
        case WASI_CUDA_TAG_BYTES:
            at = wasi_cuda_put_(at, arg.bytes, 2);
            for (size_t byte = 0; byte < data; byte++) {
                *at++ = ((const uint8_t *)arg.data)[byte];
            }
            break;
        default:
            at = wasi_cuda_put_(at, arg.bits, (int)length);
            break;
        }
    }
    return (int32_t)(at - out);
}

static inline int32_t wasi_cuda_run_list_(int cooperative, int64_t kernel, wasi_cuda_extent_t grid,
    wasi_cuda_extent_t block, uint32_t shared_bytes, const wasi_cuda_arg_t *args, size_t count)
{
    uint8_t argv[WASI_CUDA_MAX_ARGV_BYTES];
    const int32_t length = wasi_cuda_encode(args, count, argv);
    if (length < 0) {
        return length;
    }
    return cooperative ? wasi_cuda_launch_cooperative(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                             shared_bytes, argv, (size_t)length)
                       : wasi_cuda_launch(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes,
                             argv, (size_t)length);
}

#ifdef __cplusplus
} /* extern "C" */

/* Arguments, as WASI_CUDA_ARGS makes them. */
template <size_t count> struct wasi_cuda_args_t {
    wasi_cuda_arg_t list[count + 1];
};

template <class... Args> inline wasi_cuda_args_t<sizeof...(Args)> wasi_cuda_args_(const Args &...args)
{
    return {{wasi_cuda_null(), args...}};
}

/* The arguments of a launch, in the order of the kernel's parameters. */
#define WASI_CUDA_ARGS(...) wasi_cuda_args_(__VA_ARGS__)

/* Runs a kernel and answers when it has ended: 0 or a negative code. */
template <size_t count>
inline int32_t wasi_cuda_run(int64_t kernel, wasi_cuda_extent_t grid, wasi_cuda_extent_t block, uint32_t shared_bytes,
    const wasi_cuda_args_t<count> &args)
{
    return wasi_cuda_run_list_(0, kernel, grid, block, shared_bytes, args.list + 1, count);
}

/* The same with all blocks resident at once, so that they may wait for each other. */
template <size_t count>
inline int32_t wasi_cuda_run_cooperative(int64_t kernel, wasi_cuda_extent_t grid, wasi_cuda_extent_t block,
    uint32_t shared_bytes, const wasi_cuda_args_t<count> &args)
{
    return wasi_cuda_run_list_(1, kernel, grid, block, shared_bytes, args.list + 1, count);
}

#else

/* Arguments, as WASI_CUDA_ARGS makes them. They are there until the block that they are written in ends. */
typedef struct {
    const wasi_cuda_arg_t *list;
    size_t count;
} wasi_cuda_args_t;

static inline wasi_cuda_args_t wasi_cuda_args_(const wasi_cuda_arg_t *list, size_t bytes)
{
    wasi_cuda_args_t args;
    /* The first stands before the caller's, so that there may be none of those. */
    args.list = list + 1;
    args.count = bytes / sizeof *list - 1;
    return args;
}

/* The arguments of a launch, in the order of the kernel's parameters. */
#define WASI_CUDA_ARGS(...) \
    wasi_cuda_args_((const wasi_cuda_arg_t[]){wasi_cuda_null(), __VA_ARGS__}, \
        sizeof((const wasi_cuda_arg_t[]){wasi_cuda_null(), __VA_ARGS__}))

/* Runs a kernel and answers when it has ended: 0 or a negative code. */
static inline int32_t wasi_cuda_run(int64_t kernel, wasi_cuda_extent_t grid, wasi_cuda_extent_t block,
    uint32_t shared_bytes, wasi_cuda_args_t args)
{
    return wasi_cuda_run_list_(0, kernel, grid, block, shared_bytes, args.list, args.count);
}

/* The same with all blocks resident at once, so that they may wait for each other. */
static inline int32_t wasi_cuda_run_cooperative(int64_t kernel, wasi_cuda_extent_t grid, wasi_cuda_extent_t block,
    uint32_t shared_bytes, wasi_cuda_args_t args)
{
    return wasi_cuda_run_list_(1, kernel, grid, block, shared_bytes, args.list, args.count);
}

#endif /* __cplusplus */

#endif /* WASI_CUDA_H */
