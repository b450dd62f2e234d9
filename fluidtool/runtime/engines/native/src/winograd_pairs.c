/* Winograd's convolution F(2 x 2, 3 x 3) of halves: windows of 4 x 4 pixels are transformed and rounded to halves, multiplied by pairs with
   filters that were, and transformed back to 2 x 2 results, in float32. Included by pairs.c. */
#include "winograd.h"

#define POSITIONS 16
#define MOST_WINDOWS 56 /* whose products lie on the stack until they are transformed back */

/* COUNT windows side by side, of 4 x 4 pixels of a block of channels, transformed -> halves, `position` apart. */
INLINE void windows_of_halves(const int COUNT, const ft_winograd_pairs *s, const bf16 *x, int64_t top, int64_t left, bf16 *y,
                              int64_t position) {
    const int columns = 2 * COUNT + 2;
    vec pixels[4 * 6], half[4 * 6];
    if (top >= 0 && left >= 0 && top + 4 <= s->source_height && left + columns <= s->source_width)
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++)
#pragma GCC unroll 6
            for (int c = 0; c < columns; c++)
                pixels[r * columns + c] = load_halves(x + (top + r) * s->source_row + (left + c) * s->source_pixel);
    else
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < columns; c++) {
                const int inside = top + r >= 0 && left + c >= 0 && top + r < s->source_height && left + c < s->source_width;
                pixels[r * columns + c] =
                    inside ? load_halves(x + (top + r) * s->source_row + (left + c) * s->source_pixel) : ALL(0);
            }
#pragma GCC unroll 6
    for (int c = 0; c < columns; c++) transform_window(2, pixels + c, columns, half + c, columns);
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        vec line[4 * 2];
#pragma GCC unroll 2
        for (int i = 0; i < COUNT; i++) transform_window(2, half + r * columns + 2 * i, 1, line + i, 2);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) store_half_pixels(COUNT, y + (r * 4 + c) * position, VL, line + 2 * c);
    }
}

/* `count` windows from `first` on of all blocks of channels: [position][block][window][lanes]. */
static void transform_windows(const ft_winograd_pairs *s, bf16 *windows, int64_t first, int64_t count) {
    const int64_t segments = s->channels / VL, plane = s->windows * VL;
    for (int64_t block = 0; block < segments; block++)
        for (int64_t i = 0, together; i < count; i += together) {
            const int64_t at = first + i, column = at % s->window_columns, row = at / s->window_columns % s->window_rows,
                          image = at / (s->window_columns * s->window_rows);
            const int64_t top = row * 2 - s->pad_top, left = column * 2 - s->pad_left;
            const bf16 *x = (const bf16 *)s->source + image * s->source_image + block * s->source_block;
            bf16 *y = windows + block * plane + i * VL;
            together = column + 1 < s->window_columns && i + 1 < count ? 2 : 1;
            if (together == 2) windows_of_halves(2, s, x, top, left, y, segments * plane);
            else windows_of_halves(1, s, x, top, left, y, segments * plane);
        }
}

/* The results of a window for a block of channels, of its products `position` apart. */
INLINE void results_of_pairs(const ft_winograd_pairs *s, const float *products, int64_t position, int64_t at, int64_t block, vec bias) {
    vec half[8], result[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        vec column[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) column[r] = LOAD(products + (r * 4 + c) * position);
        transform_back(2, column, 1, half + c, 4);
    }
#pragma GCC unroll 2
    for (int r = 0; r < 2; r++) transform_back(2, half + r * 4, 1, result + r * 2, 1);
    const int64_t left = at % s->window_columns * 2, top = at / s->window_columns % s->window_rows * 2,
                  image = at / (s->window_columns * s->window_rows);
    const int64_t there = image * s->residual_image + top * s->residual_row + left * s->residual_pixel + block * s->residual_block;
    const int rows = s->rows - top < 2 ? 1 : 2, columns = s->columns - left < 2 ? 1 : 2;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        result[i] += bias;
        if (i / 2 >= rows || i % 2 >= columns) continue;
        const int64_t residual = there + i / 2 * s->residual_row + i % 2 * s->residual_pixel;
        if (s->residual) result[i] += LOAD(s->residual + residual);
        else if (s->residual_halves) result[i] += load_halves((const bf16 *)s->residual_halves + residual);
        if (s->activation == FT_RELU) result[i] = MAX(result[i], ALL(0));
    }
    if (s->activation > FT_RELU) activate_each((float *)result, VL, 4, s->activation, &s->constants);
    float *y = s->out ? s->out + image * s->out_image + top * s->out_row + left * s->out_pixel + block * s->out_block : 0;
    bf16 *halves = s->out_halves ? (bf16 *)s->out_halves + image * s->halves_image + top * s->halves_row + left * s->halves_pixel +
                                       block * s->halves_block
                                 : 0;
    for (int r = 0; r < rows; r++) {
        if (halves && columns == 2) store_half_pixels(2, halves + r * s->halves_row, s->halves_pixel, result + 2 * r);
        else if (halves) store_halves(halves + r * s->halves_row, result[2 * r]);
        for (int c = 0; y && c < columns; c++) STORE(y + r * s->out_row + c * s->out_pixel, result[2 * r + c]);
    }
}

