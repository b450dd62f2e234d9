/* Every kernel, for one instruction set. Not compiled by itself: avx2.c, avx512.c and portable.c include it after they
   have said VL (lanes), TILE (pixels of a tile of two channel blocks), INSTRUCTIONS (the table's name) and NAME. */
#include "engine.h"
#include "vectors.h"

#include <math.h>

#define OFFSETS(step) ((const int64_t *)(const void *)(step)->p[5])
#define WEIGHT_BYTES 20480 /* of packed weights that stay in the first cache while the pixels pass */

/* The part `task` of `tasks` of a range. */
INLINE void part(int64_t count, int64_t task, int64_t tasks, int64_t *from, int64_t *to) {
    *from = count * task / tasks;
    *to = count * (task + 1) / tasks;
}

/* ---------------------------------------------------------------- convolution and matrix product
   y[pixel][channels] = activation(bias + residual + sum over segments s, k of x[pixel + offset[s] + k] * w[s][k][channels])

   p: x, weights, bias or 0, y, residual or 0 (may be y), offsets of the segments
   n: 0 images, 1 rows, 2 columns, 3 channel blocks of a group, 4 segments, 5 length of a segment, 6 of the last n[7] ones;
      8-10 x strides of image, row, pixel; 11-14 y strides of image, row, pixel, channel block;
      15-18 the same of the residual; 19 groups; 20-22 strides of a group in x, weights, y (and residual);
      23 lanes of the last block that exist; 24 stride of an image in the weights;
      25 parts by row (by column when there is one row), 26 parts by channel blocks; 27 stride of a group in the bias
   weights of a group: for each pair of channel blocks [segment][k][2 * VL], a single last block [segment][k][VL].
   Tasks: groups * n[25] * n[26] * n[28], and times images when each has weights of its own; otherwise rows go on from image
   to image. */
typedef struct {
    const float *x, *w, *bias, *residual;
    float *y;
    int64_t x_pixel, y_pixel, y_block, residual_pixel, residual_block;
    const int64_t *offsets;
    int64_t segments, length, last;
    int first;
    int32_t activation;
    const float *f;
} tile_work;

/* Activations other than ReLU, on what a tile has stored. */
static __attribute__((noinline)) void finish(const tile_work *t, int64_t pixels, int64_t blocks) {
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = 0; i < pixels; i++) {
            float *at = t->y + i * t->y_pixel + b * t->y_block;
            STORE(at, activate(LOAD(at), t->activation, t->f));
        }
}

/* Each share of the segments is summed from zero, then added: errors grow with its length, not with the whole depth.
   PIXELS pixels of BLOCKS channel blocks; both are constants wherever this is called, so that sums stay in registers. */
INLINE void tile(const int PIXELS, const int BLOCKS, const tile_work *t) {
    vec sum[2][TILE];
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++)
#pragma GCC unroll 16
        for (int i = 0; i < PIXELS; i++) sum[b][i] = ALL(0);
    const float *w = t->w;
    const int64_t x_pixel = t->x_pixel;
    for (int64_t s = 0; s < t->segments; s++) {
        const float *x = t->x + t->offsets[s];
        const float *const end = x + t->length;
#pragma GCC unroll 16
        for (int i = 0; i < PIXELS; i += 16 / VL) __builtin_prefetch(x + (PIXELS + i) * x_pixel); /* the next tile's */
        for (; x < end; x++, w += BLOCKS * VL) {
            vec weight[2];
#pragma GCC unroll 2
            for (int b = 0; b < BLOCKS; b++) weight[b] = LOAD(w + b * VL);
#pragma GCC unroll 16
            for (int i = 0; i < PIXELS; i++) {
                vec value = ALL(x[i * x_pixel]);
#pragma GCC unroll 2
                for (int b = 0; b < BLOCKS; b++) sum[b][i] += weight[b] * value;
            }
        }
    }
    const int relu = t->last && t->activation == FT_RELU;
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++)
#pragma GCC unroll 16
        for (int i = 0; i < PIXELS; i++) {
            float *to = t->y + i * t->y_pixel + b * t->y_block;
            vec value = sum[b][i];
            if (!t->first) value += LOAD(to);
            else {
                if (t->bias) value += LOAD(t->bias + b * VL);
                if (t->residual) value += LOAD(t->residual + i * t->residual_pixel + b * t->residual_block);
            }
            if (relu) value = CHOOSE(value < ALL(0), ALL(0), value);
            STORE(to, value);
        }
    if (t->last && t->activation > FT_RELU) finish(t, PIXELS, BLOCKS);
}

