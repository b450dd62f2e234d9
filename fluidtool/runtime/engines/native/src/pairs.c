/* Dot products of pairs of bfloat16 numbers (AVX512-BF16): convolutions, and products of matrices, which are convolutions of
   one tap over rows as pixels. A unit of its own, since only some processors with AVX-512 have the instructions: Python makes
   steps of its kernels where the library says `avx512_bf16`.

   Numbers lie as halves (16 bits) with channels in blocks, innermost: two neighbors make a word of 32 bits, which is
   multiplied with two weights of each of 16 columns and added to their float32 sums. */
#include "kernels.h"

#include "bfloat16.h"

#include <immintrin.h>

typedef uint32_t word __attribute__((aligned(2), may_alias));

/* y[pixel][columns] = activation(bias + residual + sum over segments s, k of x[pixel + offset[s] + k] * w[s][k][columns]) */
#define SHARE_BYTES 98304 /* of weights that are read for each row of pixels, where sums can wait in y */
#define APART 16          /* vectors from the sums of one block to those of the next */

typedef struct {
    const bf16 *x, *w;
    const float *bias, *residual;
    float *y;
    const bf16 *residual_half;
    bf16 *half;
    int64_t x_pixel, y_pixel, y_block, residual_pixel, residual_block, half_block;
    int64_t half_pixel;
    const int64_t *offsets;
    int64_t segments, whole, length, rest; /* the first `whole` segments have `length` numbers, the others `rest` */
    int64_t lanes;
    int first, last;
    int32_t activation;
    const ft_constants *constants;
    const bf16 *ahead; /* weights that come next, and how many lines of the cache of them to ask for with each segment */
    int64_t ahead_lines;
} pair_tile;

#define EACH_PIXEL(work)                                     \
    _Pragma("GCC unroll 2") for (int b = 0; b < BLOCKS; b++) \
    _Pragma("GCC unroll 16") for (int i = 0; i < PIXELS; i++) work;

INLINE void store_halves(bf16 *to, vec value) {
    const __m256i halves16 = (__m256i)_mm512_cvtneps_pbh((__m512)value);
    memcpy(to, &halves16, sizeof halves16);
}

/* Pixels of a block as halves, two at once where they lie side by side. */
INLINE void store_half_pixels(const int PIXELS, bf16 *to, int64_t pixel, const vec *value) {
    if (pixel == VL)
#pragma GCC unroll 8
        for (int i = 0; i + 1 < PIXELS; i += 2)
            _mm512_storeu_si512(to + i * VL, (__m512i)_mm512_cvtne2ps_pbh((__m512)value[i + 1], (__m512)value[i]));
    else
#pragma GCC unroll 16
        for (int i = 0; i < PIXELS / 2 * 2; i++) store_halves(to + i * pixel, value[i]);
    if (PIXELS % 2) store_halves(to + (PIXELS - 1) * pixel, value[PIXELS - 1]);
}

INLINE vec load_halves(const bf16 *from) {
    vec value;
    widen(from, (float *)&value, VL);
    return value;
}

/* Sums and what is added to them as halves, times one: quicker than to make floats of them. */
INLINE vec add_halves(vec sum, const bf16 *from) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)from));
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)words, (__m512bh)_mm512_set1_epi32(0x3f80));
}

/* Whatever a tile seldom needs: activations other than ReLU, a last block with only some lanes in memory. */
static __attribute__((noinline)) void finish_pairs(const pair_tile *t, const vec *sums, int64_t pixels, int64_t blocks) {
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t lanes = b + 1 == blocks ? t->lanes : VL;
        for (int64_t i = 0; i < pixels; i++) {
            float *y = t->y ? t->y + i * t->y_pixel + b * t->y_block : 0;
            vec value = sums[b * APART + i];
            if (!t->first) value += take(y, lanes);
            else if (t->residual)
                value += take(t->residual + i * t->residual_pixel + b * t->residual_block, lanes);
            else if (t->residual_half)
                value += load_halves(t->residual_half + i * t->residual_pixel + b * t->residual_block);
            if (t->last)
                value = t->activation == FT_GELU ? activate(value, FT_GELU, t->constants)
                                                 : activate(value, t->activation, t->constants);
            if (y) give(y, value, lanes);
            if (t->half && t->last) store_halves(t->half + i * t->half_pixel + b * t->half_block, value);
        }
    }
}

/* What sums start from: the bias. */
INLINE vec first_sum(const pair_tile *t, int b) { return t->first && t->bias ? LOAD(t->bias + b * VL) : ALL(0); }

