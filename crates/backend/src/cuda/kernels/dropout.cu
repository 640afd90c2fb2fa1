// Inverted dropout with the same draws on every backend. Element e of a sample, in (c, h, w) order, uses word e mod 4
// of block e / 4 of Philox4x32-10 with key = seed and counter = (id low, id high, epoch, op << 16 | block mod 2^16).
// The bits of the block number above bit 16 are reversed and xored into the epoch (loaders/src/random.rs).

__device__ inline void philox(u32 (&x)[4], u32 k0, u32 k1) {
    for (int round = 0; round < 10; round++) {
        u64 low = (u64)0xd2511f53u * x[0], high = (u64)0xcd9e8d57u * x[2];
        u32 a = (u32)(high >> 32) ^ x[1] ^ k0, b = (u32)high, c = (u32)(low >> 32) ^ x[3] ^ k1, d = (u32)low;
        x[0] = a;
        x[1] = b;
        x[2] = c;
        x[3] = d;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

// to = from * (0 or 1 / (1 - p)). Backward repeats the same draws. `to` may be `from`.
extern "C" __global__ void dropout(const T* from, T* to, u32 rows, u32 channels, u32 plane, u64 seed, const u32* epoch, const u64* ids, u32 op, float p) {
    u64 elems = (u64)channels * plane, blocks = (elems + 3) / 4, count = blocks * rows;
    float kept = 1.0f / (1.0f - p);
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u64 row = i / blocks, block = i % blocks, id = ids[row];
        u32 number = (u32)block;
        u32 words[4] = {(u32)id, (u32)(id >> 32), *epoch ^ __brev(number >> 16), op << 16 | (number & 0xffff)};
        philox(words, (u32)seed, (u32)(seed >> 32));
        for (int j = 0; j < 4; j++) {
            u64 e = block * 4 + j;
            if (e < elems) {
                u64 at = row * elems + e % plane * channels + e / plane;
                float unit = (float)(words[j] >> 8) * (1.0f / 16777216.0f);
                to[at] = rounded(value(from[at]) * (unit < p ? 0.0f : kept));
            }
        }
    }
}

// Computes stochastic depth. The first word of a sample's first block decides for all its elements. `to` may be `from`.
extern "C" __global__ void drop_path(const T* from, T* to, u32 rows, u64 elems, u64 seed, const u32* epoch, const u64* ids, u32 op, float p) {
    u64 count = (u64)rows * elems;
    float kept = 1.0f / (1.0f - p);
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u64 id = ids[i / elems];
        u32 words[4] = {(u32)id, (u32)(id >> 32), *epoch, op << 16};
        philox(words, (u32)seed, (u32)(seed >> 32));
        float unit = (float)(words[0] >> 8) * (1.0f / 16777216.0f);
        to[i] = rounded(value(from[i]) * (unit < p ? 0.0f : kept));
    }
}
