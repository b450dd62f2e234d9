/* Resampling of images. Included by images.c. */

/* ---------------------------------------------------------------- interpolation of blocked images
   Every row of y is a weighted sum of n[4] rows of x, every pixel of n[5] pixels.  p: x, weights (those of the rows
   [n[1]][n[4]], then those of the columns [n[2]][n[5]]) or 0 where pixels are copied, -, y, -, offsets in x of the rows and
   of the columns in the same order.  n: 0 images, 1-2 rows and columns of y, 3 channel blocks; 4-5 see above; 6-7 x strides
   of image, channel block; 8-10 y strides of image, row, channel block */
static void interpolate(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *row_offsets = OFFSETS(step), *column_offsets = row_offsets + n[1] * n[4];
    const float *row_weights = step->p[1], *column_weights = row_weights ? row_weights + n[1] * n[4] : 0;
    int64_t from, to;
    part(n[0] * n[3] * n[1], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[1], block = i / n[1] % n[3], image = i / (n[1] * n[3]);
        const float *x = step->p[0] + image * n[6] + block * n[7];
        float *y = step->p[3] + image * n[8] + row * n[9] + block * n[10];
        for (int64_t column = 0; column < n[2]; column++) {
            const int64_t *cells = column_offsets + column * n[5];
            if (!row_weights) {
                STORE(y + column * VL, LOAD(x + row_offsets[row] + cells[0]));
                continue;
            }
            vec total = ALL(0);
            for (int64_t r = 0; r < n[4]; r++) {
                const float *line = x + row_offsets[row * n[4] + r];
                vec sum = ALL(0);
                for (int64_t c = 0; c < n[5]; c++) sum += LOAD(line + cells[c]) * ALL(column_weights[column * n[5] + c]);
                total += sum * ALL(row_weights[row * n[4] + r]);
            }
            STORE(y + column * VL, total);
        }
    }
}
