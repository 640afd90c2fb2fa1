// Code that all optimizer steps share. The kernel of each update rule is next to the rule, in backend/update/.
// `numbers` is in device memory: 0: lr, 1: weight of the averages, then the rule's own. `rates` are factors that
// `step_rates` computes from norms. A step that loss scaling skips (*skip) changes nothing. skip[LOST] is the number of
// skipped steps so far. If a piece is marked `narrow`, its gradients are in `narrow` instead of `g`. `half` (or null)
// receives the parameters in the activations' type, in which the next pass reads them.

// Indices in `rates` (backend/update/mod.rs) and in `numbers`. ETA and LARC belong to LARS.
constexpr u32 GRADIENT = 0, NORM = 1, PLAIN = 2, FIRST = 3;
constexpr u32 LR = 0, ETA = 3, LARC = 4;
// Index in `skip`, which points into the state of loss scaling (arena.cu).
constexpr u32 LOST = 3;

// The values of a tensor on which its rate depends.
struct NormedTensor {
    double decay;
    u32 adapts;
    float factor;
};

// Computes a step's rates from each tensor's sum of squares: the factor for clipping by norm, and LARS's trust ratios.
// Runs in one block.
extern "C" __global__ void __launch_bounds__(256) step_rates(const double* gradients, const double* weights, const NormedTensor* tensors, u32 count, const double* numbers, double limit, float* rates) {
    __shared__ double room[SUMMERS];
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < count; i += SUMMERS) sum += gradients[i];
    double norm = sqrt(block_sum(sum, room));
    double part = limit / (norm + 1e-6);
    // a NaN norm must reach the parameters, where it is detected
    if (part >= 1.0) part = 1.0;
    if (threadIdx.x == 0) {
        rates[GRADIENT] = (float)part;
        rates[NORM] = (float)norm;
        rates[PLAIN] = 1.0f;
    }
    for (u32 i = threadIdx.x; i < count; i += SUMMERS) {
        double ratio = 1.0;
        if (tensors[i].adapts) {
            double weight = sqrt(weights[i]), gradient = part * sqrt(gradients[i]), lr = numbers[LR] * tensors[i].factor;
            if (weight != 0.0 && gradient != 0.0) {
                ratio = numbers[ETA] * weight / (gradient + tensors[i].decay * weight);
                if (numbers[LARC] != 0.0 && lr > 0.0) ratio = ratio > lr ? 1.0 : ratio / lr;
            }
        }
        rates[FIRST + i] = tensors[i].factor * (float)ratio;
    }
}

// Scales each unit's gradient down so that its norm is at most `part` times the norm of the unit's weights. A smaller
// norm of the weights counts as `least`. One block handles a unit.
extern "C" __global__ void __launch_bounds__(256) limit_units(const Piece* units, u32 count, const float* w, float* g, double part, double least, double tiny) {
    __shared__ double room[SUMMERS];
    for (u32 u = blockIdx.x; u < count; u += gridDim.x) {
        Piece unit = units[u];
        double weights = 0.0, gradients = 0.0;
        for (u32 i = threadIdx.x; i < unit.len; i += SUMMERS) {
            double own = (double)w[unit.from + i], gradient = (double)g[unit.from + i];
            weights = fma(own, own, weights);
            gradients = fma(gradient, gradient, gradients);
        }
        weights = sqrt(block_sum(weights, room));
        gradients = sqrt(block_sum(gradients, room));
        double most = part * (weights > least ? weights : least);
        // written so that a NaN norm does not skip the unit
        if (gradients < most) continue;
        float factor = (float)(most / (gradients < tiny ? tiny : gradients));
        for (u32 i = threadIdx.x; i < unit.len; i += SUMMERS) g[unit.from + i] *= factor;
    }
}

// f(parameter, gradient with decay, raw gradient, lr, decay, element, this tensor's factor of lr) returns the new
// parameter.
template <class F>
__device__ inline void update_pieces(const Piece* pieces, u32 count, const double* numbers, const float* rates, const u32* skip, float* w, const float* g, const T* narrow, T* half, u32* not_finite, F f) {
    if (*skip) return;
    bool bad = false;
    float part = rates[GRADIENT];
    for (u32 p = blockIdx.x; p < count; p += gridDim.x) {
        Piece piece = pieces[p];
        float own = rates[piece.rate], lr = (float)numbers[LR] * own;
        for (u32 i = threadIdx.x; i < piece.len; i += blockDim.x) {
            u64 at = piece.from + i;
            float old = w[at], raw = part * (piece.narrow ? value(narrow[at]) : g[at]);
            float now = f(old, fmaf(piece.decay, old, raw), raw, lr, piece.decay, at, own);
            w[at] = now;
            if (half) half[at] = rounded(now);
            bad = bad || !isfinite(now);
        }
    }
    if (bad) *not_finite = 1;
}
