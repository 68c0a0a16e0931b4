/* Uses every helper of wasi_cuda.h. With HOST it plays the host as well, and prints what arrives. */
#include "wasi_cuda.h"

#ifdef HOST
#include <stdio.h>
#define SAY(...) printf(__VA_ARGS__)
#else
#define SAY(...) (void)0
#endif

typedef struct {
    float x, y;
} pair_t;

int main(void);

int main(void)
{
    static const uint8_t long_value[WASI_CUDA_MAX_ARGV_BYTES - 2] = {0};
    static wasi_cuda_arg_t many[WASI_CUDA_MAX_ARGV_RECORDS + 1];
    uint8_t argv[WASI_CUDA_MAX_ARGV_BYTES];
    char text[WASI_CUDA_LAST_ERROR_BYTES + 1];
    const int64_t kernel = wasi_cuda_load(".version 7.0", "entry");
    const pair_t pair = {1.0f, 2.0f};
    float *const data = (float *)(uintptr_t)0x1000;
    int32_t code = wasi_cuda_run(kernel, wasi_cuda_xyz(1, 2, 3), wasi_cuda_xyz(4, 5, 6), 7,
        WASI_CUDA_ARGS(WASI_CUDA_ELEMENTS(data, 64), wasi_cuda_null(), wasi_cuda_i32(-2), wasi_cuda_u32(0xfffffffeu),
            wasi_cuda_i64(-3), wasi_cuda_u64(UINT64_C(1) << 63), wasi_cuda_f32(0.5f), wasi_cuda_f64(-0.25),
            wasi_cuda_buffer(77, UINT64_C(1) << 40), WASI_CUDA_VALUE(pair)));
    if (code == 0) {
        code = wasi_cuda_run_cooperative(kernel, wasi_cuda_xy(8, 9), wasi_cuda_x(10), 0, WASI_CUDA_ARGS());
    }
    code = wasi_cuda_run(kernel, wasi_cuda_x(1), wasi_cuda_x(1), 0, WASI_CUDA_ARGS(wasi_cuda_ptr(NULL, 4)));
    SAY("a null with a length: %s\n", wasi_cuda_code_name(code));
    for (int index = 0; index <= WASI_CUDA_MAX_ARGV_RECORDS; index++) {
        many[index] = wasi_cuda_null();
    }
    code = wasi_cuda_encode(many, WASI_CUDA_MAX_ARGV_RECORDS + 1, argv);
    SAY("too many: %s\n", wasi_cuda_code_name(code));
    code = wasi_cuda_run(
        kernel, wasi_cuda_x(1), wasi_cuda_x(1), 0, WASI_CUDA_ARGS(wasi_cuda_bytes(long_value, sizeof long_value)));
    SAY("too long: %s\n", wasi_cuda_code_name(code));
    SAY("text: %s\n", wasi_cuda_error_text(code, text, sizeof text));
    SAY("code -99: %s\n", wasi_cuda_error_text(-99, text, 1));
    (void)text;
    return code < 0 ? 0 : 1;
}

#ifdef HOST
static void arrived(const char *how, int64_t kernel, const uint32_t *shape, const void *argv, size_t length)
{
    printf("%s %d: %u %u %u, %u %u %u, %u: ", how, (int)kernel, shape[0], shape[1], shape[2], shape[3], shape[4],
        shape[5], shape[6]);
    for (size_t index = 0; index < length; index++) {
        printf("%02x", ((const uint8_t *)argv)[index]);
    }
    printf("\n");
}

int64_t wasi_cuda_load_ptx(const char *ptx, size_t ptx_len, const char *entry, size_t entry_len)
{
    (void)ptx;
    (void)entry;
    return ptx_len == 12 ? (int64_t)entry_len : WASI_CUDA_MALFORMED_PTX;
}

int32_t wasi_cuda_launch(int64_t kernel, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,
    uint32_t shared_bytes, const void *argv, size_t argv_len)
{
    const uint32_t shape[7] = {gx, gy, gz, bx, by, bz, shared_bytes};
    arrived("launch", kernel, shape, argv, argv_len);
    return 0;
}

int32_t wasi_cuda_launch_cooperative(int64_t kernel, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
    uint32_t bz, uint32_t shared_bytes, const void *argv, size_t argv_len)
{
    const uint32_t shape[7] = {gx, gy, gz, bx, by, bz, shared_bytes};
    arrived("cooperative", kernel, shape, argv, argv_len);
    return 0;
}

int32_t wasi_cuda_last_error_copy(void *dst, size_t len)
{
    static const char text[] = "what went wrong";
    size_t index = 0;
    for (; index < len && index < sizeof text - 1; index++) {
        ((char *)dst)[index] = text[index];
    }
    return (int32_t)index;
}
#endif