/* One pixel: four sums for each block, since one would wait for itself. */
INLINE void tile_single(const int BLOCKS, const tile_work *t) {
    vec sum[2][4];
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) {
        sum[b][0] = sum[b][1] = sum[b][2] = sum[b][3] = ALL(0);
    }
    const float *w = t->w;
    for (int64_t s = 0; s < t->segments; s++) {
        const float *x = t->x + t->offsets[s];
        const float *const end = x + t->length;
        for (; x + 4 <= end; x += 4, w += 4 * BLOCKS * VL)
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++)
#pragma GCC unroll 2
                for (int b = 0; b < BLOCKS; b++) sum[b][k] += LOAD(w + (k * BLOCKS + b) * VL) * ALL(x[k]);
        for (; x < end; x++, w += BLOCKS * VL)
#pragma GCC unroll 2
            for (int b = 0; b < BLOCKS; b++) sum[b][0] += LOAD(w + b * VL) * ALL(*x);
    }
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) {
        vec value = (sum[b][0] + sum[b][1]) + (sum[b][2] + sum[b][3]);
        if (!t->first) value += LOAD(t->y + b * t->y_block);
        else {
            if (t->bias) value += LOAD(t->bias + b * VL);
            if (t->residual) value += LOAD(t->residual + b * t->residual_block);
        }
        if (t->last && t->activation == FT_RELU) value = CHOOSE(value < ALL(0), ALL(0), value);
        STORE(t->y + b * t->y_block, value);
    }
    if (t->last && t->activation > FT_RELU) finish(t, 1, BLOCKS);
}

#define CASE(pixels, blocks) \
    case pixels: tile(pixels, blocks, t); break;

static void tile_of_two(int64_t pixels, const tile_work *t) {
    switch (pixels) {
        case 1: tile_single(2, t); break;
        CASE(2, 2) CASE(3, 2) CASE(4, 2) CASE(5, 2) CASE(6, 2)
#if TILE > 6
        CASE(7, 2) CASE(8, 2) CASE(9, 2) CASE(10, 2) CASE(11, 2) CASE(12, 2) CASE(13, 2) CASE(14, 2)
#endif
    }
}

static void tile_of_one(int64_t pixels, const tile_work *t) {
    switch (pixels) {
        case 1: tile_single(1, t); break;
        CASE(2, 1) CASE(3, 1) CASE(4, 1) CASE(5, 1) CASE(6, 1)
#if TILE > 6
        CASE(7, 1) CASE(8, 1) CASE(9, 1) CASE(10, 1) CASE(11, 1) CASE(12, 1) CASE(13, 1) CASE(14, 1)
#endif
    }
}

static void tile_of(int64_t blocks, int64_t pixels, const tile_work *t) {
    if (blocks == 2) tile_of_two(pixels, t);
    else tile_of_one(pixels, t);
}

