// The emulated NCCL for one rank, where sums are copies. If there are more ranks, it returns an error after all have
// met, as NCCL does if two ranks use one device.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../driver/device.h"

using namespace emulator;

enum ncclResult_t { ncclSuccess = 0, ncclUnhandledCudaError = 1, ncclSystemError = 2, ncclInvalidArgument = 4, ncclInvalidUsage = 5, ncclRemoteError = 6 };
struct ncclUniqueId {
    char internal[128];
};
struct ncclComm {
    int device;
};

/// Returns the size of an element for NCCL's type numbers.
static size_t size_of(int type) {
    switch (type) {
        case 0: case 1: return 1;
        case 6: case 9: return 2;
        case 2: case 3: case 7: return 4;
        case 4: case 5: case 8: return 8;
        default: return 0;
    }
}

static ncclResult_t copy(const void* from, void* to, size_t count, int type, CUstream stream, const char* what) {
    std::lock_guard guard(lock());
    static const char* error = getenv("TRIREME_EMULATED_NCCL");
    if (error) return (ncclResult_t)atoi(error);
    size_t bytes = count * size_of(type);
    auto source = reinterpret_cast<CUdeviceptr>(from), target = reinterpret_cast<CUdeviceptr>(to);
    if (!size_of(type) || !on_device(source, bytes) || !on_device(target, bytes)) {
        fprintf(stderr, "emulated NCCL: %s of %zu bytes from %s to %s\n", what, bytes, describe_address(source).c_str(), describe_address(target).c_str());
        return ncclInvalidArgument;
    }
    if (enter(what)) return ncclUnhandledCudaError;
    return enqueue(stream, what, [=] { memmove(to, from, bytes); }) ? ncclUnhandledCudaError : ncclSuccess;
}

/// How many ranks have arrived, and how many of them have seen that all have arrived.
struct Meeting {
    std::atomic<int> there, gone;
};

/// Waits for all ranks without a time limit, as the real NCCL does. They meet in a file with the id as its name, and
/// the last rank removes it.
static bool meet(const ncclUniqueId& id, int ranks) {
    int file = open(id.internal, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(Meeting))) return false;
    void* memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return false;
    auto* meeting = static_cast<Meeting*>(memory);
    ++meeting->there;
    while (meeting->there < ranks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (++meeting->gone == ranks) unlink(id.internal);
    munmap(memory, sizeof(Meeting));
    return true;
}

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    *version = 22703;
    return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error";
        case ncclSystemError: return "unhandled system error";
        case ncclInvalidArgument: return "invalid argument";
        case ncclRemoteError: return "remote process exited or there was a network error";
        default: return "invalid usage";
    }
}
const char* ncclGetLastError(ncclComm*) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static std::atomic<int> made{0};
    memset(id->internal, 0, sizeof id->internal);
    snprintf(id->internal, sizeof id->internal, P_tmpdir "/trireme-emulated-nccl-%d-%d", (int)getpid(), made++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm** to, int ranks, ncclUniqueId id, int rank) {
    if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
    if (ranks != 1) {
        if (!meet(id, ranks)) return ncclSystemError;
        fprintf(stderr, "emulated NCCL: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n");
        return ncclInvalidUsage;
    }
    if (current_device() < 0) return ncclUnhandledCudaError;
    *to = new ncclComm{current_device()};
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm** to, int ranks, ncclUniqueId id, int rank, void*) { return ncclCommInitRank(to, ranks, id, rank); }

ncclResult_t ncclCommDestroy(ncclComm* comm) {
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm* comm) {
    std::lock_guard guard(lock());
    count("ncclCommAbort");
    return ncclCommDestroy(comm);
}
ncclResult_t ncclCommFinalize(ncclComm*) { return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm*, ncclResult_t* error) {
    *error = ncclSuccess;
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm*, int* count) {
    *count = 1;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm*, int* rank) {
    *rank = 0;
    return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm* comm, int* device) {
    *device = comm->device;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, int type, int, ncclComm* comm, CUstream stream) {
    return comm ? copy(from, to, count, type, stream, "ncclAllReduce") : ncclInvalidArgument;
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, int type, int, ncclComm*, CUstream stream) {
    return copy(from, to, count, type, stream, "ncclBroadcast");
}
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }

}  // extern "C"
