/* Products of 8-bit numbers with 32-bit sums: convolutions, products of matrices (convolutions of one tap over rows as pixels),
   depthwise convolutions, and the way from floats to 8 bits. A unit of its own, since its inner step has an instruction on some
   processors (AVX512-VNNI, AVX-VNNI); elsewhere the same sums come from products of 16 bits, or of 32.

   A whole number q of a quantizer, -128 to 127, lies as the byte q + 128, with all channels of a pixel side by side and zeros
   (bytes 128) around the image. Sums start at -128 times the sum of a filter, which takes the 128 back. All float arithmetic is
   in the order written here (the unit is compiled without contraction), so that every variant gives the same bits. */
#define EXACT /* the same bits by all instructions */
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#include "kernels.h"

typedef uint8_t byte __attribute__((may_alias));
typedef int32_t word __attribute__((aligned(1), may_alias));
typedef veci veci_any __attribute__((aligned(1), may_alias));
typedef uint8_t bytes __attribute__((vector_size(VL)));

#if defined(__AVX512VNNI__)
#define PIXELS_AT_ONCE 14
#elif VL == 16
#define PIXELS_AT_ONCE 12
#elif defined(__AVXVNNI__)
#define PIXELS_AT_ONCE 6
#else
#define PIXELS_AT_ONCE 4
#endif
#define APART 16 /* vectors from the sums of one block to those of the next */

INLINE veci all_words(int32_t word) {
#if VL == 16
    return (veci){FOUR(word), FOUR(word), FOUR(word), FOUR(word)};
#else
    return (veci){FOUR(word), FOUR(word)};
#endif
}

INLINE veci load_words(const void *from) { return (veci) * (const veci_any *)from; }

/* sum + the products of four bytes of x without sign with four of w with sign, in each lane. */
INLINE veci add_products(veci sum, veci x, veci w) {
#if defined(__AVX512VNNI__)
    return (veci)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w);
#elif defined(__AVXVNNI__)
    return (veci)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)w);
#elif VL == 16
    const __m512i a = (__m512i)x, b = (__m512i)w;
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(a, _mm512_set1_epi16(255)), _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(b, 8));
    return sum + (veci)even + (veci)odd;
#elif defined(__AVX2__)
    const __m256i a = (__m256i)x, b = (__m256i)w;
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return sum + (veci)even + (veci)odd;
#else
    sum += (x & 255) * (w << 24 >> 24);
    sum += (x >> 8 & 255) * (w << 16 >> 24);
    sum += (x >> 16 & 255) * (w << 8 >> 24);
    return sum + (x >> 24 & 255) * (w >> 24);
#endif
}

/* ---------------------------------------------------------------- from floats to 8 bits */
typedef struct {
    float factor, low, high; /* steps of a quantizer in 1, and the least and the largest whole number */
    int64_t away;            /* ties go away from zero; else to the even number */
} quantizer;

#define ROUNDER 12582912.0f /* 1.5 * 2^23: the last bits of a sum with it are the whole number */

/* A value in steps, at most those that there are; what is no number gives the least. */
INLINE vec in_steps(vec value, const quantizer *q) {
    const vec steps = value * ALL(q->factor), raised = MAX(ALL(q->low), steps);
    return MIN(raised, ALL(q->high));
}

/* Whole numbers + 128, in the last byte of each lane. What is cut off after the largest number below 1/2 has been added has been
   rounded: exactly 1/2 would make 1 of that number. */
INLINE veci to_whole(vec steps, int64_t away) {
    if (!away) return (veci)(steps + ALL(ROUNDER + 128));
    const veci half = (veci)ALL(0.49999997f) | ((veci)steps & INT32_MIN);
    return 128 + __builtin_convertvector(steps + (vec)half, veci);
}

/* The last byte of each lane. */
INLINE bytes last_bytes(veci lanes) {
#if VL == 16 && defined(__AVX512F__)
    return (bytes)_mm512_cvtepi32_epi8((__m512i)lanes);
#elif defined(__AVX2__)
    const __m256i words = _mm256_and_si256((__m256i)lanes, _mm256_set1_epi32(255));
    const __m128i shorts = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    const int64_t packed = _mm_cvtsi128_si64(_mm_packus_epi16(shorts, shorts));
    bytes found;
    memcpy(&found, &packed, sizeof found);
    return found;
#else
    return __builtin_convertvector(lanes, bytes);
#endif
}

