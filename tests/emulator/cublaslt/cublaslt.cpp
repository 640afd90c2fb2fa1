// The emulated cuBLASLt: products of column-major matrices in plain loops with f64 sums, and the epilogues bias and ReLU.
// The sizes of attributes are checked, as in cuBLASLt.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "../driver/device.h"
#include "../driver/values.h"

using namespace emulator;

enum cublasStatus_t { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, COMPUTE_FAST_TF32 = 77 };
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_RELU = 2, EPILOGUE_BIAS = 4, EPILOGUE_RELU_BIAS = 6 };
/// How an algorithm adds the partial sums of a product that is split along k. The values are bits of a mask.
enum { REDUCE_IN_PLACE = 1, REDUCE_COMPUTE_TYPE = 2 };

struct cublasLtContext {};
struct MatmulDesc {
    int compute, scale, pointer_mode = 0, transpose_a = 0, transpose_b = 0, transpose_c = 0, epilogue = EPILOGUE_DEFAULT;
    CUdeviceptr bias = 0;
    int bias_type = -1;
};
struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t ld;
};
struct Preference {
    uint32_t reductions = 7;
    uint64_t workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};
};
struct Algorithm {
    uint64_t data[8];
};
struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    cublasStatus_t state;
    float waves;
    int reserved[4];
};

static cublasStatus_t complain(cublasStatus_t status, const char* what, long number = 0) {
    fprintf(stderr, "emulated cuBLASLt: %s (%ld)\n", what, number);
    return status;
}

static bool element_of(int type, Element& to) {
    to = type == R_16F ? Element::F16 : type == R_16BF ? Element::BF16 : Element::F32;
    return type == R_32F || type == R_16F || type == R_16BF;
}

/// Copies an attribute that must have exactly this size.
template <class T>
static cublasStatus_t take(T& to, const void* from, size_t bytes) {
    if (!from || bytes != sizeof(T)) return complain(INVALID_VALUE, "an attribute of the wrong size", (long)bytes);
    memcpy(&to, from, sizeof(T));
    return OK;
}

static size_t extent(const Layout& l, Element e) {
    return (size_t)((l.columns - 1) * (uint64_t)l.ld + l.rows) * size_of(e);
}

struct Product {
    MatmulDesc desc;
    Layout a, b, c, d;
    uint64_t m, n, k;

    size_t at(const Layout& l, uint64_t row, uint64_t column) const {
        return (size_t)(column * (uint64_t)l.ld + row);
    }
};

static cublasStatus_t understand(const MatmulDesc* desc, const Layout* a, const Layout* b, const Layout* c, const Layout* d, Product& to) {
    if (!desc || !a || !b || !c || !d) return complain(INVALID_VALUE, "a null descriptor");
    to = {*desc, *a, *b, *c, *d, 0, 0, 0};
    to.m = desc->transpose_a ? a->columns : a->rows;
    to.k = desc->transpose_a ? a->rows : a->columns;
    to.n = desc->transpose_b ? b->rows : b->columns;
    uint64_t inner = desc->transpose_b ? b->columns : b->rows;
    if (inner != to.k || d->rows != to.m || d->columns != to.n || c->rows != to.m || c->columns != to.n)
        return complain(INVALID_VALUE, "matrices that do not fit", (long)inner);
    for (const Layout* l : {a, b, c, d}) {
        Element e;
        if (!element_of(l->type, e)) return complain(NOT_SUPPORTED, "a matrix's type", l->type);
        if (l->ld < (int64_t)l->rows) return complain(INVALID_VALUE, "a leading dimension", (long)l->ld);
    }
    bool compute = desc->compute == COMPUTE_32F || desc->compute == COMPUTE_32F_PEDANTIC || desc->compute == COMPUTE_FAST_TF32;
    if (!compute || desc->scale != R_32F || desc->pointer_mode || desc->transpose_c) return complain(NOT_SUPPORTED, "a type of computation", desc->compute);
    if (a->type != b->type || c->type != d->type || (d->type != a->type && d->type != R_32F)) return complain(NOT_SUPPORTED, "a mixture of types", d->type);
    switch (desc->epilogue) {
        case EPILOGUE_DEFAULT: case EPILOGUE_RELU: case EPILOGUE_BIAS: case EPILOGUE_RELU_BIAS: return OK;
        default: return complain(NOT_SUPPORTED, "an epilogue", desc->epilogue);
    }
}

/// A hash of a product's sizes and types, so that an algorithm cannot be used for another product.
static uint64_t fingerprint(const Product& p) {
    uint64_t of[] = {p.m, p.n, p.k, (uint64_t)p.a.type, (uint64_t)p.d.type, (uint64_t)p.desc.transpose_a, (uint64_t)p.desc.transpose_b};
    return fnv(of, sizeof of);
}

