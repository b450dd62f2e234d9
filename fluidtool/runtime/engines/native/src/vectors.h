/* Vectors of VL floats in the compilers' own vector language, and the functions that are computed on them.
   Before including: VL (lanes), FT_TARGET (functions of one file are compiled for one instruction set). */
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(VL * 4)));
typedef int32_t veci __attribute__((vector_size(VL * 4)));
typedef float vec_any __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef float loose __attribute__((aligned(1), may_alias)); /* at any address, as files have it */

#define LOAD(address) ((vec) * (const vec_any *)(address))
#define STORE(address, value) (*(vec_any *)(address) = (vec_any)(value))
#if defined(__clang__)
INLINE vec shuffle(vec a, vec b, veci lanes) {
    vec y;
    for (int i = 0; i < VL; i++) y[i] = lanes[i] < VL ? a[lanes[i]] : b[lanes[i] - VL];
    return y;
}
#define SHUFFLE(a, b, lanes) shuffle(a, b, lanes)
#else
#define SHUFFLE(a, b, lanes) __builtin_shuffle(a, b, lanes)
#endif
#define FOUR(v) v, v, v, v
#define ALL(value) all((float)(value))
#if VL == 16
INLINE vec all(float v) { return (vec){FOUR(v), FOUR(v), FOUR(v), FOUR(v)}; }
#else
INLINE vec all(float v) { return (vec){FOUR(v), FOUR(v)}; }
#endif
typedef double vec_wide __attribute__((vector_size(VL * 8)));
#define ALL_WIDE(value) ((vec_wide){0} + (double)(value))
#define CHOOSE(mask, yes, no) ((vec)(((mask) & (veci)(yes)) | (~(mask) & (veci)(no))))
/* a, where one is no number, as the instructions have it with their operands the other way round. */
#if VL == 16 && defined(__AVX512F__) && !defined(__clang__)
#define MAX(a, b) ((vec)__builtin_ia32_maxps512_mask(b, a, (vec){0}, -1, 4))
#define MIN(a, b) ((vec)__builtin_ia32_minps512_mask(b, a, (vec){0}, -1, 4))
#elif VL == 8 && defined(__AVX2__) && !defined(__clang__)
#define MAX(a, b) ((vec)__builtin_ia32_maxps256(b, a))
#define MIN(a, b) ((vec)__builtin_ia32_minps256(b, a))
#else
#define MAX(a, b) CHOOSE((a) < (b), b, a)
#define MIN(a, b) CHOOSE((a) > (b), b, a)
#endif

/* The part `task` of `tasks` of a range. */
INLINE void part(int64_t count, int64_t task, int64_t tasks, int64_t *from, int64_t *to) {
    *from = count * task / tasks;
    *to = count * (task + 1) / tasks;
}

/* The first `count` lanes from memory, `rest` in the others. */
INLINE vec load_some(const float *from, int64_t count, float rest) {
#if VL == 16 && defined(__AVX512F__) && !defined(__clang__)
    const int there = count < VL ? count < 0 ? 0 : (1 << count) - 1 : (1 << VL) - 1;
    return (vec)__builtin_ia32_loadups512_mask(from, ALL(rest), (unsigned short)there);
#else
    float lanes[VL];
    for (int64_t i = 0; i < VL; i++) lanes[i] = i < count ? from[i] : rest;
    return LOAD(lanes);
#endif
}

/* The lanes that there are, at most VL; zeros behind. */
INLINE vec take(const float *from, int64_t count) { return count >= VL ? LOAD(from) : load_some(from, count, 0); }

INLINE vec take_loose(const loose *from, int64_t count) {
    vec whole;
    if (count >= VL) {
        memcpy(&whole, from, sizeof whole);
        return whole;
    }
    float lanes[VL] = {0};
    memcpy(lanes, from, (size_t)count * sizeof(float));
    return LOAD(lanes);
}

