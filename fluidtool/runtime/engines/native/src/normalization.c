/* Normalisation over groups of channels of each image, over a channel of all images, and what training needs of that and of
   that over rows. Included by matrices.c.
   y = activation((x - mean) / sqrt(variance + f[3]) * scale + bias); the activation's numbers are f[0] to f[2]. */

INLINE void normalize_row(const ft_step *step, const float *x, float *y, int64_t count, float mean, float factor, float bias,
                          const int32_t activation) {
    for (int64_t i = 0; i < count; i += VL) {
        const vec value = (take(x + i, count - i) - ALL(mean)) * ALL(factor) + ALL(bias);
        give(y + i, activate(value, activation, step->f), count - i);
    }
}

/* Of the differences to `mean`, or of their squares; 256 of them are added up at a time, as in reduce_row. */
INLINE float sum_of_row(const float *x, int64_t count, float mean, const int squares) {
    vec total = ALL(0);
    for (int64_t i = 0; i < count; i += 256) {
        const int64_t end = i + 256 < count ? i + 256 : count;
        vec sum = ALL(0);
        for (int64_t j = i; j < end; j += VL) {
            const vec away = (end - j >= VL ? LOAD(x + j) : load_some(x + j, end - j, mean)) - ALL(mean);
            sum += squares ? away * away : away;
        }
        total += sum;
    }
    return sum_lanes(total);
}

/* ---------------------------------------------------------------- row-major
   p: x [images][groups][channels of a group][plane], scale by channel or 0, bias or 0, y.
   n: 0 images * groups, 1 groups, 2 channels of a group, 3 plane */
static void group_norm(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, each = n[2], plane = n[3], count = each * plane;
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float *x = step->p[0] + i * count;
        float *y = step->p[3] + i * count;
        const float mean = sum_of_row(x, count, 0, 0) / (float)count;
        const float inverse = 1 / sqrtf(sum_of_row(x, count, mean, 1) / (float)count + step->f[3]);
        for (int64_t c = 0; c < each; c++) {
            const int64_t channel = i % n[1] * each + c;
            const float factor = step->p[1] ? inverse * step->p[1][channel] : inverse;
            const float bias = step->p[2] ? step->p[2][channel] : 0;
#define ROW(activation) normalize_row(step, x + c * plane, y + c * plane, plane, mean, factor, bias, activation)
            if (step->activation == FT_NONE) ROW(FT_NONE);
            else if (step->activation == FT_RELU) ROW(FT_RELU);
            else ROW(step->activation);
#undef ROW
        }
    }
}

/* ---------------------------------------------------------------- channels in blocks
   p: x, scale, bias (both by lane, zeros behind the last channel), y, memory: 2 floats for each lane of each image
   n: 0 images, 1 channel blocks, 2 rows, 3 columns, 4 channels, 5 channels of a group, 6 blocks that share groups, 7-9 x
   strides of image, block, row, 10-12 y strides.  Tasks cut images * the blocks that share groups. */

/* The sum of a plane, or of the squares of its differences to `mean`: row by row. */
INLINE vec sum_of_plane(const int64_t *n, const float *x, vec mean, const int squares) {
    vec total = ALL(0);
    for (int64_t row = 0; row < n[2]; row++, x += n[9]) {
        vec sum[2] = {ALL(0), ALL(0)};
        int64_t column = 0;
        for (; column + 2 <= n[3]; column += 2)
            for (int j = 0; j < 2; j++) {
                const vec value = LOAD(x + (column + j) * VL), away = value - mean;
                sum[j] += squares ? away * away : value;
            }
        if (column < n[3]) {
            const vec value = LOAD(x + column * VL), away = value - mean;
            sum[0] += squares ? away * away : value;
        }
        total += sum[0] + sum[1];
    }
    return total;
}

/* Sums by lane become means by group, in every lane of the group. */
static void share_means(float *sums, int64_t channels, int64_t each, int64_t plane) {
    for (int64_t group = 0; group < channels; group += each) {
        float total = 0;
        for (int64_t c = 0; c < each; c++) total += sums[group + c];
        for (int64_t c = 0; c < each; c++) sums[group + c] = total / (float)(each * plane);
    }
}

INLINE void normalize_plane(const ft_step *step, const float *x, float *y, vec mean, vec factor, vec bias,
                            const int32_t activation) {
    const int64_t *n = step->n;
    for (int64_t row = 0; row < n[2]; row++)
        for (int64_t column = 0; column < n[3]; column++) {
            const vec value = (LOAD(x + row * n[9] + column * VL) - mean) * factor + bias;
            STORE(y + row * n[12] + column * VL, activate(value, activation, step->f));
        }
}

