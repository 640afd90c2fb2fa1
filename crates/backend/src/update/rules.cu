// A kernel for each update rule, all with the same parameters. They use update.cu, which comes first in the
// concatenated source.

// Returns beta^n.
__device__ inline double power(double beta, u32 n) {
    double product = 1.0;
    for (; n; n >>= 1) {
        if (n & 1) product *= beta;
        beta *= beta;
    }
    return product;
}

// Adam's bias corrections.
struct Corrections {
    float first;
    float second;
};

// Returns the bias corrections of a step. `counted` has the corrections that count all steps, then the number of the
// step. As in PyTorch, steps that loss scaling has skipped do not count. All threads of a block must call this.
__device__ inline Corrections corrections(double beta1, double beta2, const double* counted, const u32* skip) {
    __shared__ float made[2];
    u32 step = (u32)counted[2], lost = skip[LOST];
    if (lost == 0) {
        Corrections all = {(float)counted[0], (float)counted[1]};
        return all;
    }
    // only one thread computes them, because arithmetic in f64 is slow on many GPUs
    if (threadIdx.x == 0) {
        u32 counts = step > lost ? step - lost : 1;
        made[0] = (float)(1.0 / (1.0 - power(beta1, counts)));
        made[1] = (float)(1.0 / sqrt(1.0 - power(beta2, counts)));
    }
    __syncthreads();
    Corrections own = {made[0], made[1]};
    return own;
}

// numbers[2]: momentum, [3]: nesterov
extern "C" __global__ void update_sgd(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float momentum = (float)numbers[2];
    bool nesterov = numbers[3] != 0.0;
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float g, float, float lr, float, u64 at, float) {
        float b = fmaf(momentum, slot0[at], g);
        slot0[at] = b;
        return fmaf(-lr, nesterov ? fmaf(momentum, b, g) : b, w);
    });
}

// numbers[2]: beta1, [3]: beta2, [4]: eps, [5]: correction1, [6]: correction2, [7]: number of the step, [8]: decoupled
extern "C" __global__ void update_adam(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float beta1 = (float)numbers[2], rest1 = (float)(1.0 - numbers[2]);
    float beta2 = (float)numbers[3], rest2 = (float)(1.0 - numbers[3]), eps = (float)numbers[4];
    Corrections correction = corrections(numbers[2], numbers[3], numbers + 5, skip);
    bool decoupled = numbers[8] != 0.0;
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float g, float raw, float lr, float decay, u64 at, float) {
        if (decoupled) {
            w = fmaf(-lr * decay, w, w);
            g = raw;
        }
        float a = fmaf(beta1, slot0[at], rest1 * g), v = fmaf(beta2, slot1[at], rest2 * g * g);
        slot0[at] = a;
        slot1[at] = v;
        return w - lr * correction.first * a / fmaf(sqrtf(v), correction.second, eps);
    });
}

// numbers[2]: alpha, [3]: 1 - alpha, [4]: eps, [5]: momentum, [6]: centred, [7]: TensorFlow's formula, [8]: the
// learning rate is outside the momentum buffer (read only with TensorFlow's formula)
extern "C" __global__ void update_rmsprop(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float alpha = (float)numbers[2], rest = (float)numbers[3], eps = (float)numbers[4], momentum = (float)numbers[5];
    bool centred = numbers[6] != 0.0, tensorflow = numbers[7] != 0.0, within = tensorflow && numbers[8] == 0.0;
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float g, float, float lr, float, u64 at, float) {
        float square = fmaf(alpha, slot0[at], rest * g * g);
        slot0[at] = square;
        if (centred) {
            float mean = fmaf(alpha, slot2[at], rest * g);
            slot2[at] = mean;
            // rounding may make a variance slightly negative
            square = fmaf(-mean, mean, square);
            square = square < 0.0f ? 0.0f : square;
        }
        float b = tensorflow ? fmaf(momentum, slot1[at], (within ? lr * g : g) / sqrtf(square + eps)) : fmaf(momentum, slot1[at], g / (sqrtf(square) + eps));
        slot1[at] = b;
        return within ? w - b : fmaf(-lr, b, w);
    });
}

// numbers[2]: momentum, [3]: eta and [4]: larc (both for step_rates), [5]: the learning rate is outside the momentum
// buffer
extern "C" __global__ void update_lars(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float momentum = (float)numbers[2], base = (float)numbers[0];
    bool outside = numbers[5] != 0.0;
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float g, float, float lr, float, u64 at, float own) {
        float v = fmaf(momentum, slot0[at], (outside ? own : lr) * g);
        slot0[at] = v;
        return outside ? fmaf(-base, v, w) : w - v;
    });
}

// numbers[2]: eps, [3]: factor of the learning rate, which counts all steps, [4]: decay of this factor
extern "C" __global__ void update_adagrad(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    // as in PyTorch, steps that loss scaling has skipped do not count
    double lost = numbers[4] * skip[LOST];
    float eps = (float)numbers[2], lr_factor = (float)(lost == 0.0 ? numbers[3] : numbers[3] / (1.0 - lost * numbers[3]));
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float g, float, float lr, float, u64 at, float) {
        float sum = fmaf(g, g, slot0[at]);
        slot0[at] = sum;
        return fmaf(-lr * lr_factor, g / (sqrtf(sum) + eps), w);
    });
}

// numbers[2]: beta1, [3]: 1 - beta1, [4]: 1 - beta2
extern "C" __global__ void update_lion(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float beta1 = (float)numbers[2], rest1 = (float)numbers[3], rest2 = (float)numbers[4];
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float, float g, float lr, float decay, u64 at, float) {
        float mean = slot0[at], direction = fmaf(beta1, mean, rest1 * g);
        slot0[at] = fmaf(rest2, g - mean, mean);
        float sign = direction > 0.0f ? 1.0f : direction < 0.0f ? -1.0f : 0.0f;
        // a direction that is not finite must reach the parameter
        return fmaf(-lr, fmaf(direction, 0.0f, sign), fmaf(-lr * decay, w, w));
    });
}

// Updates the moments and computes the direction. numbers[2]: beta1, [5]: beta2, [6]: eps, [7]: correction1, [8]:
// correction2, [9]: number of the step ([3] and [4] are for step_rates)
extern "C" __global__ void update_lamb(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float rest1 = (float)(1.0 - numbers[2]), beta2 = (float)numbers[5], rest2 = (float)(1.0 - numbers[5]);
    float eps = (float)numbers[6];
    Corrections correction = corrections(numbers[2], numbers[5], numbers + 7, skip);
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float, float g, float, float decay, u64 at, float) {
        float a = slot0[at];
        a = fmaf(rest1, g - a, a);
        float v = fmaf(beta2, slot1[at], rest2 * g * g);
        slot0[at] = a;
        slot1[at] = v;
        slot2[at] = fmaf(decay, w, correction.first * a / fmaf(sqrtf(v), correction.second, eps));
        return w;
    });
}

// Moves the parameters along the direction, which is passed as the gradient.
extern "C" __global__ void update_lamb_along(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float, float r, float lr, float, u64, float) { return fmaf(-lr, r, w); });
}
