/* Winograd's convolution F(m x m, 3 x 3), m = 2 or 4: windows of (m + 2)^2 pixels are transformed, multiplied with the
   transformed filters - one small matrix product for each of the (m + 2)^2 positions - and transformed back to m x m
   results. Included by images.c. */
#include "winograd.h"

#define CHANNELS_SUMMED 64 /* in a row, then added to those before: a long sum rounds more, and transforming back enlarges that */
#define MOST_TILES 28 /* windows whose products lie on the stack until they are transformed back */

/* One axis of the gradients of results: A d. */
INLINE void transform_gradient(const int OUTPUTS, const vec *d, const int step, vec *m, const int m_step) {
    if (OUTPUTS == 2) {
        m[0] = d[0];
        m[m_step] = d[0] + d[step];
        m[2 * m_step] = d[0] - d[step];
        m[3 * m_step] = -d[step];
        return;
    }
    const vec d1 = d[step], d3 = d[3 * step];
    const vec even = d[0] + ALL(0.5f) * d[2 * step], odd = ALL(HALF_ROOT) * (d1 + ALL(0.5f) * d3);
    const vec even_far = d[0] + ALL(2) * d[2 * step], odd_far = ALL(ROOT) * (d1 + ALL(2) * d3);
    m[0] = d[0];
    m[m_step] = even + odd;
    m[2 * m_step] = even - odd;
    m[3 * m_step] = even_far + odd_far;
    m[4 * m_step] = even_far - odd_far;
    m[5 * m_step] = d3;
}

/* ---------------------------------------------------------------- windows */
enum { MOST_SIDE = 6 };

INLINE void window(const int OUTPUTS, const int OF_GRADIENTS, const ft_winograd_windows *s, const float *x, int64_t top,
                   int64_t left, float *y) {
    const int side = OUTPUTS + 2, from = OF_GRADIENTS ? OUTPUTS : side; /* pixels on a side */
    const int64_t row = s->source_row, pixel = s->source_pixel;
    vec pixels[MOST_SIDE * MOST_SIDE], half[MOST_SIDE * MOST_SIDE];
    if (top >= 0 && left >= 0 && top + from <= s->source_height && left + from <= s->source_width) {
#pragma GCC unroll 6
        for (int r = 0; r < from; r++)
#pragma GCC unroll 6
            for (int c = 0; c < from; c++) pixels[r * from + c] = LOAD(x + (top + r) * row + (left + c) * pixel);
    } else {
        for (int r = 0; r < from; r++)
            for (int c = 0; c < from; c++) {
                const int inside = top + r >= 0 && top + r < s->source_height && left + c >= 0 && left + c < s->source_width;
                pixels[r * from + c] = inside ? LOAD(x + (top + r) * row + (left + c) * pixel) : ALL(0);
            }
    }
#pragma GCC unroll 6
    for (int c = 0; c < from; c++)
        if (OF_GRADIENTS) transform_gradient(OUTPUTS, pixels + c, from, half + c, from);
        else transform_window(OUTPUTS, pixels + c, from, half + c, from);
#pragma GCC unroll 6
    for (int r = 0; r < side; r++) {
        vec line[MOST_SIDE];
        if (OF_GRADIENTS) transform_gradient(OUTPUTS, half + r * from, 1, line, 1);
        else transform_window(OUTPUTS, half + r * from, 1, line, 1);
#pragma GCC unroll 6
        for (int c = 0; c < side; c++) STORE(y + (r * side + c) * s->out_position, line[c]);
    }
}

static void winograd_windows(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_winograd_windows *s = &call->winograd_windows;
    int64_t from, to;
    part(s->count * s->blocks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t number = i % s->count, block = i / s->count, at = s->first + number;
        const int64_t column = at % s->window_columns, row = at / s->window_columns % s->window_rows,
                      image = at / (s->window_columns * s->window_rows);
        const float *x = s->source + image * s->source_image + block * s->source_block;
        float *y = s->out + block * s->out_block + number * VL;
        const int64_t top = row * s->outputs - s->pad_top, left = column * s->outputs - s->pad_left;
        if (s->of_gradients && s->outputs == 4) window(4, 1, s, x, top, left, y);
        else if (s->of_gradients) window(2, 1, s, x, top, left, y);
        else if (s->outputs == 4) window(4, 0, s, x, top, left, y);
        else window(2, 0, s, x, top, left, y);
    }
}

