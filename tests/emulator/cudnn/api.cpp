// The C functions of cuDNN: handles, descriptors, attributes, execution.
#include <cstdlib>
#include <cstring>

#include "descriptor.h"

using namespace emulator;

typedef Status cudnnStatus_t;
typedef cudnnContext* cudnnHandle_t;
/// The handle that a program gets. Other descriptors may keep the descriptor alive after the program destroys its
/// handle.
typedef std::shared_ptr<Descriptor>* cudnnBackendDescriptor_t;

namespace {

struct Rule {
    Kind kind;
    int name;
    Type type;
    int64_t least, most;
    Kind child;
};

constexpr Kind NONE = (Kind)-1;

/// Every attribute that can be set: its descriptor kind, name, type and count, and the kind of descriptors that it
/// refers to.
const Rule RULES[] = {
    {TENSOR, TENSOR_TYPE, DATA_TYPE, 1, 1, NONE}, {TENSOR, TENSOR_DIMENSIONS, INT64, 1, 8, NONE},
    {TENSOR, TENSOR_STRIDES, INT64, 1, 8, NONE}, {TENSOR, TENSOR_ID, INT64, 1, 1, NONE},
    {TENSOR, TENSOR_ALIGNMENT, INT64, 1, 1, NONE}, {TENSOR, TENSOR_VIRTUAL, BOOLEAN, 1, 1, NONE},
    {TENSOR, TENSOR_BY_VALUE, BOOLEAN, 1, 1, NONE},
    {CONVOLUTION, CONV_COMP_TYPE, DATA_TYPE, 1, 1, NONE}, {CONVOLUTION, CONV_MODE, CONVOLUTION_MODE, 1, 1, NONE},
    {CONVOLUTION, CONV_DILATIONS, INT64, 1, 8, NONE}, {CONVOLUTION, CONV_STRIDES, INT64, 1, 8, NONE},
    {CONVOLUTION, CONV_PRE_PADS, INT64, 1, 8, NONE}, {CONVOLUTION, CONV_POST_PADS, INT64, 1, 8, NONE},
    {CONVOLUTION, CONV_SPATIAL_DIMS, INT64, 1, 1, NONE},
    {POINTWISE, POINTWISE_MODE_NAME, POINTWISE_MODE, 1, 1, NONE}, {POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, 1, NONE},
    {POINTWISE, POINTWISE_NAN, NAN_PROPAGATION, 1, 1, NONE},
    {OP_FORWARD, FWD_ALPHA, FLOAT, 1, 1, NONE}, {OP_FORWARD, FWD_BETA, FLOAT, 1, 1, NONE}, {OP_FORWARD, FWD_ALPHA, DOUBLE, 1, 1, NONE},
    {OP_FORWARD, FWD_BETA, DOUBLE, 1, 1, NONE}, {OP_FORWARD, FWD_CONV, DESCRIPTOR, 1, 1, CONVOLUTION},
    {OP_FORWARD, FWD_X, DESCRIPTOR, 1, 1, TENSOR}, {OP_FORWARD, FWD_W, DESCRIPTOR, 1, 1, TENSOR},
    {OP_FORWARD, FWD_Y, DESCRIPTOR, 1, 1, TENSOR},
    {OP_DATA, DATA_ALPHA, FLOAT, 1, 1, NONE}, {OP_DATA, DATA_BETA, FLOAT, 1, 1, NONE}, {OP_DATA, DATA_ALPHA, DOUBLE, 1, 1, NONE},
    {OP_DATA, DATA_BETA, DOUBLE, 1, 1, NONE}, {OP_DATA, DATA_CONV, DESCRIPTOR, 1, 1, CONVOLUTION},
    {OP_DATA, DATA_DX, DESCRIPTOR, 1, 1, TENSOR}, {OP_DATA, DATA_W, DESCRIPTOR, 1, 1, TENSOR},
    {OP_DATA, DATA_DY, DESCRIPTOR, 1, 1, TENSOR},
    {OP_FILTER, FILTER_ALPHA, FLOAT, 1, 1, NONE}, {OP_FILTER, FILTER_BETA, FLOAT, 1, 1, NONE},
    {OP_FILTER, FILTER_ALPHA, DOUBLE, 1, 1, NONE}, {OP_FILTER, FILTER_BETA, DOUBLE, 1, 1, NONE},
    {OP_FILTER, FILTER_CONV, DESCRIPTOR, 1, 1, CONVOLUTION}, {OP_FILTER, FILTER_X, DESCRIPTOR, 1, 1, TENSOR},
    {OP_FILTER, FILTER_DW, DESCRIPTOR, 1, 1, TENSOR}, {OP_FILTER, FILTER_DY, DESCRIPTOR, 1, 1, TENSOR},
    {OP_POINTWISE, PW_DESCRIPTOR, DESCRIPTOR, 1, 1, POINTWISE}, {OP_POINTWISE, PW_X, DESCRIPTOR, 1, 1, TENSOR},
    {OP_POINTWISE, PW_B, DESCRIPTOR, 1, 1, TENSOR}, {OP_POINTWISE, PW_Y, DESCRIPTOR, 1, 1, TENSOR},
    {OP_POINTWISE, PW_ALPHA1, FLOAT, 1, 1, NONE}, {OP_POINTWISE, PW_ALPHA2, FLOAT, 1, 1, NONE},
    {OP_POINTWISE, PW_ALPHA1, DOUBLE, 1, 1, NONE}, {OP_POINTWISE, PW_ALPHA2, DOUBLE, 1, 1, NONE},
    {GRAPH, GRAPH_HANDLE, HANDLE, 1, 1, NONE}, {GRAPH, GRAPH_OPS, DESCRIPTOR, 1, 64, NONE},
    {HEURISTICS, HEUR_GRAPH, DESCRIPTOR, 1, 1, GRAPH}, {HEURISTICS, HEUR_MODE_NAME, HEUR_MODE, 1, 1, NONE},
    {HEURISTICS, HEUR_SM_COUNT, INT32, 1, 1, NONE},
    {ENGINE, ENGINE_GRAPH, DESCRIPTOR, 1, 1, GRAPH}, {ENGINE, ENGINE_INDEX, INT64, 1, 1, NONE},
    {ENGINE_CONFIG, CONFIG_ENGINE, DESCRIPTOR, 1, 1, ENGINE}, {ENGINE_CONFIG, CONFIG_KNOBS, DESCRIPTOR, 0, 64, KNOB_CHOICE},
    {KNOB_CHOICE, KNOB_CHOICE_TYPE, KNOB_TYPE, 1, 1, NONE}, {KNOB_CHOICE, KNOB_CHOICE_VALUE, INT64, 1, 1, NONE},
    {PLAN, PLAN_HANDLE, HANDLE, 1, 1, NONE}, {PLAN, PLAN_CONFIG, DESCRIPTOR, 1, 1, ENGINE_CONFIG},
    {VARIANT_PACK, PACK_IDS, INT64, 0, 64, NONE}, {VARIANT_PACK, PACK_POINTERS, VOID_PTR, 0, 64, NONE},
    {VARIANT_PACK, PACK_WORKSPACE, VOID_PTR, 1, 1, NONE},
};

size_t size_of_type(Type type) {
    switch (type) {
        case BOOLEAN: return sizeof(bool);
        case INT64: case DOUBLE: case HANDLE: case VOID_PTR: case DESCRIPTOR: return 8;
        default: return 4;
    }
}

Status set(Descriptor& d, int name, Type type, int64_t count, const void* values) {
    if (d.final) return complain(BAD_PARAM, "attribute %d set after finalising", name);
    if (!values && count > 0) return complain(NULL_POINTER, "attribute %d: no values", name);
    bool known = false;
    for (const Rule& rule : RULES) {
        if (rule.kind != d.kind || rule.name != name) continue;
        known = true;
        if (rule.type != type) continue;
        if (count < rule.least || count > rule.most)
            return complain(BAD_PARAM, "attribute %d: %ld values, from %ld to %ld are right", name, (long)count, (long)rule.least, (long)rule.most);
        Value value{type, count, {}, {}};
        if (type == DESCRIPTOR) {
            auto* children = static_cast<const cudnnBackendDescriptor_t*>(values);
            for (int64_t i = 0; i < count; ++i) {
                if (!children[i]) return complain(NULL_POINTER, "attribute %d: a null descriptor", name);
                auto& child = *children[i];
                if (!child->final) return complain(NOT_FINALIZED, "attribute %d: a descriptor that is not finalised", name);
                if (rule.child != NONE && child->kind != rule.child)
                    return complain(DESCRIPTOR_TYPE, "attribute %d: a descriptor of kind %d, expected %d", name, child->kind, rule.child);
                value.descriptors.push_back(child);
            }
        } else {
            auto* bytes = static_cast<const unsigned char*>(values);
            value.bytes.assign(bytes, bytes + (size_t)count * size_of_type(type));
        }
        d.values[name] = std::move(value);
        return SUCCESS;
    }
    if (known) return complain(ATTRIBUTE_TYPE, "attribute %d: values of type %d", name, type);
    return complain(BAD_PARAM, "descriptor kind %d has no attribute %d that could be set", d.kind, name);
}

/// Writes the values of a computed attribute to the program's array `to`, at most `room` values.
template <class T>
Status give(const std::vector<T>& all, Type expected, Type type, int64_t room, int64_t* count, void* to) {
    if (type != expected) return complain(ATTRIBUTE_TYPE, "an attribute read as type %d, it is %d", type, expected);
    if (count) *count = (int64_t)all.size();
    if (to) memcpy(to, all.data(), sizeof(T) * std::min((size_t)std::max<int64_t>(room, 0), all.size()));
    return SUCCESS;
}

/// Fills the descriptors that the program has created and passed in the array `to`.
Status fill(Kind kind, size_t there, int64_t room, int64_t* count, void* to, const std::function<void(Descriptor&, size_t)>& with) {
    if (count) *count = (int64_t)there;
    auto* given = static_cast<cudnnBackendDescriptor_t*>(to);
    for (size_t i = 0; given && i < there && (int64_t)i < room; ++i) {
        if (!given[i] || (*given[i])->kind != kind || (*given[i])->final)
            return complain(BAD_PARAM, "a descriptor to be filled is not a fresh one of kind %d", kind);
        with(**given[i], i);
        (*given[i])->final = true;
    }
    return SUCCESS;
}

Status get(const Descriptor& d, int name, Type type, int64_t room, int64_t* count, void* to) {
    if (!d.final) return complain(NOT_FINALIZED, "attribute %d read before finalising", name);
    auto copy = [&](Descriptor& child, const Engine& engine) { child.problem = d.problem, child.engine = engine; };
    switch (name) {
        case HEUR_RESULTS:
            if (d.kind != HEURISTICS || type != DESCRIPTOR) break;
            return fill(ENGINE_CONFIG, d.results.size(), room, count, to, [&](Descriptor& c, size_t i) { copy(c, d.results[i]); });
        case CONFIG_ENGINE:
            if (d.kind != ENGINE_CONFIG || type != DESCRIPTOR) break;
            return fill(ENGINE, 1, room, count, to, [&](Descriptor& c, size_t) { copy(c, d.engine); });
        case CONFIG_KNOBS:
            if (d.kind != ENGINE_CONFIG || type != DESCRIPTOR) break;
            // as in cuDNN, the count is limited by the room
            return fill(KNOB_CHOICE, d.engine.knob < 0 || room < 1 ? 0 : 1, room, count, to, [&](Descriptor& c, size_t) { copy(c, d.engine); });
        case KNOB_CHOICE_TYPE:
            if (d.kind != KNOB_CHOICE) break;
            return give<int>({KNOB_TILE_SIZE}, KNOB_TYPE, type, room, count, to);
        case KNOB_CHOICE_VALUE:
            if (d.kind != KNOB_CHOICE) break;
            return give<int64_t>({d.engine.knob}, INT64, type, room, count, to);
        case CONFIG_WORKSPACE:
        case PLAN_WORKSPACE:
            if (d.kind != (name == PLAN_WORKSPACE ? PLAN : ENGINE_CONFIG)) break;
            return give<int64_t>({d.engine.workspace}, INT64, type, room, count, to);
        case ENGINE_INDEX:
            if (d.kind != ENGINE) break;
            return give<int64_t>({d.engine.index}, INT64, type, room, count, to);
        case ENGINE_NOTES: {
            if (d.kind != ENGINE) break;
            static const char* silent = getenv("TRIREME_EMULATED_SILENT");
            if (silent && strtol(silent, nullptr, 10) == d.engine.index)
                return complain(NOT_SUPPORTED, "notes of engine %ld, as TRIREME_EMULATED_SILENT says", (long)d.engine.index);
            std::vector<int> notes;
            if (d.engine.tensor_core) notes.push_back(NOTE_TENSOR_CORE);
            if (d.engine.nondeterministic) notes.push_back(NOTE_NONDETERMINISTIC);
            return give(notes, NUMERICAL_NOTE, type, room, count, to);
        }
        case ENGINE_BEHAVIOR:
            if (d.kind != ENGINE) break;
            return give<int>({}, BEHAVIOR_NOTE, type, room, count, to);
        case ENGINE_KNOBS:
            if (d.kind != ENGINE) break;
            if (count) *count = 0;
            return SUCCESS;
        case GRAPH_ENGINE_COUNT:
            if (d.kind != GRAPH) break;
            return give<int64_t>({(int64_t)engines(*d.problem).size()}, INT64, type, room, count, to);
    }
    return complain(BAD_PARAM, "descriptor kind %d has no attribute %d of type %d that could be read", d.kind, name, type);
}

/// Checks that a tensor has an address with enough memory and the right alignment.
Status check(const Tensor& t, const std::map<int64_t, CUdeviceptr>& memory) {
    auto at = memory.find(t.id);
    if (at == memory.end()) return complain(BAD_PARAM, "no address for tensor %ld", (long)t.id);
    if (at->second % (CUdeviceptr)t.alignment) return complain(MISALIGNED_POINTER, "tensor %ld is not on its boundary", (long)t.id);
    if (!on_device(at->second, t.extent()))
        return complain(EXECUTION_FAILED, "tensor %ld takes %zu bytes at %s", (long)t.id, t.extent(), describe_address(at->second).c_str());
    return SUCCESS;
}

Status execute(cudnnHandle_t handle, const Descriptor& plan, const Descriptor& pack) {
    if (!plan.final || plan.kind != PLAN || !pack.final || pack.kind != VARIANT_PACK)
        return complain(NOT_FINALIZED, "execution of what is no finalised plan with a variant pack");
    std::map<int64_t, CUdeviceptr> memory;
    auto ids = pack.get<int64_t>(PACK_IDS);
    auto pointers = pack.get<CUdeviceptr>(PACK_POINTERS);
    for (size_t i = 0; i < ids.size(); ++i) memory[ids[i]] = pointers[i];
    const Problem& p = *plan.problem;
    std::vector<const Tensor*> real = {&p.result};
    if (p.direction != Direction::Data) real.push_back(&p.x);
    if (p.direction != Direction::Filter) real.push_back(&p.w);
    if (p.direction != Direction::Forward) real.push_back(&p.y);
    for (const Pointwise& op : p.after)
        if (op.has_other) real.push_back(&op.other);
    for (const Tensor* t : real)
        if (Status s = check(*t, memory)) return s;
    CUdeviceptr space = pack.one<CUdeviceptr>(PACK_WORKSPACE, 0);
    if (plan.engine.workspace && !on_device(space, (size_t)plan.engine.workspace))
        return complain(BAD_PARAM, "a work space of %ld bytes at %s", (long)plan.engine.workspace, describe_address(space).c_str());
    auto problem = plan.problem;
    auto engine = plan.engine;
    const char* names[] = {"cuDNN's convolution", "cuDNN's gradient of an image", "cuDNN's gradient of filters"};
    CUresult enqueued = enqueue(handle->stream, names[(int)p.direction], [=] { run(*problem, engine, memory, space); });
    return enqueued ? complain(EXECUTION_FAILED, "the driver refuses to enqueue (%d)", enqueued) : SUCCESS;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return 91900; }
size_t cudnnGetCudartVersion() { return 13000; }

void cudnnGetLastErrorString(char* to, size_t room) { snprintf(to, room, "%s", last_complaint().c_str()); }

cudnnStatus_t cudnnCreate(cudnnHandle_t* to) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cudnnCreate")) return complain((Status)1001, "no device (%d)", e);
    *to = new cudnnContext;
    return SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    delete handle;
    return SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
    std::lock_guard guard(lock());
    if (!handle || !stream_of(stream)) return complain(BAD_PARAM, "cudnnSetStream of an unknown stream");
    handle->stream = stream;
    return SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(int kind, cudnnBackendDescriptor_t* to) {
    switch (kind) {
        case POINTWISE: case CONVOLUTION: case ENGINE: case ENGINE_CONFIG: case HEURISTICS: case PLAN: case KNOB_CHOICE: case OP_FORWARD: case OP_FILTER:
        case OP_DATA: case OP_POINTWISE: case GRAPH: case VARIANT_PACK: case TENSOR:
            *to = new std::shared_ptr<Descriptor>(new Descriptor);
            (**to)->kind = (Kind)kind;
            return SUCCESS;
        default: return complain(NOT_SUPPORTED, "descriptors of kind %d", kind);
    }
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    delete descriptor;
    return SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    return descriptor ? finalize(**descriptor) : complain(NULL_POINTER, "finalising nothing");
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t count, const void* values) {
    return descriptor ? set(**descriptor, name, (Type)type, count, values) : complain(NULL_POINTER, "an attribute of nothing");
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t room, int64_t* count, void* to) {
    return descriptor ? get(**descriptor, name, (Type)type, room, count, to) : complain(NULL_POINTER, "an attribute of nothing");
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    std::lock_guard guard(lock());
    if (!handle || !plan || !pack) return complain(NULL_POINTER, "execution of nothing");
    if (CUresult e = enter("cudnnBackendExecute")) return complain(EXECUTION_FAILED, "the device has failed (%d)", e);
    return execute(handle, **plan, **pack);
}

}  // extern "C"
