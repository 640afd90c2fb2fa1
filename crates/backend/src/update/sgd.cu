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
