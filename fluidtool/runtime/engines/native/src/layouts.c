/* Between NCHW and channels in blocks. Included by images.c. */

/* A row of CHANNELS channels, `plane` apart, side by side. A constant wherever that matters: the compiler makes vectors
   then. */
INLINE void interleave(const int64_t CHANNELS, const float *restrict x, int64_t plane, int64_t columns, float *restrict y) {
    for (int64_t column = 0; column < columns; column++)
        for (int64_t lane = 0; lane < CHANNELS; lane++) y[column * CHANNELS + lane] = x[lane * plane + column];
}

/* The same for the three channels of a picture, by shuffles of vectors: number g of the result is of channel g % 3. */
static void interleave_three(const float *restrict x, int64_t plane, int64_t columns, float *restrict y) {
    int64_t column = 0;
#if UNROLL > 2
    veci of_two[3], of_third[3];
    for (int v = 0; v < 3; v++) {
        const veci number = LANES + v * VL, pixel = number / 3, channel = number % 3;
        of_two[v] = pixel + (channel & 1) * VL;
        of_third[v] = (channel == 2 & pixel + VL) | (channel != 2 & LANES);
    }
    for (; column + VL <= columns; column += VL)
        for (int v = 0; v < 3; v++) {
            const vec two = SHUFFLE(LOAD(x + column), LOAD(x + plane + column), of_two[v]);
            STORE(y + 3 * column + v * VL, SHUFFLE(two, LOAD(x + 2 * plane + column), of_third[v]));
        }
#endif
    interleave(3, x + column, plane, columns - column, y + 3 * column);
}

static void block_layout(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_block *s = &call->block;
    const int64_t plane = s->rows * s->columns;
    int64_t from, to;
    part(s->images * s->blocks * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % s->rows, block = i / s->rows % s->blocks, image = i / (s->rows * s->blocks);
        const int64_t lanes = s->channels - block * s->lanes < s->lanes ? s->channels - block * s->lanes : s->lanes;
        const float *x = s->source + (image * s->channels + block * s->lanes) * plane + row * s->columns;
        float *y = s->out + image * s->out_image + block * s->out_block + row * s->out_row;
        if (s->lanes == 1) interleave(1, x, plane, s->columns, y);
        else if (s->lanes == 3) interleave_three(x, plane, s->columns, y);
        else if (lanes == VL) interleave(VL, x, plane, s->columns, y);
        else if (lanes == s->lanes) interleave(lanes, x, plane, s->columns, y);
        else
            for (int64_t column = 0; column < s->columns; column++)
                for (int64_t lane = 0; lane < s->lanes; lane++)
                    y[column * s->lanes + lane] = lane < lanes ? x[lane * plane + column] : 0;
    }
}

/* The way back: the first CHANNELS of each VL channels. */
INLINE void separate(const int64_t CHANNELS, const float *restrict x, int64_t plane, int64_t columns, float *restrict y) {
    for (int64_t column = 0; column < columns; column++)
        for (int64_t lane = 0; lane < CHANNELS; lane++) y[lane * plane + column] = x[column * VL + lane];
}

static void unblock_layout(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_unblock *s = &call->unblock;
    const int64_t plane = s->rows * s->columns;
    int64_t from, to;
    part(s->images * s->blocks * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % s->rows, block = i / s->rows % s->blocks, image = i / (s->rows * s->blocks);
        const int64_t lanes = s->channels - block * VL < VL ? s->channels - block * VL : VL;
        const float *x = s->source + image * s->source_image + block * s->source_block + row * s->source_row;
        float *y = s->out + (image * s->channels + block * VL) * plane + row * s->columns;
        if (lanes == VL) separate(VL, x, plane, s->columns, y);
        else separate(lanes, x, plane, s->columns, y);
    }
}

static void zero_halo(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_halo *s = &call->halo;
    const int64_t pitch = s->columns * s->lanes;
    int64_t from, to;
    part(s->planes, task, tasks, &from, &to);
    for (int64_t plane = from; plane < to; plane++) {
        float *y = s->out + plane * s->rows * pitch;
        memset(y, 0, (size_t)(s->top * pitch) * sizeof(float));
        memset(y + (s->rows - s->bottom) * pitch, 0, (size_t)(s->bottom * pitch) * sizeof(float));
        for (int64_t row = s->top; row < s->rows - s->bottom; row++) {
            memset(y + row * pitch, 0, (size_t)(s->left * s->lanes) * sizeof(float));
            memset(y + (row + 1) * pitch - s->right * s->lanes, 0, (size_t)(s->right * s->lanes) * sizeof(float));
        }
    }
}

/* Some pixels of each image, side by side. */
static void subsample(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_subsample *s = &call->subsample;
    int64_t from, to;
    part(s->images * s->blocks * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % s->rows, block = i / s->rows % s->blocks, image = i / (s->rows * s->blocks);
        const float *x = s->source + image * s->source_image + block * s->source_block + row * s->source_row;
        float *y = s->out + i * s->columns * s->lanes;
        if (s->lanes == VL)
            for (int64_t column = 0; column < s->columns; column++)
                STORE(y + column * VL, LOAD(x + column * s->source_pixel));
        else
            for (int64_t column = 0; column < s->columns; column++)
                memcpy(y + column * s->lanes, x + column * s->source_pixel, (size_t)s->lanes * sizeof(float));
    }
}
