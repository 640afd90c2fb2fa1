// Optimizer steps over the pieces of a chunk; the rules are in backend/update.rs. `numbers` are the step's, in device memory:
// 0: lr, 1: weight of the averages, from 2 on the rule's own; `rates` are what norms make of it. A step that loss scaling leaves out
// (*skip) changes nothing.

// Where rates lie, see there, and what makes them.
constexpr u32 GRADIENT = 0, NORM = 1, PLAIN = 2, FIRST = 3;
constexpr u32 LR = 0, ETA = 3, LARC = 4;

// A tensor, as far as its norms go.
struct Normed {
    double decay;
    u32 adapts;
    u32 unused;
};

// What limiting the norm of all gradients and the layer-wise rates of LARS make of a step, from sums of squares of all tensors; one
// block.
extern "C" __global__ void __launch_bounds__(256) step_rates(const double* gradients, const double* weights, const Normed* tensors, u32 count, const double* numbers, double limit, float* rates) {
    __shared__ double room[SUMMERS];
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < count; i += SUMMERS) sum += gradients[i];
    double norm = sqrt(block_sum(sum, room));
    double part = limit / (norm + 1e-6);
    // a norm that is NaN must reach the parameters, where it is found
    if (part >= 1.0) part = 1.0;
    if (threadIdx.x == 0) {
        rates[GRADIENT] = (float)part;
        rates[NORM] = (float)norm;
        rates[PLAIN] = 1.0f;
    }
    for (u32 i = threadIdx.x; i < count; i += SUMMERS) {
        double ratio = 1.0;
        if (tensors[i].adapts) {
            double weight = sqrt(weights[i]), gradient = part * sqrt(gradients[i]), lr = numbers[LR];
            if (weight != 0.0 && gradient != 0.0) {
                ratio = numbers[ETA] * weight / (gradient + tensors[i].decay * weight);
                if (numbers[LARC] != 0.0 && lr > 0.0) ratio = ratio > lr ? 1.0 : ratio / lr;
            }
        }
        rates[FIRST + i] = (float)ratio;
    }
}

// f(parameter, gradient with decay, raw gradient, lr, decay, element) gives the new parameter.
template <class F>
__device__ inline void update_pieces(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, u32* not_finite, F f) {
    if (*skip) return;
    bool bad = false;
    float part = rates[GRADIENT];
    for (u32 p = blockIdx.x; p < count; p += gridDim.x) {
        Piece piece = pieces[p];
        float lr = (float)numbers[LR] * rates[piece.rate];
        for (u32 i = threadIdx.x; i < piece.len; i += blockDim.x) {
            u64 at = piece.from + i;
            float old = w[at], raw = part * g[at];
            float now = f(old, fmaf(piece.decay, old, raw), raw, lr, piece.decay, at);
            w[at] = now;
            bad = bad || !isfinite(now);
        }
    }
    if (bad) *not_finite = 1;
}

// 2: momentum, 3: nesterov
extern "C" __global__ void update_sgd(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, float* slot0, float* slot1, float* slot2, u32* not_finite) {
    float momentum = (float)numbers[2];
    bool nesterov = numbers[3] != 0.0;
    update_pieces(pieces, count, numbers, rates, skip, w, g, not_finite, [=](float w, float g, float, float lr, float, u64 at) {
        float b = fmaf(momentum, slot0[at], g);
        slot0[at] = b;
        return fmaf(-lr, nesterov ? fmaf(momentum, b, g) : b, w);
    });
}

// 2: momentum, 3: eta, 4: larc (for step_rates)
extern "C" __global__ void update_lars(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, float* slot0, float* slot1, float* slot2, u32* not_finite) {
    float momentum = (float)numbers[2];
    update_pieces(pieces, count, numbers, rates, skip, w, g, not_finite, [=](float w, float g, float, float lr, float, u64 at) {
        float v = fmaf(momentum, slot0[at], lr * g);
        slot0[at] = v;
        return w - v;
    });
}

// 2: beta1, 3: 1 - beta1, 4: beta2, 5: 1 - beta2, 6: eps, 7: correction1, 8: correction2, 9: decoupled
extern "C" __global__ void update_adam(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, float* slot0, float* slot1, float* slot2, u32* not_finite) {
    float beta1 = (float)numbers[2], rest1 = (float)numbers[3], beta2 = (float)numbers[4], rest2 = (float)numbers[5];
    float eps = (float)numbers[6];
    float correction1 = (float)numbers[7], correction2 = (float)numbers[8];
    bool decoupled = numbers[9] != 0.0;
    update_pieces(pieces, count, numbers, rates, skip, w, g, not_finite, [=](float w, float g, float raw, float lr, float decay, u64 at) {
        if (decoupled) {
            w = fmaf(-lr * decay, w, w);
            g = raw;
        }
        float a = fmaf(beta1, slot0[at], rest1 * g), v = fmaf(beta2, slot1[at], rest2 * g * g);
        slot0[at] = a;
        slot1[at] = v;
        return w - lr * correction1 * a / fmaf(sqrtf(v), correction2, eps);
    });
}

// 2: alpha, 3: 1 - alpha, 4: eps, 5: momentum, 6: centred, 7: TensorFlow's form
extern "C" __global__ void update_rmsprop(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, float* slot0, float* slot1, float* slot2, u32* not_finite) {
    float alpha = (float)numbers[2], rest = (float)numbers[3], eps = (float)numbers[4], momentum = (float)numbers[5];
    bool centred = numbers[6] != 0.0, tensorflow = numbers[7] != 0.0;
    update_pieces(pieces, count, numbers, rates, skip, w, g, not_finite, [=](float w, float g, float, float lr, float, u64 at) {
        float square = fmaf(alpha, slot0[at], rest * g * g);
        slot0[at] = square;
        if (centred) {
            float mean = fmaf(alpha, slot2[at], rest * g);
            slot2[at] = mean;
            // rounding may leave it just below zero
            square = fmaf(-mean, mean, square);
            square = square < 0.0f ? 0.0f : square;
        }
        float b = tensorflow ? fmaf(momentum, slot1[at], lr * g / sqrtf(square + eps)) : fmaf(momentum, slot1[at], g / (sqrtf(square) + eps));
        slot1[at] = b;
        return tensorflow ? w - b : fmaf(-lr, b, w);
    });
}