INLINE void store_some(float *to, vec value, int64_t count) {
#if VL == 16 && defined(__AVX512F__) && !defined(__clang__)
    __builtin_ia32_storeups512_mask(to, value, (unsigned short)((1 << count) - 1));
#else
    float lanes[VL];
    STORE(lanes, value);
    memcpy(to, lanes, (size_t)count * sizeof(float));
#endif
}

INLINE void give(float *to, vec value, int64_t count) {
    if (count >= VL) STORE(to, value);
    else store_some(to, value, count);
}

/* Over all lanes, halves by halves: the lanes of one half meet those of the other. */
#if VL == 16
#define LANES ((veci){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#else
#define LANES ((veci){0, 1, 2, 3, 4, 5, 6, 7})
#endif

INLINE float sum_lanes(vec value) {
#pragma GCC unroll 4
    for (int half = VL / 2; half; half /= 2) value += SHUFFLE(value, value, LANES ^ half);
    return value[0];
}

INLINE float max_lanes(vec value) {
#pragma GCC unroll 4
    for (int half = VL / 2; half; half /= 2) {
        const vec other = SHUFFLE(value, value, LANES ^ half);
        value = MAX(value, other);
    }
    return value[0];
}

/* The rows of a square become its columns: VL vectors, interleaved with those that are half of them away until each is
   where it belongs. */
INLINE void transpose(vec *v) {
#if VL == 16
    const veci low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}, high = low + 8;
#else
    const veci low = {0, 8, 1, 9, 2, 10, 3, 11}, high = low + 4;
#endif
#pragma GCC unroll 4
    for (int round = 1; round < VL; round *= 2) {
        vec mixed[VL];
#pragma GCC unroll 8
        for (int i = 0; i < VL / 2; i++) {
            mixed[2 * i] = SHUFFLE(v[i], v[i + VL / 2], low);
            mixed[2 * i + 1] = SHUFFLE(v[i], v[i + VL / 2], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++) v[i] = mixed[i];
    }
}

/* a / b for b of 1 to 2^127, to two units in the last place: dividing takes longer than the rest of what needs it. Where all
   instructions have to give the same bits (EXACT), it is the division. */
#if VL == 16 && defined(__AVX512F__) && !defined(__clang__) && !defined(EXACT)
INLINE vec quotient(vec a, vec b) {
    const vec guess = (vec)__builtin_ia32_rcp14ps512_mask(b, (vec){0}, -1);
    return a * (guess + guess * (ALL(1) - b * guess));
}
#else
INLINE vec quotient(vec a, vec b) { return a / b; }
#endif

#ifdef EXACT
/* a / b as the division rounds it, in less time: from the rounded reciprocal of b, and the rest that this leaves (Markstein). The rest
   is exact unless a is tiny, and a number unless a is huge; then it is the division. */
#if VL == 16 && defined(__AVX512F__) && !defined(__clang__)
INLINE vec exact_quotient(vec a, float b) {
    const __m512 size = (__m512)((veci)a & INT32_MAX), inverse = _mm512_set1_ps(1 / b), guess = (__m512)a * inverse;
    const __mmask16 doubtful = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p60f), _CMP_NLT_UQ) |
                               _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p-60f), _CMP_LT_OQ), size,
                                                       _mm512_setzero_ps(), _CMP_NEQ_OQ);
    if (__builtin_expect(doubtful || !(b > 0x1p-10f && b < 0x1p10f), 0)) return a / ALL(b);
    return (vec)_mm512_fmadd_ps(_mm512_fnmadd_ps(guess, _mm512_set1_ps(b), (__m512)a), inverse, guess);
}
#else
INLINE vec exact_quotient(vec a, float b) { return a / ALL(b); }
#endif
#endif

/* 2^POWER e^x of an x from -87 to 88, to about one unit in the last place: x = k ln 2 + r, a polynomial in r, k into the
   exponent. A NaN stays. */
