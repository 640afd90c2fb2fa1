// Streams, events, copies and fills. Work is enqueued, and runs when something waits for it.
#include <chrono>
#include <cstring>
#include <set>

#include "device.h"

namespace emulator {

static auto& streams() {
    static auto* map = new std::map<CUstream, std::shared_ptr<Stream>>;
    return *map;
}
static auto& events() {
    static auto* map = new std::map<CUevent, std::shared_ptr<Event>>;
    return *map;
}

std::shared_ptr<Stream> stream_of(CUstream handle) {
    static std::shared_ptr<Stream> defaults[64];
    auto number = reinterpret_cast<uintptr_t>(handle);
    if (number <= 2) {
        auto& stream = defaults[current_device()];
        if (!stream) stream = std::make_shared<Stream>(Stream{current_device(), true});
        return stream;
    }
    auto found = streams().find(handle);
    return found == streams().end() ? nullptr : found->second;
}

static std::shared_ptr<Event> event_of(CUevent handle) {
    auto found = events().find(handle);
    return found == events().end() ? nullptr : found->second;
}

static double now() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static bool idle(const Stream& stream) { return stream.next == stream.queue.size(); }

/// Returns true if the next item of work can run without waiting.
static bool ready(const Stream& stream) {
    if (idle(stream) || stream.waits) return false;
    const Work& next = stream.queue[stream.next];
    return (!next.wait || next.wait->done(next.ticket)) && (!next.ready || next.ready()) && !hangs(next.label);
}

static bool approach(Event& event, uint64_t ticket);

/// Runs the first item of work in the stream or, if it waits for an event, one item that must run before this event is
/// recorded. Returns false if neither can run now.
static bool step(Stream& stream) {
    if (auto event = stream.queue[stream.next].wait; event && !event->done(stream.queue[stream.next].ticket)) {
        stream.waits = true;
        bool moved = approach(*event, stream.queue[stream.next].ticket);
        stream.waits = false;
        return moved;
    }
    if (!ready(stream)) return false;
    Work work = std::move(stream.queue[stream.next++]);
    if (idle(stream)) stream.queue.clear(), stream.next = 0;
    if (work.run && runs(work.label)) {
        running(work.label);
        work.run();
    }
    if (work.record) {
        work.record->open.erase(work.ticket);
        work.record->milliseconds = now();
    }
    return true;
}

/// Runs one item of work that must run before the recording number `ticket` of the event.
static bool approach(Event& event, uint64_t ticket) {
    auto stream = event.open[ticket].lock();
    if (!stream || idle(*stream)) die("an event waits for a recording that never comes");
    if (stream->waits) die("two streams wait for each other");
    return step(*stream);
}

bool advance(Stream& stream) {
    if (idle(stream)) return false;
    Access access;
    return step(stream);
}

/// If the schedule is random, runs items of random streams from time to time, except items that wait for an event.
static void wander() {
    if (settings().order != Settings::Random || streams().empty()) return;
    while (chance(3) == 0) {
        auto at = streams().begin();
        std::advance(at, chance((unsigned)streams().size()));
        if (ready(*at->second)) step(*at->second);
    }
}

/// Calls `move` until `done` returns true. If `move` finds nothing to run, releases the lock for a moment, so that
/// other threads can enqueue or run work.
template <class Done, class Move>
static void until(Done done, Move move) {
    while (!done()) {
        bool moved = true;
        {
            Access access;
            while (moved && !done()) {
                wander();
                moved = done() || move();
            }
        }
        if (moved) continue;
        lock().unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        lock().lock();
    }
}

void drain(Stream& stream) {
    until([&] { return idle(stream); }, [&] { return step(stream); });
}

void drain_device(int device) {
    for (auto& [handle, stream] : std::map(streams()))
        if (stream->device == device) drain(*stream);
}

void complete(Event& event, uint64_t ticket) {
    until([&] { return event.done(ticket); }, [&] { return approach(event, ticket); });
}

static uint64_t items = 0;
uint64_t last_item() { return items; }

CUresult enqueue_on(const std::shared_ptr<Stream>& stream, Work work) {
    if (stream->device != current_device())
        return refuse(CUDA_ERROR_INVALID_HANDLE, "%s on a stream of another device", work.label.c_str());
    if (stream->capture) {
        if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (settings().refused == "call") {
            stream->capture->invalid = true;
            return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s cannot be captured, as TRIREME_EMULATED_CAPTURE says", work.label.c_str());
        }
        return capture_work(*stream, std::move(work)), CUDA_SUCCESS;
    }
    bool is_default = stream == stream_of(nullptr);
    if (is_default) {
        // The default stream waits for all blocking streams, and they wait for it, so its work always runs at once.
        for (auto& [handle, other] : streams())
            if (other->device == stream->device && other->blocking) {
                if (other->capture) return refuse(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "%s on the default stream", work.label.c_str());
                drain(*other);
            }
    }
    stream->item = work.number = ++items;
    if (work.record) work.record->item = work.number;
    trace("enqueue", work.number, work.label);
    stream->queue.push_back(std::move(work));
    if (is_default || settings().order == Settings::Eager) drain(*stream);
    return CUDA_SUCCESS;
}

CUresult enqueue(CUstream handle, std::string label, std::function<void()> run, int type) {
    auto stream = stream_of(handle);
    if (!stream) return refuse(CUDA_ERROR_INVALID_HANDLE, "%s on an unknown stream", label.c_str());
    Work work;
    work.label = std::move(label);
    work.run = std::move(run);
    work.type = type;
    return enqueue_on(stream, std::move(work));
}

/// Copies memory. `to` and `from` may be host addresses.
static CUresult copy(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t bytes, CUstream handle, bool wait) {
    if (bytes == 0) return CUDA_SUCCESS;
    if ((to_device && !on_device(to, bytes)) || (from_device && !on_device(from, bytes)))
        return refuse(CUDA_ERROR_INVALID_VALUE, "a copy of %zu bytes from %s to %s", bytes,
                      from_device ? describe_address(from).c_str() : "the host", to_device ? describe_address(to).c_str() : "the host");
    auto* target = reinterpret_cast<void*>(to);
    auto* source = reinterpret_cast<const void*>(from);
    if (wait) {
        if (CUresult e = unsafe_while_capturing("a synchronous copy")) return e;
        return enqueue(nullptr, "a copy", [=] { memmove(target, source, bytes); }, CU_GRAPH_NODE_TYPE_MEMCPY);
    }
    auto stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    bool pageable_source = !from_device && !pinned(source, bytes), pageable_target = !to_device && !pinned(target, bytes);
    if ((pageable_source || pageable_target) && stream->capture)
        return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a copy of pageable host memory while capturing");
    if (pageable_source) {
        // The driver copies pageable memory to its own buffer before it returns.
        auto* bytes_of = static_cast<const unsigned char*>(source);
        auto kept = std::make_shared<std::vector<unsigned char>>(bytes_of, bytes_of + bytes);
        return enqueue(handle, "a copy to the device", [=] { memcpy(target, kept->data(), bytes); }, CU_GRAPH_NODE_TYPE_MEMCPY);
    }
    CUresult e = enqueue(handle, "a copy", [=] { memmove(target, source, bytes); }, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (e != CUDA_SUCCESS || !pageable_target) return e;
    trace("wait", stream->item, "a copy to pageable memory");
    drain(*stream);
    return health();
}

template <class T>
static CUresult fill(CUdeviceptr to, T value, size_t count, CUstream handle) {
    if (count == 0) return CUDA_SUCCESS;
    if (!on_device(to, count * sizeof(T)) || to % sizeof(T))
        return refuse(CUDA_ERROR_INVALID_VALUE, "a fill of %zu bytes at %s", count * sizeof(T), describe_address(to).c_str());
    auto* target = reinterpret_cast<T*>(to);
    return enqueue(handle, "a fill", [=] { std::fill_n(target, count, value); }, CU_GRAPH_NODE_TYPE_MEMSET);
}

/// The common part of synchronising calls. Sets `stream`.
static CUresult before_wait(const char* call, CUstream handle, std::shared_ptr<Stream>& stream) {
    if (CUresult e = enter(call)) return e;
    stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
        stream->capture->invalid = true;
        return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s on a stream that is capturing", call);
    }
    return unsafe_while_capturing(call);
}

static CUresult before_event(const char* call, CUevent handle, std::shared_ptr<Event>& event) {
    if (CUresult e = enter(call)) return e;
    event = event_of(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (!event->capture.expired()) return refuse(CUDA_ERROR_CAPTURED_EVENT, "%s on an event that was recorded in a capture", call);
    return unsafe_while_capturing(call);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

CUresult cuStreamCreate(CUstream* to, unsigned flags) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuStreamCreate")) return e;
    static uintptr_t next = 0x1000;
    *to = reinterpret_cast<CUstream>(next += 16);
    streams()[*to] = std::make_shared<Stream>(Stream{current_device(), !(flags & CU_STREAM_NON_BLOCKING)});
    return CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream* to, unsigned flags, int) { return cuStreamCreate(to, flags); }

CUresult cuStreamDestroy_v2(CUstream handle) {
    std::lock_guard guard(lock());
    auto found = streams().find(handle);
    if (found == streams().end()) return CUDA_ERROR_INVALID_HANDLE;
    drain(*found->second);
    streams().erase(found);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
    std::lock_guard guard(lock());
    std::shared_ptr<Stream> stream;
    if (CUresult e = before_wait("cuStreamSynchronize", handle, stream)) return e;
    trace("wait", stream->item, "cuStreamSynchronize");
    drain(*stream);
    return health();
}

CUresult cuStreamQuery(CUstream handle) {
    std::lock_guard guard(lock());
    std::shared_ptr<Stream> stream;
    if (CUresult e = before_wait("cuStreamQuery", handle, stream)) return e;
    if (idle(*stream)) return CUDA_SUCCESS;
    Access access;
    step(*stream);
    return CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuStreamWaitEvent")) return e;
    auto stream = stream_of(handle);
    auto event = event_of(event_handle);
    if (!stream || !event) return CUDA_ERROR_INVALID_HANDLE;
    if (auto capture = event->capture.lock()) {
        if (stream->capture && stream->capture != capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        if (!stream->capture) stream->capture = capture, stream->frontier.clear(), capture->streams.insert(stream);
        stream->frontier.insert(stream->frontier.end(), event->after.begin(), event->after.end());
        return CUDA_SUCCESS;
    }
    if (stream->capture && !(flags & CU_EVENT_WAIT_EXTERNAL)) {
        stream->capture->invalid = true;
        return refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a capturing stream waits for an event from outside of the capture");
    }
    Work work;
    work.label = "cuStreamWaitEvent";
    work.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    work.wait = event;
    work.ticket = event->issued;
    return enqueue_on(stream, std::move(work));
}

CUresult cuEventCreate(CUevent* to, unsigned flags) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuEventCreate")) return e;
    static uintptr_t next = 0x8;
    *to = reinterpret_cast<CUevent>(next += 16);
    events()[*to] = std::make_shared<Event>();
    events()[*to]->timing = !(flags & CU_EVENT_DISABLE_TIMING);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
    std::lock_guard guard(lock());
    return events().erase(handle) ? health() : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuEventRecord")) return e;
    auto event = event_of(handle);
    auto stream = stream_of(stream_handle);
    if (!stream || !event) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture && !(flags & CU_EVENT_RECORD_EXTERNAL)) {
        event->capture = stream->capture;
        event->after = stream->frontier;
        return CUDA_SUCCESS;
    }
    Work work;
    work.label = "cuEventRecord";
    work.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    work.record = event;
    if (!stream->capture) {
        event->capture.reset();
        work.ticket = event->issue(stream);
    }
    return enqueue_on(stream, std::move(work));
}
CUresult cuEventRecord(CUevent event, CUstream stream) { return cuEventRecordWithFlags(event, stream, 0); }

CUresult cuEventSynchronize(CUevent handle) {
    std::lock_guard guard(lock());
    std::shared_ptr<Event> event;
    if (CUresult e = before_event("cuEventSynchronize", handle, event)) return e;
    trace("wait", event->item, "cuEventSynchronize");
    complete(*event, event->issued);
    return health();
}

CUresult cuEventQuery(CUevent handle) {
    std::lock_guard guard(lock());
    std::shared_ptr<Event> event;
    if (CUresult e = before_event("cuEventQuery", handle, event)) return e;
    if (event->done(event->issued)) return CUDA_SUCCESS;
    if (auto stream = event->open[event->issued].lock(); stream && !idle(*stream)) {
        Access access;
        step(*stream);
    }
    return CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float* to, CUevent from_handle, CUevent until_handle) {
    std::lock_guard guard(lock());
    auto from = event_of(from_handle), until = event_of(until_handle);
    if (!from || !until || !from->timing || !until->timing || !from->issued || !until->issued) return CUDA_ERROR_INVALID_HANDLE;
    if (!from->done(from->issued) || !until->done(until->issued)) return CUDA_ERROR_NOT_READY;
    *to = (float)(until->milliseconds - from->milliseconds);
    return CUDA_SUCCESS;
}

#define EMULATED_COPY(NAME, TO_TYPE, TO_DEVICE, FROM_TYPE, FROM_DEVICE)                                                     \
    CUresult NAME##_v2(TO_TYPE to, FROM_TYPE from, size_t bytes) {                                                          \
        std::lock_guard guard(lock());                                                                                      \
        if (CUresult e = enter(#NAME)) return e;                                                                            \
        return copy((CUdeviceptr)to, TO_DEVICE, (CUdeviceptr)from, FROM_DEVICE, bytes, nullptr, true);                      \
    }                                                                                                                       \
    CUresult NAME##Async_v2(TO_TYPE to, FROM_TYPE from, size_t bytes, CUstream stream) {                                    \
        std::lock_guard guard(lock());                                                                                      \
        if (CUresult e = enter(#NAME "Async")) return e;                                                                    \
        return copy((CUdeviceptr)to, TO_DEVICE, (CUdeviceptr)from, FROM_DEVICE, bytes, stream, false);                      \
    }
EMULATED_COPY(cuMemcpyHtoD, CUdeviceptr, true, const void*, false)
EMULATED_COPY(cuMemcpyDtoH, void*, false, CUdeviceptr, true)
EMULATED_COPY(cuMemcpyDtoD, CUdeviceptr, true, CUdeviceptr, true)

#define EMULATED_FILL(NAME, TYPE)                                                                                           \
    CUresult NAME##Async(CUdeviceptr to, TYPE value, size_t count, CUstream stream) {                                       \
        std::lock_guard guard(lock());                                                                                      \
        if (CUresult e = enter(#NAME "Async")) return e;                                                                    \
        return fill<TYPE>(to, value, count, stream);                                                                        \
    }                                                                                                                       \
    CUresult NAME##_v2(CUdeviceptr to, TYPE value, size_t count) {                                                          \
        std::lock_guard guard(lock());                                                                                      \
        if (CUresult e = enter(#NAME)) return e;                                                                            \
        if (CUresult e = unsafe_while_capturing(#NAME)) return e;                                                           \
        return fill<TYPE>(to, value, count, nullptr);                                                                       \
    }
EMULATED_FILL(cuMemsetD8, unsigned char)
EMULATED_FILL(cuMemsetD32, unsigned int)

}  // extern "C"
