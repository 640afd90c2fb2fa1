// Convolutions in plain loops. Operands are gathered and results scattered by their strides. Sums are in f64, so that
// any remaining error comes from the backend.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "problem.h"

namespace emulator {

using Values = std::vector<double>;

/// Returns the elements in the order n, h, w, c.
static Values gather(const Tensor& t, const std::map<int64_t, CUdeviceptr>& memory, bool rounds) {
    Values packed(t.elements());
    auto* from = reinterpret_cast<const void*>(memory.at(t.id));
    size_t i = 0;
    for (int64_t n = 0; n < t.dims[0]; ++n)
        for (int64_t h = 0; h < t.dims[2]; ++h)
            for (int64_t w = 0; w < t.dims[3]; ++w)
                for (int64_t c = 0; c < t.dims[1]; ++c, ++i) {
                    float value = read(from, t.element, t.at(n, c, h, w));
                    packed[i] = rounds ? tf32(value) : value;
                }
    return packed;
}

__attribute__((target_clones("arch=haswell", "default"))) static void add_scaled(double* to, double factor, const double* from, size_t count) {
    for (size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// Calls `f(output, tap, input)` with flat indices, for all output positions and all taps inside the image.
template <class F>
static void taps(const Problem& o, int64_t n, F f) {
    for (int64_t p = 0; p < o.y.dims[2]; ++p)
        for (int64_t q = 0; q < o.y.dims[3]; ++q)
            for (int64_t r = 0; r < o.w.dims[2]; ++r)
                for (int64_t s = 0; s < o.w.dims[3]; ++s) {
                    int64_t h = p * o.stride[0] - o.pad[0] + r * o.dilation[0], w = q * o.stride[1] - o.pad[1] + s * o.dilation[1];
                    if (h < 0 || h >= o.x.dims[2] || w < 0 || w >= o.x.dims[3]) continue;
                    f((size_t)((n * o.y.dims[2] + p) * o.y.dims[3] + q), (size_t)(r * o.w.dims[3] + s),
                      (size_t)((n * o.x.dims[2] + h) * o.x.dims[3] + w));
                }
}

static Values forward(const Problem& o, const Values& x, const Values& w) {
    size_t k = (size_t)o.y.dims[1], c = (size_t)o.x.dims[1], g = (size_t)o.groups(), kg = k / g, cg = c / g;
    size_t rs = (size_t)(o.w.dims[2] * o.w.dims[3]);
    // filters with adjacent outputs: [tap][channel][output]
    Values turned(w.size()), y(o.y.elements(), 0.0);
    for (size_t i = 0; i < k; ++i)
        for (size_t t = 0; t < rs; ++t)
            for (size_t j = 0; j < cg; ++j) turned[(t * cg + j) * k + i] = w[(i * rs + t) * cg + j];
    for (int64_t n = 0; n < o.x.dims[0]; ++n)
        taps(o, n, [&](size_t out, size_t tap, size_t in) {
            for (size_t group = 0; group < g; ++group)
                for (size_t j = 0; j < cg; ++j)
                    add_scaled(&y[out * k + group * kg], x[in * c + group * cg + j], &turned[(tap * cg + j) * k + group * kg], kg);
        });
    return y;
}

static Values backward_data(const Problem& o, const Values& w, const Values& dy) {
    size_t k = (size_t)o.y.dims[1], c = (size_t)o.x.dims[1], g = (size_t)o.groups(), kg = k / g, cg = c / g;
    size_t rs = (size_t)(o.w.dims[2] * o.w.dims[3]);
    Values dx(o.x.elements(), 0.0);
    for (int64_t n = 0; n < o.x.dims[0]; ++n)
        taps(o, n, [&](size_t out, size_t tap, size_t in) {
            for (size_t i = 0; i < k; ++i)
                add_scaled(&dx[in * c + i / kg * cg], dy[out * k + i], &w[(i * rs + tap) * cg], cg);
        });
    return dx;
}

static Values backward_filter(const Problem& o, const Values& x, const Values& dy, int64_t first) {
    size_t k = (size_t)o.y.dims[1], c = (size_t)o.x.dims[1], g = (size_t)o.groups(), kg = k / g, cg = c / g;
    size_t rs = (size_t)(o.w.dims[2] * o.w.dims[3]);
    Values sum(o.w.elements(), 0.0);
    for (int64_t i = 0; i < o.x.dims[0]; ++i)
        taps(o, (first + i) % o.x.dims[0], [&](size_t out, size_t tap, size_t in) {
            for (size_t j = 0; j < k; ++j)
                add_scaled(&sum[(j * rs + tap) * cg], dy[out * k + j], &x[in * c + j / kg * cg], cg);
        });
    return sum;
}

static float after(const Pointwise& op, float value, float other) {
    switch (op.mode) {
        case 0: return value + other;
        case 1: return value * other;
        default: return value > 0.0f ? value : value != value ? value : 0.0f;
    }
}

/// Scales the results, adds the old values if beta is not zero, applies the pointwise operations, and writes by
/// strides.
static void scatter(const Problem& o, bool odd, const Tensor& t, const Values& packed, const std::map<int64_t, CUdeviceptr>& memory) {
    auto* to = reinterpret_cast<void*>(memory.at(o.result.id));
    size_t i = 0;
    for (int64_t n = 0; n < t.dims[0]; ++n)
        for (int64_t h = 0; h < t.dims[2]; ++h)
            for (int64_t w = 0; w < t.dims[3]; ++w)
                for (int64_t c = 0; c < t.dims[1]; ++c, ++i) {
                    float value = (float)(o.alpha * packed[i]);
                    if (odd) value = std::nextafter(value, 2 * value);
                    size_t at = o.result.at(n, c, h, w);
                    if (o.beta != 0) value += (float)o.beta * read(to, o.result.element, at);
                    for (const Pointwise& op : o.after) {
                        float other = 0;
                        if (op.has_other) {
                            const Tensor& b = op.other;
                            size_t place = b.at(b.dims[0] > 1 ? n : 0, b.dims[1] > 1 ? c : 0, b.dims[2] > 1 ? h : 0, b.dims[3] > 1 ? w : 0);
                            other = read(reinterpret_cast<const void*>(memory.at(b.id)), b.element, place);
                        }
                        value = after(op, value, other);
                    }
                    write(to, o.result.element, at, value);
                }
}

std::vector<Engine> engines(const Problem& o) {
    bool narrow = o.x.element != Element::F32;
    int64_t space = (int64_t)(4 * o.y.elements());
    std::vector<Engine> list;
    // Engines that round f32 to TF32 or are nondeterministic come first, as cuDNN lists its fastest engines first. The
    // backend must exclude them by its settings, so it must not simply take the first engine.
    if (!narrow) list.push_back({3, true, false, true, 0});
    if (o.direction != Direction::Forward) list.push_back({2, narrow, true, false, 256});
    list.push_back({0, narrow, false, false, 0, 0});
    list.push_back({1, narrow, false, false, space});
    list.push_back({0, narrow, false, false, 0, 1});
    const char* preference = getenv("TRIREME_EMULATED_PREFERENCE");
    if (preference && !strcmp(preference, "reverse")) std::reverse(list.begin(), list.end());
    return list;
}

void run(const Problem& o, const Engine& engine, const std::map<int64_t, CUdeviceptr>& memory, CUdeviceptr workspace) {
    // An engine may leave any values in its workspace.
    if (engine.workspace) memset(reinterpret_cast<void*>(workspace), 0xff, (size_t)engine.workspace);
    static int64_t runs = 0;
    int64_t first = engine.nondeterministic ? ++runs % o.x.dims[0] : 0;
    bool rounds = engine.rounds, odd = engine.knob == 1;
    static const char* slow = getenv("TRIREME_EMULATED_SLOW");
    if (slow && atol(slow) == engine.index) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Values factor = o.direction == Direction::Data ? gather(o.w, memory, rounds) : gather(o.x, memory, rounds);
    if (std::all_of(factor.begin(), factor.end(), [](double v) { return v == 0; })) count("a convolution of zeros");
    switch (o.direction) {
        case Direction::Forward: return scatter(o, odd, o.y, forward(o, gather(o.x, memory, rounds), gather(o.w, memory, rounds)), memory);
        case Direction::Data:
            return scatter(o, odd, o.x, backward_data(o, gather(o.w, memory, rounds), gather(o.y, memory, rounds)), memory);
        case Direction::Filter:
            return scatter(o, odd, o.w, backward_filter(o, gather(o.x, memory, rounds), gather(o.y, memory, rounds), first), memory);
    }
}

}  // namespace emulator
