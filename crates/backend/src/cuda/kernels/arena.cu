// Passes over flat f32 memory: addition, scaling, clamping, moving averages, sums of squares, loss scaling.

extern "C" __global__ void arena_add(float* to, const float* from, u64 n) {
    for (u64 i = thread_index(); i < n; i += thread_count()) to[i] += from[i];
}

extern "C" __global__ void arena_scale(float* to, float factor, u64 n) {
    for (u64 i = thread_index(); i < n; i += thread_count()) to[i] *= factor;
}

// Clamps each value to [-limit, limit]. NaN stays NaN.
extern "C" __global__ void arena_clamp(float* to, float limit, u64 n) {
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        float v = to[i];
        to[i] = v > limit ? limit : (v < -limit ? -limit : v);
    }
}

extern "C" __global__ void arena_lerp(float* to, const float* from, const double* average, u64 n) {
    float weight = (float)*average;
    for (u64 i = thread_index(); i < n; i += thread_count()) to[i] += weight * (from[i] - to[i]);
}

// A piece of a range, processed by one block. `rate` is the index of its learning-rate factor, and `narrow` is nonzero
// if its gradients are in the activations' type.
struct Piece {
    u64 from;
    u32 len;
    float decay;
    u32 rate;
    u32 narrow;
};

// A 16-byte access of f32.
struct alignas(16) Floats {
    float at[4];
};

// Converts gradients from the activations' type to f32, piece by piece.
extern "C" __global__ void __launch_bounds__(256) cast_gradients(const Piece* pieces, u32 count, const T* from, float* to) {
    for (u32 p = blockIdx.x; p < count; p += gridDim.x) {
        Piece piece = pieces[p];
        // use 16-byte accesses if the piece begins at a multiple of 16 bytes
        u32 packs = piece.from % WIDE == 0 ? piece.len / WIDE : 0;
        for (u32 i = threadIdx.x; i < packs; i += blockDim.x) {
            float v[WIDE];
            load(from + piece.from + i * WIDE, v);
            Floats* quads = reinterpret_cast<Floats*>(to + piece.from + i * WIDE);
            for (int q = 0; q < WIDE / 4; q++) quads[q] = {v[4 * q], v[4 * q + 1], v[4 * q + 2], v[4 * q + 3]};
        }
        for (u32 i = packs * WIDE + threadIdx.x; i < piece.len; i += blockDim.x) to[piece.from + i] = value(from[piece.from + i]);
    }
}

// Computes the sum of squares of each piece.
extern "C" __global__ void __launch_bounds__(256) squares_of_pieces(const float* x, const Piece* pieces, u32 count, double* sums) {
    __shared__ double room[SUMMERS];
    for (u32 p = blockIdx.x; p < count; p += gridDim.x) {
        Piece piece = pieces[p];
        double sum = 0.0;
        for (u32 i = threadIdx.x; i < piece.len; i += SUMMERS) {
            double v = (double)x[piece.from + i];
            sum = fma(v, v, sum);
        }
        sum = block_sum(sum, room);
        if (threadIdx.x == 0) sums[p] = sum;
    }
}

// Adds the sums of each range's pieces in order. Range i has the pieces first[i] to first[i + 1].
extern "C" __global__ void sums_of_ranges(const double* pieces, const u32* first, u32 ranges, double* sums) {
    for (u64 i = thread_index(); i < ranges; i += thread_count()) {
        double sum = 0.0;
        for (u32 p = first[i]; p < first[i + 1]; p++) sum += pieces[p];
        sums[i] = sum;
    }
}

// Loss scaling. `scale` has the loss scale and the inverse for the current gradients. `state` has: steps since the
// scale last grew, whether this step is skipped, consecutive skipped steps, whether any gradient is not finite, all
// skipped steps, and all steps since the host set the scale.
extern "C" __global__ void scale_found(const float* g, u64 n, u32* state) {
    bool bad = false;
    for (u64 i = thread_index(); i < n; i += thread_count()) bad = bad || !isfinite(g[i]);
    if (bad) atomicOr(state + 3, 1u);
}

// PyTorch's rule. After a step with Inf or NaN the scale is halved and the update skipped. After `interval` good steps
// in a row the scale is doubled, unless it would become infinite, because halving cannot undo that. `seen` is host
// memory with `kept` places of four numbers: the scale, the steps since it last grew, consecutive skipped steps, and
// all skipped steps. Each step writes the next place, because the host may be reading the place of an earlier step.
extern "C" __global__ void scale_settle(float* scale, u32* state, u32 interval, float* seen, u32 kept) {
    if (thread_index() == 0) {
        bool bad = state[3] != 0;
        scale[1] = 1.0f / scale[0];
        state[0] = bad ? 0 : state[0] + 1;
        state[1] = bad;
        state[2] = bad ? state[2] + 1 : 0;
        state[3] = 0;
        state[4] += bad;
        state[5] += 1;
        if (bad) {
            scale[0] *= 0.5f;
        } else if (state[0] == interval) {
            float twice = 2.0f * scale[0];
            if (isfinite(twice)) scale[0] = twice;
            state[0] = 0;
        }
        float* place = seen + 4 * (state[5] % kept);
        place[0] = scale[0];
        place[1] = (float)state[0];
        place[2] = (float)state[2];
        place[3] = (float)state[4];
    }
}

extern "C" __global__ void scale_undo(float* g, const float* scale, u64 n) {
    float factor = scale[1];
    for (u64 i = thread_index(); i < n; i += thread_count()) g[i] *= factor;
}