/* The first `count` of them, a multiple of four. */
INLINE void store_bytes(byte *to, veci whole, int64_t count) {
    const bytes packed = last_bytes(whole);
    if (count >= VL) {
        memcpy(to, &packed, VL);
        return;
    }
    uint64_t words[VL / 8];
    memcpy(words, &packed, VL);
    uint64_t rest = words[0];
    if (count & 8) {
        memcpy(to, &words[0], 8);
        to += 8, rest = words[VL / 8 - 1];
    }
    if (count & 4) memcpy(to, &rest, 4);
}

/* ---------------------------------------------------------------- the end of a sum */
typedef struct {
    const int32_t *starts;
    const float *factors, *shifts, *residual;
    float *y;
    byte *z;
    int64_t y_pixel, y_block, residual_pixel, residual_block, z_pixel;
    int64_t lanes, z_lanes; /* of the last block: floats, and bytes, that have room */
    int32_t activation;
    const ft_constants *constants;
    quantizer next;
} ending;

/* Whatever follows the sums of a block: factor and shift by channel, residual, activation, the next quantizer. For any number of
   lanes and any activation, and by itself: inlined, it would be most of the code below. */
static __attribute__((noinline)) void end_block(const ending *e, const veci *sums, int64_t pixels, int64_t block, int last) {
    const int64_t lanes = last ? e->lanes : VL, z_lanes = last ? e->z_lanes : VL;
    const vec factors = LOAD(e->factors + block * VL), shifts = LOAD(e->shifts + block * VL);
    const float *residual = e->residual + block * e->residual_block;
    float *y = e->y + block * e->y_block;
    byte *z = e->z + block * VL;
    for (int64_t i = 0; i < pixels; i++) {
        vec value = __builtin_convertvector(sums[i], vec) * factors + shifts;
        if (e->residual) value += take(residual + i * e->residual_pixel, lanes);
        value = activate(value, e->activation, e->constants);
        if (e->y) give(y + i * e->y_pixel, value, lanes);
        if (e->z) store_bytes(z + i * e->z_pixel, to_whole(in_steps(value, &e->next), e->next.away), z_lanes);
    }
}

/* The sums of some pixels of some blocks. Y, R, Z: whether floats are stored, a residual is added, bytes are stored; AWAY: the
   quantizer's. */
INLINE void end_blocks(const int32_t activation, const int Y, const int R, const int Z, const int AWAY, const ending *e,
                       const veci *sums, int64_t pixels, int64_t blocks) {
    const quantizer next = e->next; /* what is not copied would be read anew after every store */
    const ft_constants constants = *e->constants;
    const int64_t y_pixel = e->y_pixel, residual_pixel = e->residual_pixel, z_pixel = e->z_pixel;
    for (int64_t b = 0; b < blocks; b++, sums += APART) {
        if (b + 1 == blocks && e->lanes < VL) {
            end_block(e, sums, pixels, b, 1);
            continue;
        }
        const int64_t room = b + 1 == blocks ? e->z_lanes : VL;
        const vec factors = LOAD(e->factors + b * VL), shifts = LOAD(e->shifts + b * VL);
        const float *residual = e->residual + b * e->residual_block;
        float *y = e->y + b * e->y_block;
        byte *z = e->z + b * VL;
        for (int64_t i = 0; i < pixels; i++) {
            vec value = __builtin_convertvector(sums[i], vec) * factors + shifts;
            if (R) value += LOAD(residual + i * residual_pixel);
            value = activate(value, activation, &constants);
            if (Y) STORE(y + i * y_pixel, value);
            if (Z) store_bytes(z + i * z_pixel, to_whole(in_steps(value, &next), AWAY), room);
        }
    }
}

/* The combinations of what is stored and added; ROUND: how. */
#define END_BLOCKS(kind, ROUND)                                                              \
    if (!e->z && !e->residual) end_blocks(kind, 1, 0, 0, ROUND, e, sums, pixels, blocks);     \
    else if (!e->z) end_blocks(kind, 1, 1, 0, ROUND, e, sums, pixels, blocks);                \
    else if (!e->y && !e->residual) end_blocks(kind, 0, 0, 1, ROUND, e, sums, pixels, blocks); \
    else if (!e->y) end_blocks(kind, 0, 1, 1, ROUND, e, sums, pixels, blocks);                \
    else if (!e->residual) end_blocks(kind, 1, 0, 1, ROUND, e, sums, pixels, blocks);         \
    else end_blocks(kind, 1, 1, 1, ROUND, e, sums, pixels, blocks);                           \
    return;
#define END_SUMS(ROUND)                                           \
    switch (e->activation) {                                      \
        case FT_NONE: END_BLOCKS(FT_NONE, ROUND)                  \
        case FT_RELU: END_BLOCKS(FT_RELU, ROUND)                  \
        case FT_RELU6: END_BLOCKS(FT_RELU6, ROUND)                \
        case FT_HARD_SWISH: END_BLOCKS(FT_HARD_SWISH, ROUND)      \
    }

