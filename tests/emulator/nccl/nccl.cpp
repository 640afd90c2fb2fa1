// The emulated NCCL. Ranks are processes on this machine, and sums go through a file in memory that all ranks map.
//
// A sum is two items of work in its stream. The first one copies the rank's elements to the file. The second one waits
// until all ranks have done so, and adds the elements. Each rank of the group adds in the same order, which differs
// from element to element, as in NCCL's rings. A thread runs the work that another rank waits for, because a real GPU
// computes while its host is busy.
//
// As in an NCCL communicator that does not block, every `ncclAllReduce` returns `ncclInProgress`, and the next call of
// `ncclCommGetAsyncError` enqueues the sum. It returns `ncclRemoteError` if the process of a rank no longer exists.
//
// `TRIREME_EMULATED_NCCL=RANK:PLACE:WHAT` causes a fault on a rank. PLACE is "join", or "sum", or "sumN" for all sums
// from number N on. WHAT is "hang", a delay such as "20ms", a status that the call returns, or "later CODE" for a
// status that only `ncclCommGetAsyncError` returns, while the sum hangs.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../driver/device.h"
#include "../driver/values.h"

using namespace emulator;

extern "C" CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device);

enum ncclResult_t {
    ncclSuccess = 0, ncclUnhandledCudaError = 1, ncclSystemError = 2, ncclInvalidArgument = 4, ncclInvalidUsage = 5,
    ncclRemoteError = 6, ncclInProgress = 7
};
enum { ncclInt32 = 2, ncclUint32 = 3, ncclUint64 = 5, ncclFloat32 = 7, ncclBfloat16 = 9 };
enum { ncclSum = 0, ncclMax = 2 };
struct ncclUniqueId {
    char internal[128];
};
/// The first fields of NCCL's configuration. Later versions have added more.
struct ncclConfig_t {
    size_t size;
    unsigned magic, version;
    int blocking;
};

static constexpr int MOST_RANKS = 64;
/// Maximum size of a sum in bytes. The file has this much space per area, but is sparse.
static constexpr size_t ROOM = 64 << 20;

/// The header of the shared file. Two areas of `ROOM` bytes per rank follow, which a rank uses alternately for its
/// sums. When a rank begins a sum, it has finished the previous sum, so all ranks have finished reading the areas of the
/// sum before that.
struct Meeting {
    std::atomic<int> there;
    struct Member {
        std::atomic<int> joined, process;
        std::atomic<uint64_t> arrived;
        char bus[32];
    } members[MOST_RANKS];
};

static size_t size_of(int type) {
    switch (type) {
        case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
        case ncclUint64: return 8;
        case ncclBfloat16: return 2;
        default: return 0;
    }
}

/// The fault that `TRIREME_EMULATED_NCCL` requests.
struct Fault {
    int rank = -1;
    bool joining = false, hangs = false, later = false;
    uint64_t from = 0;
    int delay = 0;
    ncclResult_t status = ncclSuccess;

    Fault() {
        const char* text = getenv("TRIREME_EMULATED_NCCL");
        char place[16] = "", what[32] = "";
        if (!text || !*text) return;
        if (sscanf(text, "%d:%15[^:]:%31[^:]", &rank, place, what) != 3) die("TRIREME_EMULATED_NCCL=%s is not RANK:PLACE:WHAT", text);
        joining = !strcmp(place, "join");
        if (!joining) from = strlen(place) > 3 ? strtoull(place + 3, nullptr, 10) : 1;
        hangs = !strcmp(what, "hang");
        if (strstr(what, "ms")) delay = atoi(what);
        else if (!strncmp(what, "later ", 6)) later = hangs = true, status = (ncclResult_t)atoi(what + 6);
        else status = (ncclResult_t)atoi(what);
    }
};
static const Fault& fault() {
    static const Fault read;
    return read;
}

using Clock = std::chrono::steady_clock;

/// A rank's membership in a group.
struct Group {
    int rank, ranks, device;
    char* file = nullptr;
    bool aborted = false;
    Clock::time_point since = Clock::now();
    uint64_t issued = 0;
    /// The status of a group that has failed, which `ncclCommGetAsyncError` returns.
    ncclResult_t failed = ncclSuccess;
    /// The status with which the group fails after `state` has returned that the pending sum is enqueued.
    ncclResult_t fails_next = ncclSuccess;
    /// Enqueues the sum that is in progress. `state` calls it once all ranks have joined.
    std::function<CUresult()> pending;
    std::weak_ptr<Stream> stream;

