/* A CUDA driver that only pretends: two devices of the H200's numbers, managed memory that host and "device" see through
 * mappings of their own, and the few kernels of fixtures/kernels that do something one can look for.
 *
 * It is strict where the real one may crash: a handle that is not alive, memory that was not allocated, or a call that
 * needs a current context and has none, ends the process.
 *
 * FAKE_CUDA holds what to do, separated by `;`:
 *   NAME=CODE       every call of NAME answers CODE and does nothing
 *   NAME@N=CODE     only the N-th call does, from 1
 *   NAME@N+=CODE    the N-th and all later ones do
 *   attribute.N=V   device attribute N is V
 *   devices=N       so many devices
 *   params=N        cuFuncGetParamInfo tells of N bytes more than there are in every parameter
 *   dirty=1         new memory is not zero
 *   sealed=1        the host cannot write to managed memory once its pages were closed
 *   apart=N         the device finds the N-th piece of registered memory 4096 bytes further on
 *   free_mib=N      so much of the device's memory is free
 *   deaf=1          the confined kernel that runs until it is told to stop waits for the word at offset 128 instead
 *   copy_ms=N       a copy takes so long
 * Some texts have its linker misbehave: see misbehave().
 * FAKE_CUDA_LOG names the file to which each call adds a line.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int Result;
typedef unsigned int Number;
#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    MISALIGNED_ADDRESS = 716,
    LAUNCH_FAILED = 719,
    COOPERATIVE_TOO_LARGE = 720,
    NOT_SUPPORTED = 801,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Result broken; /* what every call answers once a kernel has faulted */

static void die(const char *why) {
    fprintf(stderr, "fake driver: %s\n", why);
    abort();
}

/* --- Scripts and the log --- */

static long setting(const char *name, long otherwise) {
    const char *script = getenv("FAKE_CUDA");
    size_t length = strlen(name);
    while (script != NULL && *script != 0) {
        if (strncmp(script, name, length) == 0 && script[length] == '=')
            return strtol(script + length + 1, NULL, 10);
        script = strchr(script, ';');
        if (script != NULL)
            script++;
    }
    return otherwise;
}

static struct {
    char name[64];
    long calls;
} counters[128];

static long count_call(const char *name) {
    for (int i = 0; i < 128; i++) {
        if (counters[i].name[0] == 0)
            snprintf(counters[i].name, sizeof counters[i].name, "%s", name);
        if (strcmp(counters[i].name, name) == 0)
            return ++counters[i].calls;
    }
    die("too many functions");
    return 0;
}

static Result scripted(const char *name, long call) {
    const char *script = getenv("FAKE_CUDA");
    size_t length = strlen(name);
    while (script != NULL && *script != 0) {
        if (strncmp(script, name, length) == 0) {
            const char *rest = script + length;
            long from = 1, to = INT32_MAX;
            if (*rest == '@') {
                char *end;
                from = to = strtol(rest + 1, &end, 10);
                rest = end;
                if (*rest == '+') {
                    to = INT32_MAX;
                    rest++;
                }
            }
            if (*rest == '=' && call >= from && call <= to)
                return (Result)strtol(rest + 1, NULL, 10);
        }
        script = strchr(script, ';');
        if (script != NULL)
            script++;
    }
    return SUCCESS;
}

__attribute__((format(printf, 2, 3))) static Result enter(const char *name, const char *format, ...) {
    char line[512];
    int used = snprintf(line, sizeof line, "%s", name);
    va_list values;
    va_start(values, format);
    used += vsnprintf(line + used, sizeof line - used - 1, format, values);
    va_end(values);
    line[used++] = '\n';
    pthread_mutex_lock(&lock);
    const char *log = getenv("FAKE_CUDA_LOG");
    if (log != NULL) {
        int file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (file < 0 || write(file, line, used) != used)
            die("the log cannot be written");
        close(file);
    }
    Result result = scripted(name, count_call(name));
    /* Questions about devices are not about a context. */
    if (result == SUCCESS && strncmp(name, "cuDeviceGet", 11) != 0)
        result = broken;
    pthread_mutex_unlock(&lock);
    return result;
}

#define ENTER(...)                                                                                                     \
    do {                                                                                                               \
        Result answer = enter(__func__, __VA_ARGS__);                                                                  \
        if (answer != SUCCESS)                                                                                         \
            return answer;                                                                                             \
    } while (0)

/* --- Handles --- */

/* What a confined kernel and its host share: docs/confinement.md, section 6. */
struct Control {
    uint64_t none;
    uint32_t cut, unused, state, site;
    uint64_t address;
    uint32_t block[3], thread[3];
};

enum Kind { CONTEXT = 0x5eed01, STREAM, MODULE, FUNCTION, LINKER };