static __attribute__((noinline)) void end_sums(const ending *e, const veci *sums, int64_t pixels, int64_t blocks) {
    if (e->next.away) {
        END_SUMS(1)
    } else {
        END_SUMS(0)
    }
    for (int64_t b = 0; b < blocks; b++) end_block(e, sums + b * APART, pixels, b, b + 1 == blocks);
}

/* ---------------------------------------------------------------- products and convolutions */
typedef struct {
    ending end;
    const byte *x;
    const int8_t *w;
    int64_t x_pixel, w_block; /* w_block: bytes of the weights of a block */
    const int64_t *offsets;
    int64_t segments, length;
} byte_tile;

/* An address that the compiler may not compute from another one, for which it would need more registers. */
#if defined(__x86_64__)
#define OPAQUE(address) __asm__("" : "+r"(address))
#else
#define OPAQUE(address) (void)0
#endif

#define EACH_PIXEL(work)                                     \
    _Pragma("GCC unroll 2") for (int b = 0; b < BLOCKS; b++) \
    _Pragma("GCC unroll 16") for (int i = 0; i < PIXELS; i++) work;

/* Pixel i of up to 14 from every third one and one, two, four or eight strides: so that few registers hold their addresses. */
INLINE const byte *pixel_at(const int i, const byte *const *third, int64_t stride) {
    static const uint8_t from[] = {0, 0, 0, 1, 0, 1, 2, 1, 0, 3, 2, 3, 4, 3}, far[] = {0, 1, 2, 0, 4, 2, 0, 4, 8, 0, 4, 2, 0, 4};
    return third[from[i]] + far[i] * stride;
}

/* PIXELS pixels of BLOCKS channel blocks, constants wherever this is called, so that sums stay in registers. */
INLINE void sum_bytes(const int PIXELS, const int BLOCKS, const byte_tile *t) {
    veci sum[2][PIXELS_AT_ONCE];
    EACH_PIXEL(sum[b][i] = load_words(t->end.starts + b * VL))
    const int8_t *w = t->w;
    const int64_t x_pixel = t->x_pixel, w_block = t->w_block;
    for (int64_t s = 0; s < t->segments; s++) {
        const byte *const x = t->x + t->offsets[s], *third[] = {x, x + 3 * x_pixel, x + 6 * x_pixel, x + 9 * x_pixel, x + 12 * x_pixel};
        for (const byte *const end = x + t->length; third[0] < end; w += 4 * VL) {
            veci weight[2];
#pragma GCC unroll 2
            for (int b = 0; b < BLOCKS; b++) weight[b] = load_words(w + b * w_block);
#pragma GCC unroll 16
            for (int i = 0; i < PIXELS; i++) {
                const veci value = all_words(*(const word *)pixel_at(i, third, x_pixel));
#pragma GCC unroll 2
                for (int b = 0; b < BLOCKS; b++) sum[b][i] = add_products(sum[b][i], value, weight[b]);
            }
#pragma GCC unroll 5
            for (int k = 0; k < 5; k++) {
                third[k] += 4;
                OPAQUE(third[k]);
            }
        }
    }
    veci kept[2 * APART];
    EACH_PIXEL(kept[b * APART + i] = sum[b][i])
    end_sums(&t->end, kept, PIXELS, BLOCKS);
}

#define CASE(pixels) \
    case pixels: sum_bytes(pixels, BLOCKS, t); break;
#define TILES(name, blocks)                                        \
    static void name(int64_t pixels, const byte_tile *t) {         \
        enum { BLOCKS = blocks };                                  \
        switch (pixels) { CASE(1) CASE(2) CASE(3) CASE(4) MORE_CASES } \
    }
#if PIXELS_AT_ONCE == 4
#define MORE_CASES
#elif PIXELS_AT_ONCE == 6
#define MORE_CASES CASE(5) CASE(6)
#elif PIXELS_AT_ONCE == 12
#define MORE_CASES CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#else
#define MORE_CASES CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
#endif
TILES(one_block, 1)
TILES(two_blocks, 2)

