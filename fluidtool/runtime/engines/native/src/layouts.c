/* Between NCHW and channels in blocks. Included by images.c. */
/* ---------------------------------------------------------------- layouts
   block: p: x (NCHW), -, -, y (blocked). n: 0 images, 1 channels, 2 rows, 3 columns; 4-6 y strides of image, channel
   block, row; 7 channel blocks, 8 lanes of one.  unblock: p: x (blocked), -, -, y (NCHW), the same n. */
/* A row of CHANNELS channels, `plane` apart, side by side. A constant wherever that matters: the compiler makes vectors then. */
INLINE void interleave(const int64_t CHANNELS, const float *restrict x, int64_t plane, int64_t columns, float *restrict y) {
    for (int64_t column = 0; column < columns; column++)
        for (int64_t lane = 0; lane < CHANNELS; lane++) y[column * CHANNELS + lane] = x[lane * plane + column];
}

static void block_layout(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, plane = n[2] * n[3];
    int64_t from, to;
    part(n[0] * n[7] * n[2], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[2], block = i / n[2] % n[7], image = i / (n[2] * n[7]);
        const int64_t lanes = n[1] - block * n[8] < n[8] ? n[1] - block * n[8] : n[8];
        const float *x = step->p[0] + (image * n[1] + block * n[8]) * plane + row * n[3];
        float *y = step->p[3] + image * n[4] + block * n[5] + row * n[6];
        if (n[8] == 1) interleave(1, x, plane, n[3], y);
        else if (n[8] == 3) interleave(3, x, plane, n[3], y);
        else if (lanes == VL) interleave(VL, x, plane, n[3], y);
        else if (lanes == n[8]) interleave(lanes, x, plane, n[3], y);
        else
            for (int64_t column = 0; column < n[3]; column++)
                for (int64_t lane = 0; lane < n[8]; lane++)
                    y[column * n[8] + lane] = lane < lanes ? x[lane * plane + column] : 0;
    }
}

/* The way back: the first CHANNELS of each VL channels. */
INLINE void separate(const int64_t CHANNELS, const float *restrict x, int64_t plane, int64_t columns, float *restrict y) {
    for (int64_t column = 0; column < columns; column++)
        for (int64_t lane = 0; lane < CHANNELS; lane++) y[lane * plane + column] = x[column * VL + lane];
}

static void unblock_layout(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, plane = n[2] * n[3];
    int64_t from, to;
    part(n[0] * n[7] * n[2], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[2], block = i / n[2] % n[7], image = i / (n[2] * n[7]);
        const int64_t lanes = n[1] - block * VL < VL ? n[1] - block * VL : VL;
        const float *x = step->p[0] + image * n[4] + block * n[5] + row * n[6];
        float *y = step->p[3] + (image * n[1] + block * VL) * plane + row * n[3];
        if (lanes == VL) separate(VL, x, plane, n[3], y);
        else separate(lanes, x, plane, n[3], y);
    }
}

/* p: -, -, -, y (the buffer's start). n: 0 planes, 1 rows, 2 columns (both with halo), 3-6 halo above, below, left, right,
   7 lanes of a pixel */
static void zero_halo(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, pitch = n[2] * n[7];
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t plane = from; plane < to; plane++) {
        float *y = step->p[3] + plane * n[1] * pitch;
        memset(y, 0, (size_t)(n[3] * pitch) * sizeof(float));
        memset(y + (n[1] - n[4]) * pitch, 0, (size_t)(n[4] * pitch) * sizeof(float));
        for (int64_t row = n[3]; row < n[1] - n[4]; row++) {
            memset(y + row * pitch, 0, (size_t)(n[5] * n[7]) * sizeof(float));
            memset(y + (row + 1) * pitch - n[6] * n[7], 0, (size_t)(n[6] * n[7]) * sizeof(float));
        }
    }
}

/* Some pixels of each image, side by side. p: x, -, -, y. n: 0 images, 1 channel blocks, 2 rows, 3 columns of y, 4 lanes of a
   pixel; 5-8 x strides of image, channel block, row, pixel */
static void subsample(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n;
    int64_t from, to;
    part(n[0] * n[1] * n[2], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[2], block = i / n[2] % n[1], image = i / (n[2] * n[1]);
        const float *x = step->p[0] + image * n[5] + block * n[6] + row * n[7];
        float *y = step->p[3] + i * n[3] * n[4];
        if (n[4] == VL)
            for (int64_t column = 0; column < n[3]; column++) STORE(y + column * VL, LOAD(x + column * n[8]));
        else
            for (int64_t column = 0; column < n[3]; column++)
                memcpy(y + column * n[4], x + column * n[8], (size_t)n[4] * sizeof(float));
    }
}
