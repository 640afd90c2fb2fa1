// Softmax cross-entropy in f64, with one warp per row.

// Returns true in the block that calls this last. This block sees everything that the other blocks have written.
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

// Computes the sums over all rows in one block: sums[0] = loss, sums[1] and sums[2] = correct rows at top 1 and top 5,
// sums[3] = rows with an invalid label. `sums` is host memory. If an update has produced a parameter that is not
// finite, the loss is NaN.
__device__ inline void loss_sums(const double* losses, const u32* hits, u32 rows, const u32* not_finite, double* sums) {
    __shared__ double room[SUMMERS];
    double loss = 0.0, top1 = 0.0, top5 = 0.0, wrong = 0.0;
    for (u32 row = threadIdx.x; row < rows; row += SUMMERS) {
        // other blocks have written these values, so they must not come from the L1 cache
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

// The target of class c is (1 - s) [c = label] + s / K for K classes, with s = factors[0]. The gradient of the scores
// is (softmax - target) * factors[1] * weight * *loss_scale. If scores are equal, the class with the smallest index
// ranks first. NaN is never the best score.
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

// Losses with targets for all classes, in f64. A warp computes a row. crates/backend/src/losses.rs has the formulas.

// Lower limit for a probability that is raised to a power.
constexpr double LEAST = 1e-30;

// A class's contribution to the loss and to the gradient.
struct Term {
    double loss, slope;
};

// In the result, `slope` is the derivative of the loss with respect to log p.
__device__ inline Term softmax_term(double log_p, double t, double gamma) {
    if (gamma == 0.0) return {-t * log_p, -t};
    double wrong = fmax(-expm1(log_p), LEAST), focus = pow(wrong, gamma);
    return {-t * focus * log_p, t * (gamma * exp(log_p) * (focus / wrong) * log_p - focus)};
}

// In the result, `slope` is the derivative of the loss with respect to the score. A negative alpha means that all
// classes have weight 1.
__device__ inline Term sigmoid_term(double z, double t, double gamma, double alpha) {
    double entropy = fmax(z, 0.0) - z * t + log1p(exp(-fabs(z)));
    double p = 1.0 / (1.0 + exp(-z));
    double balance = alpha < 0.0 ? 1.0 : alpha * t + (1.0 - alpha) * (1.0 - t);
    if (gamma == 0.0) return {balance * entropy, balance * (p - t)};
    double wrong = fmax(p * (1.0 - t) + (1.0 - p) * t, LEAST), focus = pow(wrong, gamma);
    double focus_slope = -gamma * (focus / wrong) * (2.0 * t - 1.0) * p * (1.0 - p);
    return {balance * focus * entropy, balance * (focus * (p - t) + focus_slope * entropy)};
}

// Forms of the loss, with the host's numbers. Every other number means Huber's distance. The distances (SQUARED,
// ABSOLUTE and Huber's) compare numbers.
constexpr u32 SOFTMAX = 0, SIGMOID = 1, SQUARED = 2, ABSOLUTE = 3;

// `d` is the prediction minus the target. Every form except SQUARED and ABSOLUTE is Huber's distance, and only this
// form uses `delta`.
__device__ inline Term distance_term(double d, u32 form, double delta) {
    double size = fabs(d), sign = d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : d;
    if (form == SQUARED) return {d * d, 2.0 * d};
    if (form == ABSOLUTE) return {size, sign};
    if (size <= delta) return {0.5 * d * d, d};
    return {delta * (size - 0.5 * delta), delta * sign};
}

// A class's contribution in a form other than softmax.
__device__ inline Term own_term(double z, double t, u32 form, double gamma, double alpha) {
    return form == SIGMOID ? sigmoid_term(z, t, gamma, alpha) : distance_term(z - t, form, gamma);
}

// Returns a row's largest score to all lanes in a warp.
__device__ inline float row_top(const T* scores, u32 classes, u32 lane) {
    float top = -__int_as_float(0x7f800000);
    for (u32 c = lane; c < classes; c += 32) top = fmaxf(top, value(scores[c]));
    return warp_max(top);
}

// Returns the logarithm of exp((score - top) / temperature) summed over the row.
__device__ inline double row_log_total(const T* scores, u32 classes, u32 lane, float top, double temperature) {
    double total = 0.0;
#pragma unroll 1
    for (u32 c = lane; c < classes; c += 32) total += exp(((double)value(scores[c]) - (double)top) / temperature);
    return log(warp_sum(total));
}

// Label of a row for which each class with a target above 0.5 counts as correct.
constexpr u32 ANY = 0xffffffffu;

// Returns, to a warp, the class with the highest score among classes with a target above 0.5. If scores are equal,
// returns the smallest class index. Returns `classes` if there is no such class.
__device__ inline u32 best_hit(const T* scores, const float* targets, u32 classes, u32 lane) {
    float best = -__int_as_float(0x7f800000);
    u32 at = classes;
    for (u32 c = lane; c < classes; c += 32) {
        float v = value(scores[c]);
        if (targets[c] > 0.5f && (at == classes ? v == v : v > best)) {
            best = v;
            at = c;
        }
    }
    if (best < warp_max(best)) at = classes;
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        u32 other = __shfl_xor_sync(0xffffffffu, at, lanes);
        at = other < at ? other : at;
    }
    return at;
}

// Each row of `targets` (rows, 1 + classes) has the row's weight, then its targets. The gradient is multiplied by
// factors[1] * weight * *loss_scale. `gamma` is the exponent, or Huber's delta. `mean` is a factor on a row's sum over
// its classes. If `teacher` is not null, it has a teacher's scores, which enter the loss with weight `share` and
// `temperature`. losses, hits, arrivals, not_finite and sums are as for cross_entropy. dx may be null.
extern "C" __global__ void __launch_bounds__(256) soft_loss(const T* x, T* dx, const T* teacher, const u32* labels, const float* targets, const float* factors, const float* loss_scale, float weight, u32 rows, u32 classes, u32 form, float gamma, float alpha, float mean, float share, float temperature, double* losses, u32* hits, u32* arrivals, const u32* not_finite, double* sums) {
    u32 lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
    double scale = (double)factors[1] * (double)weight * (double)*loss_scale, heat = (double)temperature;
    for (u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < rows; row += warps) {
        const T* scores = x + (u64)row * classes;
        const T* taught = teacher ? teacher + (u64)row * classes : scores;
        const float* target = targets + (u64)row * (1 + classes) + 1;
        u32 label = labels[row];
        bool known = label < classes || label == ANY;
        if (label == ANY) label = best_hit(scores, target, classes, lane);
        bool found = label < classes && form <= SIGMOID;
        label = found ? label : 0;
        float own = value(scores[label]), top = row_top(scores, classes, lane);
        double log_total = row_log_total(scores, classes, lane, top, 1.0);
        double row_weight = (double)target[-1], factor = form == SOFTMAX ? 1.0 : row_weight * (double)mean;
        double lesson = teacher ? row_weight * (double)share * heat : 0.0;
        factor *= 1.0 - (teacher ? (double)share : 0.0);
        double loss = 0.0, slopes = 0.0;
        int ahead = 0;
#pragma unroll 1
        for (u32 c = lane; c < classes; c += 32) {
            float v = value(scores[c]);
            double t = (double)target[c];
            Term term = form == SOFTMAX ? softmax_term((double)v - (double)top - log_total, t, (double)gamma) : own_term((double)v, t, form, (double)gamma, (double)alpha);
            loss += factor * term.loss;
            slopes += term.slope;
            ahead += v > own || (v == own && c < label);
        }
        slopes = form == SOFTMAX ? warp_sum(slopes) : 0.0;
        float taught_top = row_top(taught, classes, lane);
        double warm = teacher ? row_log_total(scores, classes, lane, top, heat) : 0.0;
        double taught_total = teacher ? row_log_total(taught, classes, lane, taught_top, heat) : 0.0;
#pragma unroll 1
        for (u32 c = lane; c < classes; c += 32) {
            double z = (double)value(scores[c]), log_p = z - (double)top - log_total, t = (double)target[c];
            Term term = form == SOFTMAX ? softmax_term(log_p, t, (double)gamma) : own_term(z, t, form, (double)gamma, (double)alpha);
            double slope = factor * (term.slope - exp(log_p) * slopes);
            if (teacher) {
                double p = (z - (double)top) / heat - warm, q = ((double)value(taught[c]) - (double)taught_top) / heat - taught_total;
                loss += lesson * heat * exp(q) * (q - p);
                slope += lesson * (exp(p) - exp(q));
            }
            if (dx) dx[(u64)row * classes + c] = rounded((float)(slope * scale));
        }
        loss = warp_sum(loss);
        ahead = warp_sum(ahead);
        if (lane == 0) {
            losses[row] = loss;
            hits[row] = (!found || own != own ? 0 : (ahead == 0 ? 3 : (ahead < 5 ? 2 : 0))) | (known ? 0 : 4);
        }
    }
    if (last_block(arrivals)) loss_sums(losses, hits, rows, not_finite, sums);
}
