/* Depthwise convolution, one channel to one. What lies outside the image is left out, so that it needs no zeros around it.
   Included by kernels.c.

   p: x, weights [channel block][tap][VL], bias or 0, y, residual or 0
   n: 0 images, 1 rows, 2 columns, 3 channel blocks, 4-5 rows and columns of the window, 6-7 padding above and to the left;
      8-9 x strides of image and row, 10 of a channel block; 11-14 y strides of image, row, pixel, channel block; 15-18 the
      same of the residual; 20-21 strides of the window, 22-23 dilations, 24 and 27 rows and columns of x */
#define STREAK 8 /* pixels whose sums stay in registers */

typedef struct {
    const ft_step *step;
    const float *x, *w, *residual;
    float *y;
    vec bias;
    int64_t first, last; /* rows of the window that lie in the image */
} streak;

/* Activations other than ReLU, on what has been stored. */
static __attribute__((noinline)) void activate_pixels(const ft_step *step, float *y, int64_t pixels) {
    for (int64_t i = 0; i < pixels; i++, y += step->n[13]) STORE(y, activate(LOAD(y), step->activation, step->f));
}

/* PIXELS neighbours in a row; WIDTH columns of the window moving by STRIDE, or 0 where they are not known before; BORDER:
   some taps lie outside the image. */
INLINE void taps(const int PIXELS, const int WIDTH, const int STRIDE, const int BORDER, const streak *t, int64_t column) {
    const int64_t *n = t->step->n;
    const int64_t left = column * n[21] - n[7];
    vec sum[STREAK];
#pragma GCC unroll 8
    for (int i = 0; i < PIXELS; i++) sum[i] = t->bias;
    if (t->residual)
#pragma GCC unroll 8
        for (int i = 0; i < PIXELS; i++) sum[i] += LOAD(t->residual + (column + i) * n[17]);
    for (int64_t row = t->first; row < t->last; row++) {
        const float *x = t->x + row * n[22] * n[9] + left * VL, *w = t->w + row * n[5] * VL;
        if (WIDTH) {
            vec weight[5];
#pragma GCC unroll 5
            for (int c = 0; c < WIDTH; c++) weight[c] = LOAD(w + c * VL);
#pragma GCC unroll 24
            for (int j = 0; j < STRIDE * (PIXELS - 1) + WIDTH; j++) {
                if (BORDER && (left + j < 0 || left + j >= n[27])) continue;
                const vec value = LOAD(x + j * VL);
#pragma GCC unroll 5
                for (int c = 0; c < WIDTH; c++)
                    if (j >= c && (j - c) % STRIDE == 0 && (j - c) / STRIDE < PIXELS)
                        sum[(j - c) / STRIDE] += weight[c] * value;
            }
        } else
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
    float *y = t->y + column * n[13];
    if (t->step->activation == FT_RELU)
#pragma GCC unroll 8
        for (int i = 0; i < PIXELS; i++) sum[i] = MAX(sum[i], ALL(0));
#pragma GCC unroll 8
    for (int i = 0; i < PIXELS; i++) STORE(y + i * n[13], sum[i]);
    if (t->step->activation > FT_RELU) activate_pixels(t->step, y, PIXELS);
}

#define STREAKS(WIDTH, STRIDE, BORDER)                               \
    switch (pixels) {                                                \
        case 8: taps(8, WIDTH, STRIDE, BORDER, t, column); return;   \
        case 7: taps(7, WIDTH, STRIDE, BORDER, t, column); return;   \
        case 4: taps(4, WIDTH, STRIDE, BORDER, t, column); return;   \
        case 2: taps(2, WIDTH, STRIDE, BORDER, t, column); return;   \
        default: taps(1, WIDTH, STRIDE, BORDER, t, column); return;  \
    }

#if UNROLL > 2
static void streak_3_by_1(const streak *t, int64_t pixels, int64_t column) { STREAKS(3, 1, 0) }
static void streak_3_by_2(const streak *t, int64_t pixels, int64_t column) { STREAKS(3, 2, 0) }
static void streak_5_by_1(const streak *t, int64_t pixels, int64_t column) { STREAKS(5, 1, 0) }
static void streak_5_by_2(const streak *t, int64_t pixels, int64_t column) { STREAKS(5, 2, 0) }
static void border_3_by_1(const streak *t, int64_t pixels, int64_t column) { STREAKS(3, 1, 1) }
static void border_3_by_2(const streak *t, int64_t pixels, int64_t column) { STREAKS(3, 2, 1) }
#endif
static void streak_any(const streak *t, int64_t pixels, int64_t column) { STREAKS(0, 0, 0) }
static void border_any(const streak *t, int64_t pixels, int64_t column) { STREAKS(0, 0, 1) }

typedef void (*streaks)(const streak *t, int64_t pixels, int64_t column);

/* The functions for streaks inside and at the border. */
static void streaks_of(const int64_t *n, streaks *inside, streaks *border) {
    *inside = streak_any, *border = border_any;
#if UNROLL > 2
    const int64_t stride = n[23] == 1 && n[21] <= 2 ? n[21] : 0;
    if (n[5] == 3 && stride == 1) *inside = streak_3_by_1, *border = border_3_by_1;
    if (n[5] == 3 && stride == 2) *inside = streak_3_by_2, *border = border_3_by_2;
    if (n[5] == 5 && stride == 1) *inside = streak_5_by_1;
    if (n[5] == 5 && stride == 2) *inside = streak_5_by_2;
#else
    (void)n;
#endif
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
    int64_t from, to;
    streaks inside, border;
    streaks_of(n, &inside, &border);
    part(n[0] * n[3] * n[1], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[1], block = i / n[1] % n[3], image = i / (n[1] * n[3]), top = row * n[20] - n[6];
        streak t = {.step = step,
                    .x = step->p[0] + image * n[8] + block * n[10] + top * n[9],
                    .w = step->p[1] + block * n[4] * n[5] * VL,
                    .residual = step->p[4] ? step->p[4] + image * n[15] + block * n[18] + row * n[16] : 0,
                    .y = step->p[3] + image * n[11] + block * n[14] + row * n[12],
                    .bias = step->p[2] ? LOAD(step->p[2] + block * VL) : ALL(0)};
        taps_inside(top, n[22], n[4], n[24], &t.first, &t.last);
        for (int64_t column = 0; column < n[2];) {
            const int64_t pixels = streak_length(n[2], n[2] - column);
            const int64_t left = column * n[21] - n[7];
            const int64_t right = left + (pixels - 1) * n[21] + (n[5] - 1) * n[23];
            (left >= 0 && right < n[27] ? inside : border)(&t, pixels, column);
            column += pixels;
        }
    }
}