__attribute__((target_clones("arch=haswell", "default"))) static void add_scaled(double* to, double factor, const float* from, size_t count) {
    for (size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

static void multiply(const Product& p, float alpha, CUdeviceptr a, CUdeviceptr b, float beta, CUdeviceptr c, CUdeviceptr d, uint64_t first,
                     bool odd) {
    Element in, out, kept;
    element_of(p.a.type, in), element_of(p.d.type, out), element_of(p.desc.bias_type < 0 ? p.d.type : p.desc.bias_type, kept);
    bool rounds = p.desc.compute == COMPUTE_FAST_TF32 && in == Element::F32;
    auto factor = [&](CUdeviceptr from, size_t at) {
        float value = read(reinterpret_cast<const void*>(from), in, at);
        return rounds ? tf32(value) : value;
    };
    // `a` is packed as [k][m], so that a column of `d` is a weighted sum of the rows of `packed`
    std::vector<float> packed(p.k * p.m);
    std::vector<double> column(p.m);
    for (uint64_t k = 0; k < p.k; ++k)
        for (uint64_t m = 0; m < p.m; ++m) packed[k * p.m + m] = factor(a, p.desc.transpose_a ? p.at(p.a, k, m) : p.at(p.a, m, k));
    auto* bias = reinterpret_cast<const void*>(p.desc.bias);
    for (uint64_t n = 0; n < p.n; ++n) {
        std::fill(column.begin(), column.end(), 0.0);
        for (uint64_t i = 0; i < p.k; ++i) {
            uint64_t k = (i + first) % p.k;
            float value = factor(b, p.desc.transpose_b ? p.at(p.b, n, k) : p.at(p.b, k, n));
            add_scaled(column.data(), value, &packed[k * p.m], p.m);
        }
        for (uint64_t m = 0; m < p.m; ++m) {
            float value = (float)(alpha * column[m]);
            if (odd) value = std::nextafter(value, 2 * value);
            if (beta != 0) value += beta * read(reinterpret_cast<const void*>(c), out, p.at(p.c, m, n));
            if (p.desc.epilogue == EPILOGUE_BIAS || p.desc.epilogue == EPILOGUE_RELU_BIAS) value += read(bias, kept, m);
            if ((p.desc.epilogue == EPILOGUE_RELU || p.desc.epilogue == EPILOGUE_RELU_BIAS) && value < 0) value = 0;
            write(reinterpret_cast<void*>(d), out, p.at(p.d, m, n), value);
        }
    }
}

extern "C" {

size_t cublasLtGetVersion() { return 130000; }
size_t cublasLtGetCudartVersion() { return 13000; }

cublasStatus_t cublasLtCreate(cublasLtContext** to) {
    std::lock_guard guard(lock());
    if (enter("cublasLtCreate")) return NOT_INITIALIZED;
    *to = new cublasLtContext;
    return OK;
}
cublasStatus_t cublasLtDestroy(cublasLtContext* handle) {
    delete handle;
    return OK;
}

cublasStatus_t cublasLtMatmulDescCreate(MatmulDesc** to, int compute, int scale) {
    *to = new MatmulDesc{compute, scale};
    return OK;
}
cublasStatus_t cublasLtMatmulDescDestroy(MatmulDesc* desc) {
    delete desc;
    return OK;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(MatmulDesc* desc, int name, const void* value, size_t bytes) {
    switch (name) {
        case 0: return take(desc->compute, value, bytes);
        case 1: return take(desc->scale, value, bytes);
        case 2: return take(desc->pointer_mode, value, bytes);
        case 3: return take(desc->transpose_a, value, bytes);
        case 4: return take(desc->transpose_b, value, bytes);
        case 5: return take(desc->transpose_c, value, bytes);
        case 7: return take(desc->epilogue, value, bytes);
        case 8: return take(desc->bias, value, bytes);
        case 26: return take(desc->bias_type, value, bytes);
        default: return complain(NOT_SUPPORTED, "an attribute of a product", name);
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(Layout** to, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    *to = new Layout{type, rows, columns, ld};
    return OK;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(Layout* layout) {
    delete layout;
    return OK;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(Preference** to) {
    *to = new Preference;
    return OK;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(Preference* preference) {
    delete preference;
    return OK;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(Preference* preference, int name, const void* value, size_t bytes) {
    switch (name) {
        case 1: return take(preference->workspace, value, bytes);
        case 3: return take(preference->reductions, value, bytes);
        case 5: case 6: case 7: case 8: return take(preference->alignment[name - 5], value, bytes);
        default: return complain(NOT_SUPPORTED, "an attribute of a preference", name);
    }
}

/// Returns two algorithms: a split product whose parts are added in place in a random order, and a plain one that may
/// need a workspace. With `TRIREME_EMULATED_PREFERENCE=reverse`, the plain one is number 3, whose results differ in the
/// last bit.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtContext* handle, MatmulDesc* desc, Layout* a, Layout* b, Layout* c, Layout* d,
                                              Preference* preference, int room, Heuristic* to, int* count) {
    if (!handle || !to || !count || room < 1) return complain(INVALID_VALUE, "a heuristic without a handle or room");
    Product p;
    if (cublasStatus_t s = understand(desc, a, b, c, d, p)) return s;
    Preference wish = preference ? *preference : Preference{};
    *count = 0;
    if (wish.reductions & REDUCE_IN_PLACE) to[(*count)++] = {{{1, fingerprint(p)}}, 0, OK, 0.5f, {}};
    if (*count < room) {
        size_t space = (wish.reductions & REDUCE_COMPUTE_TYPE) && wish.workspace >= 512 ? 512 : 0;
        const char* preference = getenv("TRIREME_EMULATED_PREFERENCE");
        uint64_t plain = preference && !strcmp(preference, "reverse") ? 3 : 2;
        to[(*count)++] = {{{plain, fingerprint(p), space, wish.alignment[0], wish.alignment[1], wish.alignment[3]}}, space, OK, 1.0f, {}};
    }
    return OK;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtContext* handle, MatmulDesc* desc, Layout* a, Layout* b, Layout* c, Layout* d,
                                       const Algorithm* algorithm, Heuristic* to) {
    if (!handle || !algorithm || !to) return complain(INVALID_VALUE, "a check without a handle, an algorithm or room");
    Product p;
    if (cublasStatus_t s = understand(desc, a, b, c, d, p)) return s;
    if (algorithm->data[0] < 1 || algorithm->data[0] > 3 || algorithm->data[1] != fingerprint(p)) return NOT_SUPPORTED;
    *to = {*algorithm, algorithm->data[0] == 1 ? 0 : algorithm->data[2], OK, 1.0f, {}};
    return OK;
}

cublasStatus_t cublasLtMatmul(cublasLtContext* handle, MatmulDesc* desc, const float* alpha, CUdeviceptr a, Layout* a_layout, CUdeviceptr b,
                              Layout* b_layout, const float* beta, CUdeviceptr c, Layout* c_layout, CUdeviceptr d, Layout* d_layout,
                              const Algorithm* algorithm, CUdeviceptr workspace, size_t space, CUstream stream) {
    std::lock_guard guard(lock());
    if (!handle || !alpha || !beta) return complain(INVALID_VALUE, "a null argument");
    if (enter("cublasLtMatmul")) return EXECUTION_FAILED;
    Product p;
    if (cublasStatus_t s = understand(desc, a_layout, b_layout, c_layout, d_layout, p)) return s;
    Algorithm plain{{2, fingerprint(p), 0, 1, 1, 1}};
    if (!algorithm) algorithm = &plain;
    if (algorithm->data[1] != fingerprint(p)) return complain(INVALID_VALUE, "an algorithm of another product", (long)algorithm->data[0]);
    size_t needed = algorithm->data[0] == 1 ? 0 : algorithm->data[2];
    if (needed > space || (needed && !on_device(workspace, needed))) return complain(INVALID_VALUE, "a work space too small", (long)space);
    Element in, out, kept;
    element_of(p.a.type, in), element_of(p.d.type, out), element_of(p.desc.bias_type < 0 ? p.d.type : p.desc.bias_type, kept);
    struct { CUdeviceptr at; size_t bytes, boundary; } ends[] = {
        {a, extent(p.a, in), algorithm->data[3]}, {b, extent(p.b, in), algorithm->data[4]}, {d, extent(p.d, out), algorithm->data[5]}};
    for (auto& end : ends) {
        if (!on_device(end.at, end.bytes)) return complain(INVALID_VALUE, describe_address(end.at).c_str(), (long)end.bytes);
        if (end.boundary > 1 && end.at % end.boundary) return complain(INVALID_VALUE, "a matrix that is not on its boundary", (long)end.at % 256);
    }
    if (*beta != 0 && !on_device(c, extent(p.c, out))) return complain(INVALID_VALUE, "c is not there", (long)c);
    if ((p.desc.epilogue & EPILOGUE_BIAS) && !on_device(p.desc.bias, p.m * size_of(kept))) return complain(INVALID_VALUE, "no bias", (long)p.desc.bias);
    static uint64_t runs = 0;
    float alpha_now = *alpha, beta_now = *beta;
    bool in_place = algorithm->data[0] == 1, odd = algorithm->data[0] == 3;
    CUresult enqueued = enqueue(stream, "cuBLASLt's product", [=] {
        if (needed) memset(reinterpret_cast<void*>(workspace), 0xff, needed);
        multiply(p, alpha_now, a, b, beta_now, c, d, in_place ? ++runs % p.k : 0, odd);
    });
    return enqueued ? EXECUTION_FAILED : OK;
}

}  // extern "C"