/* A tile whose last block has only `lanes` lanes in memory: computed beside, then moved to its place. */
static void tile_with_edge(int64_t blocks, int64_t pixels, int64_t lanes, const tile_work *t) {
    float beside[TILE * 2 * VL], added[TILE * 2 * VL];
    const size_t width = (size_t)((blocks - 1) * VL + lanes);
    tile_work inner = *t;
    inner.y = beside, inner.y_pixel = inner.residual_pixel = 2 * VL, inner.y_block = inner.residual_block = VL;
    memset(beside, 0, sizeof beside);
    memset(added, 0, sizeof added);
    for (int64_t i = 0; i < pixels; i++) {
        memcpy(beside + i * 2 * VL, t->y + i * t->y_pixel, width * sizeof(float));
        if (t->residual) memcpy(added + i * 2 * VL, t->residual + i * t->residual_pixel, width * sizeof(float));
    }
    if (t->residual) inner.residual = added;
    tile_of(blocks, pixels, &inner);
    for (int64_t i = 0; i < pixels; i++)
        memcpy(t->y + i * t->y_pixel, beside + i * 2 * VL, width * sizeof(float));
}

/* Rows [row, row_end) x columns [column, column_end) of one channel block or two, over some of the segments. Rows go on
   from image to image. */
static void sweep(const ft_step *step, tile_work *t, const float *x, float *y, const float *residual, int64_t blocks,
                  int64_t lanes, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
    const int64_t *n = step->n;
    const int64_t tiles = (column_end - column + TILE - 1) / TILE;
    for (; row < row_end; row++) {
        const int64_t image = row / n[1], line = row % n[1];
        for (int64_t i = 0; i < tiles; i++) {
            int64_t from, to;
            part(column_end - column, i, tiles, &from, &to);
            from += column, to += column;
            t->x = x + image * n[8] + line * n[9] + from * n[10];
            t->y = y + image * n[11] + line * n[12] + from * n[13];
            t->residual = residual ? residual + image * n[15] + line * n[16] + from * n[17] : 0;
            if (lanes == VL) tile_of(blocks, to - from, t);
            else tile_with_edge(blocks, to - from, lanes, t);
        }
    }
}

static void convolution(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n;
    (void)tasks;
    const int64_t by_block = task % n[26], by_column = task / n[26] % n[28], by_row = task / (n[26] * n[28]) % n[25];
    const int64_t group = task / (n[26] * n[28] * n[25]) % n[19], image = task / (n[26] * n[28] * n[25] * n[19]);
    const int64_t pairs = (n[3] + 1) / 2;
    int64_t pair, pair_end, row, row_end, column, column_end;
    part(pairs, by_block, n[26], &pair, &pair_end);
    part(n[24] ? n[1] : n[0] * n[1], by_row, n[25], &row, &row_end);
    part(n[2], by_column, n[28], &column, &column_end);
    const int64_t whole = n[4] - n[7]; /* segments of full length */
    const int64_t depth = whole * n[5] + n[7] * n[6];
    const float *x = step->p[0] + image * n[8] + group * n[20];
    for (; pair < pair_end; pair++) {
        const int64_t blocks = 2 * pair + 1 < n[3] ? 2 : 1;
        float *y = step->p[3] + image * n[11] + group * n[22] + 2 * pair * n[14];
        const float *residual = step->p[4] ? step->p[4] + image * n[15] + group * n[22] + 2 * pair * n[18] : 0;
        tile_work t = {.w = step->p[1] + image * n[24] + group * n[21] + pair * depth * 2 * VL,
                       .bias = step->p[2] ? step->p[2] + group * n[27] + 2 * pair * VL : 0,
                       .x_pixel = n[10], .y_pixel = n[13], .y_block = n[14], .residual_pixel = n[17],
                       .residual_block = n[18], .offsets = OFFSETS(step),
                       .activation = step->activation, .f = step->f, .first = 1};
        const int64_t lanes = 2 * pair + blocks == n[3] ? n[23] : VL;
        for (int64_t done = 0; done < n[4]; done += t.segments, t.first = 0) {
            const int full = done < whole;
            t.length = full ? n[5] : n[6];
            const int64_t room = WEIGHT_BYTES / (t.length * blocks * VL * 4);
            const int64_t left = full ? whole - done : n[4] - done;
            t.segments = room < 1 ? 1 : room < left ? room : left;
            if (left - t.segments < t.segments / 2) t.segments = left;
            t.last = done + t.segments == n[4];
            sweep(step, &t, x, y, residual, blocks, lanes, row, row_end, column, column_end);
            t.w += t.segments * t.length * blocks * VL;
            t.offsets += t.segments;
        }
    }
}

