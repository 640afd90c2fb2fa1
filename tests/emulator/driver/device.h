// Declarations that the parts of the emulated driver and the emulated libraries share: settings, memory, streams and
// their work.
//
// Nothing runs when it is enqueued. Work waits in its stream until something synchronises with it, and then only the
// required work runs. So a missing wait always results in an old value.
//
// `TRIREME_EMULATED_ORDER` changes the schedule. "lazy" is the default. "eager" runs work at once. "reverse" is lazy
// with threads, blocks and unordered graph nodes in reverse order. A number is a seed: other streams run at random
// times, and threads and blocks are shuffled. Results must not depend on the schedule.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../kernel/abi.h"
#include "api.h"

namespace emulator {

/// Settings from the environment. They are read once.
struct Settings {
    int devices;           // TRIREME_EMULATED_DEVICES, default 1
    size_t memory;         // TRIREME_EMULATED_MEMORY, bytes per device, default 2 GiB
    int capability;        // TRIREME_EMULATED_CC, default 90
    int driver;            // TRIREME_EMULATED_DRIVER, default 13000
    bool unified;          // TRIREME_EMULATED_UNIFIED=1: the host can access device memory, as a CUDA-aware MPI requires
    bool mig;              // TRIREME_EMULATED_MIG=1: the devices are parts of one GPU
    long fault_at;         // TRIREME_EMULATED_FAULT=CALL[:CODE]: from this call number on, every call fails with the code
    std::string fault_in;  // TRIREME_EMULATED_FAULT=NAME[:CODE]: the same, from the first call or work whose name begins with NAME
    CUresult fault_code;
    bool fault_hangs;     // TRIREME_EMULATED_FAULT=NAME:hang: work whose name begins with NAME never runs
    std::string refused;  // TRIREME_EMULATED_CAPTURE: the part of each capture that fails: "call", "end" or "graph"
    enum Order { Lazy, Eager, Reverse, Random } order;
    uint64_t seed;
};
const Settings& settings();

/// Returns the next random number of the schedule, below `limit`.
unsigned chance(unsigned limit);

/// All functions below run under this lock, one at a time, as if the device had a single queue.
std::recursive_mutex& lock();

/// Prints a message to stderr and returns `code`.
CUresult refuse(CUresult code, const char* format, ...) __attribute__((format(printf, 2, 3)));
/// Prints a message and ends the process.
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Returns the device of the calling thread's context, or -1.
int current_device();
void set_current_device(int device);
/// Called first in every function that needs a context. Counts calls and returns the error that the function must
/// return, or success.
CUresult enter(const char* call);
/// Returns the error of a failed device, which every later call returns, or success.
CUresult health();
/// Counts an item of work that is about to run. Returns false if the device has failed, possibly because of this item.
bool runs(const std::string& label);
/// Writes a line to the file `TRIREME_EMULATED_TRACE` with the process id at its end: "enqueue ITEM NAME", or "wait ITEM CALL"
/// if the host waits for an item.
void trace(const char* what, uint64_t item, const std::string& name);
/// Returns the number of the last item that was enqueued on any stream.
uint64_t last_item();
/// Returns true if this work never runs.
bool hangs(const std::string& label);
/// Counts something that tests query with `trireme_emulated_calls`.
void count(const std::string& what);

// memory.cpp
CUresult allocate(int device, size_t bytes, CUdeviceptr* to);
CUresult release(CUdeviceptr at);
size_t used_memory(int device);
/// Returns true if [at, at + bytes) is within one allocation of device memory.
bool on_device(CUdeviceptr at, size_t bytes);
/// Returns true if the range is within pinned host memory.
bool pinned(const void* at, size_t bytes);
/// Describes an address: the allocation that contains it, or the one before it.
std::string describe_address(CUdeviceptr at);
/// While an instance exists, this process can access device memory.
struct Access {
    Access();
    ~Access();
};
/// Sets the name of the running work, for the message about an invalid address.
void running(const std::string& label);

struct Event;
struct Capture;

/// An item of work in a stream. It may run more than once if it is part of a graph.
struct Work {
    std::string label;
    /// The type of its node if it becomes part of a graph.
    int type = CU_GRAPH_NODE_TYPE_KERNEL;
    std::function<void()> run;
    /// Returns true if the item can run now. If empty, the item can always run.
    std::function<bool()> ready;
    std::shared_ptr<Event> record;
    std::shared_ptr<Event> wait;
    uint64_t ticket = 0;
    /// Its number in the order in which this process has enqueued all items.
    uint64_t number = 0;
};

struct Event {
    bool timing = true;
    uint64_t issued = 0;
    /// The number of the work item that recorded this event last.
    uint64_t item = 0;
    double milliseconds = 0;
    /// The stream of each recording that has not happened yet. A wait refers to one of these recordings, not to a later
    /// one on another stream.
    std::map<uint64_t, std::weak_ptr<struct Stream>> open;
    /// The stream capture that contains the last recording, if any.
    std::weak_ptr<Capture> capture;
    std::vector<int> after;

    bool done(uint64_t ticket) const { return open.count(ticket) == 0; }
    /// Begins another recording and returns its number.
    uint64_t issue(const std::shared_ptr<struct Stream>& stream) {
        open[++issued] = stream;
        return issued;
    }
};

// graph.cpp
struct Node {
    Work work;
    std::vector<int> after;
};
struct Capture {
    std::shared_ptr<Stream> origin;
    int mode;
    std::thread::id thread;
    bool invalid = false;
    std::vector<Node> nodes;
    std::set<std::shared_ptr<Stream>> streams;
};
/// Adds a node to the stream's capture.
void capture_work(Stream& stream, Work work);
/// Returns the error of a call that is not allowed now because of a capture, or success.
CUresult unsafe_while_capturing(const char* call);

// stream.cpp
struct Stream {
    int device;
    bool blocking;
    std::vector<Work> queue;
    size_t next = 0;
    /// The number of the last work item that was enqueued on this stream.
    uint64_t item = 0;
    /// True while items of other streams run because this stream's next item waits for them. Detects streams that wait
    /// for each other.
    bool waits = false;
    std::shared_ptr<Capture> capture;
    std::vector<int> frontier;
};
/// Returns the stream of a handle, or null if it does not exist. Null and 2 are the handles of default streams.
std::shared_ptr<Stream> stream_of(CUstream handle);
/// Enqueues work, or adds it to a capture.
CUresult enqueue(CUstream stream, std::string label, std::function<void()> run, int type = CU_GRAPH_NODE_TYPE_KERNEL);
CUresult enqueue_on(const std::shared_ptr<Stream>& stream, Work work);
/// Runs the stream's next item, or an item of another stream that this item waits for. Returns false if neither can run
/// now.
bool advance(Stream& stream);
/// Runs all work in the stream.
void drain(Stream& stream);
/// Runs all work of a device.
void drain_device(int device);
/// Runs all work that must run before the recording number `ticket` of the event.
void complete(Event& event, uint64_t ticket);

// block.cpp
struct Launch {
    const Kernel* kernel;
    const Module* module;
    Index grid, block;
    std::vector<unsigned char> bytes;
    std::vector<void*> parameters;
    /// Returns this OS thread's copy of the module's `__shared__` variables.
    std::function<void*()> shared;
    size_t shared_bytes;
};
void run_launch(const Launch& launch);
/// Calls a function on a separate stack, because a signal handler's stack is too small for printing.
void on_fresh_stack(void (*what)());

}  // namespace emulator