INLINE vec exp_within(vec x, const int POWER) {
    /* 1.5 * 2^23: what is no whole number is rounded off, k + 127 + POWER are the last bits */
    const vec shift = ALL(12582912 + 127 + POWER);
    const vec shifted = x * ALL(1.44269504f) + shift, whole = shifted - shift;
    const vec r = x - whole * ALL(0.693359375f) - whole * ALL(-2.12194440e-4f);
    vec p = ALL(1.0f / 5040);
    p = p * r + ALL(1.0f / 720);
    p = p * r + ALL(1.0f / 120);
    p = p * r + ALL(1.0f / 24);
    p = p * r + ALL(1.0f / 6);
    p = p * r + ALL(0.5f);
    p = p * r + ALL(1.0f);
    p = p * r + ALL(1.0f);
    return p * (vec)((veci)shifted << 23);
}

/* e^x: 0 where it is less than a normal number. Half of it comes first, for the power of two alone may be too large. */
INLINE vec exp_vec(vec x) {
    const vec half = exp_within(MIN(MAX(x, ALL(-87.33654f)), ALL(89)), -1);
    return CHOOSE(x < ALL(-87.33654f), ALL(0), half * ALL(2));
}

/* 1 + e^x, at most 2^126. */
INLINE vec one_and_exp(vec x) { return ALL(1) + exp_within(MIN(MAX(x, ALL(-87)), ALL(87)), 0); }

INLINE vec sigmoid_vec(vec x) { return quotient(ALL(1), one_and_exp(-x)); }

/* tanh: x - x^3/3 + 2x^5/15 near zero, where 1 - 2/(e^2x + 1) would cancel. */
INLINE vec tanh_vec(vec x) {
    vec square = x * x;
    vec near = x + x * square * (ALL(-0.333333333f) + square * (ALL(0.133333333f) + square * (ALL(-0.0539682540f) +
               square * (ALL(0.0218694885f) + square * ALL(-0.00886323553f)))));
    vec far = ALL(1) - quotient(ALL(2), one_and_exp(x + x));
    return CHOOSE(square < ALL(0.09f), near, far);
}

/* The part of a normal distribution below x, to 3e-7: 1/2 and x times a quotient of polynomials in x^2, fitted by least
   squares; 0 or 1 to the last bits from 4 sqrt(2) on. */
INLINE vec below_vec(vec x) {
    const vec bounded = MIN(MAX(x, ALL(-5.6568542f)), ALL(5.6568542f)), u = bounded * bounded;
    vec p = ALL(2.18189091e-08f);
    p = p * u + ALL(6.36482317e-06f);
    p = p * u + ALL(0.000176935759f);
    p = p * u + ALL(0.00472589064f);
    p = p * u + ALL(0.0346920842f);
    p = p * u + ALL(0.398942214f);
    vec q = ALL(1.17127027e-06f);
    q = q * u + ALL(7.60216019e-05f);
    q = q * u + ALL(0.00193054211f);
    q = q * u + ALL(0.0291190098f);
    q = q * u + ALL(0.25362574f);
    q = q * u + ALL(1);
    return CHOOSE(x < ALL(-5.6568542f), ALL(0), ALL(0.5f) + quotient(bounded * p, q)); /* 0 times a large number is 0 */
}

INLINE vec sqrt_vec(vec x) {
#if VL == 8 && defined(__AVX2__) && !defined(__clang__)
    return (vec)__builtin_ia32_sqrtps256(x);
#elif VL == 16 && defined(__AVX512F__) && !defined(__clang__)
    return (vec)__builtin_ia32_sqrtps512_mask(x, (vec){0}, -1, 4);
#else
    float lanes[VL];
    STORE(lanes, x);
    for (int i = 0; i < VL; i++) lanes[i] = __builtin_sqrtf(lanes[i]);
    return LOAD(lanes);
#endif
}