/* `count` windows from `first` on, times the filters of the pairs of blocks [pair, pair_end). */
static void windows_by_pairs(const ft_winograd_pairs *s, bf16 *windows, int64_t first, int64_t count, int64_t pair, int64_t pair_end) {
    const int64_t segments = s->channels / VL, plane = s->windows * VL, tiles = (count + TILE - 1) / TILE;
    float products[MOST_WINDOWS * POSITIONS * 2 * VL] __attribute__((aligned(64)));
    transform_windows(s, windows, first, count);
    for (; pair < pair_end; pair++) {
        const int64_t blocks = 2 * pair + 1 < s->blocks ? 2 : 1, width = blocks * VL, position = count * width;
        const int64_t lines = (width * VL / 32 + tiles - 1) / tiles;
        const bf16 *w = (const bf16 *)s->weights + pair * 2 * VL * POSITIONS * s->channels;
        for (int64_t i = 0; i < POSITIONS; i++, w += s->channels * width)
            for (int64_t tile = 0; tile < tiles; tile++) {
                int64_t from, to;
                part(count, tile, tiles, &from, &to);
                const pair_tile t = {.x = windows + i * segments * plane + from * VL,
                                     .w = w,
                                     .x_pixel = VL,
                                     .y = products + i * position + from * width,
                                     .y_pixel = width,
                                     .y_block = VL,
                                     .offsets = s->offsets,
                                     .segments = segments,
                                     .whole = segments,
                                     .length = VL,
                                     .lanes = VL,
                                     .first = 1,
                                     .last = 1,
                                     .constants = &s->constants,
                                     .ahead = w + s->channels * width + tile * segments * lines * 32,
                                     .ahead_lines = lines};
                tile_of(blocks, to - from, &t);
            }
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t block = 2 * pair + b;
            const vec bias = s->bias ? LOAD(s->bias + block * VL) : ALL(0);
            for (int64_t i = 0; i < count; i++)
                results_of_pairs(s, products + i * width + b * VL, position, first + i, block, bias);
        }
    }
}

static void winograd_pairs(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_winograd_pairs *s = &call->winograd_pairs;
    (void)tasks;
    int64_t pair, pair_end, from, to;
    part(s->images * s->window_rows * s->window_columns, task % s->window_parts, s->window_parts, &from, &to);
    part((s->blocks + 1) / 2, task / s->window_parts, s->block_parts, &pair, &pair_end);
    for (int64_t count; from < to; from += count) {
        count = to - from < s->windows ? to - from : s->windows;
        count -= to - from - count == 1; /* one that is left would be summed up in another order */
        windows_by_pairs(s, (bf16 *)(s->scratch + task * s->task_scratch), from, count, pair, pair_end);
    }
}

/* The transformed filters of two channels make pairs: [pair of blocks][position][channel / 2][lanes][2]. */
static void pack_winograd_pairs(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pack_winograd_pairs *s = &call->pack_winograd_pairs;
    const int64_t blocks = (s->filters + VL - 1) / VL, halves = s->channels / 2;
    int64_t from, to;
    part(blocks * halves, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t block = i / halves, channel = i % halves, first = block * VL, width = (block | 1) < blocks ? 2 * VL : VL;
        const int64_t there = s->filters - first < VL ? s->filters - first : VL;
        vec_wide factor = ALL_WIDE(1);
        if (s->scale) factor = __builtin_convertvector(take_loose((const loose *)s->scale + first, there), vec_wide);
        vec found[2][POSITIONS];
        for (int k = 0; k < 2; k++) {
            vec taps[9];
            vec_wide g[9], half[4 * 3], line[4];
            filter_taps((const loose *)s->source + (first * s->channels + 2 * channel + k) * 9, 9 * s->channels, 0, there, taps);
            for (int tap = 0; tap < 9; tap++) g[tap] = __builtin_convertvector(taps[tap], vec_wide) * factor;
            for (int c = 0; c < 3; c++) transform_filter(2, g + c, 3, half + c, 3);
            for (int r = 0; r < 4; r++) {
                transform_filter(2, half + r * 3, 1, line, 1);
                for (int c = 0; c < 4; c++) found[k][r * 4 + c] = __builtin_convertvector(line[c], vec);
            }
        }
        bf16 *y = (bf16 *)s->out + block / 2 * 2 * VL * POSITIONS * s->channels + channel * 2 * width + block % 2 * 2 * VL;
        for (int position = 0; position < POSITIONS; position++) {
            const words both = words_of(found[0][position], found[1][position]);
            memcpy(y + position * s->channels * width, &both, sizeof both);
        }
    }
}
