/* What training needs of convolutions and pooling. Included by matrices.c. */

/* ---------------------------------------------------------------- gradient of a convolution by its filters
   result[o][k] = sum over all windows of dy[o] * x[the k-th number of the window], both blocked.  p: x, -, dy,
   result [O][K], room for pairs * 2 * VL * (K + TILE) floats, offset in x of each k.
   n: 0 images, 1-2 rows and columns of dy, 3 O, 4 K; 5-7 x strides of image, row, column of windows; 8-10 dy strides of
   image, row, channel block; 11 parts by k; groups: 12 x stride from those of n[13] pairs to those of the next.
   Tasks: pairs of channel blocks * n[11].  Sums do not depend on the parts. */
#define PIXELS_AT_ONCE 256 /* of two channel blocks of dy, which stay in the first cache */

INLINE void filter_tile(const int BLOCKS, const ft_step *step, const float *x, const float *dy, const int64_t *at,
                        int64_t line, int64_t end, float *sums) {
    const int64_t *n = step->n, columns = n[2], move = n[7];
    vec total[TILE][2];
#pragma GCC unroll 16
    for (int j = 0; j < TILE; j++) total[j][0] = total[j][1] = ALL(0);
    int64_t image = line / n[1], row = line % n[1];
    for (; line < end; line++) {
        const float *window = x + image * n[5] + row * n[6];
        const float *grads = dy + image * n[8] + row * n[9], *more = grads + (BLOCKS - 1) * n[10];
        for (int64_t c = 0; c < columns; c++, window += move, grads += VL, more += VL) {
            const vec one = LOAD(grads), two = LOAD(more);
#pragma GCC unroll 16
            for (int j = 0; j < TILE; j++) {
                const vec number = ALL(window[at[j]]);
                total[j][0] += number * one;
                if (BLOCKS == 2) total[j][1] += number * two;
            }
        }
        if (++row == n[1]) row = 0, image++;
    }
#pragma GCC unroll 16
    for (int j = 0; j < TILE; j++)
        for (int b = 0; b < BLOCKS; b++) {
            float *to = sums + (j * BLOCKS + b) * VL;
            STORE(to, LOAD(to) + total[j][b]);
        }
}

static void filter_gradient(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *offsets = OFFSETS(step), numbers = n[4], lines = n[0] * n[1];
    const int64_t pair = task / n[11], first = pair * 2 * VL, there = n[3] - first < 2 * VL ? n[3] - first : 2 * VL;
    const int64_t blocks = there > VL ? 2 : 1, width = blocks * VL;
    const int64_t together = n[2] < PIXELS_AT_ONCE ? PIXELS_AT_ONCE / n[2] : 1;
    const float *dy = step->p[2] + 2 * pair * n[10], *x = step->p[0] + (n[13] ? pair / n[13] * n[12] : 0);
    int64_t from, to;
    (void)tasks;
    part((numbers + TILE - 1) / TILE, task % n[11], n[11], &from, &to);
    float *sums = step->p[4] + pair * 2 * VL * (numbers + TILE) + from * TILE * width;
    memset(sums, 0, (size_t)((to - from) * TILE * width) * sizeof(float));
    for (int64_t line = 0; line < lines; line += together) {
        const int64_t end = line + together < lines ? line + together : lines;
        for (int64_t tile = from; tile < to; tile++) {
            int64_t at[TILE];
            for (int j = 0; j < TILE; j++) at[j] = offsets[tile * TILE + j < numbers ? tile * TILE + j : numbers - 1];
            float *here = sums + (tile - from) * TILE * width;
            if (blocks == 2) filter_tile(2, step, x, dy, at, line, end, here);
            else filter_tile(1, step, x, dy, at, line, end, here);
        }
    }
    const int64_t last = to * TILE < numbers ? to * TILE : numbers;
    for (int64_t lane = 0; lane < there; lane++) {
        float *result = step->p[3] + (first + lane) * numbers;
        for (int64_t k = from * TILE; k < last; k++) result[k] = sums[(k - from * TILE) * width + lane];
    }
}

/* ---------------------------------------------------------------- gradient of maximum pooling, row-major planes
   The first cell of a window that equals its maximum gets all.  p: x, maxima, gradient of the maxima, dx
   n: 0 planes, 1-2 rows and columns of x, 3-4 of the maxima, 5-6 window, 7-8 stride, 9-10 padding before */
static void maximum_gradient(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n;
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t plane = from; plane < to; plane++) {
        const float *x = step->p[0] + plane * n[1] * n[2];
        const float *most = step->p[1] + plane * n[3] * n[4], *grad = step->p[2] + plane * n[3] * n[4];
        float *dx = step->p[3] + plane * n[1] * n[2];
        memset(dx, 0, (size_t)(n[1] * n[2]) * sizeof(float));
        for (int64_t row = 0; row < n[3]; row++) {
            const int64_t high = row * n[7] - n[9], top = high < 0 ? 0 : high;
            const int64_t bottom = high + n[5] < n[1] ? high + n[5] : n[1];
            for (int64_t column = 0; column < n[4]; column++) {
                const int64_t near = column * n[8] - n[10], left = near < 0 ? 0 : near;
                const int64_t right = near + n[6] < n[2] ? near + n[6] : n[2];
                const float wanted = most[row * n[4] + column];
                int64_t found = -1;
                for (int64_t r = bottom - 1; r >= top; r--)
                    for (int64_t c = right - 1; c >= left; c--) found = x[r * n[2] + c] == wanted ? r * n[2] + c : found;
                if (found >= 0) dx[found] += grad[row * n[4] + column];
            }
        }
    }
}
