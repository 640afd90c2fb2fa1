// Element types of tensors for the emulated libraries. Elements are read as f32 and rounded to their type when they are
// written.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulator {

enum class Element { F32, F16, BF16 };

inline size_t size_of(Element e) { return e == Element::F32 ? 4 : 2; }

inline float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline uint32_t float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

inline float read(const void* from, Element e, size_t i) {
    if (e == Element::F32) return static_cast<const float*>(from)[i];
    uint16_t bits = static_cast<const uint16_t*>(from)[i];
    if (e == Element::BF16) return bits_to_float((uint32_t)bits << 16);
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (float)half;
}

inline void write(void* to, Element e, size_t i, float value) {
    if (e == Element::F32) {
        static_cast<float*>(to)[i] = value;
    } else if (e == Element::F16) {
        _Float16 half = (_Float16)value;
        memcpy(static_cast<uint16_t*>(to) + i, &half, 2);
    } else {
        uint32_t bits = float_to_bits(value);
        bool nan = value != value;
        static_cast<uint16_t*>(to)[i] = nan ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/// Rounds an f32 factor as tensor cores do, to 10 bits of mantissa.
inline float tf32(float value) { return bits_to_float((float_to_bits(value) + 0x1000) & ~0x1fffu); }

}  // namespace emulator