struct Context {
    enum Kind kind;
    int ordinal;
    int retained;
};

struct Stream {
    enum Kind kind;
    struct timespec until; /* busy until then */
    const volatile uint32_t *flag; /* and until this is not 0 */
    struct Control *control; /* and while it may run: until a time, and while a word is not its token */
    uint32_t *stop, token;
    uint64_t ends;
    int is_urgent;
    uint64_t ends_at; /* where its kernel then stores a word */
};

struct Module {
    enum Kind kind;
    char *text;
    uint32_t counter;
    struct Function *functions;
};

struct Function {
    enum Kind kind;
    struct Module *module;
    struct Function *next;
    char name[128];
    int dynamic_shared;
};

static struct Context contexts[8];
static __thread struct Context *current;

static void *alive(void *handle, enum Kind kind) {
    if (handle == NULL || *(enum Kind *)handle != kind)
        die("a handle is not alive");
    return handle;
}

/* Handles are never used again, so that a stale one is found. */
static void bury(void *handle) {
    *(enum Kind *)handle = 0;
}

#define NEED_CONTEXT()                                                                                                 \
    do {                                                                                                               \
        if (current == NULL)                                                                                           \
            return INVALID_CONTEXT;                                                                                    \
        alive(current, CONTEXT);                                                                                       \
    } while (0)

/* --- Driver and devices --- */

EXPORT Result cuInit(Number flags) {
    ENTER(" %u", flags);
    return SUCCESS;
}

EXPORT Result cuDriverGetVersion(int *version) {
    ENTER("%s", "");
    *version = 13000;
    return SUCCESS;
}

static int device_count(void) {
    return (int)setting("devices", 2);
}

EXPORT Result cuDeviceGetCount(int *count) {
    ENTER("%s", "");
    *count = device_count();
    return SUCCESS;
}

EXPORT Result cuDeviceGet(int *device, int ordinal) {
    ENTER(" %d", ordinal);
    if (ordinal < 0 || ordinal >= device_count())
        return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

EXPORT Result cuDeviceGetName(char *name, int length, int device) {
    ENTER(" %d", device);
    snprintf(name, length, "Pretended GPU %d", device);
    return SUCCESS;
}

EXPORT Result cuDeviceGetAttribute(int *value, int which, int device) {
    static const int known[][2] = {
        {1, 1024},  {2, 1024},  {3, 1024},   {4, 64},    {5, 2147483647}, {6, 65535}, {7, 65535},  {8, 49152},
        {10, 32},   {12, 65536}, {16, 132}, {39, 2048},  {41, 1},         {75, 9},    {76, 0},     {81, 233472},
        {83, 1},    {88, 0},    {89, 1},     {95, 1},    {97, 232448},    {100, 0},   {101, 0},    {106, 32},
    };
    ENTER(" %d %d", which, device);
    char name[32];
    snprintf(name, sizeof name, "attribute.%d", which);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i][0] == which) {
            *value = (int)setting(name, known[i][1]);
            return SUCCESS;
        }
    }
    die("an attribute that is not known here");
    return INVALID_VALUE;
}

EXPORT Result cuDevicePrimaryCtxRetain(struct Context **context, int device) {
    ENTER(" %d", device);
    contexts[device].kind = CONTEXT;
    contexts[device].ordinal = device;
    contexts[device].retained++;
    *context = &contexts[device];
    return SUCCESS;
}

EXPORT Result cuDevicePrimaryCtxRelease_v2(int device) {
    ENTER(" %d", device);
    alive(&contexts[device], CONTEXT);
    if (--contexts[device].retained == 0)
        bury(&contexts[device]);
    return SUCCESS;
}

EXPORT Result cuCtxSetCurrent(struct Context *context) {
    /* Called everywhere, before everything: not logged. */
    if (context != NULL)
        alive(context, CONTEXT);
    pthread_mutex_lock(&lock);
    Result result = scripted("cuCtxSetCurrent", count_call("cuCtxSetCurrent"));
    pthread_mutex_unlock(&lock);
    if (result == SUCCESS)
        current = context;
    return result;
}

static size_t stack_limit = 1024;

EXPORT Result cuCtxGetLimit(size_t *value, int limit) {
    ENTER(" %d", limit);
    NEED_CONTEXT();
    *value = stack_limit;
    return SUCCESS;
}

EXPORT Result cuCtxSetLimit(int limit, size_t value) {
    ENTER(" %d %zu", limit, value);
    NEED_CONTEXT();
    stack_limit = value;
    return SUCCESS;
}

/* --- Memory --- */

static struct Memory {
    uint8_t *host, *device; /* the same where the host's memory is registered */
    size_t bytes;
    int ordinal, is_managed;
} memories[4096];