/* ---------------------------------------------------------------- depthwise convolution, one channel to one
   p: x, weights [channel block][tap][VL], bias or 0, y, residual or 0, offsets of the taps
   n: 0 images, 1 rows, 2 columns, 3 channel blocks, 4 taps; 8-10 x strides of image, row, pixel, 20 of a channel block;
      11-14 y strides of image, row, pixel, channel block; 15-18 the same of the residual */
INLINE void taps(const int PIXELS, const ft_step *step, const float *x, const float *w, vec bias, float *y,
                 const float *residual) {
    const int64_t *n = step->n, *offsets = OFFSETS(step);
    vec sum[6];
#pragma GCC unroll 6
    for (int i = 0; i < PIXELS; i++) sum[i] = residual ? bias + LOAD(residual + i * n[17]) : bias;
    for (int64_t tap = 0; tap < n[4]; tap++) {
        const vec weight = LOAD(w + tap * VL);
        const float *at = x + offsets[tap];
#pragma GCC unroll 6
        for (int i = 0; i < PIXELS; i++) sum[i] += weight * LOAD(at + i * n[10]);
    }
    const int relu = step->activation == FT_RELU;
#pragma GCC unroll 6
    for (int i = 0; i < PIXELS; i++) STORE(y + i * n[13], relu ? CHOOSE(sum[i] < ALL(0), ALL(0), sum[i]) : sum[i]);
    if (step->activation > FT_RELU)
        for (int i = 0; i < PIXELS; i++)
            STORE(y + i * n[13], activate(LOAD(y + i * n[13]), step->activation, step->f));
}

static void depthwise(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n;
    int64_t from, to;
    part(n[0] * n[3] * n[1], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[1], block = i / n[1] % n[3], image = i / (n[1] * n[3]);
        const float *x = step->p[0] + image * n[8] + block * n[20] + row * n[9];
        const float *residual = step->p[4] ? step->p[4] + image * n[15] + block * n[18] + row * n[16] : 0;
        float *y = step->p[3] + image * n[11] + block * n[14] + row * n[12];
        const float *w = step->p[1] + block * n[4] * VL;
        const vec bias = step->p[2] ? LOAD(step->p[2] + block * VL) : ALL(0);
        int64_t column = 0;
#define TAPS(pixels)                                                                                   \
    for (; column + pixels <= n[2]; column += pixels)                                                  \
        taps(pixels, step, x + column * n[10], w, bias, y + column * n[13], residual ? residual + column * n[17] : 0);
        TAPS(6) TAPS(4) TAPS(2) TAPS(1)
    }
}

/* ---------------------------------------------------------------- pooling of blocked tensors
   p: x, -, -, y.  n: 0 images, 1 rows, 2 columns, 3 channel blocks, 4-5 window, 6-7 stride, 8-9 padding before,
   10-11 rows and columns of x; 12-14 x strides of image, row, channel block; 15-17 the same of y;
   18: 0 maximum, 1 mean of what lies inside, 2 mean over the whole window; 19: adaptive windows */
