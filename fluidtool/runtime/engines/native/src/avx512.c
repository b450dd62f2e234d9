/* x86-64 with AVX-512: 16 lanes, 32 registers: 28 sums, 2 weights, 1 pixel. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx2,fma")
#endif
#define VL 16
#define TILE 14
#define UNROLL 4
#define INSTRUCTIONS ft_avx512
#define NAME "avx512"
#include "kernels.c"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
