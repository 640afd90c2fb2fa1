// numbers[2]: beta1, [3]: 1 - beta1, [4]: beta2, [5]: 1 - beta2, [6]: eps, [7]: correction1, [8]: correction2, [9]:
// decoupled
extern "C" __global__ void update_adam(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float beta1 = (float)numbers[2], rest1 = (float)numbers[3], beta2 = (float)numbers[4], rest2 = (float)numbers[5];
    float eps = (float)numbers[6];
    float correction1 = (float)numbers[7], correction2 = (float)numbers[8];
    bool decoupled = numbers[9] != 0.0;
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float g, float raw, float lr, float decay, u64 at, float) {
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