/* ---------------------------------------------------------------- products and results */
INLINE void results(const int OUTPUTS, const ft_winograd *s, const float *products, int64_t position, int64_t at,
                    int64_t block, vec bias) {
    enum { MOST = 6 };
    const int side = OUTPUTS + 2;
    vec half[MOST * 4];
#pragma GCC unroll 6
    for (int c = 0; c < side; c++) {
        vec column[MOST];
#pragma GCC unroll 6
        for (int r = 0; r < side; r++) column[r] = LOAD(products + (r * side + c) * position);
        transform_back(OUTPUTS, column, 1, half + c, side);
    }
    const int64_t left = at % s->window_columns * OUTPUTS, top = at / s->window_columns % s->window_rows * OUTPUTS,
                  image = at / (s->window_columns * s->window_rows);
    float *y = s->out + image * s->out_image + top * s->out_row + left * s->out_pixel + block * s->out_block;
    const float *residual = s->residual ? s->residual + image * s->residual_image + top * s->residual_row +
                                              left * s->residual_pixel + block * s->residual_block
                                        : 0;
    const int rows = (int)(s->rows - top < OUTPUTS ? s->rows - top : OUTPUTS);
    const int columns = (int)(s->columns - left < OUTPUTS ? s->columns - left : OUTPUTS);
    for (int r = 0; r < rows; r++) {
        vec line[4];
        transform_back(OUTPUTS, half + r * side, 1, line, 1);
#pragma GCC unroll 4
        for (int c = 0; c < OUTPUTS; c++) {
            if (c >= columns) break;
            vec value = line[c] + bias;
            if (residual) value += LOAD(residual + r * s->residual_row + c * s->residual_pixel);
            if (s->activation == FT_RELU) value = MAX(value, ALL(0));
            STORE(y + r * s->out_row + c * s->out_pixel, value);
        }
        if (s->activation > FT_RELU) activate_each(y + r * s->out_row, s->out_pixel, columns, s->activation, &s->constants);
    }
}

static void winograd(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_winograd *s = &call->winograd;
    const int64_t positions = (s->outputs + 2) * (s->outputs + 2), pairs = (s->blocks + 1) / 2;
    float products[MOST_TILES * 36 * 2 * VL];
    (void)tasks;
    int64_t pair, pair_end, from, to;
    part(s->count, task % s->window_parts, s->window_parts, &from, &to);
    part(pairs, task / s->window_parts, s->block_parts, &pair, &pair_end);
    const int64_t tiles = (to - from + TILE - 1) / TILE, segments = s->channels / VL;
    for (; pair < pair_end; pair++) {
        const int64_t blocks = 2 * pair + 1 < s->blocks ? 2 : 1, width = blocks * VL, position = (to - from) * width;
        const int64_t lines = (width * VL / 16 + tiles - 1) / tiles;
        const float *w = s->weights + pair * 2 * VL * positions * s->channels;
        for (int64_t i = 0; i < positions; i++, w += s->channels * width)
            for (int64_t tile = 0; tile < tiles; tile++) {
                int64_t first, last;
                part(to - from, tile, tiles, &first, &last);
                for (int64_t begin = 0; begin < segments; begin += CHANNELS_SUMMED / VL) {
                    const int64_t rest = segments - begin;
                    const tile_work t = {.x = s->windows + i * s->windows_position + (from + first) * VL,
                                         .w = w + begin * VL * width,
                                         .x_pixel = VL,
                                         .y = products + i * position + first * width,
                                         .y_pixel = width,
                                         .y_block = VL,
                                         .offsets = s->offsets + begin,
                                         .segments = rest < CHANNELS_SUMMED / VL ? rest : CHANNELS_SUMMED / VL,
                                         .length = VL,
                                         .first = begin == 0,
                                         .ahead = w + s->channels * width + (tile * segments + begin) * lines * 16,
                                         .ahead_lines = lines};
                    tile_of(blocks, last - first, &t);
                }
            }
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t block = 2 * pair + b;
            const vec bias = s->bias ? LOAD(s->bias + block * VL) : ALL(0);
            for (int64_t i = 0; i < to - from; i++) {
                const float *at = products + i * width + b * VL;
                if (s->outputs == 4) results(4, s, at, position, s->first + from + i, block, bias);
                else results(2, s, at, position, s->first + from + i, block, bias);
            }
        }
    }
}

/* ---------------------------------------------------------------- filters: G g G^T in double */

INLINE void filter(const int OUTPUTS, const vec_wide *g, float *to, int64_t position) {
    const int side = OUTPUTS + 2;
    vec_wide half[6 * 3], line[6];
    for (int c = 0; c < 3; c++) transform_filter(OUTPUTS, g + c, 3, half + c, 3);
    for (int r = 0; r < side; r++) {
        transform_filter(OUTPUTS, half + r * 3, 1, line, 1);
        for (int c = 0; c < side; c++) STORE(to + (r * side + c) * position, __builtin_convertvector(line[c], vec));
    }
}

