// The network's input, (n, h, w, c), from a batch of the host's or from pictures on the GPU. A byte's value comes from a table (c, 256)
// that the host has made, so its bits are the host's. These kernels come first in every pass, and bring its numbers along: `numbers` is
// memory of the host.

__device__ inline void bring_numbers(const u64* numbers, u64* inbox, u32 words) {
    for (u64 i = thread_index(); i < words; i += thread_count()) inbox[i] = numbers[i];
}

extern "C" __global__ void input_values(const float* images, T* to, u32 rows, u32 channels, u32 plane, const u64* numbers, u64* inbox, u32 words) {
    bring_numbers(numbers, inbox, words);
    u64 count = (u64)rows * plane;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u64 row = i / plane, p = i % plane;
        for (u32 c = 0; c < channels; c++) to[i * channels + c] = rounded(images[(row * channels + c) * plane + p]);
    }
}

extern "C" __global__ void input_bytes(const u8* pixels, const float* tables, T* to, u64 n, u32 channels, const u64* numbers, u64* inbox, u32 words) {
    bring_numbers(numbers, inbox, words);
    for (u64 i = thread_index(); i < n; i += thread_count()) to[i] = rounded(tables[(u32)(i % channels) * 256 + pixels[i]]);
}

struct CropRect {
    u32 picture;
    int top, left;
    u32 mirrored;
};

// Parts of kept pictures (picture, from_h, from_w, c); outside of a picture every byte is 0.
extern "C" __global__ void input_views(const u8* pictures, u32 from_h, u32 from_w, const CropRect* views, const float* tables, T* to, u32 rows, u32 h, u32 w, u32 channels, const u64* numbers, u64* inbox, u32 words) {
    bring_numbers(numbers, inbox, words);
    u64 count = (u64)rows * h * w;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        CropRect view = views[i / ((u64)h * w)];
        int row = view.top + (int)(i / w % h), column = (int)(i % w);
        column = view.left + (view.mirrored ? (int)w - 1 - column : column);
        bool inside = row >= 0 && row < (int)from_h && column >= 0 && column < (int)from_w;
        const u8* from = pictures + (((u64)view.picture * from_h + (inside ? row : 0)) * from_w + (inside ? column : 0)) * channels;
        for (u32 c = 0; c < channels; c++) to[i * channels + c] = rounded(tables[c * 256 + (inside ? from[c] : 0)]);
    }
}
