// numbers[2]: eps, [3]: factor of the learning rate
extern "C" __global__ void update_adagrad(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float eps = (float)numbers[2], lr_factor = (float)numbers[3];
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float g, float, float lr, float, u64 at, float) {
        float sum = fmaf(g, g, slot0[at]);
        slot0[at] = sum;
        return fmaf(-lr * lr_factor, g / (sqrtf(sum) + eps), w);
    });
}