/* Have a tile start at a pixel of a row of all images. */
INLINE void move_to(const ft_int8_products *s, const byte_tile *first, byte_tile *t, int64_t row, int64_t column) {
    const int64_t image = row / s->rows, line = row % s->rows;
    const ending *end = &first->end;
    t->x = first->x + image * s->source_image + line * s->source_row + column * s->source_pixel;
    t->end.y = end->y ? end->y + image * s->out_image + line * s->out_row + column * s->out_pixel : 0;
    t->end.residual = end->residual
                          ? end->residual + image * s->residual_image + line * s->residual_row + column * s->residual_pixel
                          : 0;
    t->end.z = end->z ? end->z + image * s->int8_image + line * s->int8_row + column * s->int8_pixel : 0;
}

#if defined(__AMX_INT8__)
#include "int8_tiles.c"
#endif

/* Rows [row, row_end) x columns [column, column_end) of one channel block or two. */
static void sweep_bytes(const ft_int8_products *s, const byte_tile *first, int64_t blocks, int64_t row, int64_t row_end,
                        int64_t column, int64_t column_end) {
    const int64_t tiles = (column_end - column + PIXELS_AT_ONCE - 1) / PIXELS_AT_ONCE;
    byte_tile t = *first;
    for (; row < row_end; row++) {
        for (int64_t i = 0; i < tiles; i++) {
            int64_t from, to;
            part(column_end - column, i, tiles, &from, &to);
            from += column, to += column;
            move_to(s, first, &t, row, from);
            if (blocks == 2) two_blocks(to - from, &t);
            else one_block(to - from, &t);
        }
    }
}

static void int8_products(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_int8_products *s = &call->int8_products;
    (void)tasks;
    const int64_t by_block = task % s->block_parts, by_column = task / s->block_parts % s->column_parts,
                  by_row = task / (s->block_parts * s->column_parts), pairs = (s->blocks + 1) / 2;
    int64_t pair, pair_end, row, row_end, column, column_end;
    part(pairs, by_block, s->block_parts, &pair, &pair_end);
    part(s->images * s->rows, by_row, s->row_parts, &row, &row_end);
    part(s->columns, by_column, s->column_parts, &column, &column_end);
    const int64_t w_block = s->segments * s->segment_length * VL;
#if defined(__AMX_INT8__)
    const int64_t chunk = chunk_of(s->segment_length), width = tile_pixels(column_end - column);
    const int in_tiles = chunk >= LEAST_CHUNK && (row_end - row) * (column_end - column) >= LEAST_PIXELS;
    if (in_tiles) shape_tiles(width, chunk, chunk);
#endif
    for (; pair < pair_end; pair++) {
        const int64_t block = 2 * pair, blocks = block + 1 < s->blocks ? 2 : 1;
        const int last = block + blocks == s->blocks;
        const byte_tile t = {.x = (const byte *)s->source,
                             .w = s->weights + block * w_block,
                             .x_pixel = s->source_pixel,
                             .w_block = w_block,
                             .offsets = s->offsets,
                             .segments = s->segments,
                             .length = s->segment_length,
                             .end = {.starts = s->starts + block * VL,
                                     .factors = s->factors + block * VL,
                                     .shifts = s->shifts + block * VL,
                                     .residual = s->residual ? s->residual + block * s->residual_block : 0,
                                     .y = s->out ? s->out + block * s->out_block : 0,
                                     .z = s->out_int8 ? (byte *)s->out_int8 + block * VL : 0,
                                     .y_pixel = s->out_pixel,
                                     .y_block = s->out_block,
                                     .residual_pixel = s->residual_pixel,
                                     .residual_block = s->residual_block,
                                     .z_pixel = s->int8_pixel,
                                     .lanes = last ? s->last_lanes : VL,
                                     .z_lanes = last ? s->last_bytes : VL,
                                     .activation = s->activation,
                                     .constants = &s->constants,
                                     .next = {s->factor, s->low, s->high, s->away}}};
#if defined(__AMX_INT8__)
        if (in_tiles) {
            sweep_tiles(s, &t, blocks, chunk, row, row_end, column, column_end);
            continue;
        }
#endif
        sweep_bytes(s, &t, blocks, row, row_end, column, column_end);
    }
#if defined(__AMX_INT8__)
    if (in_tiles) release_tiles();
#endif
}

/* ---------------------------------------------------------------- depthwise: four rows of a window at a time
   The bytes of a channel from up to four rows make the word that meets four taps of one column. */
INLINE veci widened(const byte *x) {
#if VL == 16 && defined(__AVX512F__)
    return (veci)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
#elif defined(__AVX2__)
    return (veci)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
#else
    bytes found;
    memcpy(&found, x, VL);
    return __builtin_convertvector(found, veci);
#endif
}

