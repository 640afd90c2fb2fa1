// Stream capture and graphs. A graph stores only the dependencies between its nodes. A launch puts the nodes into the
// stream in any order that respects them, so that a missing dependency causes wrong results.
#include <algorithm>

#include "device.h"

struct CUgraph_st {
    std::vector<emulator::Node> nodes;
};
struct CUgraphExec_st {
    std::vector<emulator::Node> nodes;
};

namespace emulator {

static auto& captures() {
    static auto* set = new std::set<std::shared_ptr<Capture>>;
    return *set;
}

void capture_work(Stream& stream, Work work) {
    auto& nodes = stream.capture->nodes;
    nodes.push_back({std::move(work), stream.frontier});
    stream.frontier = {(int)nodes.size() - 1};
}

CUresult unsafe_while_capturing(const char* call) {
    for (auto& capture : captures()) {
        bool ours = capture->thread == std::this_thread::get_id();
        if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL || (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && ours)) {
            capture->invalid = true;
            return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s while a stream is capturing in mode %s", call,
                          capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? "global" : "thread local");
        }
    }
    return CUDA_SUCCESS;
}

/// Returns true if the stream that ends the capture waits for everything that other streams captured.
static bool joined(const Capture& capture) {
    std::vector<bool> reached(capture.nodes.size(), false);
    std::vector<int> open = capture.origin->frontier;
    while (!open.empty()) {
        int node = open.back();
        open.pop_back();
        if (reached[(size_t)node]) continue;
        reached[(size_t)node] = true;
        auto& after = capture.nodes[(size_t)node].after;
        open.insert(open.end(), after.begin(), after.end());
    }
    for (auto& stream : capture.streams)
        for (int node : stream->frontier)
            if (!reached[(size_t)node]) return false;
    return true;
}

/// Returns an order of the nodes: as captured, or reversed or random as far as dependencies allow.
static std::vector<int> schedule(const std::vector<Node>& nodes) {
    std::vector<int> order;
    std::vector<bool> done(nodes.size(), false);
    while (order.size() < nodes.size()) {
        std::vector<int> ready;
        for (size_t i = 0; i < nodes.size(); ++i) {
            auto& after = nodes[i].after;
            if (!done[i] && std::all_of(after.begin(), after.end(), [&](int n) { return done[(size_t)n]; })) ready.push_back((int)i);
            if (!ready.empty() && settings().order <= Settings::Eager) break;
        }
        int next = settings().order == Settings::Random ? ready[chance((unsigned)ready.size())]
                 : settings().order == Settings::Reverse ? ready.back() : ready.front();
        done[(size_t)next] = true;
        order.push_back(next);
    }
    return order;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuStreamBeginCapture")) return e;
    if (reinterpret_cast<uintptr_t>(handle) <= 2)
        return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot capture");
    auto stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return refuse(401, "cuStreamBeginCapture on a stream that is capturing already");
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->streams.insert(stream);
    stream->frontier.clear();
    captures().insert(stream->capture);
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* to) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuStreamEndCapture")) return e;
    *to = nullptr;
    auto stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    auto capture = stream->capture;
    if (!capture) return refuse(401, "cuStreamEndCapture on a stream that is not capturing");
    if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    bool complete = joined(*capture);
    for (auto& member : capture->streams) member->capture.reset(), member->frontier.clear();
    captures().erase(capture);
    std::vector<Node> nodes = std::move(capture->nodes);
    // The capture and its origin refer to each other.
    capture->streams.clear();
    capture->origin.reset();
    if (capture->invalid || settings().refused == "end") return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!complete) return refuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a capture ends before all its streams are joined");
    *to = new CUgraph_st{std::move(nodes)};
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* to, size_t* count) {
    if (!graph || !count) return CUDA_ERROR_INVALID_VALUE;
    if (to)
        for (size_t i = 0; i < *count; ++i)
            to[i] = i < graph->nodes.size() ? reinterpret_cast<CUgraphNode>(&graph->nodes[i]) : nullptr;
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, int* type) {
    if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
    *type = reinterpret_cast<const Node*>(node)->work.type;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* to, CUgraph graph, unsigned long long) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuGraphInstantiate")) return e;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    if (settings().refused == "graph") return CUDA_ERROR_OUT_OF_MEMORY;
    *to = new CUgraphExec_st{graph->nodes};
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuGraphLaunch")) return e;
    auto stream = stream_of(handle);
    if (!exec || !stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return refuse(CUDA_ERROR_NOT_SUPPORTED, "a graph launched while capturing: the emulator has no child graphs");
    for (int node : schedule(exec->nodes)) {
        Work work = exec->nodes[(size_t)node].work;
        if (work.wait) work.ticket = work.wait->issued;
        if (work.record) {
            work.ticket = work.record->issue(stream);
            work.record->capture.reset();
        }
        if (CUresult e = enqueue_on(stream, std::move(work))) return e;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    delete graph;
    return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
    std::lock_guard guard(lock());
    delete exec;
    return CUDA_SUCCESS;
}

}  // extern "C"
