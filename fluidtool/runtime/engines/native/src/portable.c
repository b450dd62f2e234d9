/* Any processor; on ARM the compiler makes two NEON registers of a vector (24 sums, 4 weights, 1 pixel of 32). */
#define VL 8
#define TILE 6
#define UNROLL 2
#define INSTRUCTIONS ft_portable
#define NAME "portable"
#include "kernels.c"
