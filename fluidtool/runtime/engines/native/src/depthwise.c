/* Depthwise convolution, one channel to one. What lies outside the image is left out, so that it needs no zeros around it.
   Included by images.c, and by pairs.c, where it can also read and store halves. */
#define STREAK 8 /* pixels whose sums stay in registers */
#define TOGETHER (VL == 16 ? 2 : 1) /* rows whose sums do, where the window moves by one */

typedef struct {
    const ft_depthwise *s;
    const float *x, *w, *residual;
    const uint16_t *x_half; /* instead of x */
    float *y;
    uint16_t *half;
    vec bias;
    int64_t first, last; /* rows of the window that lie in the image; of all windows, where rows are computed together */
} streak;

static const float nothing[VL]; /* what lies beside the image */

/* What sums start from: bias and residual. */
INLINE void start_pixels(const int PIXELS, const streak *t, int64_t row, int64_t column, vec *sum) {
    const ft_depthwise *s = t->s;
#pragma GCC unroll 8
    for (int i = 0; i < PIXELS; i++) sum[i] = t->bias;
    if (t->residual)
#pragma GCC unroll 8
        for (int i = 0; i < PIXELS; i++)
            sum[i] += LOAD(t->residual + row * s->residual_row + (column + i) * s->residual_pixel);
}

#define EACH_SUM(work) _Pragma("GCC unroll 8") for (int i = 0; i < PIXELS; i++) work;
INLINE void store_pixels(const int PIXELS, const streak *t, int64_t row, int64_t column, vec *sum) {
    const ft_depthwise *s = t->s;
    ACTIVATE_QUICKLY(s->activation, &s->constants, EACH_SUM, sum[i])
#if defined(__AVX512BF16__)
    if (t->half) {
        uint16_t *const half = t->half + row * s->halves_row + column * s->halves_pixel;
        if (QUICK(s->activation)) store_half_pixels(PIXELS, half, s->halves_pixel, sum);
        else {
            vec beside[STREAK];
            EACH_SUM(beside[i] = sum[i])
            activate_each((float *)beside, VL, PIXELS, s->activation, &s->constants);
            store_half_pixels(PIXELS, half, s->halves_pixel, beside);
        }
    }
    if (!t->y) return;
#endif
    float *y = t->y + row * s->out_row + column * s->out_pixel;
    EACH_SUM(STORE(y + i * s->out_pixel, sum[i]))
    if (!QUICK(s->activation)) activate_each(y, s->out_pixel, PIXELS, s->activation, &s->constants);
}
#undef EACH_SUM

/* PIXELS neighbors in each of ROWS rows, by a window of SIZE rows and columns that moves by STRIDE. Of the columns under
   it the first and the last SIZE / 2 may lie beside the image. */