static void group_norm_blocked(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, units = (n[1] + n[6] - 1) / n[6], plane = n[2] * n[3];
    int64_t from, to;
    part(n[0] * units, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t image = i / units, first = i % units * n[6], end = first + n[6] < n[1] ? first + n[6] : n[1];
        const int64_t left = n[4] - first * VL, lanes = (end - first) * VL, channels = left < lanes ? left : lanes;
        const float *x = step->p[0] + image * n[7];
        float *y = step->p[3] + image * n[10], *means = step->p[4] + 2 * (image * n[1] + first) * VL;
        float *spreads = means + lanes;
        memset(means, 0, 2 * (size_t)lanes * sizeof(float));
        for (int64_t b = first; b < end; b++)
            STORE(means + (b - first) * VL, sum_of_plane(n, x + b * n[8], ALL(0), 0));
        share_means(means, channels, n[5], plane);
        for (int64_t b = first; b < end; b++) {
            float *at = spreads + (b - first) * VL;
            STORE(at, sum_of_plane(n, x + b * n[8], LOAD(means + (b - first) * VL), 1));
        }
        share_means(spreads, channels, n[5], plane);
        for (int64_t b = first; b < end; b++) {
            const vec mean = LOAD(means + (b - first) * VL), spread = LOAD(spreads + (b - first) * VL);
            const vec factor = LOAD(step->p[1] + b * VL) / sqrt_vec(spread + ALL(step->f[3]));
            const vec bias = LOAD(step->p[2] + b * VL);
#define PLANE(activation) normalize_plane(step, x + b * n[8], y + b * n[11], mean, factor, bias, activation)
            if (step->activation == FT_NONE) PLANE(FT_NONE);
            else if (step->activation == FT_RELU) PLANE(FT_RELU);
            else PLANE(step->activation);
#undef PLANE
        }
    }
}

/* ---------------------------------------------------------------- gradient of layer normalisation
   p[0]: addresses of 0 x, 1 scale or 0, 2 mean, 3 variance (by row), 4 gradient of y, 5 gradient of x, 6 for each task two
   sums over its rows, zeros at first: [columns] of dy times the normalised x, [columns] of dy
   n: 0 rows, 1 columns.  f: 0 epsilon */
typedef struct {
    vec normalized, grad, scaled; /* scaled: by the factor */
} norm_lanes;

INLINE norm_lanes norm_lanes_of(const float *x, const float *dy, const float *scale, int64_t count, vec mean, vec inverse) {
    norm_lanes v = {.normalized = (take(x, count) - mean) * inverse, .grad = take(dy, count)};
    v.scaled = scale ? v.grad * take(scale, count) : v.grad;
    return v;
}

static void layer_norm_gradient(const ft_step *step, int64_t task, int64_t tasks) {
    float *const *p = (float *const *)(const void *)step->p[0];
    const int64_t columns = step->n[1];
    float *by_scale = p[6] + 2 * task * columns, *by_bias = by_scale + columns;
    int64_t from, to;
    part(step->n[0], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = p[0] + row * columns, *dy = p[4] + row * columns;
        const vec mean = ALL(p[2][row]), inverse = ALL(1 / sqrtf(p[3][row] + step->f[0]));
        vec sum = ALL(0), along = ALL(0);
        for (int64_t i = 0; i < columns; i += VL) {
            const int64_t count = columns - i;
            const norm_lanes v = norm_lanes_of(x + i, dy + i, p[1] ? p[1] + i : 0, count, mean, inverse);
            sum += v.scaled, along += v.scaled * v.normalized; /* zeros behind the last column */
            give(by_scale + i, take(by_scale + i, count) + v.grad * v.normalized, count);
            give(by_bias + i, take(by_bias + i, count) + v.grad, count);
        }
        const vec level = ALL(sum_lanes(sum) / (float)columns), slope = ALL(sum_lanes(along) / (float)columns);
        for (int64_t i = 0; i < columns; i += VL) {
            const int64_t count = columns - i;
            const norm_lanes v = norm_lanes_of(x + i, dy + i, p[1] ? p[1] + i : 0, count, mean, inverse);
            give(p[5] + row * columns + i, (v.scaled - level - v.normalized * slope) * inverse, count);
        }
    }
}

/* ---------------------------------------------------------------- each channel over all images, row-major planes
   p[0]: addresses of 0 x [images][channels][plane], 1 scale, 2 bias, 3 y, 4 mean, 5 variance (by channel)
   n: 0 images, 1 channels, 2 plane */
static void batch_norm(const ft_step *step, int64_t task, int64_t tasks) {
    float *const *p = (float *const *)(const void *)step->p[0];
    const int64_t *n = step->n, plane = n[2], image = n[1] * plane;
    const double count = (double)(n[0] * plane);
    int64_t from, to;
    part(n[1], task, tasks, &from, &to);
    for (int64_t c = from; c < to; c++) {
        const float *x = p[0] + c * plane;
        float *y = p[3] + c * plane;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n[0]; i++) sum += sum_of_row(x + i * image, plane, 0, 0);
        const float mean = (float)(sum / count);
        for (int64_t i = 0; i < n[0]; i++) squares += sum_of_row(x + i * image, plane, mean, 1);
        const float variance = (float)(squares / count), factor = p[1][c] / sqrtf(variance + step->f[3]);
        p[4][c] = mean, p[5][c] = variance;
#define ROW(activation) normalize_row(step, x + i * image, y + i * image, plane, mean, factor, p[2][c], activation)
        for (int64_t i = 0; i < n[0]; i++)
            if (step->activation == FT_RELU) ROW(FT_RELU);
            else ROW(FT_NONE);
#undef ROW
    }
}

