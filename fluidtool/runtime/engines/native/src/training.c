/* What training needs of convolutions and pooling. Included by matrices.c. */

/* ---------------------------------------------------------------- gradient of a convolution by its filters
   Sums do not depend on the parts. */
#define PIXELS_AT_ONCE 256 /* of two channel blocks of dy, which stay in the first cache */

INLINE void filter_tile(const int BLOCKS, const ft_filter_gradient *s, const float *x, const float *dy, const int64_t *at,
                        int64_t line, int64_t end, float *sums) {
    const int64_t columns = s->columns, move = s->source_pixel;
    vec total[TILE][2];
#pragma GCC unroll 16
    for (int j = 0; j < TILE; j++) total[j][0] = total[j][1] = ALL(0);
    int64_t image = line / s->rows, row = line % s->rows;
    for (; line < end; line++) {
        const float *window = x + image * s->source_image + row * s->source_row;
        const float *grads = dy + image * s->grad_image + row * s->grad_row, *more = grads + (BLOCKS - 1) * s->grad_block;
        for (int64_t c = 0; c < columns; c++, window += move, grads += VL, more += VL) {
            const vec one = LOAD(grads), two = LOAD(more);
#pragma GCC unroll 16
            for (int j = 0; j < TILE; j++) {
                const vec number = ALL(window[at[j]]);
                total[j][0] += number * one;
                if (BLOCKS == 2) total[j][1] += number * two;
            }
        }
        if (++row == s->rows) row = 0, image++;
    }
#pragma GCC unroll 16
    for (int j = 0; j < TILE; j++)
        for (int b = 0; b < BLOCKS; b++) {
            float *to = sums + (j * BLOCKS + b) * VL;
            STORE(to, LOAD(to) + total[j][b]);
        }
}

static void filter_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_filter_gradient *s = &call->filter_gradient;
    const int64_t *offsets = s->offsets, numbers = s->numbers, lines = s->images * s->rows;
    const int64_t pair = task / s->number_parts, first = pair * 2 * VL,
                  there = s->filters - first < 2 * VL ? s->filters - first : 2 * VL;
    const int64_t blocks = there > VL ? 2 : 1, width = blocks * VL;
    const int64_t together = s->columns < PIXELS_AT_ONCE ? PIXELS_AT_ONCE / s->columns : 1;
    const float *dy = s->grad + 2 * pair * s->grad_block,
                *x = s->source + (s->group_pairs ? pair / s->group_pairs * s->source_group : 0);
    int64_t from, to;
    (void)tasks;
    part((numbers + TILE - 1) / TILE, task % s->number_parts, s->number_parts, &from, &to);
    float *sums = s->scratch + pair * 2 * VL * (numbers + TILE) + from * TILE * width;
    memset(sums, 0, (size_t)((to - from) * TILE * width) * sizeof(float));
    for (int64_t line = 0; line < lines; line += together) {
        const int64_t end = line + together < lines ? line + together : lines;
        for (int64_t tile = from; tile < to; tile++) {
            int64_t at[TILE];
            for (int j = 0; j < TILE; j++) at[j] = offsets[tile * TILE + j < numbers ? tile * TILE + j : numbers - 1];
            float *here = sums + (tile - from) * TILE * width;
            if (blocks == 2) filter_tile(2, s, x, dy, at, line, end, here);
            else filter_tile(1, s, x, dy, at, line, end, here);
        }
    }
    const int64_t last = to * TILE < numbers ? to * TILE : numbers;
    for (int64_t lane = 0; lane < there; lane++) {
        float *result = s->out + (first + lane) * numbers;
        for (int64_t k = from * TILE; k < last; k++) result[k] = sums[(k - from * TILE) * width + lane];
    }
}

/* ---------------------------------------------------------------- gradient of maximum pooling, row-major planes
   The first cell of a window that equals its maximum gets all. */
static void maximum_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_maximum_gradient *s = &call->maximum_gradient;
    int64_t from, to;
    part(s->planes, task, tasks, &from, &to);
    for (int64_t plane = from; plane < to; plane++) {
        const float *x = s->source + plane * s->source_height * s->source_width;
        const float *most = s->maxima + plane * s->rows * s->columns, *grad = s->grad + plane * s->rows * s->columns;
        float *dx = s->out + plane * s->source_height * s->source_width;
        memset(dx, 0, (size_t)(s->source_height * s->source_width) * sizeof(float));
        for (int64_t row = 0; row < s->rows; row++) {
            const int64_t high = row * s->stride_h - s->pad_top, top = high < 0 ? 0 : high;
            const int64_t bottom = high + s->window_h < s->source_height ? high + s->window_h : s->source_height;
            for (int64_t column = 0; column < s->columns; column++) {
                const int64_t near = column * s->stride_w - s->pad_left, left = near < 0 ? 0 : near;
                const int64_t right = near + s->window_w < s->source_width ? near + s->window_w : s->source_width;
                const float wanted = most[row * s->columns + column];
                int64_t found = -1;
                for (int64_t r = bottom - 1; r >= top; r--)
                    for (int64_t c = right - 1; c >= left; c--)
                        found = x[r * s->source_width + c] == wanted ? r * s->source_width + c : found;
                if (found >= 0) dx[found] += grad[row * s->columns + column];
            }
        }
    }
}