INLINE void windows(const int PIXELS, const int ROWS, const int SIZE, const int STRIDE, const streak *t, int64_t column) {
    const ft_depthwise *s = t->s;
    const int64_t left = column * STRIDE - s->pad_left;
    const int columns = STRIDE * (PIXELS - 1) + SIZE, edge = SIZE / 2;
    vec sum[2][STREAK];
#pragma GCC unroll 2
    for (int r = 0; r < ROWS; r++) start_pixels(PIXELS, t, r, column, sum[r]);
#pragma GCC unroll 6
    for (int row = 0; row < SIZE + ROWS - 1; row++) {
        if (row < t->first || row >= t->last) continue;
        const float *x = t->x + row * s->source_row + left * VL;
        vec weight[2][5];
#pragma GCC unroll 2
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 5
            for (int c = 0; c < SIZE; c++)
                if (row >= r && row - r < SIZE) weight[r][c] = LOAD(t->w + ((row - r) * SIZE + c) * VL);
#pragma GCC unroll 24
        for (int j = 0; j < columns; j++) {
            const int beside = (j < edge && left + j < 0) || (j >= columns - edge && left + j >= s->source_width);
            const vec value = LOAD(beside ? nothing : x + j * VL);
#pragma GCC unroll 2
            for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 5
                for (int c = 0; c < SIZE; c++)
                    if (row >= r && row - r < SIZE && j >= c && (j - c) % STRIDE == 0 && (j - c) / STRIDE < PIXELS)
                        sum[r][(j - c) / STRIDE] += weight[r][c] * value;
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < ROWS; r++) store_pixels(PIXELS, t, r, column, sum[r]);
}

/* PIXELS neighbors in a row, by any window; BORDER: some taps lie outside the image. */
INLINE void taps(const int PIXELS, const int BORDER, const streak *t, int64_t column) {
    const ft_depthwise *s = t->s;
    const int64_t left = column * s->stride_w - s->pad_left;
    vec sum[STREAK];
    start_pixels(PIXELS, t, 0, column, sum);
    for (int64_t row = t->first; row < t->last; row++) {
        const float *x = t->x + row * s->dilation_h * s->source_row + left * VL, *w = t->w + row * s->window_w * VL;
        for (int64_t c = 0; c < s->window_w; c++) {
            const vec weight = LOAD(w + c * VL);
#pragma GCC unroll 8
            for (int i = 0; i < PIXELS; i++) {
                const int64_t at = i * s->stride_w + c * s->dilation_w;
                if (BORDER && (left + at < 0 || left + at >= s->source_width)) continue;
                sum[i] += weight * LOAD(x + at * VL);
            }
        }
    }
    store_pixels(PIXELS, t, 0, column, sum);
}

/* `pixels` neighbors, in so many rows. */
typedef void (*streaks)(const streak *t, int64_t rows, int64_t pixels, int64_t column);

#define STREAKS(work, ...)                     \
    switch (pixels) {                          \
        case 8: work(8, __VA_ARGS__); return;  \
        case 7: work(7, __VA_ARGS__); return;  \
        case 4: work(4, __VA_ARGS__); return;  \
        case 2: work(2, __VA_ARGS__); return;  \
        default: work(1, __VA_ARGS__); return; \
    }
#define WINDOWS(name, SIZE, STRIDE)                                                               \
    static void name(const streak *t, int64_t rows, int64_t pixels, int64_t column) {             \
        if (STRIDE == 1 && TOGETHER == 2 && rows == 2) STREAKS(windows, 2, SIZE, STRIDE, t, column) \
        STREAKS(windows, 1, SIZE, STRIDE, t, column)                                              \
    }

#if UNROLL > 2
WINDOWS(windows_3_by_1, 3, 1)
WINDOWS(windows_3_by_2, 3, 2)
WINDOWS(windows_5_by_1, 5, 1)
WINDOWS(windows_5_by_2, 5, 2)
#endif

static void windows_any(const streak *t, int64_t rows, int64_t pixels, int64_t column) {
    const ft_depthwise *s = t->s;
    const int64_t left = column * s->stride_w - s->pad_left,
                  right = left + (pixels - 1) * s->stride_w + (s->window_w - 1) * s->dilation_w;
    (void)rows;
    if (left >= 0 && right < s->source_width) STREAKS(taps, 0, t, column)
    STREAKS(taps, 1, t, column)
}

/* Whether a window of `size` moving by `stride` is compiled by itself: a square that reaches beside the image by no more
   than half of itself. */
INLINE int is_window(const ft_depthwise *s, int64_t size, int64_t stride) {
    const int64_t right = (s->columns - 1) * stride - s->pad_left + size - s->source_width; /* columns that it reaches over */
    return s->window_h == size && s->window_w == size && s->stride_h == stride && s->stride_w == stride &&
           s->dilation_h == 1 && s->dilation_w == 1 && s->pad_left <= size / 2 && right <= size / 2;
}

static streaks streaks_of(const ft_depthwise *s) {
#if UNROLL > 2
    if (is_window(s, 3, 1)) return windows_3_by_1;
    if (is_window(s, 3, 2)) return windows_3_by_2;
    if (is_window(s, 5, 1)) return windows_5_by_1;
    if (is_window(s, 5, 2)) return windows_5_by_2;
#else
    (void)s;
#endif
    return windows_any;
}

/* How many of the columns that are left to compute at once. */
INLINE int64_t streak_length(int64_t columns, int64_t left) {
    if (columns % 8 && columns % 7 == 0) return 7;
    return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

#if defined(__AVX512BF16__)
#include "depthwise_pairs.c"
#endif

/* The taps [first, last) of `window`, `dilation` apart from `start` on, that lie in [0, size). */
INLINE void taps_inside(int64_t start, int64_t dilation, int64_t window, int64_t size, int64_t *first, int64_t *last) {
    *first = start < 0 ? (-start + dilation - 1) / dilation : 0;
    *last = start >= size ? 0 : (size - start + dilation - 1) / dilation;
    if (*last > window) *last = window;
}

static void depthwise(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_depthwise *s = &call->depthwise;
    const streaks compute = streaks_of(s);
    const int64_t most = s->source_halves || (TOGETHER == 2 && compute != windows_any && s->stride_h == 1) ? 2 : 1;
    const int64_t weights = VL * s->window_w * (s->source_halves ? s->window_h + 1 : s->window_h); /* of a block */
    int64_t from, to, rows;
    part(s->images * s->row_parts * s->blocks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t block = i % s->blocks, image = i / (s->row_parts * s->blocks);
        int64_t row, end;
        part(s->rows, i / s->blocks % s->row_parts, s->row_parts, &row, &end);
        for (; row < end; row += rows) {
            const int64_t top = row * s->stride_h - s->pad_top;
            const int64_t x = image * s->source_image + block * s->source_block + top * s->source_row;
            rows = row + 1 < end ? most : 1;
            streak t = {.s = s,
                        .x = s->source ? s->source + x : 0,
                        .x_half = s->source_halves ? s->source_halves + x : 0,
                        .w = s->weights + block * weights,
                        .residual = s->residual ? s->residual + image * s->residual_image + block * s->residual_block +
                                                      row * s->residual_row
                                                : 0,
                        .y = s->out ? s->out + image * s->out_image + block * s->out_block + row * s->out_row : 0,
                        .half = s->out_halves ? s->out_halves + image * s->halves_image + block / 2 * s->halves_pair +
                                                    block % 2 * s->halves_block + row * s->halves_row
                                              : 0,
                        .bias = s->bias ? LOAD(s->bias + block * VL) : ALL(0)};
            taps_inside(top, s->dilation_h, s->window_h + (rows - 1) * s->stride_h, s->source_height, &t.first, &t.last);
#if defined(__AVX512BF16__)
            if (s->source_halves) {
                compute_pairs(&t, rows);
                continue;
            }
#endif
            for (int64_t column = 0, pixels; column < s->columns; column += pixels) {
                pixels = streak_length(s->columns, s->columns - column);
                compute(&t, rows, pixels, column);
            }
        }
    }
}