static void pack_winograd(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pack_winograd *s = &call->pack_winograd;
    const int64_t blocks = (s->filters + VL - 1) / VL, pairs = (blocks + 1) / 2;
    const int64_t positions = (s->outputs + 2) * (s->outputs + 2);
    int64_t from, to;
    part(blocks * s->channels, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t block = i / s->channels, channel = i % s->channels, pair = block / 2, first = block * VL;
        const int64_t width = pair == pairs - 1 && blocks % 2 ? VL : 2 * VL;
        const int64_t there = s->filters - first < VL ? s->filters - first : VL;
        vec taps[9];
        filter_taps((const loose *)s->source + first * s->filter_step + channel * s->channel_step, s->filter_step, s->turned, there, taps);
        vec_wide g[9], factor = ALL_WIDE(1);
        if (s->scale) factor = __builtin_convertvector(take_loose((const loose *)s->scale + first, there), vec_wide);
        for (int tap = 0; tap < 9; tap++) g[tap] = __builtin_convertvector(taps[tap], vec_wide) * factor;
        float *y = s->out + pair * 2 * VL * positions * s->channels + channel * width + block % 2 * VL;
        if (s->outputs == 4) filter(4, g, y, s->channels * width);
        else filter(2, g, y, s->channels * width);
    }
}

/* ---------------------------------------------------------------- gradients by filters: G^T u G */
INLINE void filter_back(const int OUTPUTS, const vec *u, const int step, vec *g, const int g_step) {
    const vec sum = u[step] + u[2 * step], difference = u[step] - u[2 * step];
    if (OUTPUTS == 2) {
        g[0] = u[0] + ALL(0.5f) * sum;
        g[g_step] = ALL(0.5f) * difference;
        g[2 * g_step] = ALL(0.5f) * sum + u[3 * step];
        return;
    }
    const vec far_sum = u[3 * step] + u[4 * step], far_difference = u[3 * step] - u[4 * step];
    g[0] = u[0] - ALL(2.0f / 3) * sum + ALL(1.0f / 6) * far_sum;
    g[g_step] = ALL(ROOT / 6) * far_difference - ALL(ROOT / 3) * difference;
    g[2 * g_step] = ALL(1.0f / 3) * (far_sum - sum) + u[5 * step];
}

/* The taps of a channel for VL filters, from the sums at all positions, `position` apart. */
INLINE void filter_results(const int OUTPUTS, const float *sums, int64_t position, vec *taps) {
    const int side = OUTPUTS + 2;
    vec half[MOST_SIDE * 3], column[MOST_SIDE];
#pragma GCC unroll 6
    for (int c = 0; c < side; c++) {
#pragma GCC unroll 6
        for (int r = 0; r < side; r++) column[r] = LOAD(sums + (r * side + c) * position);
        filter_back(OUTPUTS, column, 1, half + c, side);
    }
#pragma GCC unroll 3
    for (int r = 0; r < 3; r++) filter_back(OUTPUTS, half + r * side, 1, taps + r * 3, 1);
}

/* The gradients of VL filters by VL channels: their nine taps a row for each filter. */
static void store_filters(const ft_winograd_filter_gradient *s, const float *sums, int64_t width, float *out, int64_t there) {
    float taps[9 * VL * VL];
    for (int64_t channel = 0; channel < VL; channel++) {
        vec found[9];
        if (s->outputs == 4) filter_results(4, sums + channel * width, VL * width, found);
        else filter_results(2, sums + channel * width, VL * width, found);
        for (int tap = 0; tap < 9; tap++) STORE(taps + (channel * 9 + tap) * VL, found[tap]);
    }
    for (int64_t first = 0; first < 9 * VL; first += VL) {
        vec square[VL];
        for (int i = 0; i < VL; i++) square[i] = LOAD(taps + (first + i) * VL);
        transpose(square);
        for (int64_t lane = 0; lane < there; lane++) STORE(out + lane * s->channels * 9 + first, square[lane]);
    }
}

static void winograd_filter_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_winograd_filter_gradient *s = &call->winograd_filter_gradient;
    const int64_t filter_blocks = s->filters / VL, pairs = (filter_blocks + 1) / 2, plane = s->count * VL;
    const int64_t pair = task % pairs, block = task / pairs, blocks = 2 * pair + 1 < filter_blocks ? 2 : 1;
    const int64_t positions = (s->outputs + 2) * (s->outputs + 2), width = blocks * VL, size = positions * VL * width;
    float here[36 * VL * 2 * VL] __attribute__((aligned(64)));
    float *kept = s->sums + task * positions * VL * 2 * VL, *sums = s->begins && s->ends ? here : kept;
    (void)tasks;
    if (s->begins) memset(sums, 0, (size_t)size * sizeof(float));
    for (int64_t i = 0; i < positions; i++) {
        const float *x = s->windows + (i * (s->channels / VL) + block) * plane;
        const meeting m = {.y = s->grads + (i * filter_blocks + 2 * pair) * plane,
                           .x_pixel = VL,
                           .y_pixel = VL,
                           .y_block = plane,
                           .count = s->count};
        for (int64_t half = 0; half < VL; half += MEET) {
            const float *at[MEET];
            for (int j = 0; j < MEET; j++) at[j] = x + half + j;
            meet(blocks, &m, at, sums + (i * VL + half) * width);
        }
    }
    if (!s->ends) return;
    for (int64_t b = 0; b < blocks; b++)
        store_filters(s, sums + b * VL, width, s->out + ((2 * pair + b) * VL * s->channels + block * VL) * 9, VL);
}
