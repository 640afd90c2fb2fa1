// The stand-in NCCL, for one rank: sums of one are copies. More ranks than one are refused, as NCCL refuses two on one device.
#include <cstdio>
#include <cstring>

#include "../driver/device.h"

using namespace emulator;

enum ncclResult_t { ncclSuccess = 0, ncclUnhandledCudaError = 1, ncclInvalidArgument = 4, ncclInvalidUsage = 5 };
struct ncclUniqueId {
    char internal[128];
};
struct ncclComm {
    int device;
};

/// Bytes of an element by NCCL's numbers of types.
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
    size_t bytes = count * size_of(type);
    auto source = reinterpret_cast<CUdeviceptr>(from), target = reinterpret_cast<CUdeviceptr>(to);
    if (!size_of(type) || !on_device(source, bytes) || !on_device(target, bytes)) {
        fprintf(stderr, "emulated NCCL: %s of %zu bytes from %s to %s\n", what, bytes, describe_address(source).c_str(), describe_address(target).c_str());
        return ncclInvalidArgument;
    }
    if (enter(what)) return ncclUnhandledCudaError;
    return enqueue(stream, what, [=] { memmove(to, from, bytes); }) ? ncclUnhandledCudaError : ncclSuccess;
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
        case ncclInvalidArgument: return "invalid argument";
        default: return "invalid usage";
    }
}
const char* ncclGetLastError(ncclComm*) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    memset(id->internal, 0x5a, sizeof id->internal);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm** to, int ranks, ncclUniqueId, int rank) {
    if (ranks != 1 || rank != 0) {
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
ncclResult_t ncclCommAbort(ncclComm* comm) { return ncclCommDestroy(comm); }
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

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, int type, int, ncclComm*, CUstream stream) {
    return copy(from, to, count, type, stream, "ncclAllReduce");
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, int type, int, ncclComm*, CUstream stream) {
    return copy(from, to, count, type, stream, "ncclBroadcast");
}
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }

}  // extern "C"