/* What comes after the sums: residual or what was there before; the activation; the stores. */
INLINE void store_pairs(const int PIXELS, const int BLOCKS, const pair_tile *t, vec (*sum)[TILE]) {
    if (t->lanes < VL || (t->last && t->activation > FT_RELU)) {
        vec kept[2 * APART];
        EACH_PIXEL(kept[b * APART + i] = sum[b][i])
        finish_pairs(t, kept, PIXELS, BLOCKS);
        return;
    }
    if (!t->first) EACH_PIXEL(sum[b][i] += LOAD(t->y + i * t->y_pixel + b * t->y_block))
    else if (t->residual)
        EACH_PIXEL(sum[b][i] += LOAD(t->residual + i * t->residual_pixel + b * t->residual_block))
    else if (t->residual_half)
        EACH_PIXEL(sum[b][i] = add_halves(sum[b][i], t->residual_half + i * t->residual_pixel + b * t->residual_block))
    if (t->last && t->activation == FT_RELU) EACH_PIXEL(sum[b][i] = MAX(sum[b][i], ALL(0)))
    if (t->y) EACH_PIXEL(STORE(t->y + i * t->y_pixel + b * t->y_block, sum[b][i]))
    if (t->half && t->last)
#pragma GCC unroll 2
        for (int b = 0; b < BLOCKS; b++) store_half_pixels(PIXELS, t->half + b * t->half_block, t->half_pixel, sum[b]);
}

/* PIXELS pixels of BLOCKS channel blocks, STEP halves apart (0: not known before); all are constants wherever this is
   called, so that sums stay in registers. */
INLINE void sum_pairs(const int PIXELS, const int BLOCKS, const int STEP, const pair_tile *t) {
    vec sum[2][TILE];
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) {
        const vec start = first_sum(t, b);
#pragma GCC unroll 16
        for (int i = 0; i < PIXELS; i++) sum[b][i] = start;
    }
    const bf16 *w = t->w;
    const int64_t x_pixel = STEP ? STEP : t->x_pixel;
    for (int64_t s = 0; s < t->segments; s++) {
        const bf16 *x = t->x + t->offsets[s];
        const bf16 *const end = x + (s < t->whole ? t->length : t->rest);
        for (int64_t line = 0; line < t->ahead_lines; line++)
            __builtin_prefetch(t->ahead + 32 * (s * t->ahead_lines + line), 0, 2);
        for (; x < end; x += 2, w += 2 * BLOCKS * VL) {
            __m512bh weight[2];
#pragma GCC unroll 2
            for (int b = 0; b < BLOCKS; b++) weight[b] = (__m512bh)LOAD((const float *)(const void *)(w + 2 * b * VL));
#pragma GCC unroll 16
            for (int i = 0; i < PIXELS; i++) {
                const __m512bh value = (__m512bh)_mm512_set1_epi32((int)*(const word *)(x + i * x_pixel));
#pragma GCC unroll 2
                for (int b = 0; b < BLOCKS; b++) sum[b][i] = (vec)_mm512_dpbf16_ps((__m512)sum[b][i], weight[b], value);
            }
        }
    }
    store_pairs(PIXELS, BLOCKS, t, sum);
}

INLINE vec add_pairs(vec sum, const bf16 *w, const bf16 *x) {
    const __m512bh weight = (__m512bh)LOAD((const float *)(const void *)w);
    return (vec)_mm512_dpbf16_ps((__m512)sum, weight, (__m512bh)_mm512_set1_epi32((int)*(const word *)x));
}

/* One pixel: PARTS sums for each block, since one would wait for itself. */
#define PARTS 4
INLINE void sum_pixel(const int BLOCKS, const pair_tile *t) {
    vec part_sum[2][PARTS], sum[2][TILE];
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++)
#pragma GCC unroll 4
        for (int k = 0; k < PARTS; k++) part_sum[b][k] = k ? ALL(0) : first_sum(t, b);
    const bf16 *w = t->w;
    for (int64_t s = 0; s < t->segments; s++) {
        const bf16 *x = t->x + t->offsets[s];
        const bf16 *const end = x + (s < t->whole ? t->length : t->rest);
        for (int64_t line = 0; line < t->ahead_lines; line++)
            __builtin_prefetch(t->ahead + 32 * (s * t->ahead_lines + line), 0, 2);
        for (; x + 2 * PARTS <= end; x += 2 * PARTS, w += 2 * PARTS * BLOCKS * VL)
#pragma GCC unroll 4
            for (int k = 0; k < PARTS; k++)
#pragma GCC unroll 2
                for (int b = 0; b < BLOCKS; b++)
                    part_sum[b][k] = add_pairs(part_sum[b][k], w + 2 * (k * BLOCKS + b) * VL, x + 2 * k);
        for (; x < end; x += 2, w += 2 * BLOCKS * VL)
#pragma GCC unroll 2
            for (int b = 0; b < BLOCKS; b++) part_sum[b][0] = add_pairs(part_sum[b][0], w + 2 * b * VL, x);
    }
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) sum[b][0] = (part_sum[b][0] + part_sum[b][1]) + (part_sum[b][2] + part_sum[b][3]);
    store_pairs(1, BLOCKS, t, sum);
}

