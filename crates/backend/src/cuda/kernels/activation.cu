// Activation functions. `value` computes y from x. `gradient` computes dx from dy and either x or, if that is enough,
// y. The host knows which of them the function needs. `a` is the function's parameter.

struct Identity {
    __device__ float value(float x) const { return x; }
    __device__ float gradient(float d, float) const { return d; }
};

struct Relu {
    __device__ float value(float x) const { return relu(x); }
    __device__ float gradient(float d, float y) const { return y <= 0.0f ? 0.0f : d; }
};

struct Relu6 {
    __device__ float value(float x) const { return x <= 0.0f ? 0.0f : x >= 6.0f ? 6.0f : x; }
    __device__ float gradient(float d, float y) const { return y <= 0.0f || y >= 6.0f ? 0.0f : d; }
};

struct LeakyRelu {
    float a;
    __device__ float value(float x) const { return x < 0.0f ? a * x : x; }
    __device__ float gradient(float d, float x) const { return x > 0.0f ? d : a * d; }
};

struct Scale {
    float a;
    __device__ float value(float x) const { return a * x; }
    __device__ float gradient(float d, float) const { return a * d; }
};

struct Tanh {
    __device__ float value(float x) const { return tanhf(x); }
    __device__ float gradient(float d, float y) const { return d * (1.0f - y * y); }
};

__device__ inline float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

struct Sigmoid {
    __device__ float value(float x) const { return logistic(x); }
    __device__ float gradient(float d, float y) const { return d * (y * (1.0f - y)); }
};

// 0 below -3, 1 above 3, linear between. NaN stays NaN.
__device__ inline float ramp(float x) {
    float v = x * (1.0f / 6.0f) + 0.5f;
    return v <= 0.0f ? 0.0f : v >= 1.0f ? 1.0f : v;
}

__device__ inline bool on_ramp(float x) { return x > -3.0f && x < 3.0f; }

struct HardSigmoid {
    __device__ float value(float x) const { return ramp(x); }
    __device__ float gradient(float d, float x) const { return on_ramp(x) ? d * (1.0f / 6.0f) : 0.0f; }
};

struct HardSwish {
    __device__ float value(float x) const { return x * ramp(x); }
    __device__ float gradient(float d, float x) const { return d * (ramp(x) + (on_ramp(x) ? x * (1.0f / 6.0f) : 0.0f)); }
};

struct Silu {
    __device__ float value(float x) const { return x * logistic(x); }
    __device__ float gradient(float d, float x) const {
        float s = logistic(x);
        return d * (s * (1.0f + x * (1.0f - s)));
    }
};

struct Gelu {
    __device__ static float below(float x) { return 0.5f * erfcf(-0.70710678f * x); }
    __device__ float value(float x) const { return x * below(x); }
    __device__ float gradient(float d, float x) const { return d * (below(x) + x * (0.39894228f * expf(-0.5f * x * x))); }
};

struct GeluTanh {
    // (1 + tanh(u)) / 2 is the logistic function of 2 u
    __device__ static float bent(float x) { return logistic(1.5957691f * x * (1.0f + 0.044715f * x * x)); }
    __device__ float value(float x) const { return x * bent(x); }
    __device__ float gradient(float d, float x) const {
        // For |x| above 16 the slope is 0 or 1 to f32 precision. The clamp avoids an overflow of x^3. NaN stays NaN.
        x = x > 16.0f ? 16.0f : x < -16.0f ? -16.0f : x;
        float s = bent(x);
        return d * (s * (1.0f + x * (1.5957691f * (1.0f + 0.134145f * x * x)) * (1.0f - s)));
    }
};

// Calls f with the function that has this number on the host.
template <class F>
__device__ inline void with_function(int function, float a, F f) {
    switch (function) {
        case 0: return f(Identity{});
        case 1: return f(Relu{});
        case 2: return f(Relu6{});
        case 3: return f(LeakyRelu{a});
        case 4: return f(Tanh{});
        case 5: return f(Sigmoid{});
        case 6: return f(HardSigmoid{});
        case 7: return f(HardSwish{});
        case 8: return f(Silu{});
        case 9: return f(Gelu{});
        case 10: return f(GeluTanh{});
        case 11: return f(Scale{a});
    }
}

// y may be x.
extern "C" __global__ void activation_forward(const T* x, T* y, u64 n, int function, float a) {
    with_function(function, a, [&](auto f) { map(x, y, n, [=](float v) { return f.value(v); }); });
}

extern "C" __global__ void activation_backward(const T* seen, T* dy, u64 n, int function, float a) {
    with_function(function, a, [&](auto f) { map(seen, dy, dy, n, [=](float v, float d) { return f.gradient(d, v); }); });
}
