// Checks and interprets each kind of descriptor when it is finalised.
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "descriptor.h"

namespace emulator {

static thread_local std::string* complaint = new std::string;

Status complain(Status status, const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "emulated cuDNN: %s\n", text);
    *complaint = text;
    return status;
}

const std::string& last_complaint() { return *complaint; }

static Status require(const Descriptor& d, const char* what, std::initializer_list<int> names) {
    for (int name : names)
        if (!d.values.count(name)) return complain(BAD_PARAM, "%s without attribute %d", what, name);
    return SUCCESS;
}

static bool element_of(int data_type, Element& to) {
    to = data_type == DATA_HALF ? Element::F16 : data_type == DATA_BFLOAT16 ? Element::BF16 : Element::F32;
    return data_type == DATA_FLOAT || data_type == DATA_HALF || data_type == DATA_BFLOAT16;
}

static Status finalize_tensor(Descriptor& d) {
    if (Status s = require(d, "a tensor", {TENSOR_TYPE, TENSOR_DIMENSIONS, TENSOR_STRIDES, TENSOR_ID, TENSOR_ALIGNMENT})) return s;
    Tensor& t = d.tensor;
    if (!element_of(d.one<int>(TENSOR_TYPE, -1), t.element)) return complain(UNSUPPORTED_DATA_TYPE, "a tensor of an unknown type");
    auto dims = d.get<int64_t>(TENSOR_DIMENSIONS), strides = d.get<int64_t>(TENSOR_STRIDES);
    if (dims.size() != 4 || strides.size() != 4) return complain(NOT_SUPPORTED, "a tensor of %zu dimensions", dims.size());
    for (int i = 0; i < 4; ++i) {
        if (dims[(size_t)i] <= 0 || strides[(size_t)i] <= 0) return complain(BAD_PARAM, "a tensor of dimension or stride 0");
        t.dims[i] = dims[(size_t)i], t.strides[i] = strides[(size_t)i];
    }
    t.id = d.one<int64_t>(TENSOR_ID, 0);
    t.alignment = d.one<int64_t>(TENSOR_ALIGNMENT, 0);
    t.is_virtual = d.one<bool>(TENSOR_VIRTUAL, false);
    if (t.alignment <= 0 || (t.alignment & (t.alignment - 1))) return complain(BAD_PARAM, "an alignment of %ld", (long)t.alignment);
    return SUCCESS;
}

static Status finalize_convolution(Descriptor& d) {
    if (Status s = require(d, "a convolution", {CONV_COMP_TYPE, CONV_MODE, CONV_DILATIONS, CONV_STRIDES, CONV_POST_PADS, CONV_PRE_PADS,
                                                CONV_SPATIAL_DIMS}))
        return s;
    if (d.one<int64_t>(CONV_SPATIAL_DIMS, 0) != 2) return complain(NOT_SUPPORTED, "a convolution not over two dimensions");
    for (int name : {CONV_DILATIONS, CONV_STRIDES, CONV_POST_PADS, CONV_PRE_PADS})
        if (d.get<int64_t>(name).size() != 2) return complain(BAD_PARAM, "attribute %d of a convolution has not 2 values", name);
    if (d.one<int>(CONV_COMP_TYPE, -1) != DATA_FLOAT) return complain(UNSUPPORTED_DATA_TYPE, "a convolution not computed in f32");
    if (d.one<int>(CONV_MODE, -1) != CROSS_CORRELATION) return complain(NOT_SUPPORTED, "a convolution that turns its filters");
    return SUCCESS;
}

static double number(const Descriptor& d, int name, double otherwise) {
    auto found = d.values.find(name);
    if (found == d.values.end()) return otherwise;
    return found->second.type == DOUBLE ? d.one<double>(name, 0) : d.one<float>(name, 0);
}

