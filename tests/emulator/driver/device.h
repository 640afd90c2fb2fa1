// What the parts of the stand-in driver, and the stand-in libraries above it, share: settings, memory, streams and their work.
//
// Nothing runs when it is enqueued. Work waits in its stream until somebody synchronises with it, and then only what that
// somebody waits for runs: a missing wait shows as an old value, every time. TRIREME_EMULATED_ORDER changes the schedule
// ("lazy", "eager", or a number: a seed that lets other streams run at random and shuffles threads and blocks; "reverse" is lazy
// with the threads, blocks and unordered graph nodes backwards). Results must not change with it.
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

/// Settings from the environment, read once.
struct Settings {
    int devices;           // TRIREME_EMULATED_DEVICES, 1
    size_t memory;         // TRIREME_EMULATED_MEMORY, bytes of each device, 2 GiB
    int capability;        // TRIREME_EMULATED_CC, 90
    int driver;            // TRIREME_EMULATED_DRIVER, 13000
    bool unified;          // TRIREME_EMULATED_UNIFIED=1: the host may touch device memory, as a CUDA-aware MPI does
    long fault_at;         // TRIREME_EMULATED_FAULT=CALL[:CODE]: from this call on every call fails with the code
    std::string fault_in;  // TRIREME_EMULATED_FAULT=NAME[:CODE]: so from a call, or the run of work, whose name begins so
    CUresult fault_code;
    std::string refused;   // TRIREME_EMULATED_CAPTURE: what fails of each capture: "call", "end" or "graph"
    enum Order { Lazy, Eager, Reverse, Random } order;
    uint64_t seed;
};
const Settings& settings();

/// The next number of the schedule's own generator, below `limit`.
unsigned chance(unsigned limit);

/// Everything below runs under this lock: one thing at a time, as if the device had one queue.
std::recursive_mutex& lock();

/// A message on stderr, and `code` back.
CUresult refuse(CUresult code, const char* format, ...) __attribute__((format(printf, 2, 3)));
/// Ends the process after a message.
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Device of the calling thread's context, or -1.
int current_device();
void set_current_device(int device);
/// First of every call that needs a context: gives the error that it must return, or success. Counts calls for the fault.
CUresult enter(const char* call);
/// The error of a device that has failed, which every call returns from then on, or success.
CUresult health();
/// Counts a piece of work that is about to run; false once the device has failed, by this piece at the latest.
bool runs(const std::string& label);
/// Counts something that a test asks for by `trireme_emulated_calls`.
void count(const std::string& what);

// memory.cpp
CUresult allocate(int device, size_t bytes, CUdeviceptr* to);
CUresult release(CUdeviceptr at);
size_t used_memory(int device);
/// Whether [at, at + bytes) lies within one allocation of device memory.
bool on_device(CUdeviceptr at, size_t bytes);
/// Whether it lies within pinned host memory.
bool pinned(const void* at, size_t bytes);
/// Text about an address: which allocation holds it or lies next.
std::string describe_address(CUdeviceptr at);
/// While one lives, this process may touch device memory.
struct Access {
    Access();
    ~Access();
};
/// What runs now, for the message about a bad address.
void running(const std::string& label);

struct Event;
struct Capture;

/// A piece of work of a stream; it may run several times when it is part of a graph.
struct Work {
    std::string label;
    /// What it is as a node of a graph.
    int type = CU_GRAPH_NODE_TYPE_KERNEL;
    std::function<void()> run;
    std::shared_ptr<Event> record;
    std::shared_ptr<Event> wait;
    uint64_t ticket = 0;
};

struct Event {
    bool timing = true;
    uint64_t issued = 0;
    double milliseconds = 0;
    /// The stream of each recording that has not happened yet: whoever waits means one of them, not a later one on another stream.
    std::map<uint64_t, std::weak_ptr<struct Stream>> open;
    /// Where it was recorded, if the last recording was part of a capture.
    std::weak_ptr<Capture> capture;
    std::vector<int> after;

    bool done(uint64_t ticket) const { return open.count(ticket) == 0; }
    /// Begins another recording; gives its number.
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
/// Success, or the error of a call that no thread may make now because of a capture.
CUresult unsafe_while_capturing(const char* call);

// stream.cpp
struct Stream {
    int device;
    bool blocking;
    std::vector<Work> queue;
    size_t next = 0;
    /// Its next piece of work has begun to wait for an event.
    bool waits = false;
    std::shared_ptr<Capture> capture;
    std::vector<int> frontier;
};
/// The stream of a handle (null and 2 are the default streams); null if there is none such.
std::shared_ptr<Stream> stream_of(CUstream handle);
/// Enqueues or captures.
CUresult enqueue(CUstream stream, std::string label, std::function<void()> run, int type = CU_GRAPH_NODE_TYPE_KERNEL);
CUresult enqueue_on(const std::shared_ptr<Stream>& stream, Work work);
/// Runs all that was enqueued on the stream.
void drain(Stream& stream);
/// Runs all work of a device.
void drain_device(int device);
/// Runs what is needed until the recording has happened.
void complete(Event& event, uint64_t ticket);

// block.cpp
struct Launch {
    const Kernel* kernel;
    const Module* module;
    Index grid, block;
    std::vector<unsigned char> bytes;
    std::vector<void*> parameters;
    /// This OS thread's copy of the module's `__shared__` variables.
    std::function<void*()> shared;
    size_t shared_bytes;
};
void run_launch(const Launch& launch);
/// Calls a function on a stack of its own: that of a signal handler is too small to print from.
void on_fresh_stack(void (*what)());

}  // namespace emulator