/* The byte of each channel from `count` rows, up to four. Rows that there are not meet weights of 0. */
INLINE veci rows_of(const byte *x, int64_t row, int64_t count) {
#if VL == 16 && defined(__AVX512VBMI__)
    if (count > 1) {
        const __m512i by_channel = (__m512i)(0x30201000 + 0x01010101 * LANES);
#define ROW(i) _mm_loadu_si128((const __m128i *)(const void *)(x + (i) * row))
        __m512i rows = _mm512_inserti32x4(_mm512_castsi128_si512(ROW(0)), ROW(1), 1);
        if (count > 2) rows = _mm512_inserti32x4(rows, ROW(2), 2);
        if (count > 3) rows = _mm512_inserti32x4(rows, ROW(3), 3);
#undef ROW
        return (veci)_mm512_permutexvar_epi8(by_channel, rows);
    }
#endif
    veci found = widened(x);
    if (count > 1) found |= widened(x + row) << 8;
    if (count > 2) found |= widened(x + 2 * row) << 16;
    if (count > 3) found |= widened(x + 3 * row) << 24;
    return found;
}

#define STREAK 4 /* neighbors whose sums stay in registers */
/* Neighbors from COUNT rows, up to four, of a window of COLUMNS; returns the weights of the next rows. */
INLINE const int8_t *rows_of_taps(const int PIXELS, const int COUNT, const int COLUMNS, const int STRIDE, const ft_int8_depthwise *s,
                                  const byte *x, const int8_t *w, veci *sum) {
    veci weight[5];
#pragma GCC unroll 5
    for (int c = 0; c < COLUMNS; c++) weight[c] = load_words(w + c * 4 * VL);
#pragma GCC unroll 24
    for (int j = 0; j < STRIDE * (PIXELS - 1) + COLUMNS; j++) {
        const veci value = rows_of(x + j * s->source_pixel, s->source_row, COUNT);
#pragma GCC unroll 5
        for (int c = 0; c < COLUMNS; c++)
            if (j >= c && (j - c) % STRIDE == 0 && (j - c) / STRIDE < PIXELS)
                sum[(j - c) / STRIDE] = add_products(sum[(j - c) / STRIDE], value, weight[c]);
    }
    return w + COLUMNS * 4 * VL;
}

/* PIXELS neighbors in a row, by a window of any size. */
INLINE void byte_taps(const int PIXELS, const int ROWS, const int COLUMNS, const int STRIDE, const ft_int8_depthwise *s,
                      const ending *e, const byte *x, const int8_t *w) {
    const int64_t rows = s->window_h, columns = s->window_w;
    veci sum[STREAK];
#pragma GCC unroll 8
    for (int i = 0; i < PIXELS; i++) sum[i] = load_words(e->starts);
    if (STRIDE) {
        w = rows_of_taps(PIXELS, ROWS < 4 ? ROWS : 4, COLUMNS, STRIDE, s, x, w, sum);
        if (ROWS > 4) rows_of_taps(PIXELS, ROWS > 4 ? ROWS - 4 : 1, COLUMNS, STRIDE, s, x + 4 * s->source_row, w, sum);
        end_sums(e, sum, PIXELS, 1);
        return;
    }
    for (int64_t row = 0; row < rows; row += 4, x += 4 * s->dilation_h * s->source_row) {
        const int64_t count = rows - row < 4 ? rows - row : 4;
        for (int64_t c = 0; c < columns; c++, w += 4 * VL) {
            const veci weight = load_words(w);
            const byte *from = x + c * s->dilation_w * s->source_pixel;
#pragma GCC unroll 8
            for (int i = 0; i < PIXELS; i++) {
                const byte *at = from + i * s->stride_w * s->source_pixel;
                sum[i] = add_products(sum[i], rows_of(at, s->dilation_h * s->source_row, count), weight);
            }
        }
    }
    end_sums(e, sum, PIXELS, 1);
}

/* So many neighbors, STREAK at most. */
typedef void (*byte_streak)(int64_t pixels, const ft_int8_depthwise *s, const ending *e, const byte *x, const int8_t *w);
#define BYTE_STREAKS(name, ROWS, COLUMNS, STRIDE)                                                                              \
    static void name(int64_t pixels, const ft_int8_depthwise *s, const ending *e, const byte *x, const int8_t *w) {            \
        switch (pixels) {                                                                                                      \
            case 1: byte_taps(1, ROWS, COLUMNS, STRIDE, s, e, x, w); break;                                                    \
            case 2: byte_taps(2, ROWS, COLUMNS, STRIDE, s, e, x, w); break;                                                    \
            case 3: byte_taps(3, ROWS, COLUMNS, STRIDE, s, e, x, w); break;                                                    \
            case 4: byte_taps(4, ROWS, COLUMNS, STRIDE, s, e, x, w); break;                                                    \
        }                                                                                                                      \
    }