static Status finalize_operation(Descriptor& d) {
    struct Names { int alpha, beta, conv, x, w, y; };
    Names n = d.kind == OP_FORWARD ? Names{FWD_ALPHA, FWD_BETA, FWD_CONV, FWD_X, FWD_W, FWD_Y}
            : d.kind == OP_DATA    ? Names{DATA_ALPHA, DATA_BETA, DATA_CONV, DATA_DX, DATA_W, DATA_DY}
                                   : Names{FILTER_ALPHA, FILTER_BETA, FILTER_CONV, FILTER_X, FILTER_DW, FILTER_DY};
    if (Status s = require(d, "a convolution's operation", {n.conv, n.x, n.w, n.y})) return s;
    auto p = std::make_shared<Problem>();
    p->direction = d.kind == OP_FORWARD ? Direction::Forward : d.kind == OP_DATA ? Direction::Data : Direction::Filter;
    p->x = d.child(n.x)->tensor, p->w = d.child(n.w)->tensor, p->y = d.child(n.y)->tensor;
    auto conv = d.child(n.conv);
    for (int i = 0; i < 2; ++i) {
        p->pad[i] = conv->get<int64_t>(CONV_PRE_PADS)[(size_t)i], p->post[i] = conv->get<int64_t>(CONV_POST_PADS)[(size_t)i];
        p->stride[i] = conv->get<int64_t>(CONV_STRIDES)[(size_t)i], p->dilation[i] = conv->get<int64_t>(CONV_DILATIONS)[(size_t)i];
        int64_t room = p->x.dims[2 + i] + p->pad[i] + p->post[i] - ((p->w.dims[2 + i] - 1) * p->dilation[i] + 1);
        if (room < 0 || p->y.dims[2 + i] != room / p->stride[i] + 1)
            return complain(SHAPE_MISMATCH, "a convolution's output is %ld long, expected %ld", (long)p->y.dims[2 + i],
                            (long)(room / p->stride[i] + 1));
    }
    bool fits = p->x.dims[0] == p->y.dims[0] && p->w.dims[0] == p->y.dims[1] && p->x.dims[1] % p->w.dims[1] == 0 &&
                p->y.dims[1] % p->groups() == 0;
    if (!fits) return complain(SHAPE_MISMATCH, "a convolution's channels do not fit");
    p->alpha = number(d, n.alpha, 1), p->beta = number(d, n.beta, 0);
    p->result = p->direction == Direction::Forward ? p->y : p->direction == Direction::Data ? p->x : p->w;
    d.problem = p;
    return SUCCESS;
}

static Status finalize_pointwise(Descriptor& d) {
    if (Status s = require(d, "a pointwise operation", {PW_DESCRIPTOR, PW_X, PW_Y})) return s;
    int mode = d.child(PW_DESCRIPTOR)->one<int>(POINTWISE_MODE_NAME, -1);
    bool two = mode == PW_ADD || mode == PW_MUL;
    if (!two && mode != PW_RELU_FWD) return complain(NOT_SUPPORTED, "pointwise mode %d", mode);
    if (two != (d.child(PW_B) != nullptr)) return complain(BAD_PARAM, "pointwise mode %d with %d operands", mode, two ? 1 : 2);
    if (number(d, PW_ALPHA1, 1) != 1 || number(d, PW_ALPHA2, 1) != 1) return complain(NOT_SUPPORTED, "a scaled pointwise operand");
    const Tensor &x = d.child(PW_X)->tensor, &y = d.child(PW_Y)->tensor;
    for (int i = 0; i < 4; ++i) {
        if (x.dims[i] != y.dims[i]) return complain(SHAPE_MISMATCH, "a pointwise operation between shapes");
        if (two && d.child(PW_B)->tensor.dims[i] != 1 && d.child(PW_B)->tensor.dims[i] != x.dims[i])
            return complain(SHAPE_MISMATCH, "a pointwise operand that does not broadcast");
    }
    return SUCCESS;
}

/// Follows the operations, starting at the convolution.
static Status finalize_graph(Descriptor& d) {
    if (Status s = require(d, "a graph", {GRAPH_HANDLE, GRAPH_OPS})) return s;
    auto& ops = d.values[GRAPH_OPS].descriptors;
    std::shared_ptr<Problem> problem;
    for (auto& op : ops)
        if (op->problem) {
            if (problem) return complain(UNSUPPORTED_PATTERN, "a graph of two convolutions");
            problem = std::make_shared<Problem>(*op->problem);
        }
    if (!problem) return complain(UNSUPPORTED_PATTERN, "a graph without a convolution");
    for (auto& op : ops) {
        if (op->problem) continue;
        const Tensor &x = op->child(PW_X)->tensor, &y = op->child(PW_Y)->tensor;
        if (problem->direction != Direction::Forward) return complain(UNSUPPORTED_PATTERN, "pointwise operations behind a gradient");
        if (x.id != problem->result.id || !problem->result.is_virtual)
            return complain(UNSUPPORTED_PATTERN, "a pointwise operation that does not follow the one before it");
        if (problem->result.element != Element::F32) return complain(UNSUPPORTED_DATA_TYPE, "a virtual tensor not in f32");
        Pointwise after;
        after.mode = op->child(PW_DESCRIPTOR)->one<int>(POINTWISE_MODE_NAME, -1);
        if (auto other = op->child(PW_B)) after.other = other->tensor, after.has_other = true;
        problem->after.push_back(after);
        problem->result = y;
    }
    const Problem& p = *problem;
    if (p.result.is_virtual || p.x.is_virtual || p.w.is_virtual) return complain(BAD_PARAM, "a graph whose ends are virtual");
    const Tensor &first = p.direction == Direction::Data ? p.w : p.x, &second = p.direction == Direction::Forward ? p.w : p.y;
    if (first.element != second.element) return complain(UNSUPPORTED_DATA_TYPE, "a convolution of two types");
    for (const Tensor* t : {&p.x, &p.w, &p.y})
        if (t->element != Element::F32 && t->strides[1] != 1)
            return complain(UNSUPPORTED_LAYOUT, "a 16-bit convolution whose channels are not side by side");
    d.problem = problem;
    return SUCCESS;
}

