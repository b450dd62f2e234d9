/* Depthwise convolution, one channel to one. What lies outside the image is left out, so that it needs no zeros around it.
   Included by images.c.

   p: x, weights [channel block][tap][VL], bias or 0, y, residual or 0
   n: 0 images, 1 rows, 2 columns, 3 channel blocks, 4-5 rows and columns of the window, 6-7 padding above and to the left;
      8-9 x strides of image and row, 10 of a channel block; 11-14 y strides of image, row, pixel, channel block; 15-18 the
      same of the residual; 20-21 strides of the window, 22-23 dilations, 24 and 27 rows and columns of x; 25 parts by rows */
#define STREAK 8 /* pixels whose sums stay in registers */
#define TOGETHER (VL == 16 ? 2 : 1) /* rows whose sums do, where the window moves by one */

typedef struct {
    const ft_step *step;
    const float *x, *w, *residual;
    float *y;
    vec bias;
    int64_t first, last; /* rows of the window that lie in the image; of all windows, where rows are computed together */
} streak;

static const float nothing[VL]; /* what lies beside the image */

/* The activation of what has been stored. */
static __attribute__((noinline)) void activate_pixels(const ft_step *step, float *y, int64_t pixels) {
    for (int64_t i = 0; i < pixels; i++, y += step->n[13]) STORE(y, activate(LOAD(y), step->activation, step->f));
}

/* What sums start from: bias and residual. */
INLINE void start_pixels(const int PIXELS, const streak *t, int64_t row, int64_t column, vec *sum) {
    const int64_t *n = t->step->n;
#pragma GCC unroll 8
    for (int i = 0; i < PIXELS; i++) sum[i] = t->bias;
    if (t->residual)
#pragma GCC unroll 8
        for (int i = 0; i < PIXELS; i++) sum[i] += LOAD(t->residual + row * n[16] + (column + i) * n[17]);
}

INLINE void store_pixels(const int PIXELS, const streak *t, int64_t row, int64_t column, vec *sum) {
    const int64_t *n = t->step->n;
    float *y = t->y + row * n[12] + column * n[13];
#define EACH_SUM(work) _Pragma("GCC unroll 8") for (int i = 0; i < PIXELS; i++) work;
    ACTIVATE_QUICKLY(t->step->activation, t->step->f, EACH_SUM, sum[i])
    EACH_SUM(STORE(y + i * n[13], sum[i]))
#undef EACH_SUM
    if (!QUICK(t->step->activation)) activate_pixels(t->step, y, PIXELS);
}

/* PIXELS neighbours in each of ROWS rows, by a window of SIZE rows and columns that moves by STRIDE. Of the columns under
   it the first and the last SIZE / 2 may lie beside the image. */