static struct Memory *memory_of(uint64_t at, size_t bytes) {
    for (int i = 0; i < 4096; i++) {
        uint64_t base = (uintptr_t)memories[i].host;
        if (base != 0 && at >= base && at - base <= memories[i].bytes && bytes <= memories[i].bytes - (at - base))
            return &memories[i];
    }
    return NULL;
}

/* Where the device sees what the host sees at `at`; NULL where that is not managed memory. */
static void *device_view(uint64_t at, size_t bytes) {
    pthread_mutex_lock(&lock);
    struct Memory *memory = memory_of(at, bytes);
    void *view = memory == NULL ? NULL : memory->device + (at - (uintptr_t)memory->host);
    pthread_mutex_unlock(&lock);
    return view;
}

static void *need_view(uint64_t at, size_t bytes) {
    void *view = device_view(at, bytes);
    if (view == NULL)
        die("a range that is not allocated");
    return view;
}

static void enter_memory(struct Memory memory) {
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < 4096 && memories[i].host != NULL)
        i++;
    if (i == 4096)
        die("too many allocations");
    memories[i] = memory;
    pthread_mutex_unlock(&lock);
}

static uint64_t allocate(size_t bytes, int is_managed) {
    int file = memfd_create("managed", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, bytes) != 0)
        die("no memory file");
    const int both = PROT_READ | PROT_WRITE;
    int of_host = file;
    if (setting("sealed", 0)) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        of_host = open(path, O_RDONLY | O_CLOEXEC);
    }
    const int for_host = !is_managed ? PROT_NONE : of_host == file ? both : PROT_READ;
    void *host = mmap(NULL, bytes, for_host, MAP_SHARED | MAP_NORESERVE, of_host, 0);
    void *device = mmap(NULL, bytes, both, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (of_host != file)
        close(of_host);
    if (host == MAP_FAILED || device == MAP_FAILED)
        die("no mapping");
    close(file);
    if (setting("dirty", 0))
        memset(device, 0xDB, bytes < (64 << 20) ? bytes : (64 << 20));
    enter_memory((struct Memory){host, device, bytes, current->ordinal, is_managed});
    return (uintptr_t)host;
}

EXPORT Result cuMemAllocManaged(uint64_t *at, size_t bytes, Number flags) {
    ENTER(" %zu %u", bytes, flags);
    NEED_CONTEXT();
    if (bytes == 0)
        return INVALID_VALUE;
    *at = allocate(bytes, 1);
    return SUCCESS;
}

EXPORT Result cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    ENTER(" %zu", bytes);
    NEED_CONTEXT();
    if (bytes == 0)
        return INVALID_VALUE;
    *at = allocate(bytes, 0);
    return SUCCESS;
}

