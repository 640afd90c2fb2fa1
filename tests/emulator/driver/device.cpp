// Initialisation, devices, contexts, error texts and settings.
#include "device.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulator {

static long number(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text && *text ? strtol(text, nullptr, 10) : otherwise;
}

static Settings read_settings() {
    Settings s{};
    s.devices = (int)number("TRIREME_EMULATED_DEVICES", 1);
    s.memory = (size_t)number("TRIREME_EMULATED_MEMORY", 2l << 30);
    s.capability = (int)number("TRIREME_EMULATED_CC", 90);
    s.driver = (int)number("TRIREME_EMULATED_DRIVER", 13000);
    s.unified = number("TRIREME_EMULATED_UNIFIED", 0) != 0;
    s.mig = number("TRIREME_EMULATED_MIG", 0) != 0;
    const char* fault = getenv("TRIREME_EMULATED_FAULT");
    s.fault_at = fault ? strtol(fault, nullptr, 10) : 0;
    const char* code = fault ? strchr(fault, ':') : nullptr;
    s.fault_hangs = code && !strcmp(code, ":hang");
    s.fault_code = code ? (CUresult)strtol(code + 1, nullptr, 10) : CUDA_ERROR_UNKNOWN;
    if (fault && !s.fault_at) s.fault_in = code ? std::string(fault, code) : fault;
    const char* refused = getenv("TRIREME_EMULATED_CAPTURE");
    s.refused = refused ? refused : "";
    const char* order = getenv("TRIREME_EMULATED_ORDER");
    std::string kind = order ? order : "lazy";
    s.order = kind == "eager" ? Settings::Eager : kind == "reverse" ? Settings::Reverse
            : kind == "lazy" || kind.empty() ? Settings::Lazy : Settings::Random;
    s.seed = s.order == Settings::Random ? strtoull(kind.c_str(), nullptr, 10) : 0;
    return s;
}

const Settings& settings() {
    static const Settings s = read_settings();
    return s;
}

unsigned chance(unsigned limit) {
    static uint64_t state = settings().seed * 0x9e3779b97f4a7c15ull + 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((state >> 33) % limit);
}

std::recursive_mutex& lock() {
    static std::recursive_mutex* mutex = new std::recursive_mutex;
    return *mutex;
}

static void say(const char* format, va_list arguments) {
    fputs("emulated CUDA: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    fflush(stderr);
}

CUresult refuse(CUresult code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    return code;
}

void die(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    abort();
}

static bool initialised = false;
static thread_local int device_of_thread = -1;
static long calls = 0;
static auto& counts() {
    static auto* map = new std::map<std::string, unsigned long long>;
    return *map;
}
static int retained[64];

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }

/// Physical numbers of the devices in CUDA_VISIBLE_DEVICES, in its order. A number that does not exist ends the list.
static const std::vector<int>& visible() {
    static const std::vector<int> found = [] {
        std::vector<int> list;
        const char* text = getenv("CUDA_VISIBLE_DEVICES");
        if (!text) {
            for (int i = 0; i < settings().devices; ++i) list.push_back(i);
            return list;
        }
        for (const char* at = text; *at;) {
            char* end;
            long i = strtol(at, &end, 10);
            if (end == at || i < 0 || i >= settings().devices) break;
            list.push_back((int)i);
            at = *end == ',' ? end + 1 : end;
            if (*end && *end != ',') break;
        }
        return list;
    }();
    return found;
}

static CUresult failed = CUDA_SUCCESS;

static bool named(const std::string& name) {
    const std::string& in = settings().fault_in;
    return !in.empty() && name.compare(0, in.size(), in) == 0;
}
static bool faulty(const std::string& name) { return named(name) && !settings().fault_hangs; }
bool hangs(const std::string& label) { return settings().fault_hangs && named(label); }

CUresult health() { return failed; }

static CUresult fault() {
    const Settings& s = settings();
    if (s.fault_at > 0 && ++calls >= s.fault_at) failed = s.fault_code;
    return failed;
}

void trace(const char* what, uint64_t item, const std::string& name) {
    static FILE* file = [] {
        const char* path = getenv("TRIREME_EMULATED_TRACE");
        return path ? fopen((std::string(path) + "." + std::to_string(getpid())).c_str(), "w") : nullptr;
    }();
    if (!file) return;
    fprintf(file, "%s %llu %s\n", what, (unsigned long long)item, name.c_str());
    fflush(file);
}

void count(const std::string& what) { ++counts()[what]; }

bool runs(const std::string& label) {
    if (faulty(label)) failed = settings().fault_code;
    if (!failed) ++counts()["ran " + label];
    return !failed;
}

CUresult enter(const char* call) {
    if (!initialised) return refuse(CUDA_ERROR_NOT_INITIALIZED, "%s before cuInit", call);
    if (device_of_thread < 0) return refuse(CUDA_ERROR_INVALID_CONTEXT, "%s on a thread without a current context", call);
    ++counts()[call];
    if (faulty(call)) failed = settings().fault_code;
    return fault();
}

