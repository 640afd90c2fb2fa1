// Softmax cross-entropy in f64, with one warp per row.

// Returns true in the last block of the grid to get here, which then sees everything that the others have written.
// `arrivals` is zero between launches.
__device__ inline bool last_block(u32* arrivals) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrivals, 1u) == gridDim.x - 1;
        if (last) *arrivals = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

// Run by one block: sums[0] = loss, sums[1] and sums[2] = correct rows at one and at five, sums[3] = rows with an
// invalid label. `sums` is host memory. If an update has produced a parameter that is not finite, the loss is NaN.
__device__ inline void loss_sums(const double* losses, const u32* hits, u32 rows, const u32* not_finite, double* sums) {
    __shared__ double room[SUMMERS];
    double loss = 0.0, top1 = 0.0, top5 = 0.0, wrong = 0.0;
    for (u32 row = threadIdx.x; row < rows; row += SUMMERS) {
        // written by other blocks
        u32 hit = __ldcg(&hits[row]);
        loss += __ldcg(&losses[row]);
        top1 += (double)(hit & 1);
        top5 += (double)(hit >> 1 & 1);
        wrong += (double)(hit >> 2 & 1);
    }
    loss = block_sum(loss, room);
    top1 = block_sum(top1, room);
    top5 = block_sum(top5, room);
    wrong = block_sum(wrong, room);
    if (threadIdx.x == 0) {
        sums[0] = *not_finite ? __longlong_as_double(0x7ff8000000000000ll) : loss;
        sums[1] = top1;
        sums[2] = top5;
        sums[3] = wrong;
    }
}

// The target of class c is (1 - s) [c = label] + s / K with s = factors[0]. The gradient of the scores is (softmax -
// target) * factors[1] * weight * *loss_scale. A score is the best only if no score with a smaller index is as high,
// and never if it is NaN.
//
// The last block sums losses[row] and hits[row] (bit 0: best, bit 1: among the best five, bit 2: invalid label). dx may
// be null.
extern "C" __global__ void __launch_bounds__(256) cross_entropy(const T* x, T* dx, const u32* labels, const float* factors, const float* loss_scale, float weight, u32 rows, u32 classes, double* losses, u32* hits, u32* arrivals, const u32* not_finite, double* sums) {
    u32 lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
    double smooth = (double)factors[0], factor = (double)factors[1] * (double)weight * (double)*loss_scale;
    for (u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < rows; row += warps) {
        const T* scores = x + (u64)row * classes;
        u32 label = labels[row];
        bool known = label < classes;
        label = known ? label : 0;
        float own = value(scores[label]), top = -__int_as_float(0x7f800000);
        for (u32 c = lane; c < classes; c += 32) top = fmaxf(top, value(scores[c]));
        top = warp_max(top);
        double total = 0.0, offsets = 0.0;
        int ahead = 0;
        // not unrolled, because exp in f64 would then need too many registers
#pragma unroll 1
        for (u32 c = lane; c < classes; c += 32) {
            float v = value(scores[c]);
            double offset = (double)v - (double)top;
            total += exp(offset);
            offsets += offset;
            ahead += v > own || (v == own && c < label);
        }
        double log_total = log(warp_sum(total));
        double mean_log = warp_sum(offsets) / (double)classes - log_total;
        ahead = warp_sum(ahead);
        if (lane == 0) {
            double log_own = (double)own - (double)top - log_total;
            losses[row] = -((1.0 - smooth) * log_own + smooth * mean_log);
            hits[row] = (own != own ? 0 : (ahead == 0 ? 3 : (ahead < 5 ? 2 : 0))) | (known ? 0 : 4);
        }
        if (dx) {
            double each = smooth / (double)classes;
#pragma unroll 1
            for (u32 c = lane; c < classes; c += 32) {
                double target = each + (c == label ? 1.0 - smooth : 0.0);
                double share = exp((double)value(scores[c]) - (double)top - log_total);
                dx[(u64)row * classes + c] = rounded((float)((share - target) * factor));
            }
        }
    }
    if (last_block(arrivals)) loss_sums(losses, hits, rows, not_finite, sums);
}