    ~Group() {
        if (file) munmap(file, length());
    }
    Meeting* meeting() const { return reinterpret_cast<Meeting*>(file); }
    Meeting::Member& own() const { return meeting()->members[rank]; }
    size_t length() const { return sizeof(Meeting) + 2 * ROOM * (size_t)ranks; }
    char* area(int of, uint64_t number) const { return file + sizeof(Meeting) + ROOM * (2 * (size_t)of + number % 2); }
    bool hit(bool joining, uint64_t number = 0) const {
        return fault().rank == rank && fault().joining == joining && number >= fault().from;
    }
    bool all_arrived(uint64_t number) const {
        for (int other = 0; other < ranks; ++other)
            if (meeting()->members[other].arrived < number) return false;
        return true;
    }
    bool wanted() const {
        for (int other = 0; other < ranks; ++other)
            if (meeting()->members[other].arrived > own().arrived) return !aborted && issued > own().arrived;
        return false;
    }

    bool open_file(const char* name) {
        int opened = open(name, O_RDWR | O_CREAT, 0600);
        if (opened < 0 || ftruncate(opened, (off_t)length())) return false;
        void* memory = mmap(nullptr, length(), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
        close(opened);
        if (memory == MAP_FAILED) return false;
        file = static_cast<char*>(memory);
        cuDeviceGetPCIBusId(own().bus, sizeof own().bus, device);
        own().process = getpid();
        if (++meeting()->there == ranks) unlink(name);
        return true;
    }

    /// Returns the state of the group.
    ncclResult_t state() {
        if (failed) return failed;
        if (!own().joined) {
            if (hit(true) && fault().status) return failed = fault().status;
            if (hit(true) && (fault().hangs || Clock::now() < since + std::chrono::milliseconds(fault().delay))) return ncclInProgress;
            own().joined = 1;
        }
        for (int other = 0; other < ranks; ++other)
            if (!meeting()->members[other].joined) return ncclInProgress;
        for (int other = 0; other < ranks; ++other)
            if (kill(meeting()->members[other].process, 0) && errno == ESRCH) return failed = ncclRemoteError;
        for (int other = 0; other < ranks; ++other)
            if (other != rank && !strcmp(own().bus, meeting()->members[other].bus)) {
                fprintf(stderr, "emulated NCCL: Duplicate GPU detected : rank %d and rank %d both on CUDA device %s\n", rank, other, own().bus);
                return failed = ncclInvalidUsage;
            }
        if (pending) {
            auto enqueue = std::move(pending);
            pending = nullptr;
            if (enqueue()) return failed = ncclUnhandledCudaError;
            return ncclInProgress;
        }
        failed = fails_next;
        return ncclSuccess;
    }
};
struct ncclComm {
    std::shared_ptr<Group> group;
};

static auto& groups() {
    static auto* list = new std::vector<std::weak_ptr<Group>>;
    return *list;
}

/// Runs in a thread: runs this rank's enqueued work if other ranks wait for it, while the host is busy.
static void serve() {
    for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::lock_guard guard(lock());
        for (auto& member : groups())
            if (auto group = member.lock())
                if (auto stream = group->stream.lock())
                    while (group->wanted() && advance(*stream)) {}
    }
}

template <class T>
static T combine(T a, T b, bool max) { return max ? (a > b ? a : b) : (T)(a + b); }

/// Computes the sum or the maximum of the ranks' elements. The rank with which the sum of an element starts depends on
/// the element's index.
template <class T>
static void add(const Group& group, uint64_t number, void* to, size_t count, bool max) {
    bool reverse = settings().order == Settings::Reverse;
    for (size_t i = 0; i < count; ++i) {
        T sum{};
        for (int k = 0; k < group.ranks; ++k) {
            int other = (int)((i / 64 + (size_t)(reverse ? group.ranks - 1 - k : k)) % (size_t)group.ranks);
            T own = reinterpret_cast<const T*>(group.area(other, number))[i];
            sum = k == 0 ? own : combine(sum, own, max);
        }
        static_cast<T*>(to)[i] = sum;
    }
}

struct Half {
    uint16_t bits;
    float value() const { return read(&bits, Element::BF16, 0); }
    bool operator>(Half other) const { return value() > other.value(); }
    Half operator+(Half other) const {
        Half sum;
        write(&sum.bits, Element::BF16, 0, value() + other.value());
        return sum;
    }
};