#define CASE(pixels) \
    case pixels: sum_pairs(pixels, BLOCKS, STEP, t); break;
#define TILES(name, blocks, step)                                                                   \
    static void name(int64_t pixels, const pair_tile *t) {                                          \
        enum { BLOCKS = blocks, STEP = step };                                                      \
        switch (pixels) {                                                                           \
            case 1: sum_pixel(BLOCKS, t); break;                                                    \
            CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11)       \
            CASE(12) CASE(13) CASE(14)                                                              \
        }                                                                                           \
    }
TILES(one_block, 1, 0)
TILES(two_blocks, 2, 0)
TILES(neighbors, 2, 16)
TILES(every_other, 2, 32)

static void tile_of(int64_t blocks, int64_t pixels, const pair_tile *t) {
    if (blocks == 1) one_block(pixels, t);
    else if (t->x_pixel == VL) neighbors(pixels, t);
    else if (t->x_pixel == 2 * VL) every_other(pixels, t);
    else two_blocks(pixels, t);
}

/* Have a tile start at a pixel of a row of all images. */
INLINE void move_to(const ft_pairs *s, const pair_tile *first, pair_tile *t, int64_t row, int64_t column) {
    const int64_t image = row / s->rows, line = row % s->rows;
    t->x = first->x + image * s->source_image + line * s->source_row + column * s->source_pixel;
    t->y = first->y ? first->y + image * s->out_image + line * s->out_row + column * s->out_pixel : 0;
    t->residual = first->residual
                      ? first->residual + image * s->residual_image + line * s->residual_row + column * s->residual_pixel
                      : 0;
    t->residual_half = first->residual_half ? first->residual_half + image * s->residual_image + line * s->residual_row +
                                                  column * s->residual_pixel
                                            : 0;
    t->half = first->half ? first->half + image * s->halves_image + line * s->halves_row + column * s->halves_pixel : 0;
}

#if defined(__AMX_BF16__)
#include "pair_tiles.c"
#endif

/* Rows [row, row_end) x columns [column, column_end) of one channel block or two, over some of the segments. */
static void sweep(const ft_pairs *s, const pair_tile *first, int64_t blocks, int64_t row, int64_t row_end, int64_t column,
                  int64_t column_end) {
    const int64_t tiles = (column_end - column + TILE - 1) / TILE;
    pair_tile t = *first;
    const int64_t weights = (t.whole * t.length + (t.segments - t.whole) * t.rest) * blocks * VL;
    const int64_t all = (row_end - row) * tiles * t.segments;
    const bf16 *const next = t.w + weights;
    int64_t asked = 0;
    t.ahead_lines = (weights / 32 + all - 1) / all;
    for (; row < row_end; row++)
        for (int64_t i = 0; i < tiles; i++) {
            int64_t from, to;
            part(column_end - column, i, tiles, &from, &to);
            from += column, to += column;
            move_to(s, first, &t, row, from);
            t.ahead = next + asked;
            asked += t.segments * t.ahead_lines * 32;
            if (asked > weights) t.ahead_lines = 0;
            tile_of(blocks, to - from, &t);
        }
}

/* The segments in shares whose weights are not too many to be read for each row; all at once where there are no floats to keep sums in. */
static void sweep_shares(const ft_pairs *s, pair_tile *t, int64_t blocks, int64_t row, int64_t row_end, int64_t column,
                         int64_t column_end) {
    const int64_t whole = s->segments - s->last_segments; /* segments of full length */
    const int64_t all = (whole * s->segment_length + s->last_segments * s->last_length) * blocks * VL * 2,
                  shares = t->y ? (all + SHARE_BYTES - 1) / SHARE_BYTES : 1;
    t->length = s->segment_length, t->rest = s->last_length;
    for (int64_t share = 0; share < shares; share++) {
        int64_t from, to;
        part(s->segments, share, shares, &from, &to);
        if (from == to) continue;
        t->offsets = s->offsets + from, t->segments = to - from;
        t->whole = to < whole ? to - from : from < whole ? whole - from : 0;
        t->first = !from, t->last = to == s->segments;
        sweep(s, t, blocks, row, row_end, column, column_end);
        t->w += (t->whole * t->length + (t->segments - t->whole) * t->rest) * blocks * VL;
    }
}

