/* Pooling. Included by images.c. */
#define ABREAST 4 /* sums that do not wait for each other */

/* Of pixels from *column on, as many as there are times ABREAST; *column is the first that is left. */
INLINE vec sum_of_pixels(const float *x, int64_t *column, int64_t end) {
    vec sum[ABREAST] = {ALL(0), ALL(0), ALL(0), ALL(0)};
    for (; *column + ABREAST <= end; *column += ABREAST)
#pragma GCC unroll 4
        for (int i = 0; i < ABREAST; i++) sum[i] += LOAD(x + (*column + i) * VL);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* ---------------------------------------------------------------- pooling of blocked tensors
   p: x, -, -, y.  n: 0 images, 1 rows, 2 columns, 3 channel blocks, 4-5 window, 6-7 stride, 8-9 padding before,
   10-11 rows and columns of x; 12-14 x strides of image, row, channel block; 15-17 the same of y;
   18: 0 maximum, 1 mean of what lies inside, 2 mean over the whole window; 19: adaptive windows
   A NaN stays the maximum. What lies outside counts as the lowest finite number. */
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
        const int whole_rows = top >= 0 && bottom <= n[10];
        const int64_t most_rows = (bottom < n[10] + n[8] ? bottom : n[10] + n[8]) - top;
        top = top < 0 ? 0 : top, bottom = bottom > n[10] ? n[10] : bottom;
        for (int64_t column = 0; column < n[2]; column++) {
            int64_t left = n[19] ? column * n[11] / n[2] : column * n[7] - n[9];
            int64_t right = n[19] ? ((column + 1) * n[11] + n[2] - 1) / n[2] : left + n[5];
            const int64_t most_columns = (right < n[11] + n[9] ? right : n[11] + n[9]) - left;
            const int whole = whole_rows && left >= 0 && right <= n[11];
            left = left < 0 ? 0 : left, right = right > n[11] ? n[11] : right;
            vec value = n[18] ? ALL(0) : whole ? ALL(-INFINITY) : ALL(-3.402823466e38f);
            for (int64_t r = top; r < bottom; r++) {
                int64_t c = left;
                if (n[18] && right - left >= 2 * ABREAST) value += sum_of_pixels(x + r * n[13], &c, right);
                for (; c < right; c++) {
                    const vec item = LOAD(x + r * n[13] + c * VL);
                    value = n[18] ? value + item : CHOOSE(value == value, MAX(item, value), value);
                }
            }
            if (n[18] == 1) value /= ALL((bottom - top) * (right - left));
            if (n[18] == 2) value /= ALL(most_rows * most_columns);
            STORE(y + column * VL, value);
        }
    }
}