INLINE vec activate(vec x, int32_t kind, const ft_constants *c) {
    switch (kind) {
        case FT_RELU: return MAX(x, ALL(0)); /* a NaN stays */
        case FT_RELU6: return MIN(MAX(x, ALL(0)), ALL(c->relu6.threshold));
        case FT_SIGMOID: return sigmoid_vec(x);
        case FT_TANH: return tanh_vec(x);
        case FT_GELU: return x * below_vec(x);
        case FT_GELU_TANH:
            return ALL(0.5f) * x * (ALL(1) + tanh_vec(ALL(0.79788456f) * (x + ALL(0.044715f) * x * x * x)));
        case FT_LEAKY_RELU: return CHOOSE(x < ALL(0), x * ALL(c->leaky_relu.slope), x);
        case FT_HARD_SWISH:
#ifdef EXACT
            return exact_quotient(x * MIN(MAX(x + ALL(c->hard_swish.offset), ALL(0)), ALL(c->hard_swish.threshold)),
                                  c->hard_swish.scale);
#else
            return x * (MIN(MAX(x + ALL(c->hard_swish.offset), ALL(0)), ALL(c->hard_swish.threshold)) *
                        ALL(1 / c->hard_swish.scale));
#endif
        case FT_SWISH: {
            const vec inner = ALL(c->swish.beta) * x;
            return x * CHOOSE(inner < ALL(-87), ALL(0), sigmoid_vec(inner)); /* 0 times a large number is 0 */
        }
        case FT_EXP: return exp_vec(x);
        case FT_SQRT: return sqrt_vec(x);
        case FT_SQUARE: return x * x;
        case FT_AFFINE: return x * ALL(c->affine.scale) + ALL(c->affine.shift);
        case FT_HARD_SIGMOID: return MIN(MAX(x * ALL(c->hard_sigmoid.slope) + ALL(c->hard_sigmoid.offset), ALL(0)), ALL(1));
        case FT_CLIP: return MIN(MAX(x, ALL(c->clip.low)), ALL(c->clip.high));
        case FT_SOFTSIGN: return x / (ALL(1) + MAX(x, -x));
        case FT_ABS: return MAX(x, -x);
        default: return x;
    }
}

/* An activation of `count` vectors, `step` apart, in place. */
static __attribute__((noinline)) void activate_each(float *at, int64_t step, int64_t count, int32_t kind,
                                                    const ft_constants *c) {
#define EACH_VECTOR(named) \
    case named:            \
        for (int64_t i = 0; i < count; i++, at += step) STORE(at, activate(LOAD(at), named, c)); \
        break;
    switch (kind) {
        EACH_VECTOR(FT_SIGMOID)
        EACH_VECTOR(FT_TANH)
        EACH_VECTOR(FT_GELU)
        EACH_VECTOR(FT_SWISH)
        EACH_VECTOR(FT_HARD_SIGMOID)
        default:
            for (int64_t i = 0; i < count; i++, at += step) STORE(at, activate(LOAD(at), kind, c));
    }
#undef EACH_VECTOR
}

/* Activations that a tile computes of its sums, in registers: `each` does something with each `sum`. The others come when
   the tile has been stored. */
#define QUICK(kind) ((kind) <= FT_RELU6 || (kind) == FT_LEAKY_RELU || (kind) == FT_HARD_SWISH)
#define ACTIVATE_QUICKLY(kind, constants, each, sum)                                   \
    switch (kind) {                                                                    \
        case FT_RELU: each(sum = activate(sum, FT_RELU, constants)) break;             \
        case FT_RELU6: each(sum = activate(sum, FT_RELU6, constants)) break;           \
        case FT_LEAKY_RELU: each(sum = activate(sum, FT_LEAKY_RELU, constants)) break; \
        case FT_HARD_SWISH: each(sum = activate(sum, FT_HARD_SWISH, constants)) break; \
    }