static void pairs(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pairs *s = &call->pairs;
    (void)tasks;
    const int64_t by_block = task % s->block_parts, by_column = task / s->block_parts % s->column_parts,
                  by_row = task / (s->block_parts * s->column_parts) % s->row_parts;
    const int64_t group = task / (s->block_parts * s->column_parts * s->row_parts), pairs = (s->blocks + 1) / 2;
    int64_t pair, pair_end, row, row_end, column, column_end;
    part(pairs, by_block, s->block_parts, &pair, &pair_end);
    part(s->images * s->rows, by_row, s->row_parts, &row, &row_end);
    part(s->columns, by_column, s->column_parts, &column, &column_end);
    const int64_t depth = (s->segments - s->last_segments) * s->segment_length + s->last_segments * s->last_length;
#if defined(__AMX_BF16__)
    const tile_strips cut = strips_of(s, row, row_end, column, column_end);
    const int in_tiles = starts_tiles(s, &cut);
#endif
    for (; pair < pair_end; pair++) {
        const int64_t blocks = 2 * pair + 1 < s->blocks ? 2 : 1, block = group * s->blocks + 2 * pair;
        pair_tile t = {.x = (const bf16 *)s->source + group * s->source_group,
                       .w = (const bf16 *)s->weights + group * s->weights_group + pair * depth * 2 * VL,
                       .bias = s->bias ? s->bias + group * s->bias_group + 2 * pair * VL : 0,
                       .y = s->out ? s->out + block * s->out_block : 0,
                       .residual = s->residual ? s->residual + group * s->blocks * s->residual_block + pair * s->residual_pair : 0,
                       .residual_half = s->residual_halves ? (const bf16 *)s->residual_halves + pair * s->residual_pair : 0,
                       .half = s->out_halves ? (bf16 *)s->out_halves + group * s->blocks * s->halves_block + pair * s->halves_pair
                                             : 0,
                       .x_pixel = s->source_pixel,
                       .y_pixel = s->out_pixel,
                       .y_block = s->out_block,
                       .residual_pixel = s->residual_pixel,
                       .residual_block = s->residual_block,
                       .half_block = s->halves_block,
                       .half_pixel = s->halves_pixel,
                       .lanes = 2 * pair + blocks == s->blocks ? s->last_lanes : VL,
                       .activation = s->activation,
                       .constants = &s->constants};
#if defined(__AMX_BF16__)
        if (in_tiles) {
            sweep_tiles(s, &t, blocks, &cut, row);
            continue;
        }
#endif
        sweep_shares(s, &t, blocks, row, row_end, column, column_end);
    }
#if defined(__AMX_BF16__)
    if (in_tiles) release_tiles();
#endif
}

/* ---------------------------------------------------------------- floats to halves */
typedef uint32_t words __attribute__((vector_size(VL * 4)));

INLINE words rounded_words(vec value) {
    const words bits = (words)value, nearest = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
    return (words)CHOOSE(value == value, (vec)nearest, (vec)quiet);
}

/* Two vectors of floats -> words with a half of the first below and one of the second above. */
INLINE words words_of(vec low, vec high) { return rounded_words(low) >> 16 | (rounded_words(high) & 0xffff0000); }

/* Of words with two halves of 8 pixels of four channels: the channels that there are, for `count` pixels. */
INLINE void put_pixels(bf16 *y, __m512i pixels, int64_t lanes, int64_t count) {
    static const int16_t of_three[32] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28, 29, 30};
    if (count <= 0) return;
    if (lanes == 3) pixels = _mm512_permutexvar_epi16(_mm512_loadu_si512(of_three), pixels);
    const int64_t halves = lanes * (count < VL / 2 ? count : VL / 2);
    _mm512_mask_storeu_epi16(y, (__mmask32)(0xffffffff >> (32 - halves)), pixels);
}

