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
   A NaN stays the maximum. What lies outside counts as the lowest finite number. */
static void pool_rows(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pool *s = &call->pool;
    int64_t from, to;
    part(s->images * s->blocks * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % s->rows, block = i / s->rows % s->blocks, image = i / (s->rows * s->blocks);
        const float *x = s->source + image * s->source_image + block * s->source_block;
        float *y = s->out + image * s->out_image + block * s->out_block + row * s->out_row;
        int64_t top = s->adaptive ? row * s->source_height / s->rows : row * s->stride_h - s->pad_top;
        int64_t bottom = s->adaptive ? ((row + 1) * s->source_height + s->rows - 1) / s->rows : top + s->window_h;
        const int whole_rows = top >= 0 && bottom <= s->source_height;
        const int64_t most_rows = (bottom < s->source_height + s->pad_top ? bottom : s->source_height + s->pad_top) - top;
        top = top < 0 ? 0 : top, bottom = bottom > s->source_height ? s->source_height : bottom;
        for (int64_t column = 0; column < s->columns; column++) {
            int64_t left = s->adaptive ? column * s->source_width / s->columns : column * s->stride_w - s->pad_left;
            int64_t right = s->adaptive ? ((column + 1) * s->source_width + s->columns - 1) / s->columns : left + s->window_w;
            const int64_t most_columns = (right < s->source_width + s->pad_left ? right : s->source_width + s->pad_left) -
                                         left;
            const int whole = whole_rows && left >= 0 && right <= s->source_width;
            left = left < 0 ? 0 : left, right = right > s->source_width ? s->source_width : right;
            vec value = s->mode ? ALL(0) : whole ? ALL(-INFINITY) : ALL(-3.402823466e38f);
            for (int64_t r = top; r < bottom; r++) {
                int64_t c = left;
                if (s->mode && right - left >= 2 * ABREAST) value += sum_of_pixels(x + r * s->source_row, &c, right);
                for (; c < right; c++) {
                    const vec item = LOAD(x + r * s->source_row + c * VL);
                    value = s->mode ? value + item : CHOOSE(value == value, MAX(item, value), value);
                }
            }
            if (s->mode == 1) value /= ALL((bottom - top) * (right - left));
            if (s->mode == 2) value /= ALL(most_rows * most_columns);
            STORE(y + column * VL, value);
        }
    }
}