EXPORT Result cuMemFree_v2(uint64_t at) {
    ENTER("%s", "");
    NEED_CONTEXT();
    pthread_mutex_lock(&lock);
    struct Memory *memory = memory_of(at, 1);
    if (memory == NULL || (uintptr_t)memory->host != at)
        die("a free of what was not allocated");
    munmap(memory->host, memory->bytes);
    munmap(memory->device, memory->bytes);
    memory->host = NULL;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

EXPORT Result cuMemHostAlloc(void **at, size_t bytes, Number flags) {
    ENTER(" %zu %u", bytes, flags);
    NEED_CONTEXT();
    if (posix_memalign(at, 4096, bytes) != 0)
        return OUT_OF_MEMORY;
    memset(*at, 0xA5, bytes);
    return SUCCESS;
}

EXPORT Result cuMemHostGetDevicePointer_v2(uint64_t *device, void *at, Number flags) {
    static int found; /* of registered pieces */
    ENTER(" %u", flags);
    NEED_CONTEXT();
    *device = (uintptr_t)at;
    if (device_view(*device, 1) != NULL && ++found == setting("apart", 0))
        *device += 4096;
    return SUCCESS;
}

EXPORT Result cuMemFreeHost(void *at) {
    ENTER("%s", "");
    NEED_CONTEXT();
    free(at);
    return SUCCESS;
}

EXPORT Result cuMemHostRegister_v2(void *at, size_t bytes, Number flags) {
    ENTER(" %zu %u", bytes, flags);
    NEED_CONTEXT();
    enter_memory((struct Memory){at, at, bytes, current->ordinal, 0});
    return SUCCESS;
}

EXPORT Result cuMemHostUnregister(void *at) {
    ENTER("%s", "");
    NEED_CONTEXT();
    pthread_mutex_lock(&lock);
    struct Memory *memory = memory_of((uintptr_t)at, 1);
    if (memory == NULL || memory->host != at || memory->device != at)
        die("memory that is not registered");
    memory->host = NULL;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

enum { MEMORY_TYPE = 2, DEVICE_POINTER = 3, IS_MANAGED = 8, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12 };

EXPORT Result cuPointerGetAttributes(Number count, const int *attributes, void **values, uint64_t at) {
    ENTER(" %u", count);
    NEED_CONTEXT();
    pthread_mutex_lock(&lock);
    const struct Memory *memory = memory_of(at, 1);
    struct Memory found = memory == NULL ? (struct Memory){NULL, NULL, 0, -2, 0} : *memory;
    pthread_mutex_unlock(&lock);
    int is_known = found.host != NULL, is_registered = found.host == found.device;
    for (Number i = 0; i < count; i++) {
        switch (attributes[i]) {
        case MEMORY_TYPE: *(Number *)values[i] = !is_known ? 0 : is_registered ? 1 : 2; break;
        case DEVICE_POINTER: *(uint64_t *)values[i] = is_known ? at : 0; break;
        case IS_MANAGED: *(Number *)values[i] = found.is_managed; break;
        case DEVICE_ORDINAL: *(int *)values[i] = found.ordinal; break;
        case RANGE_START: *(uint64_t *)values[i] = (uintptr_t)found.host; break;
        case RANGE_SIZE: *(size_t *)values[i] = found.bytes; break;
        default: die("an attribute of a pointer that is not known here");
        }
    }
    return SUCCESS;
}

EXPORT Result cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER("%s", "");
    NEED_CONTEXT();
    *total = (size_t)139 << 30;
    *available = (size_t)setting("free_mib", 138 << 10) << 20;
    return SUCCESS;
}

EXPORT Result cuMemAdvise(uint64_t at, size_t bytes, int advice, int device) {
    ENTER(" %zu %d %d", bytes, advice, device);
    NEED_CONTEXT();
    need_view(at, bytes);
    return SUCCESS;
}

EXPORT Result cuMemPrefetchAsync(uint64_t at, size_t bytes, int device, struct Stream *stream) {
    ENTER(" %zu %d", bytes, device);
    NEED_CONTEXT();
    alive(stream, STREAM);
    need_view(at, bytes);
    return SUCCESS;
}

static void take_time(void) {
    usleep(1000 * setting("copy_ms", 0));
}

EXPORT Result cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, struct Stream *stream) {
    ENTER(" %zu", bytes);
    NEED_CONTEXT();
    alive(stream, STREAM);
    take_time();
    memset(need_view(at, bytes), value, bytes);
    return SUCCESS;
}

EXPORT Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, struct Stream *stream) {
    ENTER(" %zu", bytes);
    NEED_CONTEXT();
    alive(stream, STREAM);
    take_time();
    memcpy(need_view(to, bytes), from, bytes);
    return SUCCESS;
}

EXPORT Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, struct Stream *stream) {
    ENTER(" %zu", bytes);
    NEED_CONTEXT();
    alive(stream, STREAM);
    take_time();
    memcpy(to, need_view(from, bytes), bytes);
    return SUCCESS;
}

/* --- Streams --- */

static Result store32(uint64_t at, uint32_t value);

static uint64_t global_timer(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

static int is_busy(struct Stream *stream) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (stream->flag != NULL && *stream->flag == 0)
        return 1;
    stream->flag = NULL;
    struct Control *control = stream->control;
    if (control != NULL) {
        if (global_timer() < stream->ends && __atomic_load_n(stream->stop, __ATOMIC_ACQUIRE) != stream->token)
            return 1;
        /* It tells its threads that begin later. */
        __atomic_store_n(stream->stop, stream->token, __ATOMIC_RELEASE);
        store32(stream->ends_at, 64);
        __atomic_store_n(&control->cut, 1, __ATOMIC_RELEASE);
        stream->control = NULL;
    }
    return now.tv_sec < stream->until.tv_sec
        || (now.tv_sec == stream->until.tv_sec && now.tv_nsec < stream->until.tv_nsec);
}

EXPORT Result cuStreamCreateWithPriority(struct Stream **stream, Number flags, int priority) {
    ENTER(" %u %d", flags, priority);
    NEED_CONTEXT();
    *stream = calloc(1, sizeof **stream);
    (*stream)->kind = STREAM;
    (*stream)->is_urgent = priority != 0;
    return SUCCESS;
}

EXPORT Result cuStreamDestroy_v2(struct Stream *stream) {
    ENTER("%s", "");
    NEED_CONTEXT();
    bury(alive(stream, STREAM));
    return SUCCESS;
}

EXPORT Result cuStreamQuery(struct Stream *stream) {
    /* Called without end: not logged. */
    NEED_CONTEXT();
    alive(stream, STREAM);
    pthread_mutex_lock(&lock);
    Result result = scripted("cuStreamQuery", count_call("cuStreamQuery"));
    if (result == SUCCESS)
        result = broken;
    pthread_mutex_unlock(&lock);
    if (result != SUCCESS)
        return result;
    return is_busy(stream) ? NOT_READY : SUCCESS;
}

