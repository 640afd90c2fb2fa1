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
