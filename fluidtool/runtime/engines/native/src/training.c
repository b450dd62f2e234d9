/* What training needs of convolutions and pooling. Included by matrices.c. */

/* ---------------------------------------------------------------- gradient of a convolution by its filters
   Sums do not depend on the parts. */
#define PIXELS_AT_ONCE 256 /* of two channel blocks of dy, which stay in the first cache */

/* VL numbers of the windows of some pixels, side by side. */
static void gather_numbers(const ft_filter_gradient *s, const float *x, const int64_t *at, int64_t pixel, int64_t count,
                           float *to) {
    int together = 1;
    for (int j = 0; j < VL; j++) together &= at[j] == at[0] + j;
    for (int64_t run; count; pixel += run, count -= run) {
        const int64_t line = pixel / s->columns, column = pixel % s->columns;
        const float *from = x + line / s->rows * s->source_image + line % s->rows * s->source_row + column * s->source_pixel;
        run = s->columns - column < count ? s->columns - column : count;
        for (int64_t i = 0; i < run; i++, from += s->source_pixel, to += VL)
            if (together) STORE(to, LOAD(from + at[0]));
            else
                for (int j = 0; j < VL; j++) to[j] = from[at[j]];
    }
}

/* The gathered numbers of some pixels meet the gradients of a pair of blocks. */
INLINE void meet_pair(const ft_filter_gradient *s, const float *x, int64_t pair, int64_t pixel, int64_t count, float *sums) {
    const int64_t first = pair * 2 * VL, there = s->filters - first < 2 * VL ? s->filters - first : 2 * VL;
    const int64_t blocks = there > VL ? 2 : 1, cut = s->whole_blocks ? 0 : blocks * VL - there;
    const int64_t line = pixel / s->columns;
    /* The last vector ends where the channels end: it has some that the one before it has, too. */
    const meeting m = {.y = s->grad + 2 * pair * s->grad_block - (blocks == 1 ? cut : 0) + line / s->rows * s->grad_image +
                            line % s->rows * s->grad_row + pixel % s->columns * s->grad_pixel,
                       .x_pixel = VL,
                       .y_pixel = s->grad_pixel,
                       .y_block = s->grad_block - (blocks == 2 ? cut : 0),
                       .count = count};
    for (int64_t half = 0; half < VL; half += MEET) {
        const float *numbers[MEET];
        for (int j = 0; j < MEET; j++) numbers[j] = x + half + j;
        meet(blocks, &m, numbers, sums + half * blocks * VL);
    }
}

/* What one pair of blocks has summed for the numbers [from, to), to its filters. */
static void store_filter_sums(const ft_filter_gradient *s, int64_t pair, int64_t from, int64_t to, const float *sums) {
    const int64_t first = pair * 2 * VL, there = s->filters - first < 2 * VL ? s->filters - first : 2 * VL;
    const int64_t blocks = there > VL ? 2 : 1, cut = s->whole_blocks ? 0 : blocks * VL - there;
    for (int64_t lane = 0; lane < there; lane++) {
        const float *of_lane = sums + lane + (lane >= (blocks - 1) * VL ? cut : 0);
        float *result = s->out + (first + lane) * s->numbers;
        for (int64_t k = from; k < to; k++) result[s->places[k]] = of_lane[(k - from) * blocks * VL];
    }
}

static void filter_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_filter_gradient *s = &call->filter_gradient;
    const int64_t numbers = s->numbers, plane = s->rows * s->columns, all = s->images * plane;
    const int64_t in_row = s->grad_row == s->columns * s->grad_pixel, in_all = in_row && s->grad_image == s->rows * s->grad_row;
    const int64_t unbroken = in_all ? all : in_row ? plane : s->columns; /* pixels of dy at the same distance */
    const int64_t tile_floats = VL * 2 * VL, whole = (numbers + VL - 1) / VL;
    float gathered[PIXELS_AT_ONCE * VL] __attribute__((aligned(64)));
    int64_t pair, pair_end, tile, tile_end;
    (void)tasks;
    part((s->filters + 2 * VL - 1) / (2 * VL), task / s->number_parts, s->pair_parts, &pair, &pair_end);
    part(whole, task % s->number_parts, s->number_parts, &tile, &tile_end);