/* A row of an image of three or four channels, planes of floats, to pixels of three or four halves. */
static void narrow_planes(const float *x, bf16 *y, const ft_narrow *s, int64_t channels) {
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    for (int64_t column = 0; column < s->columns; column += VL, x += VL, y += s->lanes * VL) {
        const int64_t count = s->columns - column < VL ? s->columns - column : VL;
        const vec third = take(x + 2 * s->source_channel, count),
                  fourth = channels < 4 ? ALL(0) : take(x + 3 * s->source_channel, count);
        const __m512i first = (__m512i)words_of(take(x, count), take(x + s->source_channel, count)),
                      second = (__m512i)words_of(third, fourth);
        put_pixels(y, _mm512_permutex2var_epi32(first, low, second), s->lanes, count);
        put_pixels(y + s->lanes * (VL / 2), _mm512_permutex2var_epi32(first, high, second), s->lanes, count - VL / 2);
    }
}

/* A row of an image whose channels lie apart, to pixels of `lanes` halves. */
static void narrow_apart(const float *x, bf16 *y, const ft_narrow *s, int64_t channels) {
    for (int64_t lane = 0; lane < s->lanes; lane += 2)
        for (int64_t column = 0; column < s->columns; column += VL) {
            const int64_t count = s->columns - column < VL ? s->columns - column : VL;
            vec values[2] = {ALL(0), ALL(0)};
            for (int64_t k = 0; k < 2 && lane + k < channels; k++) {
                const float *from = x + column * s->source_pixel + (lane + k) * s->source_channel;
                if (s->source_pixel == 1) values[k] = take(from, count);
                else
                    for (int64_t i = 0; i < count; i++) values[k][i] = from[i * s->source_pixel];
            }
            const words both = words_of(values[0], values[1]);
            for (int64_t i = 0; i < count; i++) *(word *)(y + (column + i) * s->lanes + lane) = both[i];
        }
}

static void narrow(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_narrow *s = &call->narrow;
    int64_t from, to;
    part(s->images * s->blocks * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % s->rows, block = i / s->rows % s->blocks, image = i / (s->rows * s->blocks);
        const int64_t channels = s->channels - block * s->lanes < s->lanes ? s->channels - block * s->lanes : s->lanes;
        const float *x = s->source + image * s->source_image + block * s->source_block + row * s->source_row;
        bf16 *y = (bf16 *)s->out + image * s->out_image + block * s->out_block + row * s->out_row;
        if (s->source_channel == 1 && s->lanes % VL == 0)
            for (int64_t column = 0; column < s->columns; column++, x += s->source_pixel)
                for (int64_t lane = 0; lane < s->lanes; lane += VL, y += VL)
                    store_halves(y, lane < channels ? take(x + lane / VL * s->source_half, channels - lane) : ALL(0));
        else if ((s->lanes == 3 || s->lanes == 4) && channels > 2 && s->source_pixel == 1) narrow_planes(x, y, s, channels);
        else narrow_apart(x, y, s, channels);
    }
}

#include "depthwise.c"
#include "winograd_pairs.c"

/* ---------------------------------------------------------------- maxima of windows
   Halves are compared as whole numbers: those below zero with all other bits turned over, whatever is no number as the
   largest. */
INLINE __m512i in_order(__m512i x) {
    const __mmask32 none = _mm512_cmpgt_epu16_mask(_mm512_add_epi16(x, x), _mm512_set1_epi16((short)0xff00));
    const __m512i turned = _mm512_xor_si512(x, _mm512_srli_epi16(_mm512_srai_epi16(x, 15), 1));
    return _mm512_mask_mov_epi16(turned, none, _mm512_set1_epi16(0x7fff));
}

/* Of the pixels [left, right) of the rows [top, bottom). */
INLINE void greatest(const ft_pool_halves *s, const bf16 *x, int64_t top, int64_t bottom, int64_t left, int64_t right,
                     __mmask32 lanes, bf16 *y) {
    __m512i most = _mm512_set1_epi16((short)0x807f); /* minus infinity */
    for (int64_t r = top; r < bottom; r++)
        for (int64_t c = left; c < right; c++) {
            const bf16 *from = x + r * s->source_row + c * s->lanes;
            most = _mm512_max_epi16(most, in_order(_mm512_maskz_loadu_epi16(lanes, from)));
        }
    most = _mm512_xor_si512(most, _mm512_srli_epi16(_mm512_srai_epi16(most, 15), 1));
    _mm512_mask_storeu_epi16(y, lanes, most);
}