struct Write {
    struct Stream after; /* the stream as it was */
    uint32_t *word, value;
};

static void *write_later(void *argument) {
    struct Write write = *(struct Write *)argument;
    free(argument);
    while (broken == SUCCESS && is_busy(&write.after))
        usleep(50);
    if (broken == SUCCESS)
        __atomic_store_n(write.word, write.value, __ATOMIC_RELEASE);
    return NULL;
}

EXPORT Result cuStreamWriteValue32_v2(struct Stream *stream, uint64_t at, uint32_t value, Number flags) {
    ENTER(" %u", flags);
    NEED_CONTEXT();
    alive(stream, STREAM);
    if (setting("marks", 0) == 0 && !stream->is_urgent)
        return NOT_SUPPORTED;
    struct Write *write = malloc(sizeof *write);
    void *view = device_view(at, 4);
    *write = (struct Write){*stream, view != NULL ? view : (uint32_t *)at, value};
    pthread_t thread;
    if (!is_busy(stream))
        write_later(write);
    else if (pthread_create(&thread, NULL, write_later, write) == 0)
        pthread_detach(thread);
    else
        die("no thread for a write");
    return SUCCESS;
}

EXPORT Result cuStreamSynchronize(struct Stream *stream) {
    ENTER("%s", "");
    NEED_CONTEXT();
    alive(stream, STREAM);
    while (is_busy(stream))
        usleep(50);
    return broken;
}

/* --- Modules --- */

enum { ERROR_LOG = 5, ERROR_LOG_BYTES = 6 };

static void write_log(Number count, const int *options, void **values, const char *text) {
    char *log = NULL;
    size_t bytes = 0;
    for (Number i = 0; i < count; i++) {
        if (options[i] == ERROR_LOG)
            log = values[i];
        if (options[i] == ERROR_LOG_BYTES)
            bytes = (uintptr_t)values[i];
    }
    if (log != NULL)
        snprintf(log, bytes, "%s", text);
}

/* What the compiler says of a text. */
static Result compile(const char *text, Number count, const int *options, void **values) {
    int major, minor;
    const char *version = strstr(text, ".version ");
    if (version == NULL || sscanf(version, ".version %d.%d", &major, &minor) != 2)
        return INVALID_PTX;
    if (major * 100 + minor > 900) {
        char said[128];
        snprintf(said, sizeof said, "ptxas application ptx input, line 1; fatal   : Unsupported .version %d.%d; "
            "current version is '9.0'\n", major, minor);
        write_log(count, options, values, said);
        return UNSUPPORTED_PTX_VERSION;
    }
    if (strstr(text, ".target sm_1") != NULL) {
        write_log(count, options, values, "ptxas fatal   : Program with .target 'sm_1xx' cannot be compiled to sm_90\n");
        return INVALID_PTX;
    }
    return SUCCESS;
}

static void list(char *listed, size_t bytes, Number count, const int *options) {
    *listed = 0;
    for (Number i = 0; i < count; i++)
        snprintf(listed + strlen(listed), bytes - strlen(listed), " %d", options[i]);
}

/* A compiled text is the header of an ELF file without sections, and behind it the text. */
enum { HEADER_BYTES = 64 };

EXPORT Result cuModuleLoadDataEx(struct Module **module, const char *text, Number count, int *options, void **values) {
    char listed[128];
    list(listed, sizeof listed, count, options);
    ENTER(" %u%s", count, listed);
    NEED_CONTEXT();
    if (memcmp(text, "\177ELF", 4) == 0) {
        text += HEADER_BYTES;
    } else {
        Result result = compile(text, count, options, values);
        if (result != SUCCESS)
            return result;
    }
    *module = calloc(1, sizeof **module);
    (*module)->kind = MODULE;
    (*module)->text = strdup(text);
    return SUCCESS;
}

EXPORT Result cuModuleUnload(struct Module *module) {
    ENTER("%s", "");
    NEED_CONTEXT();
    alive(module, MODULE);
    for (struct Function *function = module->functions; function != NULL; function = function->next)
        bury(function);
    bury(module);
    return SUCCESS;
}

/* --- The linker --- */

struct Linker {
    enum Kind kind;
    Number count;
    int *options; /* these two are the caller's, and live as long as the linker */
    void **values;
    char *cubin;
    size_t bytes;
};

EXPORT Result cuLinkCreate_v2(Number count, int *options, void **values, struct Linker **linker) {
    char listed[128];
    list(listed, sizeof listed, count, options);
    ENTER(" %u%s", count, listed);
    NEED_CONTEXT();
    *linker = calloc(1, sizeof **linker);
    **linker = (struct Linker){LINKER, count, options, values, NULL, 0};
    return SUCCESS;
}