BYTE_STREAKS(any_window, 1, 1, 0)
BYTE_STREAKS(bytes_3_by_1, 3, 3, 1)
BYTE_STREAKS(bytes_3_by_2, 3, 3, 2)
BYTE_STREAKS(bytes_5_by_1, 5, 5, 1)
BYTE_STREAKS(bytes_5_by_2, 5, 5, 2)

static byte_streak streak_of(const ft_int8_depthwise *s) {
    if (s->window_h != s->window_w || s->dilation_h != 1 || s->dilation_w != 1 || s->stride_w > 2) return any_window;
    if (s->window_w == 3) return s->stride_w == 1 ? bytes_3_by_1 : bytes_3_by_2;
    if (s->window_w == 5) return s->stride_w == 1 ? bytes_5_by_1 : bytes_5_by_2;
    return any_window;
}

static void int8_depthwise(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_int8_depthwise *s = &call->int8_depthwise;
    const int64_t w_block = (s->window_h + 3) / 4 * s->window_w * 4 * VL, right = s->stride_w * s->source_pixel;
    const byte_streak streak = streak_of(s);
    int64_t from, to;
    part(s->images * s->rows * s->blocks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t block = i % s->blocks, row = i / s->blocks % s->rows, image = i / (s->blocks * s->rows);
        const int last = block + 1 == s->blocks;
        const byte *x = (const byte *)s->source + image * s->source_image + row * s->stride_h * s->source_row + block * VL;
        ending e = {.starts = s->starts + block * VL,
                    .factors = s->factors + block * VL,
                    .shifts = s->shifts + block * VL,
                    .residual = s->residual ? s->residual + image * s->residual_image + row * s->residual_row +
                                                  block * s->residual_block
                                            : 0,
                    .y = s->out ? s->out + image * s->out_image + row * s->out_row + block * s->out_block : 0,
                    .z = s->out_int8 ? (byte *)s->out_int8 + image * s->int8_image + row * s->int8_row + block * VL : 0,
                    .y_pixel = s->out_pixel,
                    .residual_pixel = s->residual_pixel,
                    .z_pixel = s->int8_pixel,
                    .lanes = VL,
                    .z_lanes = VL,
                    .activation = s->activation,
                    .constants = &s->constants,
                    .next = {s->factor, s->low, s->high, s->away}};
        if (last) e.z_lanes = s->last_bytes;
        const int64_t streaks = (s->columns + STREAK - 1) / STREAK;
        for (int64_t number = 0; number < streaks; number++) {
            int64_t column, count;
            part(s->columns, number, streaks, &column, &count);
            count -= column;
            streak(count, s, &e, x + column * right, s->weights + block * w_block);
            if (e.y) e.y += count * e.y_pixel;
            if (e.residual) e.residual += count * e.residual_pixel;
            if (e.z) e.z += count * e.z_pixel;
        }
    }
}

/* ---------------------------------------------------------------- floats to bytes */
/* Byte `i` of each of VL pixels from a plane of neighbors. */
INLINE veci plane_bytes(const float *x, const int i, const quantizer *q, const int AWAY) {
    return (to_whole(in_steps(LOAD(x), q), AWAY) & 255) << (8 * i);
}

/* A row of up to four planes as pixels of four bytes, as far as there are whole vectors; returns the columns done. */
INLINE int64_t planes_to_words(const int CHANNELS, const int AWAY, const ft_to_int8 *s, const float *x, byte *y) {
    const quantizer q = {s->factor, s->low, s->high, s->away};
    const int64_t columns = s->columns / VL * VL, apart = s->source_channel;
    for (int64_t column = 0; column < columns; column += VL) {
        veci words = plane_bytes(x + column, 0, &q, AWAY);
#pragma GCC unroll 4
        for (int i = 1; i < 4; i++)
            words |= i < CHANNELS ? plane_bytes(x + column + i * apart, i, &q, AWAY) : all_words(128) << (8 * i);
        memcpy(y + 4 * column, &words, sizeof words);
    }
    return columns;
}

static int64_t words_of_planes(const ft_to_int8 *s, const float *x, byte *y) {
    if (s->source_pixel != 1 || s->out_pixel != 4) return 0;
    if (s->channels == 3) return s->away ? planes_to_words(3, 1, s, x, y) : planes_to_words(3, 0, s, x, y);
    if (s->channels == 1) return s->away ? planes_to_words(1, 1, s, x, y) : planes_to_words(1, 0, s, x, y);
    return 0;
}

