// numbers[2]: alpha, [3]: 1 - alpha, [4]: eps, [5]: momentum, [6]: centred, [7]: TensorFlow's formula, [8]: its
// learning rate is outside the momentum buffer
extern "C" __global__ void update_rmsprop(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, float* slot0, float* slot1, float* slot2, T* half, u32* not_finite) {
    float alpha = (float)numbers[2], rest = (float)numbers[3], eps = (float)numbers[4], momentum = (float)numbers[5];
    bool centred = numbers[6] != 0.0, tensorflow = numbers[7] != 0.0, within = tensorflow && numbers[8] == 0.0;
    update_pieces(pieces, count, numbers, rates, skip, w, g, narrow, half, not_finite, [=](float w, float g, float, float lr, float, u64 at, float) {
        float square = fmaf(alpha, slot0[at], rest * g * g);
        slot0[at] = square;
        if (centred) {
            float mean = fmaf(alpha, slot2[at], rest * g);
            slot2[at] = mean;
            // rounding may make it slightly negative
            square = fmaf(-mean, mean, square);
            square = square < 0.0f ? 0.0f : square;
        }
        float b = tensorflow ? fmaf(momentum, slot1[at], (within ? lr * g : g) / sqrtf(square + eps)) : fmaf(momentum, slot1[at], g / (sqrtf(square) + eps));
        slot1[at] = b;
        return within ? w - b : fmaf(-lr, b, w);
    });
}
