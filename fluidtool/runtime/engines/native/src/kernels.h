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
#define WEIGHT_BYTES 20480 /* of packed weights that stay in the first cache while the pixels pass */

/* `work` for each of the sums of a tile, unrolled, so that they stay in registers. */
#define EACH(PIXELS, BLOCKS, work)                  \
    _Pragma("GCC unroll 4") for (int b = 0; b < BLOCKS; b++) \
    _Pragma("GCC unroll 16") for (int i = 0; i < PIXELS; i++) work;

#endif