static CUresult device_call(CUdevice device) {
    if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
    return device < 0 || device >= (int)visible().size() ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/// Returns a context's handle, which is the device number plus one, because there are only primary contexts.
static CUcontext context_of(int device) { return reinterpret_cast<CUcontext>((intptr_t)device + 1); }

struct Name {
    CUresult code;
    const char *name, *text;
};
static const Name NAMES[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space"},
    {718, "CUDA_ERROR_INVALID_PC", "invalid program counter"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected during the execution"},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE", "an async error has occurred in external entity outside of CUDA"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

}  // namespace emulator

using namespace emulator;

extern "C" {

CUresult cuInit(unsigned flags) {
    std::lock_guard guard(lock());
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (visible().empty()) return CUDA_ERROR_NO_DEVICE;
    initialised = true;
    return fault();
}

CUresult cuDriverGetVersion(int* version) {
    *version = settings().driver;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char** to) {
    for (const Name& n : NAMES)
        if (n.code == code) return *to = n.name, CUDA_SUCCESS;
    return *to = nullptr, CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char** to) {
    for (const Name& n : NAMES)
        if (n.code == code) return *to = n.text, CUDA_SUCCESS;
    return *to = nullptr, CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int* count) {
    if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
    *count = (int)visible().size();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (CUresult e = device_call(ordinal)) return e;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    if (CUresult e = device_call(device)) return e;
    snprintf(name, (size_t)length, "Emulated GPU %d", visible()[device]);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    if (CUresult e = device_call(device)) return e;
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = (char)(i < 15 ? 0x40 + i : visible()[device]);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
    if (CUresult e = device_call(device)) return e;
    snprintf(id, (size_t)length, "0000:%02X:00.0", settings().mig ? 1 : visible()[device] + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    if (CUresult e = device_call(device)) return e;
    *bytes = settings().memory;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
    if (CUresult e = device_call(device)) return e;
    switch (attribute) {
        case 1: *value = 1024; break;                    // threads per block
        case 2: case 3: *value = 1024; break;            // block x, y
        case 4: *value = 64; break;                      // block z
        case 5: *value = 2147483647; break;              // grid x
        case 6: case 7: *value = 65535; break;           // grid y, z
        case 8: *value = 49152; break;                   // shared memory per block
        case 10: *value = 32; break;                     // warp
        case 12: case 82: *value = 65536; break;         // registers per block, per multiprocessor
        case 13: *value = 1000000; break;                // clock, kHz
        case 15: case 40: case 41: *value = 1; break;    // overlapping copies, asynchronous engines, unified addressing
        case 16: *value = 2; break;                      // multiprocessors
        case 18: case 19: *value = 0; break;             // integrated, host memory mapped as device memory
        case 20: *value = 0; break;                      // compute mode: default
        case 31: *value = 1; break;                      // concurrent kernels
        case 33: *value = visible()[device] + 1; break;  // PCI bus
        case 34: case 50: *value = 0; break;             // PCI device, domain
        case 36: *value = 1000000; break;                // memory clock
        case 37: *value = 128; break;                    // memory bus
        case 38: *value = 1 << 20; break;                // L2
        case 39: *value = 2048; break;                   // threads per multiprocessor
        case 75: *value = settings().capability / 10; break;
        case 76: *value = settings().capability % 10; break;
        case 78: *value = 1; break;                      // stream priorities
        case 81: *value = 102400; break;                 // shared memory per multiprocessor
        case 83: *value = 0; break;                      // managed memory
        case 97: *value = 101376; break;                 // shared memory per block, opt-in
        case 115: *value = 1; break;                     // memory pools
        default: return refuse(CUDA_ERROR_INVALID_VALUE, "cuDeviceGetAttribute: the emulator does not know attribute %d", attribute);
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    std::lock_guard guard(lock());
    if (CUresult e = device_call(device)) return e;
    if (CUresult e = fault()) return e;
    ++retained[device];
    *context = context_of(device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    std::lock_guard guard(lock());
    if (CUresult e = device_call(device)) return e;
    if (retained[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
    --retained[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned) { return device_call(device); }

CUresult cuCtxSetCurrent(CUcontext context) {
    intptr_t number = reinterpret_cast<intptr_t>(context);
    if (number < 0 || number > (intptr_t)visible().size()) return CUDA_ERROR_INVALID_CONTEXT;
    device_of_thread = (int)number - 1;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
    if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
    *context = device_of_thread < 0 ? nullptr : context_of(device_of_thread);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

/// For tests: returns how often this process has called a function, or with the prefix "ran ", how often work with this
/// name has run.
unsigned long long trireme_emulated_calls(const char* call) {
    std::lock_guard guard(lock());
    return counts()[call];
}

CUresult cuCtxSynchronize() {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuCtxSynchronize")) return e;
    if (CUresult e = unsafe_while_capturing("cuCtxSynchronize")) return e;
    trace("wait", last_item(), "cuCtxSynchronize");
    drain_device(device_of_thread);
    return health();
}

}  // extern "C"