#define FILTER_SUMS(pair, tile) (s->scratch + ((pair) * whole + (tile)) * tile_floats)
    for (int64_t p = pair; p < pair_end; p++)
        memset(FILTER_SUMS(p, tile), 0, (size_t)((tile_end - tile) * tile_floats) * sizeof(float));
    for (int64_t pixel = 0, count; pixel < all; pixel += count) {
        const int64_t left = unbroken - pixel % unbroken;
        count = left < PIXELS_AT_ONCE ? left : PIXELS_AT_ONCE;
        for (int64_t t = tile; t < tile_end; t++) {
            int64_t at[VL], group = -1;
            for (int j = 0; j < VL; j++) at[j] = s->offsets[t * VL + j < numbers ? t * VL + j : numbers - 1];
            for (int64_t p = pair; p < pair_end; p++) {
                const int64_t here = s->group_pairs ? p / s->group_pairs : 0;
                if (here != group) gather_numbers(s, s->source + here * s->source_group, at, pixel, count, gathered);
                group = here;
                meet_pair(s, gathered, p, pixel, count, FILTER_SUMS(p, t));
            }
        }
    }
    for (int64_t p = pair; p < pair_end; p++)
        for (int64_t t = tile; t < tile_end; t++)
            store_filter_sums(s, p, t * VL, t * VL + VL < numbers ? t * VL + VL : numbers, FILTER_SUMS(p, t));
#undef FILTER_SUMS
}

/* ---------------------------------------------------------------- gradient of a convolution by its input, channels last */
#define SPREAD_ROWS 120 /* pixels whose results stay in the second cache until they are added */

/* The window of a pixel, [taps][channels], added to the image. */
INLINE void add_window(const ft_spread *s, const float *window, int64_t row, int64_t column, float *image) {
    const int64_t channels = s->channels, top = row * s->stride_h - s->pad_top, left = column * s->stride_w - s->pad_left;
    for (int64_t r = 0; r < s->window_h; r++) {
        const int64_t y = top + r * s->dilation_h;
        if (y < 0 || y >= s->source_height) continue;
        const int64_t step = s->dilation_w, run = step == 1 ? s->window_w : 1;
        for (int64_t c = 0; c < s->window_w; c += run) {
            const int64_t x = left + c * step, from = x < 0 ? -x : 0,
                          to = x + run > s->source_width ? s->source_width - x : run;
            const float *values = window + (r * s->window_w + c) * channels;
            float *sums = image + (y * s->source_width + x) * channels;
            const int64_t end = to * channels;
            int64_t i = from * channels;
            for (; i + VL <= end; i += VL) STORE(sums + i, LOAD(sums + i) + LOAD(values + i));
            for (; i < end; i++) sums[i] += values[i];
        }
    }
}

static void spread_images(const ft_spread *s, int64_t first, int64_t images, float *windows) {
    const int64_t size = s->channels * s->window_h * s->window_w, pixels = s->rows * s->columns;
    const int64_t plane = s->source_height * s->source_width * s->channels;
    memset(s->out + first * plane, 0, (size_t)(images * plane) * sizeof(float));
    for (int64_t pixel = 0, next; pixel < images * pixels; pixel = next) {
        next = pixel + SPREAD_ROWS < images * pixels ? pixel + SPREAD_ROWS : images * pixels;
        const matrix_product m = {.x = s->grad + (first * pixels + pixel) * s->filters,
                                  .w = s->weights,
                                  .y = windows,
                                  .rows = next - pixel,
                                  .depth = s->filters,
                                  .columns = size,
                                  .x_row = s->filters,
                                  .y_row = size};
        product_block(&m, 0, next - pixel, 0, groups_of(size));
        for (int64_t i = pixel; i < next; i++)
            add_window(s, windows + (i - pixel) * size, i % pixels / s->columns, i % s->columns,
                       s->out + (first + i / pixels) * plane);
    }
}

static void spread(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_spread *s = &call->spread;
    int64_t from, to;
    part((s->images + s->together - 1) / s->together, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t first = i * s->together, left = s->images - first;
        spread_images(s, first, left < s->together ? left : s->together, s->scratch + task * s->task_scratch);
    }
}