/* Four channels of planes from `channel` on, byte by byte, of `count` pixels. */
INLINE veci four_bytes(const ft_to_int8 *s, const quantizer *q, const float *x, int64_t channel, int64_t count) {
    veci words = {0};
    for (int64_t i = 0; i < 4; i++) {
        const float *at = x + (channel + i) * s->source_channel;
        vec value = ALL(0);
        if (channel + i < s->channels && s->source_pixel == 1) value = take(at, count);
        else if (channel + i < s->channels)
            for (int64_t k = 0; k < count; k++) value[k] = at[k * s->source_pixel];
        words |= (to_whole(in_steps(value, q), q->away) & 255) << (8 * (int32_t)i);
    }
    return words;
}

static void to_int8(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_to_int8 *s = &call->to_int8;
    const quantizer q = {s->factor, s->low, s->high, s->away};
    int64_t from, to;
    part(s->images * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % s->rows, image = i / s->rows;
        const float *x = s->source + image * s->source_image + row * s->source_row;
        byte *y = (byte *)s->out + image * s->out_image + row * s->out_row;
        if (s->source_channel == 1) { /* blocks of channels, or all of them, side by side */
            for (int64_t block = 0; block * VL < s->out_pixel; block++) {
                const int64_t room = s->out_pixel - block * VL < VL ? s->out_pixel - block * VL : VL;
                const int64_t there = s->channels - block * VL;
                for (int64_t column = 0; column < s->columns; column++) {
                    const float *at = x + block * s->source_block + column * s->source_pixel;
                    const vec value = there >= VL ? LOAD(at) : there > 0 ? take(at, there) : ALL(0);
                    store_bytes(y + column * s->out_pixel + block * VL, to_whole(in_steps(value, &q), q.away), room);
                }
            }
            continue;
        }
        const int64_t done = words_of_planes(s, x, y);
        for (int64_t channel = 0; channel < s->out_pixel; channel += 4)
            for (int64_t column = done; column < s->columns; column += VL) {
                const int64_t count = s->columns - column < VL ? s->columns - column : VL;
                byte *to = y + column * s->out_pixel + channel;
                const veci words = four_bytes(s, &q, x + column * s->source_pixel, channel, count);
                if (s->out_pixel == 4) memcpy(to, &words, (size_t)count * 4);
                else
                    for (int64_t k = 0; k < count; k++) memcpy(to + k * s->out_pixel, (const char *)&words + 4 * k, 4);
            }
    }
}

/* ---------------------------------------------------------------- images added up, and quantized */
typedef struct {
    const float *source, *residual, *added;
    const int64_t *cells;
    float *y;
    byte *z;
    vec factors;
    int64_t room; /* of a pixel for the bytes of the block */
} image_row;

/* A row of one block of channels. SOURCE, FACTORS, RESIDUAL, ADDED: what there is. */
INLINE void sum_row(const int SOURCE, const int FACTORS, const int RESIDUAL, const int ADDED, const ft_sum_images *s, image_row r) {
    const quantizer q = {s->factor, s->low, s->high, s->away};
    const int64_t columns = s->columns, source_pixel = s->source_pixel, residual_pixel = s->residual_pixel,
                  out_pixel = s->out_pixel, int8_pixel = s->int8_pixel;
    int64_t known = -1; /* where the last pixel was added from */
    veci whole = {0};
    for (int64_t column = 0; column < columns; column++) {
        if (!SOURCE && !r.y && r.cells[column] == known) { /* the same again */
            store_bytes(r.z + column * int8_pixel, whole, r.room);
            continue;
        }
        vec value = SOURCE ? LOAD(r.source + column * source_pixel) : ALL(0);
        if (FACTORS) value *= r.factors;
        if (RESIDUAL) value += LOAD(r.residual + column * residual_pixel);
        if (ADDED) {
            known = r.cells[column];
            const vec added = LOAD(r.added + known);
            value = SOURCE ? value + added : added;
        }
        if (r.y) STORE(r.y + column * out_pixel, value);
        if (r.z) {
            whole = to_whole(in_steps(value, &q), q.away);
            store_bytes(r.z + column * int8_pixel, whole, r.room);
        }
    }
}

