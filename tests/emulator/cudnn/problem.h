// The meaning of a graph of operations: a convolution in one of three directions, and the pointwise operations after
// it.
#pragma once
#include <map>
#include <vector>

#include "../driver/device.h"
#include "../driver/values.h"

namespace emulator {

struct Tensor {
    Element element = Element::F32;
    /// n, c, h, w. Strides are in elements.
    int64_t dims[4] = {}, strides[4] = {};
    int64_t id = 0, alignment = 16;
    bool is_virtual = false;

    size_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
        return (size_t)(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3]);
    }
    size_t elements() const { return (size_t)(dims[0] * dims[1] * dims[2] * dims[3]); }
    /// Bytes from the first to the end of the last element.
    size_t extent() const {
        size_t last = at(dims[0] - 1, dims[1] - 1, dims[2] - 1, dims[3] - 1);
        return (last + 1) * size_of(element);
    }
};

enum class Direction { Forward, Data, Filter };

struct Pointwise {
    int mode;
    /// The second operand, if there is one.
    Tensor other;
    bool has_other = false;
};

struct Problem {
    Direction direction;
    /// The image, the filters and the output, or their gradients.
    Tensor x, w, y;
    int64_t pad[2], post[2], stride[2], dilation[2];
    double alpha = 1, beta = 0;
    std::vector<Pointwise> after;
    /// The output of the last operation.
    Tensor result;

    int64_t groups() const { return x.dims[1] / w.dims[1]; }
};

/// A way to compute the problem.
struct Engine {
    int64_t index;
    bool tensor_core, nondeterministic;
    /// If true, f32 factors are rounded to TF32.
    bool rounds;
    int64_t workspace;
    /// Value of the engine's only knob, which changes the last bit of every result, or -1 if it has none.
    int64_t knob = -1;
};

/// Returns the engines in order of preference.
std::vector<Engine> engines(const Problem& problem);
/// Computes the problem. `memory` has the address of every tensor that is not virtual, by its id.
void run(const Problem& problem, const Engine& engine, const std::map<int64_t, CUdeviceptr>& memory, CUdeviceptr workspace);

}  // namespace emulator