static void pool_rows(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n;
    int64_t from, to;
    part(n[0] * n[3] * n[1], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[1], block = i / n[1] % n[3], image = i / (n[1] * n[3]);
        const float *x = step->p[0] + image * n[12] + block * n[14];
        float *y = step->p[3] + image * n[15] + block * n[17] + row * n[16];
        int64_t top = n[19] ? row * n[10] / n[1] : row * n[6] - n[8];
        int64_t bottom = n[19] ? ((row + 1) * n[10] + n[1] - 1) / n[1] : top + n[4];
        const int64_t most_rows = (bottom < n[10] + n[8] ? bottom : n[10] + n[8]) - top;
        top = top < 0 ? 0 : top, bottom = bottom > n[10] ? n[10] : bottom;
        for (int64_t column = 0; column < n[2]; column++) {
            int64_t left = n[19] ? column * n[11] / n[2] : column * n[7] - n[9];
            int64_t right = n[19] ? ((column + 1) * n[11] + n[2] - 1) / n[2] : left + n[5];
            const int64_t most_columns = (right < n[11] + n[9] ? right : n[11] + n[9]) - left;
            left = left < 0 ? 0 : left, right = right > n[11] ? n[11] : right;
            vec value = n[18] ? ALL(0) : ALL(-3.402823466e38f);
            for (int64_t r = top; r < bottom; r++)
                for (int64_t c = left; c < right; c++) {
                    const vec item = LOAD(x + r * n[13] + c * VL);
                    value = n[18] ? value + item : CHOOSE(item > value, item, value);
                }
            if (n[18] == 1) value /= ALL((bottom - top) * (right - left));
            if (n[18] == 2) value /= ALL(most_rows * most_columns);
            STORE(y + column * VL, value);
        }
    }
}

/* ---------------------------------------------------------------- layouts
   block: p: x (NCHW), -, -, y (blocked). n: 0 images, 1 channels, 2 rows, 3 columns; 4-6 y strides of image, channel
   block, row; 7 channel blocks, 8 lanes of one.  unblock: p: x (blocked), -, -, y (NCHW), the same n. */
static void block_layout(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, plane = n[2] * n[3];
    int64_t from, to;
    part(n[0] * n[7] * n[2], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[2], block = i / n[2] % n[7], image = i / (n[2] * n[7]);
        const int64_t lanes = n[1] - block * n[8] < n[8] ? n[1] - block * n[8] : n[8];
        const float *x = step->p[0] + (image * n[1] + block * n[8]) * plane + row * n[3];
        float *y = step->p[3] + image * n[4] + block * n[5] + row * n[6];
        for (int64_t column = 0; column < n[3]; column++)
            for (int64_t lane = 0; lane < n[8]; lane++)
                y[column * n[8] + lane] = lane < lanes ? x[lane * plane + column] : 0;
    }
}

static void unblock_layout(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, plane = n[2] * n[3];
    int64_t from, to;
    part(n[0] * n[7] * n[2], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[2], block = i / n[2] % n[7], image = i / (n[2] * n[7]);
        const int64_t lanes = n[1] - block * VL < VL ? n[1] - block * VL : VL;
        const float *x = step->p[0] + image * n[4] + block * n[5] + row * n[6];
        float *y = step->p[3] + (image * n[1] + block * VL) * plane + row * n[3];
        for (int64_t lane = 0; lane < lanes; lane++)
            for (int64_t column = 0; column < n[3]; column++) y[lane * plane + column] = x[column * VL + lane];
    }
}

/* p: -, -, -, y (the buffer's start). n: 0 planes, 1 rows, 2 columns (both with halo), 3-6 halo above, below, left, right,
   7 lanes of a pixel */
static void zero_halo(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, pitch = n[2] * n[7];
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t plane = from; plane < to; plane++) {
        float *y = step->p[3] + plane * n[1] * pitch;
        memset(y, 0, (size_t)(n[3] * pitch) * sizeof(float));
        memset(y + (n[1] - n[4]) * pitch, 0, (size_t)(n[4] * pitch) * sizeof(float));
        for (int64_t row = n[3]; row < n[1] - n[4]; row++) {
            memset(y + row * pitch, 0, (size_t)(n[5] * n[7]) * sizeof(float));
            memset(y + (row + 1) * pitch - n[6] * n[7], 0, (size_t)(n[6] * n[7]) * sizeof(float));
        }
    }
}

/* ---------------------------------------------------------------- elementwise, with broadcasting
   p: a, b or 0, -, y.  n: 0-3 outer axes, 4 inner length; 5-8 a strides, 9-12 b strides, 13-16 y strides of the outer axes;
   17-18 inner strides of a and b (0 or 1); 19 operation.  The activation comes after the operation. */