/* Of the gradients, and of them times the normalised x; 256 of them are added up at a time. */
INLINE void add_gradients(const float *x, const float *dy, int64_t count, float mean, float inverse, double *sum, double *along) {
    vec totals[2] = {ALL(0), ALL(0)};
    for (int64_t i = 0; i < count; i += 256) {
        const int64_t end = i + 256 < count ? i + 256 : count;
        vec sums[2] = {ALL(0), ALL(0)};
        for (int64_t j = i; j < end; j += VL) {
            const norm_lanes v = norm_lanes_of(x + j, dy + j, 0, end - j, ALL(mean), ALL(inverse));
            sums[0] += v.grad, sums[1] += v.grad * v.normalized;
        }
        totals[0] += sums[0], totals[1] += sums[1];
    }
    *sum += sum_lanes(totals[0]), *along += sum_lanes(totals[1]);
}

/* p[0]: addresses of 0 x, 1 scale, 2 mean, 3 1 / sqrt(variance + epsilon), 4 gradient of y, 5 gradient of x, 6 gradient of
   the scale, 7 gradient of the bias (all but x and y by channel).  n: 0 images, 1 channels, 2 plane */
static void batch_norm_gradient(const ft_step *step, int64_t task, int64_t tasks) {
    float *const *p = (float *const *)(const void *)step->p[0];
    const int64_t *n = step->n, plane = n[2], image = n[1] * plane;
    const double count = (double)(n[0] * plane);
    int64_t from, to;
    part(n[1], task, tasks, &from, &to);
    for (int64_t c = from; c < to; c++) {
        const float *x = p[0] + c * plane, *dy = p[4] + c * plane;
        const float mean = p[2][c], inverse = p[3][c];
        float *dx = p[5] + c * plane;
        double sum = 0, along = 0;
        for (int64_t i = 0; i < n[0]; i++) add_gradients(x + i * image, dy + i * image, plane, mean, inverse, &sum, &along);
        p[6][c] = (float)along, p[7][c] = (float)sum;
        const vec level = ALL(sum / count), slope = ALL(along / count), factor = ALL(p[1][c] * inverse);
        for (int64_t i = 0; i < n[0]; i++)
            for (int64_t j = 0; j < plane; j += VL) {
                const norm_lanes v = norm_lanes_of(x + i * image + j, dy + i * image + j, 0, plane - j, ALL(mean), ALL(inverse));
                give(dx + i * image + j, (v.grad - level - v.normalized * slope) * factor, plane - j);
            }
    }
}

/* Each number over a power of k + alpha * the sum of squares of the channels around, blocked.
   p: x, -, -, y. n: 0 images, 1 channel blocks, 2 rows, 3 columns, 4 channels, 5 channels to each side; 6-8 x strides of
   image, block, row; 9-11 the same of y; 12 fourths that the power has. f: k, alpha */
static void local_response(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n;
    int64_t from, to;
    part(n[0] * n[1] * n[2], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[2], block = i / n[2] % n[1], image = i / (n[2] * n[1]);
        const float *x = step->p[0] + image * n[6] + block * n[7] + row * n[8];
        float *y = step->p[3] + image * n[9] + block * n[10] + row * n[11];
        const veci channel = LANES + (int32_t)(block * VL), here = channel < (int32_t)n[4], next = channel + VL < (int32_t)n[4];
        for (int64_t at = 0; at < n[3] * VL; at += VL) {
            const vec value = LOAD(x + at);
            const vec before = block ? LOAD(x + at - n[7]) : ALL(0);
            const vec behind = block + 1 < n[1] ? CHOOSE(next, LOAD(x + at + n[7]), ALL(0)) : ALL(0);
            const vec square = CHOOSE(here, value * value, ALL(0)), low = before * before, high = behind * behind;
            vec sum = square;
            for (int64_t far = 1; far <= n[5]; far++)
                sum += SHUFFLE(low, square, LANES + (int32_t)(VL - far)) + SHUFFLE(square, high, LANES + (int32_t)far);
            const vec root = sqrt_vec(sqrt_vec(sum * ALL(step->f[1]) + ALL(step->f[0])));
            vec power = root;
            for (int64_t fourths = 1; fourths < n[12]; fourths++) power *= root;
            STORE(y + at, value / power);
        }
    }
}
