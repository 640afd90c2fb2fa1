// Updates the moments and computes the direction. numbers[2]: beta1, [5]: beta2, [6]: eps, [7]: correction1, [8]:
// correction2 ([3] and [4] are for step_rates)
extern "C" __global__ void update_lamb(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float rest1 = (float)(1.0 - numbers[2]), beta2 = (float)numbers[5], rest2 = (float)(1.0 - numbers[5]);
    float eps = (float)numbers[6], correction1 = (float)numbers[7], correction2 = (float)numbers[8];
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float, float g, float, float decay, u64 at, float) {
        float a = slot0[at];
        a = fmaf(rest1, g - a, a);
        float v = fmaf(beta2, slot1[at], rest2 * g * g);
        slot0[at] = a;
        slot1[at] = v;
        slot2[at] = fmaf(decay, w, correction1 * a / fmaf(sqrtf(v), correction2, eps));
        return w;
    });
}

// Moves along the direction, which is passed as the gradient.
extern "C" __global__ void update_lamb_along(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float, float r, float lr, float, u64, float) { return fmaf(-lr, r, w); });
}