static void sum_images(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_sum_images *s = &call->sum_images;
    int64_t from, to;
    part(s->images * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++)
        for (int64_t block = 0; block < s->blocks; block++) {
            const int64_t row = i % s->rows, image = i / s->rows;
            image_row r = {.room = block + 1 == s->blocks ? s->last_bytes : VL, .factors = ALL(1)};
            if (s->source) r.source = s->source + image * s->source_image + row * s->source_row + block * s->source_block;
            if (s->factors) r.factors = LOAD(s->factors + image * s->factors_image + block * s->factors_block);
            if (s->residual)
                r.residual = s->residual + image * s->residual_image + row * s->residual_row + block * s->residual_block;
            if (s->added) {
                r.added = s->added + image * s->added_image + block * s->added_block + s->offsets[row];
                r.cells = s->offsets + s->rows;
            }
            if (s->out) r.y = s->out + image * s->out_image + row * s->out_row + block * s->out_block;
            if (s->out_int8) r.z = (byte *)s->out_int8 + image * s->int8_image + row * s->int8_row + block * VL;
            const int known = (s->source != 0) | (s->factors != 0) << 1 | (s->residual != 0) << 2 | (s->added != 0) << 3;
            switch (known) {
                case 8: sum_row(0, 0, 0, 1, s, r); break;
                case 9: sum_row(1, 0, 0, 1, s, r); break;
                case 7: sum_row(1, 1, 1, 0, s, r); break;
                case 15: sum_row(1, 1, 1, 1, s, r); break;
                default: sum_row(s->source != 0, s->factors != 0, s->residual != 0, s->added != 0, s, r);
            }
        }
}

/* The bytes of zero around images. */
static void int8_halo(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_int8_halo *s = &call->int8_halo;
    const int64_t pitch = s->columns * s->out_pixel;
    int64_t from, to;
    part(s->images, task, tasks, &from, &to);
    for (int64_t image = from; image < to; image++) {
        byte *y = (byte *)s->out + image * s->rows * pitch;
        memset(y, 128, (size_t)(s->top * pitch));
        memset(y + (s->rows - s->bottom) * pitch, 128, (size_t)(s->bottom * pitch));
        for (int64_t row = s->top; row < s->rows - s->bottom; row++) {
            memset(y + row * pitch, 128, (size_t)(s->left * s->out_pixel));
            memset(y + (row + 1) * pitch - s->right * s->out_pixel, 128, (size_t)(s->right * s->out_pixel));
        }
    }
}

/* Floats rounded to the steps of a quantizer; what is no number stays none. */
static void round_to_steps(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_round_to_steps *s = &call->round_to_steps;
    int64_t from, to;
    part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        const int64_t count = to - i < VL ? to - i : VL;
        const vec x = take(s->source + i, count);
        const vec steps = ALL(s->factor) * MIN(MAX(x, ALL(-s->limit)), ALL(s->limit));
        const vec bounded = MIN(MAX(steps, ALL(s->low)), ALL(s->high));
        vec whole = (bounded + ALL(ROUNDER)) - ALL(ROUNDER);
        if (s->away) {
            const vec cut = __builtin_convertvector(__builtin_convertvector(CHOOSE(bounded == bounded, bounded, ALL(0)), veci), vec);
            const vec rest = bounded - cut;
            whole = cut + CHOOSE(rest >= ALL(0.5f), ALL(1), CHOOSE(rest <= ALL(-0.5f), ALL(-1), rest * ALL(0)));
        }
        give(s->out + i, whole * ALL(s->multiplier) / ALL(s->divisor), count);
    }
}

/* ---------------------------------------------------------------- weights */
static void pack_int8(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pack_int8 *s = &call->pack_int8;
    const int64_t blocks = (s->outputs + VL - 1) / VL, quads = s->segment_length / 4;
    int64_t from, to;
    part(blocks, task, tasks, &from, &to);
    for (int64_t block = from; block < to; block++) {
        int8_t *y = s->out + block * s->segments * s->segment_length * VL;
        for (int64_t segment = 0; segment < s->segments; segment++)
            for (int64_t quad = 0; quad < quads; quad++)
                for (int64_t lane = 0; lane < VL; lane++)
                    for (int64_t k = 0; k < 4; k++) {
                        const int64_t output = block * VL + lane, place = quad * 4 + k;
                        const int64_t tap = place / s->pixel, channel = place % s->pixel;
                        const int there = output < s->outputs && channel < s->channels && tap < s->taps;
                        *y++ = there ? s->source[output * s->source_output + channel * s->source_channel +
                                                 (segment * s->taps + tap) * s->source_tap]
                                     : 0;
                    }
    }
}

const ft_table TABLE = {
    [FT_INT8_PRODUCTS] = int8_products,
    [FT_INT8_DEPTHWISE] = int8_depthwise,
    [FT_TO_INT8] = to_int8,
    [FT_INT8_HALO] = int8_halo,
    [FT_SUM_IMAGES] = sum_images,
    [FT_ROUND_TO_STEPS] = round_to_steps,
    [FT_PACK_INT8] = pack_int8,
};
