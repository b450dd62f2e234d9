/* bfloat16: the upper half of a float. Packed weights of products may lie so (products.c). */
#ifndef FLUIDTOOL_BFLOAT16_H
#define FLUIDTOOL_BFLOAT16_H

typedef uint16_t bf16 __attribute__((may_alias));
typedef uint16_t halves __attribute__((vector_size(VL * 2), aligned(2), may_alias));

/* To the nearest, of two as near to the even one; what is no number stays none. */
INLINE uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* `count` numbers, whole vectors of them. */
INLINE void widen(const bf16 *from, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i += VL)
        STORE(to + i, (vec)(__builtin_convertvector(*(const halves *)(from + i), veci) << 16));
}

#endif