/* Texts that have the compiler, or whoever took it over, do what it should not. */
static void misbehave(const char *text) {
    static const uint32_t no_step[] = {7, 0, 0, 0, 0}, no_length[] = {0, 0, 0, 0, UINT32_MAX};
    if (strstr(text, "k_compiler_dies") != NULL) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (strstr(text, "k_compiler_hangs") != NULL)
        for (;;)
            pause();
    if (strstr(text, "k_compiler_eats") != NULL)
        for (;;) {
            size_t bytes = 16 << 20;
            memset(malloc(bytes), 1, bytes);
            usleep(1000);
        }
    ssize_t written = 1;
    if (strstr(text, "k_compiler_babbles") != NULL)
        written = write(STDOUT_FILENO, no_step, sizeof no_step);
    if (strstr(text, "k_compiler_boasts") != NULL)
        written = write(STDOUT_FILENO, no_length, sizeof no_length);
    if (written <= 0)
        die("nobody listens");
}

EXPORT Result cuLinkAddData_v2(struct Linker *linker, int kind, void *data, size_t bytes, const char *name, Number count,
                               int *options, void **values) {
    ENTER(" %d", kind);
    NEED_CONTEXT();
    alive(linker, LINKER);
    const char *text = data;
    if (kind != 1 || text[bytes - 1] != 0 || name != NULL || count != 0 || options != NULL || values != NULL)
        die("one text with its end is linked, without a name or options");
    misbehave(text);
    Result result = compile(text, linker->count, linker->options, linker->values);
    if (result != SUCCESS)
        return result;
    linker->bytes = strstr(text, "k_compiler_cuts") != NULL ? 40 : HEADER_BYTES + bytes;
    linker->cubin = calloc(1, HEADER_BYTES + bytes);
    memcpy(linker->cubin, "\177ELF\2\1", 6);
    linker->cubin[18] = (char)190;
    memcpy(linker->cubin + HEADER_BYTES, text, bytes);
    return SUCCESS;
}

EXPORT Result cuLinkComplete(struct Linker *linker, void **cubin, size_t *bytes) {
    ENTER("%s", "");
    NEED_CONTEXT();
    alive(linker, LINKER);
    *cubin = linker->cubin;
    *bytes = linker->bytes;
    return SUCCESS;
}

EXPORT Result cuLinkDestroy(struct Linker *linker) {
    ENTER("%s", "");
    alive(linker, LINKER);
    free(linker->cubin);
    bury(linker);
    return SUCCESS;
}

/* The text between the parentheses of an entry; NULL if there is no such entry. */
static const char *entry(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, ".entry ")) != NULL; at++) {
        const char *found = at + strlen(".entry ");
        found += strspn(found, " \t\n");
        if (strncmp(found, name, length) == 0 && strchr("( \t\n", found[length]) != NULL)
            return found + length + strspn(found + length, " \t\n") + 1;
    }
    return NULL;
}

EXPORT Result cuModuleGetFunction(struct Function **function, struct Module *module, const char *name) {
    ENTER(" %s", name);
    NEED_CONTEXT();
    alive(module, MODULE);
    if (entry(module->text, name) == NULL)
        return NOT_FOUND;
    *function = calloc(1, sizeof **function);
    (*function)->kind = FUNCTION;
    (*function)->module = module;
    (*function)->next = module->functions;
    (*function)->dynamic_shared = 49152;
    module->functions = *function;
    snprintf((*function)->name, sizeof (*function)->name, "%s", name);
    return SUCCESS;
}

EXPORT Result cuFuncLoad(struct Function *function) {
    ENTER("%s", "");
    NEED_CONTEXT();
    alive(function, FUNCTION);
    return SUCCESS;
}

static int static_shared(const struct Function *function) {
    return strcmp(function->name, "k_bothsmem") == 0 ? 1024 : 0;
}

EXPORT Result cuFuncGetAttribute(int *value, int which, struct Function *function) {
    ENTER(" %d", which);
    NEED_CONTEXT();
    alive(function, FUNCTION);
    switch (which) {
    case 0: *value = 1024; break;
    case 1: *value = static_shared(function); break;
    case 2: *value = 0; break;
    case 3: *value = (int)setting("local", 0); break;
    case 4: *value = 16; break;
    case 8: *value = function->dynamic_shared; break;
    default: die("a function attribute that is not known here");
    }
    return SUCCESS;
}

EXPORT Result cuFuncSetAttribute(struct Function *function, int which, int value) {
    ENTER(" %d %d", which, value);
    NEED_CONTEXT();
    alive(function, FUNCTION);
    if (which != 8 || value + static_shared(function) > 232448)
        return INVALID_VALUE;
    function->dynamic_shared = value;
    return SUCCESS;
}

