/* Resampling of images. Included by images.c. */

/* ---------------------------------------------------------------- interpolation of blocked images */
static void interpolate(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_interpolate *s = &call->interpolate;
    const int64_t *row_offsets = s->offsets, *column_offsets = row_offsets + s->rows * s->row_taps;
    const float *row_weights = s->weights, *column_weights = row_weights ? row_weights + s->rows * s->row_taps : 0;
    int64_t from, to;
    part(s->images * s->blocks * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % s->rows, block = i / s->rows % s->blocks, image = i / (s->rows * s->blocks);
        const float *x = s->source + image * s->source_image + block * s->source_block;
        float *y = s->out + image * s->out_image + row * s->out_row + block * s->out_block;
        for (int64_t column = 0; column < s->columns; column++) {
            const int64_t *cells = column_offsets + column * s->column_taps;
            if (!row_weights) {
                STORE(y + column * VL, LOAD(x + row_offsets[row] + cells[0]));
                continue;
            }
            vec total = ALL(0);
            for (int64_t r = 0; r < s->row_taps; r++) {
                const float *line = x + row_offsets[row * s->row_taps + r];
                vec sum = ALL(0);
                for (int64_t c = 0; c < s->column_taps; c++)
                    sum += LOAD(line + cells[c]) * ALL(column_weights[column * s->column_taps + c]);
                total += sum * ALL(row_weights[row * s->row_taps + r]);
            }
            STORE(y + column * VL, total);
        }
    }
}
