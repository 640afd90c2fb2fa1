// Product of images (n, plane, channels) with one factor per image and channel.

extern "C" __global__ void multiply_forward(const T* x, const T* s, T* y, u32 n, u32 plane, u32 channels) {
    u64 image = (u64)plane * channels, count = n * image;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        y[i] = rounded(value(x[i]) * value(s[i / image * channels + i % channels]));
    }
}

// Channels that a block sums at a time. Several threads share the positions of each channel.
constexpr u32 ABREAST = 32;

// Replaces dy by the gradient of x and writes the sum of dy x over an image's positions to ds. Sums are f32 within a
// thread and f64 over the threads.
extern "C" __global__ void multiply_backward(const T* x, const T* s, T* dy, T* ds, u32 n, u32 plane, u32 channels) {
    __shared__ double room[SUMMERS];
    u32 tiles = (channels + ABREAST - 1) / ABREAST, line = threadIdx.x / ABREAST, lines = SUMMERS / ABREAST;
    for (u64 item = blockIdx.x; item < (u64)n * tiles; item += gridDim.x) {
        u64 image = item / tiles;
        u32 channel = (u32)(item % tiles) * ABREAST + threadIdx.x % ABREAST;
        double sum = 0.0;
        if (channel < channels) {
            float factor = value(s[image * channels + channel]);
            for (u32 place = line; place < plane; place += lines) {
                u64 at = (image * plane + place) * channels + channel;
                float d = value(dy[at]);
                sum += (double)(d * value(x[at]));
                dy[at] = rounded(d * factor);
            }
        }
        room[threadIdx.x] = sum;
        __syncthreads();
        if (line == 0 && channel < channels && ds) {
            for (u32 other = 1; other < lines; other++) sum += room[other * ABREAST + threadIdx.x];
            ds[image * channels + channel] = rounded((float)sum);
        }
        __syncthreads();
    }
}