/* Size of the parameter whose declaration begins at `at`, and its alignment; where the next begins in `*next`. */
static size_t parameter(const char *at, size_t *align, const char **next) {
    size_t size = 0, elements = 1;
    *align = 0;
    const char *end = at + strcspn(at, ",)");
    for (const char *word = at; word < end; word++) {
        Number number;
        char type;
        if (strncmp(word, ".ptr", 4) == 0) {
            /* What follows is about what it points to. */
            break;
        } else if (sscanf(word, ".align %u", &number) == 1) {
            *align = number;
        } else if (sscanf(word, ".%c%u", &type, &number) == 2 && strchr("usbf", type) != NULL) {
            size = number / 8;
        } else if (sscanf(word, "[%u]", &number) == 1) {
            elements = number;
        }
    }
    if (*align == 0)
        *align = size;
    *next = *end == ',' ? end + 1 : NULL;
    return size * elements;
}

EXPORT Result cuFuncGetParamInfo(struct Function *function, size_t index, size_t *offset, size_t *size) {
    ENTER(" %zu", index);
    alive(function, FUNCTION);
    const char *at = entry(function->module->text, function->name);
    if (strncmp(at + strspn(at, " \t\n"), ".param", 6) != 0)
        return INVALID_VALUE;
    size_t place = 0;
    for (size_t i = 0; at != NULL; i++) {
        size_t align, bytes = parameter(at, &align, &at);
        place = (place + align - 1) / align * align;
        if (i == index) {
            *offset = place;
            *size = bytes + setting("params", 0);
            return SUCCESS;
        }
        place += bytes;
    }
    return INVALID_VALUE;
}

EXPORT Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct Function *function, int threads,
                                                          size_t shared) {
    ENTER(" %d %zu", threads, shared);
    NEED_CONTEXT();
    alive(function, FUNCTION);
    int by_threads = 2048 / ((threads + 31) / 32 * 32);
    *blocks = by_threads < 32 ? by_threads : 32;
    return SUCCESS;
}

/* --- Kernels --- */

static void busy_for(struct Stream *stream, uint64_t nanoseconds) {
    clock_gettime(CLOCK_MONOTONIC, &stream->until);
    nanoseconds += stream->until.tv_nsec;
    stream->until.tv_sec += nanoseconds / 1000000000;
    stream->until.tv_nsec = nanoseconds % 1000000000;
}

static uint64_t wide(void *const *params, int index) {
    uint64_t value;
    memcpy(&value, params[index], 8);
    return value;
}

static uint32_t narrow(void *const *params, int index) {
    uint32_t value;
    memcpy(&value, params[index], 4);
    return value;
}

/* A confined kernel's hidden parameters, behind so many of its guest's. */
static struct Confined {
    uint64_t base;
    struct Control *control;
    uint32_t *stop;
    uint64_t until;
    uint32_t mask, token;
} hidden(void *const *params, int own) {
    uint64_t base = wide(params, own), control = wide(params, own + 1);
    uint64_t stop = wide(params, own + 2), until = wide(params, own + 3);
    uint32_t globals = narrow(params, own + 4), mask = narrow(params, own + 5);
    uint32_t token = narrow(params, own + 8);
    struct Confined confined = {base, (struct Control *)(uintptr_t)control, need_view(stop, 4), until, mask, token};
    if (token == 0 || *confined.stop == token || stop % 128 != 0)
        die("a word that says stop already");
    if (control % 64 != 0 || confined.control->cut != 0 || confined.control->state != 0)
        die("a control block that is not ready");
    if ((mask & (mask + 1)) != 0 || (mask == UINT32_MAX && (uint32_t)base != 0) || globals > mask)
        die("hidden parameters that do not belong together");
    /* What lies beside the window is the guest's as well. */
    need_view(base - 4096, (size_t)mask + 1 + 2 * 4096);
    return confined;
}

static Result store(uint64_t at, const void *value, size_t bytes) {
    if (at % bytes != 0)
        return MISALIGNED_ADDRESS;
    void *view = device_view(at, bytes);
    if (view == NULL)
        return ILLEGAL_ADDRESS;
    memcpy(view, value, bytes);
    return SUCCESS;
}

static Result store32(uint64_t at, uint32_t value) {
    return store(at, &value, 4);
}