static void pool_halves(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pool_halves *s = &call->pool_halves;
    int64_t from, to;
    part(s->images * s->blocks * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t block = i % s->blocks, row = i / s->blocks % s->rows, image = i / (s->rows * s->blocks);
        const bf16 *x = (const bf16 *)s->source + image * s->source_image + block * s->source_block;
        bf16 *y = (bf16 *)s->out + image * s->out_image + block * s->out_block + row * s->out_row;
        int64_t top = row * s->stride_h - s->pad_top, bottom = top + s->window_h;
        top = top < 0 ? 0 : top, bottom = bottom > s->source_height ? s->source_height : bottom;
        for (int64_t column = 0; column < s->columns; column++, y += s->lanes) {
            int64_t left = column * s->stride_w - s->pad_left, right = left + s->window_w;
            left = left < 0 ? 0 : left, right = right > s->source_width ? s->source_width : right;
            greatest(s, x, top, bottom, left, right, s->lanes == VL ? 0xffff : 0xffffffff, y);
        }
    }
}

/* ---------------------------------------------------------------- weights to pairs
   The order of weights is that of segments: channel block, tap, channel. */

INLINE vec outputs_of(const loose *x, int64_t count, int64_t stride, const float *factor) {
    float lanes[VL] = {0};
    for (int64_t j = 0; j < count; j++) lanes[j] = x[j * stride];
    const vec value = LOAD(lanes);
    return factor ? value * take(factor, count) : value;
}

static void pack_pairs(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pack_pairs *s = &call->pack_pairs;
    const int64_t blocks = (s->outputs + VL - 1) / VL;
    int64_t from, to;
    part(s->groups * blocks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t group = i / blocks, block = i % blocks, output = block * VL;
        const int64_t place = s->first_block + block, width = (place | 1) < s->all_blocks ? 2 * VL : VL;
        const int64_t count = s->outputs - output < VL ? s->outputs - output : VL;
        const loose *x = (const loose *)s->source + group * s->source_group + output * s->source_output;
        const float *factor = s->scale ? s->scale + group * s->outputs + output : 0;
        const int64_t depth = (s->channels / s->lanes * s->lanes + (s->channels % s->lanes + 1) / 2 * 2) * s->taps;
        bf16 *y = (bf16 *)s->out + group * s->out_group + place / 2 * depth * 2 * VL + place % 2 * 2 * VL;
        for (int64_t channel = 0; channel < s->channels; channel += s->lanes)
            for (int64_t tap = 0; tap < s->taps; tap++)
                for (int64_t k = channel; k < channel + s->lanes && k < s->channels; k += 2, y += 2 * width) {
                    const loose *at = x + k * s->source_channel + tap * s->source_tap;
                    const vec low = outputs_of(at, count, s->source_output, factor);
                    const vec high = k + 1 < s->channels ? outputs_of(at + s->source_channel, count, s->source_output, factor)
                                                         : ALL(0);
                    const words both = words_of(low, high);
                    memcpy(y, &both, sizeof both);
                }
    }
}

/* ---------------------------------------------------------------- as in peak.c: PEAK_SUMS vectors of pairs in a round */
#define PEAK_SUMS 16 /* in fluidtool/profiling/machine.py too */

static void multiply_pairs(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_multiply_pairs *s = &call->multiply_pairs;
    (void)tasks;
    const __m512bh ones = (__m512bh)(__m512i)((veci){} + 0x3f803f80);
    vec sums[PEAK_SUMS], total = ALL(0); /* in registers only if all loops over them are unrolled */
#pragma GCC unroll 16
    for (int i = 0; i < PEAK_SUMS; i++) sums[i] = ALL(i);
    for (int64_t round = 0; round < s->rounds; round++)
#pragma GCC unroll 16
        for (int i = 0; i < PEAK_SUMS; i++) sums[i] = (vec)_mm512_dpbf16_ps((__m512)sums[i], ones, ones);
#pragma GCC unroll 16
    for (int i = 0; i < PEAK_SUMS; i++) total += sums[i];
    STORE(s->out + task * VL, total);
}

const ft_table TABLE = {
    [FT_PAIRS] = pairs,
    [FT_DEPTHWISE] = depthwise,
    [FT_NARROW] = narrow,
    [FT_POOL_HALVES] = pool_halves,
    [FT_PACK_PAIRS] = pack_pairs,
    [FT_MULTIPLY_PAIRS] = multiply_pairs,
    [FT_WINOGRAD_PAIRS] = winograd_pairs,
    [FT_PACK_WINOGRAD_PAIRS] = pack_winograd_pairs,
};
