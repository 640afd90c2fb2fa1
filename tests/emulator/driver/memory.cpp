// Device memory and pinned memory.
//
// Each device allocation has its own pages, with unmapped pages before and after it. It ends at the end of its pages,
// except for up to 255 bytes of alignment, which are checked when it is freed. New memory is filled with NaN, and it
// can be accessed only while work of the device runs.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"

namespace emulator {

struct Allocation {
    int device;
    size_t bytes;
    CUdeviceptr pages;
    size_t span;
};

static constexpr size_t PAGE = 4096, ALIGN = 256, RANGE = 1ull << 40;
static constexpr unsigned char FRESH = 0xff, EDGE = 0xa5;

static CUdeviceptr range_begin = 0, range_next = 0;
static std::map<CUdeviceptr, Allocation>& allocations() {
    static auto* map = new std::map<CUdeviceptr, Allocation>;
    return *map;
}
static std::map<const char*, size_t>& host_blocks() {
    static auto* map = new std::map<const char*, size_t>;
    return *map;
}
static size_t used[64];
static int open_depth = 0;
static std::string* label = new std::string;
static struct sigaction previous;

void running(const std::string& what) { *label = what; }

static const std::pair<const CUdeviceptr, Allocation>* around(CUdeviceptr at) {
    auto next = allocations().upper_bound(at);
    return next == allocations().begin() ? nullptr : &*std::prev(next);
}

std::string describe_address(CUdeviceptr at) {
    char text[256];
    auto* before = around(at);
    if (!before) {
        snprintf(text, sizeof text, "0x%llx, in no allocation", at);
    } else if (at < before->first + before->second.bytes) {
        snprintf(text, sizeof text, "0x%llx, byte %llu of an allocation of %zu bytes", at, at - before->first, before->second.bytes);
    } else {
        snprintf(text, sizeof text, "0x%llx, %llu bytes past the end of an allocation of %zu bytes", at,
                 at - before->first - before->second.bytes, before->second.bytes);
    }
    return text;
}

/// If an invalid address is in the device's range or was used by device work, prints a message before the process dies.
/// Otherwise calls the previous handler.
static void on_fault(int number, siginfo_t* info, void* context) {
    static CUdeviceptr at;
    at = reinterpret_cast<CUdeviceptr>(info->si_addr);
    if (open_depth || (range_begin && at >= range_begin && at < range_begin + RANGE)) {
        on_fresh_stack([] {
            refuse(CUDA_ERROR_ILLEGAL_ADDRESS, "%s touched device memory at %s", open_depth ? label->c_str() : "the host",
                   describe_address(at).c_str());
        });
        signal(number, SIG_DFL);
        return;
    }
    if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(number, info, context);
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(number);
    signal(number, SIG_DFL);
}

static void reserve() {
    if (range_begin) return;
    void* at = mmap(nullptr, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) die("no address range for device memory");
    range_begin = range_next = reinterpret_cast<CUdeviceptr>(at);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &previous);
}

static void protect(int protection) {
    for (auto& [at, a] : allocations())
        if (mprotect(reinterpret_cast<void*>(a.pages), a.span, protection)) die("mprotect of device memory failed");
}

Access::Access() {
    if (open_depth++ == 0 && !settings().unified) protect(PROT_READ | PROT_WRITE);
}
Access::~Access() {
    if (--open_depth == 0 && !settings().unified) protect(PROT_NONE);
}

size_t used_memory(int device) { return used[device]; }