enum { ADD, SUBTRACT, MULTIPLY, DIVIDE, LARGER, SMALLER, ALONE };

INLINE vec combine(vec a, vec b, int64_t operation) {
    switch (operation) {
        case ADD: return a + b;
        case SUBTRACT: return a - b;
        case MULTIPLY: return a * b;
        case DIVIDE: return a / b;
        case LARGER: return CHOOSE(b == b, MAX(a, b), b);
        case SMALLER: return CHOOSE(b == b, MIN(a, b), b);
        default: return a;
    }
}

static void combine_row(const ft_step *step, const float *a, const float *b, float *y, int64_t from, int64_t to,
                        const int64_t operation, const int32_t activation) {
    const int64_t a_step = step->n[17], b_step = step->n[18];
    int64_t i = from;
    for (; i + VL <= to; i += VL) {
        const vec left = a_step ? LOAD(a + i) : ALL(*a);
        const vec right = operation == ALONE ? left : b_step ? LOAD(b + i) : ALL(*b);
        STORE(y + i, activate(combine(left, right, operation), activation, step->f));
    }
    if (i < to) {
        const vec left = a_step ? load_some(a + i, to - i, 1) : ALL(*a);
        const vec right = operation == ALONE ? left : b_step ? load_some(b + i, to - i, 1) : ALL(*b);
        store_some(y + i, activate(combine(left, right, operation), activation, step->f), to - i);
    }
}

static void elementwise(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, rows = n[0] * n[1] * n[2] * n[3];
    int64_t from = 0, to = rows, start = 0, end = n[4];
    if (rows >= tasks) part(rows, task, tasks, &from, &to);
    else part(n[4], task, tasks, &start, &end);
    for (int64_t row = from; row < to; row++) {
        const int64_t i3 = row % n[3], i2 = row / n[3] % n[2], i1 = row / (n[3] * n[2]) % n[1],
                      i0 = row / (n[3] * n[2] * n[1]);
        const float *a = step->p[0] + i0 * n[5] + i1 * n[6] + i2 * n[7] + i3 * n[8];
        const float *b = step->p[1] ? step->p[1] + i0 * n[9] + i1 * n[10] + i2 * n[11] + i3 * n[12] : 0;
        float *y = step->p[3] + i0 * n[13] + i1 * n[14] + i2 * n[15] + i3 * n[16];
        if (n[19] == ADD && step->activation == FT_NONE) combine_row(step, a, b, y, start, end, ADD, FT_NONE);
        else if (n[19] == ADD && step->activation == FT_RELU) combine_row(step, a, b, y, start, end, ADD, FT_RELU);
        else if (n[19] == MULTIPLY && step->activation == FT_NONE)
            combine_row(step, a, b, y, start, end, MULTIPLY, FT_NONE);
        else combine_row(step, a, b, y, start, end, n[19], step->activation);
    }
}

/* ---------------------------------------------------------------- rows
   softmax: p: x, mask or 0, -, y. n: 0 rows, 1 columns, 2-3 the rows as [image][n[2]][n[3]], 4-6 mask strides of image,
   n[2], n[3], 7 mask stride inside a row (0 or 1). y = softmax(f[0] * x + mask). */