/* What the kernel does when it is waited for: its fault, if it has one. A kernel that is not known here does nothing. */
static Result run(struct Function *function, struct Stream *stream, void *const *params) {
    const char *name = function->name;
    if (strcmp(name, "k_store") == 0)
        return store32(wide(params, 0), narrow(params, 1));
    if (strcmp(name, "k_past") == 0)
        return store32(wide(params, 0) + wide(params, 1), 0xdeadbeef);
    if (strcmp(name, "k_dynsmem") == 0)
        return store32(wide(params, 0), 77);
    if (strcmp(name, "k_bothsmem") == 0)
        return store32(wide(params, 0), 5);
    if (strcmp(name, "k_count") == 0)
        return store32(wide(params, 0), function->module->counter++);
    if (strcmp(name, "k_wild") == 0)
        return store32(16, 1);
    if (strcmp(name, "k_trap") == 0)
        return LAUNCH_FAILED;
    if (strcmp(name, "store_u64") == 0)
        return store(wide(params, 0), "\377\377\377\377\377\377\377", 8);
    if (strcmp(name, "wc_clock") == 0)
        *(volatile uint64_t *)(uintptr_t)wide(params, 0) = global_timer();
    if (strcmp(name, "g91") == 0) {
        struct Confined confined = hidden(params, 2);
        return store32(confined.base + (wide(params, 0) & confined.mask & ~UINT64_C(3)), narrow(params, 1));
    }
    if (strcmp(name, "g92") == 0) {
        struct Confined confined = hidden(params, 0);
        stream->ends_at = confined.base + 64;
        if (setting("deaf", 0))
            stream->flag = need_view(confined.base + 128, 4);
        else {
            stream->control = confined.control;
            stream->stop = confined.stop;
            stream->token = confined.token;
            stream->ends = confined.until;
        }
    }
    if (strcmp(name, "g93") == 0) {
        struct Control *control = hidden(params, 1).control;
        const char *site = strstr(function->module->text, "[%wctl+20], ");
        *control = (struct Control){0, 0, 0, 1, atoi(site + 12), wide(params, 0), {1, 1, 0}, {31, 1, 0}};
    }
    if (strcmp(name, "k_spin") == 0)
        busy_for(stream, wide(params, 0));
    if (strcmp(name, "k_forever") == 0)
        stream->flag = need_view(wide(params, 0), 4);
    if (strcmp(name, "k_copy") == 0) {
        uint32_t bytes = 4 * narrow(params, 2);
        memmove(need_view(wide(params, 1), bytes), need_view(wide(params, 0), bytes), bytes);
    }
    if (strcmp(name, "vecadd") == 0) {
        uint32_t n = narrow(params, 3);
        float *a = need_view(wide(params, 0), 4 * n), *b = need_view(wide(params, 1), 4 * n);
        float *c = need_view(wide(params, 2), 4 * n);
        for (uint32_t i = 0; i < n; i++)
            c[i] = a[i] + b[i];
    }
    return SUCCESS;
}

static Result launch(struct Function *function, Number threads, Number shared, struct Stream *stream, void **params) {
    NEED_CONTEXT();
    alive(alive(function, FUNCTION) == NULL ? NULL : function->module, MODULE);
    alive(stream, STREAM);
    if (threads == 0 || threads > 1024 || shared > (Number)function->dynamic_shared)
        return INVALID_VALUE;
    stream->control = NULL;
    Result fault = run(function, stream, params);
    pthread_mutex_lock(&lock);
    if (broken == SUCCESS)
        broken = fault;
    pthread_mutex_unlock(&lock);
    /* The launch that faults is answered as any other. */
    return SUCCESS;
}

EXPORT Result cuLaunchKernel(struct Function *function, Number gx, Number gy, Number gz, Number bx, Number by, Number bz,
                             Number shared, struct Stream *stream, void **params, void **extra) {
    ENTER(" %u %u %u %u %u %u %u", gx, gy, gz, bx, by, bz, shared);
    if (extra != NULL)
        die("launches have no extra options");
    return launch(function, bx * by * bz, shared, stream, params);
}

EXPORT Result cuLaunchCooperativeKernel(struct Function *function, Number gx, Number gy, Number gz, Number bx, Number by,
                                        Number bz, Number shared, struct Stream *stream, void **params) {
    ENTER(" %u %u %u %u %u %u %u", gx, gy, gz, bx, by, bz, shared);
    if ((uint64_t)gx * gy * gz > 132 * 32)
        return COOPERATIVE_TOO_LARGE;
    return launch(function, bx * by * bz, shared, stream, params);
}

/* --- Texts --- */

static const struct {
    int code;
    const char *name, *text;
} codes[] = {
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static Result describe(int code, const char **text, int of_name) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].code == code) {
            *text = of_name ? codes[i].name : codes[i].text;
            return SUCCESS;
        }
    }
    *text = NULL;
    return INVALID_VALUE;
}

EXPORT Result cuGetErrorName(int code, const char **name) {
    return describe(code, name, 1);
}

EXPORT Result cuGetErrorString(int code, const char **text) {
    return describe(code, text, 0);
}