static void pack_taps(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pack_taps *s = &call->pack_taps;
    const int64_t taps = s->taps, columns = s->channels * taps, whole = (columns + VL - 1) / VL * VL;
    int64_t from, to;
    part(s->filters, task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const loose *filter = (const loose *)s->source + row * columns;
        int64_t channel = 0, tap = 0;
        for (int64_t group = 0; group < whole; group += GROUP * VL) {
            const int64_t width = whole - group < GROUP * VL ? whole - group : GROUP * VL;
            float *y = s->out + group * s->filters + row * width;
            for (int64_t i = 0, run; i < width; i += run) {
                run = s->channels - channel < width - i ? s->channels - channel : width - i;
                if (tap == taps) memset(y + i, 0, (size_t)(run = width - i) * sizeof(float));
                else
                    for (int64_t j = 0; j < run; j++) y[i + j] = filter[(channel + j) * taps + tap];
                channel += run;
                if (channel == s->channels) channel = 0, tap++;
            }
        }
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

/* ---------------------------------------------------------------- pooling, channels last
   The windows that are cut off at the edges have fewer cells. */
typedef struct {
    int64_t top, bottom, left, right, cells;
} pool_window;

#define POOL_WINDOW(s, row, column)                                                                              \
    window_of((row) * (s)->stride_h - (s)->pad_top, (column) * (s)->stride_w - (s)->pad_left, (s)->window_h,      \
              (s)->window_w, (s)->source_height, (s)->source_width, (s)->mode)

INLINE pool_window window_of(int64_t top, int64_t left, int64_t height, int64_t width, int64_t rows, int64_t columns,
                             int64_t mode) {
    pool_window w = {.top = top < 0 ? 0 : top,
                     .bottom = top + height < rows ? top + height : rows,
                     .left = left < 0 ? 0 : left,
                     .right = left + width < columns ? left + width : columns};
    w.cells = mode == 2 ? height * width : (w.bottom - w.top) * (w.right - w.left);
    return w;
}

INLINE vec pooled(const ft_pool_last *s, const pool_window *w, const float *x, int64_t count) {
    vec value = s->mode ? ALL(0) : take(x + (w->top * s->source_width + w->left) * s->channels, count);
    for (int64_t r = w->top; r < w->bottom; r++)
        for (int64_t c = w->left; c < w->right; c++) {
            const vec item = take(x + (r * s->source_width + c) * s->channels, count);
            value = s->mode ? value + item : CHOOSE(value == value, MAX(item, value), value);
        }
    return s->mode ? value / ALL(w->cells) : value;
}

static void pool_last(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pool_last *s = &call->pool_last;
    int64_t from, to;
    part(s->images * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float *x = s->source + i / s->rows * s->source_height * s->source_width * s->channels;
        float *y = s->out + i * s->columns * s->channels;
        for (int64_t column = 0; column < s->columns; column++, y += s->channels) {
            const pool_window w = POOL_WINDOW(s, i % s->rows, column);
            for (int64_t c = 0; c < s->channels; c += VL) give(y + c, pooled(s, &w, x + c, s->channels - c), s->channels - c);
        }
    }
}

/* The gradient of a window goes to its first cell that equals the maximum, lane by lane. */
INLINE void to_first(const ft_pool_last_gradient *s, const pool_window *w, const float *x, vec most, vec grad, float *dx,
                     int64_t count) {
    veci open = (veci){0} - 1;
    for (int64_t r = w->top; r < w->bottom; r++)
        for (int64_t c = w->left; c < w->right; c++) {
            const int64_t at = (r * s->source_width + c) * s->channels;
            const veci found = (take(x + at, count) == most) & open;
            give(dx + at, take(dx + at, count) + CHOOSE(found, grad, ALL(0)), count);
            open &= ~found;
        }
}

INLINE void to_all(const ft_pool_last_gradient *s, const pool_window *w, vec share, float *dx, int64_t count) {
    for (int64_t r = w->top; r < w->bottom; r++)
        for (int64_t c = w->left; c < w->right; c++) {
            float *to = dx + (r * s->source_width + c) * s->channels;
            give(to, take(to, count) + share, count);
        }
}

static void pool_last_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pool_last_gradient *s = &call->pool_last_gradient;
    const int64_t channels = s->channels, plane = s->source_height * s->source_width * channels;
    int64_t from, to;
    part(s->images, task, tasks, &from, &to);
    for (int64_t image = from; image < to; image++) {
        float *dx = s->out + image * plane;
        memset(dx, 0, (size_t)plane * sizeof(float));
        for (int64_t i = 0; i < s->rows * s->columns; i++) {
            const pool_window w = POOL_WINDOW(s, i / s->columns, i % s->columns);
            const int64_t at = (image * s->rows * s->columns + i) * channels;
            for (int64_t c = 0; c < channels; c += VL) {
                const vec grad = take(s->grad + at + c, channels - c);
                if (s->mode) to_all(s, &w, grad / ALL(w.cells), dx + c, channels - c);
                else
                    to_first(s, &w, s->source + image * plane + c, take(s->maxima + at + c, channels - c), grad, dx + c,
                             channels - c);
            }
        }
    }
}