static void finish(const Group& group, uint64_t number, void* to, size_t count, int type, bool max) {
    switch (type) {
        case ncclInt32: add<int32_t>(group, number, to, count, max); break;
        case ncclUint32: add<uint32_t>(group, number, to, count, max); break;
        case ncclUint64: add<uint64_t>(group, number, to, count, max); break;
        case ncclFloat32: add<float>(group, number, to, count, max); break;
        default: add<Half>(group, number, to, count, max);
    }
}

/// Enqueues the two work items of a sum.
static CUresult begin(std::shared_ptr<Group> group, uint64_t number, const void* from, void* to, size_t count, int type, bool max, CUstream handle) {
    auto stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    group->stream = stream;
    Work send;
    send.label = "ncclAllReduce";
    size_t bytes = count * size_of(type);
    bool hits = group->hit(false, number), hangs = hits && fault().hangs;
    auto due = std::make_shared<Clock::time_point>();
    send.ready = [=] {
        if (group->aborted) return true;
        if (hits && due->time_since_epoch().count() == 0) *due = Clock::now() + std::chrono::milliseconds(fault().delay);
        return !hangs && (!hits || Clock::now() >= *due);
    };
    send.run = [=] {
        if (group->aborted) return;
        memcpy(group->area(group->rank, number), from, bytes);
        group->own().arrived = number;
    };
    if (CUresult e = enqueue_on(stream, std::move(send))) return e;
    Work sum;
    sum.label = "ncclAllReduce's sum";
    sum.ready = [=] { return group->aborted || group->all_arrived(number); };
    sum.run = [=] {
        if (!group->aborted) finish(*group, number, to, count, type, max);
    };
    return enqueue_on(stream, std::move(sum));
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
        case ncclInProgress: return "NCCL operation in progress";
        default: return "invalid usage";
    }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static std::atomic<int> made{0};
    memset(id->internal, 0, sizeof id->internal);
    snprintf(id->internal, sizeof id->internal, P_tmpdir "/trireme-emulated-nccl-%d-%d", (int)getpid(), made++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm** to, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (rank < 0 || rank >= ranks || ranks > MOST_RANKS) return ncclInvalidArgument;
    if (!config || config->size < sizeof *config || config->magic != 0xcafebeef || config->version < 21400) return ncclInvalidArgument;
    if (config->blocking) die("the emulated NCCL has no blocking communicators");
    if (current_device() < 0) return ncclUnhandledCudaError;
    auto group = std::make_shared<Group>();
    group->rank = rank, group->ranks = ranks, group->device = current_device();
    if (!group->open_file(id.internal)) return ncclSystemError;
    *to = new ncclComm{group};
    {
        std::lock_guard guard(lock());
        groups().push_back(group);
        static bool served = (std::thread(serve).detach(), true);
        (void)served;
    }
    return ncclInProgress;
}

ncclResult_t ncclCommAbort(ncclComm* comm) {
    std::lock_guard guard(lock());
    count("ncclCommAbort");
    comm->group->aborted = true;
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm* comm, ncclResult_t* error) {
    std::lock_guard guard(lock());
    *error = comm->group->state();
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, int type, int op, ncclComm* comm, CUstream stream) {
    std::lock_guard guard(lock());
    if (!comm || (op != ncclSum && op != ncclMax)) return ncclInvalidArgument;
    auto group = comm->group;
    if (group->pending || group->state() != ncclSuccess) return ncclInvalidUsage;
    size_t bytes = count * size_of(type);
    auto source = reinterpret_cast<CUdeviceptr>(from), target = reinterpret_cast<CUdeviceptr>(to);
    if (!size_of(type) || bytes > ROOM || !on_device(source, bytes) || !on_device(target, bytes)) {
        fprintf(stderr, "emulated NCCL: a sum of %zu bytes from %s to %s\n", bytes, describe_address(source).c_str(), describe_address(target).c_str());
        return ncclInvalidArgument;
    }
    if (enter("ncclAllReduce")) return ncclUnhandledCudaError;
    uint64_t number = ++group->issued;
    if (group->hit(false, number) && fault().status) {
        if (!fault().later) return fault().status;
        group->fails_next = fault().status;
    }
    // The group owns this function, so the function must not own the group.
    std::weak_ptr<Group> of = group;
    group->pending = [=] { return begin(of.lock(), number, from, to, count, type, op == ncclMax, stream); };
    return ncclInProgress;
}

}  // extern "C"