INLINE void windows(const int PIXELS, const int ROWS, const int SIZE, const int STRIDE, const streak *t, int64_t column) {
    const int64_t *n = t->step->n;
    const int64_t left = column * STRIDE - n[7];
    const int columns = STRIDE * (PIXELS - 1) + SIZE, edge = SIZE / 2;
    vec sum[2][STREAK];
#pragma GCC unroll 2
    for (int r = 0; r < ROWS; r++) start_pixels(PIXELS, t, r, column, sum[r]);
#pragma GCC unroll 6
    for (int row = 0; row < SIZE + ROWS - 1; row++) {
        if (row < t->first || row >= t->last) continue;
        const float *x = t->x + row * n[9] + left * VL;
        vec weight[2][5];
#pragma GCC unroll 2
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 5
            for (int c = 0; c < SIZE; c++)
                if (row >= r && row - r < SIZE) weight[r][c] = LOAD(t->w + ((row - r) * SIZE + c) * VL);
#pragma GCC unroll 24
        for (int j = 0; j < columns; j++) {
            const int beside = (j < edge && left + j < 0) || (j >= columns - edge && left + j >= n[27]);
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

/* PIXELS neighbours in a row, by any window; BORDER: some taps lie outside the image. */
INLINE void taps(const int PIXELS, const int BORDER, const streak *t, int64_t column) {
    const int64_t *n = t->step->n;
    const int64_t left = column * n[21] - n[7];
    vec sum[STREAK];
    start_pixels(PIXELS, t, 0, column, sum);
    for (int64_t row = t->first; row < t->last; row++) {
        const float *x = t->x + row * n[22] * n[9] + left * VL, *w = t->w + row * n[5] * VL;
        for (int64_t c = 0; c < n[5]; c++) {
            const vec weight = LOAD(w + c * VL);
#pragma GCC unroll 8
            for (int i = 0; i < PIXELS; i++) {
                const int64_t at = i * n[21] + c * n[23];
                if (BORDER && (left + at < 0 || left + at >= n[27])) continue;
                sum[i] += weight * LOAD(x + at * VL);
            }
        }
    }
    store_pixels(PIXELS, t, 0, column, sum);
}

/* `pixels` neighbours, in so many rows. */
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
    const int64_t *n = t->step->n;
    const int64_t left = column * n[21] - n[7], right = left + (pixels - 1) * n[21] + (n[5] - 1) * n[23];
    (void)rows;
    if (left >= 0 && right < n[27]) STREAKS(taps, 0, t, column)
    STREAKS(taps, 1, t, column)
}

/* Whether a window of `size` moving by n[stride] is compiled by itself: a square that reaches beside the image by no more
   than half of itself. */
INLINE int is_window(const int64_t *n, int64_t size, int64_t stride) {
    const int64_t right = (n[2] - 1) * stride - n[7] + size - n[27]; /* columns that it reaches over */
    return n[4] == size && n[5] == size && n[20] == stride && n[21] == stride && n[22] == 1 && n[23] == 1 &&
           n[7] <= size / 2 && right <= size / 2;
}

static streaks streaks_of(const int64_t *n) {
#if UNROLL > 2
    if (is_window(n, 3, 1)) return windows_3_by_1;
    if (is_window(n, 3, 2)) return windows_3_by_2;
    if (is_window(n, 5, 1)) return windows_5_by_1;
    if (is_window(n, 5, 2)) return windows_5_by_2;
#else
    (void)n;
#endif
    return windows_any;
}

/* How many of the columns that are left to compute at once. */
INLINE int64_t streak_length(int64_t columns, int64_t left) {
    if (columns % 8 && columns % 7 == 0) return 7;
    return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* The taps [first, last) of `window`, `dilation` apart from `start` on, that lie in [0, size). */
INLINE void taps_inside(int64_t start, int64_t dilation, int64_t window, int64_t size, int64_t *first, int64_t *last) {
    *first = start < 0 ? (-start + dilation - 1) / dilation : 0;
    *last = start >= size ? 0 : (size - start + dilation - 1) / dilation;
    if (*last > window) *last = window;
}

static void depthwise(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n;
    const streaks compute = streaks_of(n);
    const int64_t most = TOGETHER == 2 && compute != windows_any && n[20] == 1 ? 2 : 1;
    int64_t from, to, rows;
    part(n[0] * n[25] * n[3], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t block = i % n[3], image = i / (n[25] * n[3]);
        int64_t row, end;
        part(n[1], i / n[3] % n[25], n[25], &row, &end);
        for (; row < end; row += rows) {
            const int64_t top = row * n[20] - n[6];
            rows = row + 1 < end ? most : 1;
            streak t = {.step = step,
                        .x = step->p[0] + image * n[8] + block * n[10] + top * n[9],
                        .w = step->p[1] + block * n[4] * n[5] * VL,
                        .residual = step->p[4] ? step->p[4] + image * n[15] + block * n[18] + row * n[16] : 0,
                        .y = step->p[3] + image * n[11] + block * n[14] + row * n[12],
                        .bias = step->p[2] ? LOAD(step->p[2] + block * VL) : ALL(0)};
            taps_inside(top, n[22], n[4] + rows - 1, n[24], &t.first, &t.last);
            for (int64_t column = 0, pixels; column < n[2]; column += pixels) {
                pixels = streak_length(n[2], n[2] - column);
                compute(&t, rows, pixels, column);
            }
        }
    }
}
