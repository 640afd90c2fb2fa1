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