static void softmax(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, columns = n[1];
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = step->p[0] + row * columns, *mask = 0;
        float *y = step->p[3] + row * columns;
        if (step->p[1])
            mask = step->p[1] + row / (n[2] * n[3]) * n[4] + row / n[3] % n[2] * n[5] + row % n[3] * n[6];
        vec most = ALL(-3.402823466e38f);
        int64_t i = 0;
        for (; i + VL <= columns; i += VL) {
            vec value = LOAD(x + i) * ALL(step->f[0]);
            if (mask) value += n[7] ? LOAD(mask + i) : ALL(*mask);
            STORE(y + i, value);
            most = MAX(value, most);
        }
        if (i < columns) {
            vec value = load_some(x + i, columns - i, -3.402823466e38f) * ALL(step->f[0]);
            if (mask) value += n[7] ? load_some(mask + i, columns - i, 0) : ALL(*mask);
            store_some(y + i, value, columns - i);
            float lanes[VL];
            STORE(lanes, value);
            for (int64_t j = columns - i; j < VL; j++) lanes[j] = lanes[0];
            most = MAX(LOAD(lanes), most);
        }
        const vec top = ALL(max_lanes(most));
        vec sum = ALL(0);
        for (i = 0; i + VL <= columns; i += VL) {
            const vec value = exp_vec(LOAD(y + i) - top);
            sum += value;
            STORE(y + i, value);
        }
        float total = sum_lanes(sum);
        if (i < columns) {
            const vec value = exp_vec(load_some(y + i, columns - i, 0) - top);
            float lanes[VL];
            STORE(lanes, value);
            for (int64_t j = 0; j < columns - i; j++) total += lanes[j], y[i + j] = lanes[j];
        }
        const vec factor = ALL(1 / total);
        for (i = 0; i + VL <= columns; i += VL) STORE(y + i, LOAD(y + i) * factor);
        for (; i < columns; i++) y[i] *= 1 / total;
    }
}

/* p: x, scale or 0, bias or 0, y, residual or 0 (added to x first). n: 0 rows, 1 columns. f[0] = epsilon */
static void layer_norm(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, columns = n[1], even = columns / VL * VL;
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = step->p[0] + row * columns, *more = step->p[4] ? step->p[4] + row * columns : 0;
        float *y = step->p[3] + row * columns;
        vec sum = ALL(0);
        float rest = 0;
        for (int64_t i = 0; i < even; i += VL) {
            const vec value = more ? LOAD(x + i) + LOAD(more + i) : LOAD(x + i);
            STORE(y + i, value);
            sum += value;
        }
        for (int64_t i = even; i < columns; i++) rest += y[i] = more ? x[i] + more[i] : x[i];
        const float mean = (sum_lanes(sum) + rest) / (float)columns;
        sum = ALL(0), rest = 0;
        for (int64_t i = 0; i < even; i += VL) {
            const vec away = LOAD(y + i) - ALL(mean);
            sum += away * away;
        }
        for (int64_t i = even; i < columns; i++) rest += (y[i] - mean) * (y[i] - mean);
        const float inverse = 1 / sqrtf((sum_lanes(sum) + rest) / (float)columns + step->f[0]);
        const float *scale = step->p[1], *bias = step->p[2];
        for (int64_t i = 0; i < even; i += VL) {
            vec value = (LOAD(y + i) - ALL(mean)) * ALL(inverse);
            if (scale) value *= LOAD(scale + i);
            if (bias) value += LOAD(bias + i);
            STORE(y + i, activate(value, step->activation, step->f));
        }
        for (int64_t i = even; i < columns; i++) {
            const float value = (y[i] - mean) * inverse * (scale ? scale[i] : 1) + (bias ? bias[i] : 0);
            store_some(y + i, activate(ALL(value), step->activation, step->f), 1);
        }
    }
}

/* ---------------------------------------------------------------- moves
   copy: p: x, -, -, y. n: 0-5 sizes, 6-11 x strides, 12-17 y strides */
static void copy_strided(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *xs = n + 6, *ys = n + 12;
    int64_t from, to;
    part(n[0] * n[1] * n[2] * n[3] * n[4], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        int64_t rest = row, x = 0, y = 0;
        for (int axis = 4; axis >= 0; axis--) {
            x += rest % n[axis] * xs[axis], y += rest % n[axis] * ys[axis];
            rest /= n[axis];
        }
        const float *source = step->p[0] + x;
        float *target = step->p[3] + y;
        if (xs[5] == 1 && ys[5] == 1) memcpy(target, source, (size_t)n[5] * sizeof(float));
        else
            for (int64_t i = 0; i < n[5]; i++) target[i * ys[5]] = source[i * xs[5]];
    }
}

