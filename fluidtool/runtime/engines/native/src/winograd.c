/* Winograd's convolution F(m x m, 3 x 3), m = 2 or 4: windows of (m + 2)^2 pixels are transformed, multiplied with the
   transformed filters - one small matrix product for each of the (m + 2)^2 positions - and transformed back to m x m
   results. The points are 0, +-1, infinity for m = 2; for m = 4 they are 0, +-1/sqrt(2), +-sqrt(2), infinity, whose error
   is a fifth of that of 0, +-1, +-2, infinity. Included by images.c. */

#define ROOT 1.41421356f
#define HALF_ROOT 0.70710678f
#define MOST_TILES 28 /* windows whose products lie on the stack until they are transformed back */

/* One axis of a window, pixels `step` vectors apart: B^T d. */
INLINE void transform_window(const int OUTPUTS, const vec *d, const int step, vec *v, const int v_step) {
    if (OUTPUTS == 2) {
        v[0] = d[0] - d[2 * step];
        v[v_step] = d[step] + d[2 * step];
        v[2 * v_step] = d[2 * step] - d[step];
        v[3 * v_step] = d[step] - d[3 * step];
        return;
    }
    const vec d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step];
    const vec even = d4 - ALL(2) * d2, odd = ALL(HALF_ROOT) * (d3 - ALL(2) * d1);
    const vec even_far = d4 - ALL(0.5f) * d2, odd_far = ALL(ROOT) * (d3 - ALL(0.5f) * d1);
    v[0] = (d[0] + d4) - ALL(2.5f) * d2;
    v[v_step] = even + odd;
    v[2 * v_step] = even - odd;
    v[3 * v_step] = even_far + odd_far;
    v[4 * v_step] = even_far - odd_far;
    v[5 * v_step] = (d1 + d[5 * step]) - ALL(2.5f) * d3;
}

/* One axis of the results: A^T m. */
INLINE void transform_back(const int OUTPUTS, const vec *m, const int step, vec *y, const int y_step) {
    const vec sum = m[step] + m[2 * step], difference = m[step] - m[2 * step];
    if (OUTPUTS == 2) {
        y[0] = m[0] + sum;
        y[y_step] = difference - m[3 * step];
        return;
    }
    const vec far_sum = m[3 * step] + m[4 * step], far_difference = m[3 * step] - m[4 * step];
    y[0] = m[0] + sum + far_sum;
    y[y_step] = ALL(HALF_ROOT) * difference + ALL(ROOT) * far_difference;
    y[2 * y_step] = ALL(0.5f) * sum + ALL(2) * far_sum;
    y[3 * y_step] = ALL(0.5f * HALF_ROOT) * difference + ALL(2 * ROOT) * far_difference + m[5 * step];
}

/* ---------------------------------------------------------------- windows */
INLINE void window(const int OUTPUTS, const ft_winograd_windows *s, const float *x, int64_t top, int64_t left, float *y) {
    enum { MOST = 6 };
    const int side = OUTPUTS + 2;
    vec pixels[MOST * MOST], half[MOST * MOST];
    if (top >= 0 && left >= 0 && top + side <= s->source_height && left + side <= s->source_width) {
#pragma GCC unroll 6
        for (int r = 0; r < side; r++)
#pragma GCC unroll 6
            for (int c = 0; c < side; c++) pixels[r * side + c] = LOAD(x + (top + r) * s->source_row + (left + c) * VL);
    } else {
        for (int r = 0; r < side; r++)
            for (int c = 0; c < side; c++) {
                const int inside = top + r >= 0 && top + r < s->source_height && left + c >= 0 && left + c < s->source_width;
                pixels[r * side + c] = inside ? LOAD(x + (top + r) * s->source_row + (left + c) * VL) : ALL(0);
            }
    }
#pragma GCC unroll 6
    for (int c = 0; c < side; c++) transform_window(OUTPUTS, pixels + c, side, half + c, side);
#pragma GCC unroll 6
    for (int r = 0; r < side; r++) {
        vec line[MOST];
        transform_window(OUTPUTS, half + r * side, 1, line, 1);
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
        if (s->outputs == 4) window(4, s, x, top, left, y);
        else window(2, s, x, top, left, y);
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
        if (s->activation > FT_RELU) activate_pixels(s->activation, &s->constants, y + r * s->out_row, s->out_pixel, columns);
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
    const int64_t tiles = (to - from + TILE - 1) / TILE;
    for (; pair < pair_end; pair++) {
        const int64_t blocks = 2 * pair + 1 < s->blocks ? 2 : 1, width = blocks * VL, position = (to - from) * width;
        const int64_t lines = (width * VL / 16 + tiles - 1) / tiles;
        const float *w = s->weights + pair * 2 * VL * positions * s->channels;
        for (int64_t i = 0; i < positions; i++, w += s->channels * width)
            for (int64_t tile = 0; tile < tiles; tile++) {
                int64_t first, last;
                part(to - from, tile, tiles, &first, &last);
                const tile_work t = {.x = s->windows + i * s->windows_position + (from + first) * VL,
                                     .w = w,
                                     .x_pixel = VL,
                                     .y = products + i * position + first * width,
                                     .y_pixel = width,
                                     .y_block = VL,
                                     .offsets = s->offsets,
                                     .segments = s->channels / VL,
                                     .length = VL,
                                     .first = 1,
                                     .ahead = w + s->channels * width + tile * s->channels / VL * lines * 16,
                                     .ahead_lines = lines};
                tile_of(blocks, last - first, &t);
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
typedef double vec_wide __attribute__((vector_size(VL * 8)));

INLINE void transform_filter(const int OUTPUTS, const vec_wide *g, const int step, vec_wide *u, const int u_step) {
    const vec_wide ends = g[0] + g[2 * step];
    u[0] = g[0];
    if (OUTPUTS == 2) {
        u[u_step] = (ends + g[step]) * 0.5;
        u[2 * u_step] = (ends - g[step]) * 0.5;
        u[3 * u_step] = g[2 * step];
        return;
    }
    const vec_wide near = (g[0] + g[2 * step] * 0.5) / -1.5, near_odd = g[step] * (0.70710678118654752 / -1.5);
    const vec_wide far = (g[0] + g[2 * step] * 2.0) / 6.0, far_odd = g[step] * (1.41421356237309505 / 6.0);
    u[u_step] = near + near_odd;
    u[2 * u_step] = near - near_odd;
    u[3 * u_step] = far + far_odd;
    u[4 * u_step] = far - far_odd;
    u[5 * u_step] = g[2 * step];
}

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
        const int64_t block = i / s->channels, channel = i % s->channels, pair = block / 2;
        const int64_t width = pair == pairs - 1 && blocks % 2 ? VL : 2 * VL;
        const int64_t there = s->filters - block * VL < VL ? s->filters - block * VL : VL;
        double lanes[9][VL] = {{0}};
        for (int64_t lane = 0; lane < there; lane++) {
            const int64_t number = block * VL + lane;
            const loose *g = (const loose *)s->source + (number * s->channels + channel) * 9;
            const double factor = s->scale ? (double)((const loose *)s->scale)[number] : 1;
            for (int tap = 0; tap < 9; tap++) lanes[tap][lane] = (double)g[tap] * factor;
        }
        vec_wide g[9];
        memcpy(g, lanes, sizeof g);
        float *y = s->out + pair * 2 * VL * positions * s->channels + channel * width + block % 2 * VL;
        if (s->outputs == 4) filter(4, g, y, s->channels * width);
        else filter(2, g, y, s->channels * width);
    }
}