static Status finalize_heuristics(Descriptor& d) {
    if (Status s = require(d, "heuristics", {HEUR_GRAPH, HEUR_MODE_NAME})) return s;
    auto all = engines(*d.child(HEUR_GRAPH)->problem);
    for (const Engine& e : all)
        if (d.one<int>(HEUR_MODE_NAME, 0) != MODE_FALLBACK || e.index == 0) d.results.push_back(e);
    d.problem = d.child(HEUR_GRAPH)->problem;
    return SUCCESS;
}

static Status finalize_plan(Descriptor& d) {
    if (Status s = require(d, "a plan", {PLAN_HANDLE, PLAN_CONFIG})) return s;
    d.problem = d.child(PLAN_CONFIG)->problem;
    d.engine = d.child(PLAN_CONFIG)->engine;
    return SUCCESS;
}

/// Applies the knob choices to the engine.
static Status finalize_config(Descriptor& d) {
    if (Status s = require(d, "a configuration", {CONFIG_ENGINE})) return s;
    d.problem = d.child(CONFIG_ENGINE)->problem, d.engine = d.child(CONFIG_ENGINE)->engine;
    for (auto& choice : d.values[CONFIG_KNOBS].descriptors) {
        int64_t value = choice->one<int64_t>(KNOB_CHOICE_VALUE, 0);
        if (choice->one<int>(KNOB_CHOICE_TYPE, -1) != KNOB_TILE_SIZE || d.engine.knob < 0 || value < 0 || value > 1)
            return complain(NOT_SUPPORTED, "engine %ld has no such knob, or not this value", (long)d.engine.index);
        d.engine.knob = value;
    }
    return SUCCESS;
}

static Status finalize_engine(Descriptor& d) {
    if (Status s = require(d, "an engine", {ENGINE_GRAPH, ENGINE_INDEX})) return s;
    d.problem = d.child(ENGINE_GRAPH)->problem;
    for (const Engine& e : engines(*d.problem))
        if (e.index == d.one<int64_t>(ENGINE_INDEX, -1)) return d.engine = e, SUCCESS;
    return complain(NOT_SUPPORTED, "no engine %ld for this graph", (long)d.one<int64_t>(ENGINE_INDEX, -1));
}

Status finalize(Descriptor& d) {
    if (d.final) return complain(BAD_PARAM, "a descriptor finalised twice");
    Status s = SUCCESS;
    switch (d.kind) {
        case TENSOR: s = finalize_tensor(d); break;
        case CONVOLUTION: s = finalize_convolution(d); break;
        case POINTWISE: s = require(d, "a pointwise function", {POINTWISE_MODE_NAME, POINTWISE_MATH_PREC}); break;
        case OP_FORWARD: case OP_DATA: case OP_FILTER: s = finalize_operation(d); break;
        case OP_POINTWISE: s = finalize_pointwise(d); break;
        case GRAPH: s = finalize_graph(d); break;
        case HEURISTICS: s = finalize_heuristics(d); break;
        case ENGINE: s = finalize_engine(d); break;
        case ENGINE_CONFIG: s = finalize_config(d); break;
        case KNOB_CHOICE: s = require(d, "a knob's choice", {KNOB_CHOICE_TYPE, KNOB_CHOICE_VALUE}); break;
        case PLAN: s = finalize_plan(d); break;
        case VARIANT_PACK:
            s = require(d, "a variant pack", {PACK_IDS, PACK_POINTERS});
            if (!s && d.values[PACK_IDS].count != d.values[PACK_POINTERS].count)
                s = complain(BAD_PARAM, "a variant pack with %ld names and %ld addresses", (long)d.values[PACK_IDS].count,
                             (long)d.values[PACK_POINTERS].count);
            break;
    }
    d.final = s == SUCCESS;
    return s;
}

}  // namespace emulator