/* A matrix [K][N] to packed weights: p: x, scale by column or 0, -, y. n: 0 K, 1 N, 2-3 x strides of K and N,
   4 matrices, 5 outer of them (the others inner): 6-7 x strides, 8-9 y strides of outer and inner matrices */
static void pack(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, blocks = (n[1] + VL - 1) / VL, pairs = (blocks + 1) / 2, inner = n[4] / n[5];
    int64_t from, to;
    part(n[4] * pairs, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t pair = i % pairs, matrix = i / pairs;
        const int64_t width = (2 * pair + 1 < blocks ? 2 : 1) * VL, column = pair * 2 * VL;
        const int64_t there = n[1] - column < width ? n[1] - column : width;
        const float *x = step->p[0] + matrix / inner * n[6] + matrix % inner * n[7] + column * n[3];
        float *y = step->p[3] + matrix / inner * n[8] + matrix % inner * n[9] + pair * n[0] * 2 * VL;
        for (int64_t k = 0; k < n[0]; k++, y += width) {
            if (n[3] == 1) memcpy(y, x + k * n[2], (size_t)there * sizeof(float));
            else
                for (int64_t j = 0; j < there; j++) y[j] = x[k * n[2] + j * n[3]];
            for (int64_t j = there; j < width; j++) y[j] = 0;
            if (step->p[1])
                for (int64_t j = 0; j < there; j++) y[j] *= step->p[1][column + j];
        }
    }
}

/* Filters [O][I][taps] to packed weights, in the order input block, tap, lane: p: x, factor by filter or 0, -, y.
   n: 0 O and 1 I of a group, 2 taps, 3 groups, 4 stride of a group in y, 5 lanes of an input block */
static void pack_filter(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, blocks = (n[0] + VL - 1) / VL, pairs = (blocks + 1) / 2;
    int64_t from, to;
    part(n[3] * pairs, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t pair = i % pairs, group = i / pairs, first = pair * 2 * VL;
        const int64_t width = (2 * pair + 1 < blocks ? 2 : 1) * VL;
        const int64_t there = n[0] - first < width ? n[0] - first : width;
        const float *x = step->p[0] + (group * n[0] + first) * n[1] * n[2];
        const float *factor = step->p[1] ? step->p[1] + group * n[0] + first : 0;
        float *y = step->p[3] + group * n[4] + pair * n[1] * n[2] * 2 * VL;
        for (int64_t start = 0; start < n[1]; start += n[5]) {
            const int64_t lanes = n[1] - start < n[5] ? n[1] - start : n[5];
            for (int64_t tap = 0; tap < n[2]; tap++)
                for (int64_t lane = 0; lane < lanes; lane++, y += width) {
                    const float *from_here = x + (start + lane) * n[2] + tap;
                    for (int64_t j = 0; j < there; j++) y[j] = from_here[j * n[1] * n[2]] * (factor ? factor[j] : 1);
                    for (int64_t j = there; j < width; j++) y[j] = 0;
                }
        }
    }
}

/* p: table, -, -, y, -, ids (int64). n: 0 ids, 1 width, 2 add to y, 3 the id whose row is zero (-1: none) */
static void gather_rows(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *ids = OFFSETS(step);
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        float *y = step->p[3] + i * n[1];
        const float *x = step->p[0] + ids[i] * n[1];
        const int zero = ids[i] == n[3];
        if (n[2])
            for (int64_t j = 0; j < n[1]; j++) y[j] += zero ? 0 : x[j];
        else if (zero) memset(y, 0, (size_t)n[1] * sizeof(float));
        else memcpy(y, x, (size_t)n[1] * sizeof(float));
    }
}

#include "recurrent.c"
#include "updates.c"

const ft_instructions INSTRUCTIONS = {
    NAME,
    VL,
    {convolution, depthwise, pool_rows, block_layout, unblock_layout, zero_halo, elementwise, softmax, layer_norm,
     copy_strided, pack, pack_filter, gather_rows, lstm, lstm_gradient, adam, momentum},
};
