// What a graph of operations computes, once it is understood: a convolution in one of three directions, and what follows it.
#pragma once
#include <map>
#include <vector>

#include "../driver/device.h"
#include "../driver/values.h"

namespace emulator {

struct Tensor {
    Element element = Element::F32;
    /// n, c, h, w; strides in elements.
    int64_t dims[4] = {}, strides[4] = {};
    int64_t id = 0, alignment = 16;
    bool is_virtual = false;

    size_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
        return (size_t)(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3]);
    }
    size_t elements() const { return (size_t)(dims[0] * dims[1] * dims[2] * dims[3]); }
    /// Bytes from its first to behind its last element.
    size_t extent() const {
        size_t last = at(dims[0] - 1, dims[1] - 1, dims[2] - 1, dims[3] - 1);
        return (last + 1) * size_of(element);
    }
};

enum class Direction { Forward, Data, Filter };

struct Pointwise {
    int mode;
    /// The second operand, for two.
    Tensor other;
    bool has_other = false;
};

struct Problem {
    Direction direction;
    /// The image, the filters, the output, or their gradients.
    Tensor x, w, y;
    int64_t pad[2], post[2], stride[2], dilation[2];
    double alpha = 1, beta = 0;
    std::vector<Pointwise> after;
    /// What the last operation writes.
    Tensor result;

    int64_t groups() const { return x.dims[1] / w.dims[1]; }
};

/// One of the ways to compute it.
struct Engine {
    int64_t index;
    bool tensor_core, nondeterministic;
    /// Whether f32 factors are rounded to TF32.
    bool rounds;
    int64_t workspace;
    /// Value of its only knob, which changes the last bit of every result; -1 for an engine without.
    int64_t knob = -1;
};

/// In the order of preference.
std::vector<Engine> engines(const Problem& problem);
/// Enqueued work: `memory` has the address of every real tensor by its name.
void run(const Problem& problem, const Engine& engine, const std::map<int64_t, CUdeviceptr>& memory, CUdeviceptr workspace);

}  // namespace emulator
