/* x86-64 with AVX2 and FMA: 8 lanes, 16 registers: 12 sums, 2 weights, 1 pixel. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define VL 8
#define TILE 6
#define UNROLL 8
#define INSTRUCTIONS ft_avx2
#define NAME "avx2"
#include "kernels.c"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
