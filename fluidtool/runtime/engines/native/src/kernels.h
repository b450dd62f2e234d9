/* What every kernel is written with. In a kernel `s` are the arguments of its call, which abi.h names. The units that hold kernels (images.c, matrices.c, pairs.c) are compiled once for
   each instruction set; build.py says with which VL (lanes of a vector), TILE (pixels of a tile of two channel blocks), UNROLL
   (steps of the innermost loops at once: less code where it is small) and TABLE (the name of the unit's table). */
#ifndef FLUIDTOOL_KERNELS_H
#define FLUIDTOOL_KERNELS_H

#include "engine.h"
#include "vectors.h"

#include <math.h>

#define PRAGMA(text) _Pragma(#text)
#define UNROLLED(times) PRAGMA(GCC unroll times)
#define WEIGHT_BYTES (VL == 16 ? 32768 : 20480) /* of packed weights that stay in the first cache while the pixels pass */

/* `work` for each of the sums of a tile, unrolled, so that they stay in registers. */
#define EACH(PIXELS, BLOCKS, work)                  \
    _Pragma("GCC unroll 4") for (int b = 0; b < BLOCKS; b++) \
    _Pragma("GCC unroll 16") for (int i = 0; i < PIXELS; i++) work;

/* ---------------------------------------------------------------- sums over pixels: x^T y
   MEET numbers of each pixel of x times BLOCKS vectors of the pixel of y. */
#define MEET (VL / 2)
typedef struct {
    const float *y;
    int64_t x_pixel, y_pixel, y_block, count;
} meeting;

/* sums[number][block] += those of `count` pixels; x: where the numbers of the first pixel lie. */
INLINE void meet_pixels(const int BLOCKS, const meeting *m, const float *const *x, vec (*total)[2]) {
    const float *one = m->y, *two = m->y + (BLOCKS - 1) * m->y_block;
    const int64_t end = m->count * m->x_pixel;
    for (int64_t at = 0; at < end; at += m->x_pixel, one += m->y_pixel, two += m->y_pixel) {
        const vec first = LOAD(one), second = LOAD(two);
#pragma GCC unroll 8
        for (int j = 0; j < MEET; j++) {
            const vec number = ALL(x[j][at]);
            total[j][0] += number * first;
            if (BLOCKS == 2) total[j][1] += number * second;
        }
    }
}

INLINE void add_totals(const int BLOCKS, vec (*total)[2], float *sums) {
#pragma GCC unroll 8
    for (int j = 0; j < MEET; j++)
#pragma GCC unroll 2
        for (int b = 0; b < BLOCKS; b++) {
            float *to = sums + (j * BLOCKS + b) * VL;
            STORE(to, LOAD(to) + total[j][b]);
        }
}

INLINE void meet_of(const int BLOCKS, const meeting *m, const float *const *x, float *sums) {
    vec total[MEET][2];
#pragma GCC unroll 8
    for (int j = 0; j < MEET; j++) total[j][0] = total[j][1] = ALL(0);
    meet_pixels(BLOCKS, m, x, total);
    add_totals(BLOCKS, total, sums);
}

INLINE void meet(int64_t blocks, const meeting *m, const float *const *x, float *sums) {
    if (blocks == 2) meet_of(2, m, x, sums);
    else meet_of(1, m, x, sums);
}

#endif