CUresult allocate(int device, size_t bytes, CUdeviceptr* to) {
    reserve();
    if (bytes == 0) return refuse(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
    size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN, span = (room + PAGE - 1) / PAGE * PAGE;
    // The whole memory is available, although a real driver reserves a part of it.
    if (room > settings().memory || used[device] + room > settings().memory) return CUDA_ERROR_OUT_OF_MEMORY;
    if (range_next + PAGE + span + PAGE > range_begin + RANGE) die("the address range for device memory is used up");
    CUdeviceptr pages = range_next + PAGE, at = pages + span - room;
    range_next = pages + span;
    char* memory = reinterpret_cast<char*>(pages);
    if (mprotect(memory, span, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(memory, EDGE, span - room);
    memset(memory + (span - room), FRESH, bytes);
    memset(memory + (span - room) + bytes, EDGE, room - bytes);
    if (!open_depth && !settings().unified) mprotect(memory, span, PROT_NONE);
    allocations()[at] = {device, bytes, pages, span};
    used[device] += room;
    *to = at;
    return CUDA_SUCCESS;
}

static void check_edge(const char* from, const char* to, const Allocation& a, const char* side) {
    for (; from < to; ++from)
        if ((unsigned char)*from != EDGE) die("somebody wrote %s an allocation of %zu bytes", side, a.bytes);
}

CUresult release(CUdeviceptr at) {
    auto found = allocations().find(at);
    if (found == allocations().end())
        return refuse(CUDA_ERROR_INVALID_VALUE, "free of %s, which no allocation begins at", describe_address(at).c_str());
    Allocation a = found->second;
    char *pages = reinterpret_cast<char*>(a.pages), *memory = reinterpret_cast<char*>(at);
    mprotect(pages, a.span, PROT_READ | PROT_WRITE);
    check_edge(pages, memory, a, "before");
    check_edge(memory + a.bytes, pages + a.span, a, "past the end of");
    // The address is never used again, so that any use after the free causes a fault.
    mmap(pages, a.span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    used[a.device] -= (a.bytes + ALIGN - 1) / ALIGN * ALIGN;
    allocations().erase(found);
    return CUDA_SUCCESS;
}

bool on_device(CUdeviceptr at, size_t bytes) {
    auto* a = around(at);
    return a && at + bytes <= a->first + a->second.bytes;
}

bool pinned(const void* at, size_t bytes) {
    auto* address = static_cast<const char*>(at);
    auto next = host_blocks().upper_bound(address);
    if (next == host_blocks().begin()) return false;
    auto block = std::prev(next);
    return address + bytes <= block->first + block->second;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* to, size_t bytes) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuMemAlloc")) return e;
    if (CUresult e = unsafe_while_capturing("cuMemAlloc")) return e;
    return allocate(current_device(), bytes, to);
}

CUresult cuMemFree_v2(CUdeviceptr at) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuMemFree")) return e;
    if (CUresult e = unsafe_while_capturing("cuMemFree")) return e;
    if (!at) return CUDA_SUCCESS;
    // The real driver also waits for the device before it frees memory.
    trace("wait", last_item(), "cuMemFree");
    drain_device(current_device());
    return release(at);
}

CUresult cuMemAllocAsync(CUdeviceptr* to, size_t bytes, CUstream handle) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuMemAllocAsync")) return e;
    auto stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuMemAllocAsync while capturing: the emulator has no memory nodes");
    CUresult e = allocate(current_device(), bytes, to);
    // Memory freed in streams is available only after the streams have run.
    if (e == CUDA_ERROR_OUT_OF_MEMORY) drain_device(current_device()), e = allocate(current_device(), bytes, to);
    return e;
}

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream handle) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuMemFreeAsync")) return e;
    auto stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuMemFreeAsync while capturing: the emulator has no memory nodes");
    if (!on_device(at, 1)) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(handle, "cuMemFreeAsync", [at] { release(at); });
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuMemGetInfo")) return e;
    *total = settings().memory;
    *free = settings().memory - used_memory(current_device());
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** to, size_t bytes, unsigned) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuMemHostAlloc")) return e;
    if (CUresult e = unsafe_while_capturing("cuMemHostAlloc")) return e;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    *to = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    if (!*to) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(*to, FRESH, bytes);
    host_blocks()[static_cast<char*>(*to)] = bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* at) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuMemFreeHost")) return e;
    if (host_blocks().erase(static_cast<char*>(at)) == 0)
        return refuse(CUDA_ERROR_INVALID_VALUE, "cuMemFreeHost of %p, which is not pinned memory", at);
    drain_device(current_device());
    free(at);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* to, void* at, unsigned) {
    *to = reinterpret_cast<CUdeviceptr>(at);
    return pinned(at, 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
