/* Depthwise convolution of halves by dot products of pairs: two rows of the image make words of two halves, which are multiplied with
   two weights of a column of the window. Included by depthwise.c. */
#define LINES 8    /* rows of the image under two rows of windows, and one beside them */
#define COLUMNS 20 /* of the image under a streak */

static const uint16_t blank[COLUMNS * VL]; /* a row beside the image */

/* The words of two rows at a pixel, or (RIGHT) at the next one. */
INLINE __m512i words_at(const int RIGHT, __m512i upper, __m512i lower) {
    const __m512i halves_of = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,
                                               36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return _mm512_permutex2var_epi16(upper, _mm512_add_epi16(_mm512_set1_epi16(RIGHT * VL), halves_of), lower);
}

/* Two pixels of a row; the second may be beside the streak, either of them beside the image. */
INLINE __m512i two_pixels(const int BORDER, const int SECOND, const uint16_t *x, int64_t column, int64_t width) {
    if (!BORDER) return SECOND ? _mm512_loadu_si512(x) : _mm512_castsi256_si512(_mm256_loadu_si256((const void *)x));
    const __mmask32 first = column >= 0 && column < width ? 0xffffu : 0,
                    second = SECOND && column >= -1 && column + 1 < width ? 0xffff0000u : 0;
    return _mm512_maskz_loadu_epi16(first | second, x);
}

/* PIXELS neighbors in each of ROWS rows, by a window of SIZE rows and columns that moves by STRIDE; BORDER: it may reach beside the
   image. Weights of a block: [whether the first row of the window is the lower one of a pair][pair][column][lane][2]; what lies beside
   the window weighs 0, and counts as 0, for it may be no number. */
INLINE void window_pairs(const int PIXELS, const int ROWS, const int SIZE, const int STRIDE, const int BORDER, const streak *t,
                         const uint16_t *const *line, int64_t column) {
    const int64_t left = column * STRIDE - t->s->pad_left, width = t->s->source_width;
    const int lines = STRIDE * (ROWS - 1) + SIZE, columns = STRIDE * (PIXELS - 1) + SIZE, pairs = (SIZE + 1) / 2;
    vec sum[2][STREAK];
#pragma GCC unroll 2
    for (int r = 0; r < ROWS; r++) start_pixels(PIXELS, t, r, column, sum[r]);
#pragma GCC unroll 4
    for (int p = 0; 2 * p < lines; p++) {
        const uint16_t *const one = line[2 * p] == blank ? blank : line[2 * p] + left * VL,
                       *const two = line[2 * p + 1] == blank ? blank : line[2 * p + 1] + left * VL;
        __m512bh weight[2][5];
#pragma GCC unroll 2
        for (int r = 0; r < ROWS; r++) {
            const int pair = p - r * STRIDE / 2;
            const float *const w = t->w + ((r * STRIDE % 2 * pairs + pair) * SIZE) * VL;
            if (pair >= 0 && pair < pairs)
#pragma GCC unroll 5
                for (int c = 0; c < SIZE; c++) weight[r][c] = (__m512bh)LOAD(w + c * VL);
        }
#pragma GCC unroll 10
        for (int j = 0; j < columns; j += 2) {
            const int beside = BORDER && (j < SIZE / 2 || j + 2 > columns - SIZE / 2), second = j + 1 < columns;
            const __m512i upper = two_pixels(beside, second, one + j * VL, left + j, width),
                          lower = two_pixels(beside, second, two + j * VL, left + j, width);
#pragma GCC unroll 2
            for (int right = 0; right < 1 + second; right++) {
                const __m512i words = words_at(right, upper, lower);
#pragma GCC unroll 2
                for (int r = 0; r < ROWS; r++) {
                    const int pair = p - r * STRIDE / 2, first = 2 * p - r * STRIDE; /* of the window's rows, the upper one */
                    if (pair < 0 || pair >= pairs) continue;
                    const __m512bh within = (__m512bh)(first < 0          ? _mm512_and_si512(words, _mm512_set1_epi32(-0x10000))
                                                       : first + 1 < SIZE ? words
                                                                          : _mm512_and_si512(words, _mm512_set1_epi32(0xffff)));
#pragma GCC unroll 5
                    for (int c = 0; c < SIZE; c++) {
                        const int from = j + right - c, i = from / STRIDE;
                        if (from >= 0 && from % STRIDE == 0 && i < PIXELS)
                            sum[r][i] = (vec)_mm512_dpbf16_ps((__m512)sum[r][i], weight[r][c], within);
                    }
                }
            }
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < ROWS; r++) store_pixels(PIXELS, t, r, column, sum[r]);
}

/* All columns of ROWS rows. */
INLINE void pairs_of(const int ROWS, const int SIZE, const int STRIDE, const streak *t) {
    const ft_depthwise *s = t->s;
    const uint16_t *line[LINES];
    const int64_t inside = (s->source_width - STRIDE * (STREAK - 1) - SIZE + s->pad_left) / STRIDE; /* last streak that is */
    for (int k = 0; k < LINES; k++)
        line[k] = k < STRIDE * (ROWS - 1) + SIZE && k >= t->first && k < t->last ? t->x_half + k * s->source_row : blank;
    for (int64_t column = 0, pixels; column < s->columns; column += pixels) {
        pixels = streak_length(s->columns, s->columns - column);
        if (pixels == STREAK && column * STRIDE >= s->pad_left && column <= inside)
            window_pairs(STREAK, ROWS, SIZE, STRIDE, 0, t, line, column);
        else
            switch (pixels) {
                case 8: window_pairs(8, ROWS, SIZE, STRIDE, 1, t, line, column); break;
                case 7: window_pairs(7, ROWS, SIZE, STRIDE, 1, t, line, column); break;
                case 4: window_pairs(4, ROWS, SIZE, STRIDE, 1, t, line, column); break;
                case 2: window_pairs(2, ROWS, SIZE, STRIDE, 1, t, line, column); break;
                default: window_pairs(1, ROWS, SIZE, STRIDE, 1, t, line, column);
            }
    }
}

typedef void (*rows_of_pairs)(const streak *t, int64_t rows);

#define PAIRS_OF(name, SIZE, STRIDE)                   \
    static void name(const streak *t, int64_t rows) {  \
        if (rows == 2) pairs_of(2, SIZE, STRIDE, t);   \
        else pairs_of(1, SIZE, STRIDE, t);             \
    }
PAIRS_OF(pairs_3_by_1, 3, 1)
PAIRS_OF(pairs_3_by_2, 3, 2)
PAIRS_OF(pairs_5_by_1, 5, 1)
PAIRS_OF(pairs_5_by_2, 5, 2)

static void compute_pairs(const streak *t, int64_t rows) {
    const rows_of_pairs by[2][2] = {{pairs_3_by_1, pairs_3_by_2}, {pairs_5_by_1, pairs_5_by_2}};
    by[t->s->window_h == 5][t->s->stride_h == 2](t, rows);
}
