/* Normalization over groups of channels of each image, over a channel of all images, and what training needs of that and of
   that over rows. Included by matrices.c.
   y = activation((x - mean) / sqrt(variance + epsilon) * scale + bias). */

INLINE void normalize_row(const float *x, float *y, int64_t count, float mean, float factor, float bias,
                          const int32_t activation, const ft_constants *constants) {
    for (int64_t i = 0; i < count; i += VL) {
        const vec value = (take(x + i, count - i) - ALL(mean)) * ALL(factor) + ALL(bias);
        give(y + i, activate(value, activation, constants), count - i);
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

/* ---------------------------------------------------------------- row-major */
static void group_norm(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_group_norm *s = &call->group_norm;
    const int64_t each = s->group_channels, plane = s->plane, count = each * plane;
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float *x = s->source + i * count;
        float *y = s->out + i * count;
        const float mean = sum_of_row(x, count, 0, 0) / (float)count;
        const float inverse = 1 / sqrtf(sum_of_row(x, count, mean, 1) / (float)count + s->epsilon);
        for (int64_t c = 0; c < each; c++) {
            const int64_t channel = i % s->groups * each + c;
            const float factor = s->scale ? inverse * s->scale[channel] : inverse;
            const float bias = s->bias ? s->bias[channel] : 0;
#define ROW(activation) normalize_row(x + c * plane, y + c * plane, plane, mean, factor, bias, activation, &s->constants)
            if (s->activation == FT_NONE) ROW(FT_NONE);
            else if (s->activation == FT_RELU) ROW(FT_RELU);
            else ROW(s->activation);
#undef ROW
        }
    }
}

/* ---------------------------------------------------------------- channels in blocks
   Tasks cut images * the blocks that share groups. */

/* The sum of a plane, or of the squares of its differences to `mean`: row by row. */
INLINE vec sum_of_plane(const ft_group_norm_blocked *s, const float *x, vec mean, const int squares) {
    vec total = ALL(0);
    for (int64_t row = 0; row < s->rows; row++, x += s->source_row) {
        vec sum[2] = {ALL(0), ALL(0)};
        int64_t column = 0;
        for (; column + 2 <= s->columns; column += 2)
            for (int j = 0; j < 2; j++) {
                const vec value = LOAD(x + (column + j) * VL), away = value - mean;
                sum[j] += squares ? away * away : value;
            }
        if (column < s->columns) {
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

INLINE void normalize_plane(const ft_group_norm_blocked *s, const float *x, float *y, vec mean, vec factor, vec bias,
                            const int32_t activation) {
    for (int64_t row = 0; row < s->rows; row++)
        for (int64_t column = 0; column < s->columns; column++) {
            const vec value = (LOAD(x + row * s->source_row + column * VL) - mean) * factor + bias;
            STORE(y + row * s->out_row + column * VL, activate(value, activation, &s->constants));
        }
}

static void group_norm_blocked(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_group_norm_blocked *s = &call->group_norm_blocked;
    const int64_t units = (s->blocks + s->shared_blocks - 1) / s->shared_blocks, plane = s->rows * s->columns;
    int64_t from, to;
    part(s->images * units, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t image = i / units, first = i % units * s->shared_blocks,
                      end = first + s->shared_blocks < s->blocks ? first + s->shared_blocks : s->blocks;
        const int64_t left = s->channels - first * VL, lanes = (end - first) * VL, channels = left < lanes ? left : lanes;
        const float *x = s->source + image * s->source_image;
        float *y = s->out + image * s->out_image, *means = s->scratch + 2 * (image * s->blocks + first) * VL;
        float *spreads = means + lanes;
        memset(means, 0, 2 * (size_t)lanes * sizeof(float));
        for (int64_t b = first; b < end; b++)
            STORE(means + (b - first) * VL, sum_of_plane(s, x + b * s->source_block, ALL(0), 0));
        share_means(means, channels, s->group_channels, plane);
        for (int64_t b = first; b < end; b++) {
            float *at = spreads + (b - first) * VL;
            STORE(at, sum_of_plane(s, x + b * s->source_block, LOAD(means + (b - first) * VL), 1));
        }
        share_means(spreads, channels, s->group_channels, plane);
        for (int64_t b = first; b < end; b++) {
            const vec mean = LOAD(means + (b - first) * VL), spread = LOAD(spreads + (b - first) * VL);
            const vec factor = LOAD(s->scale + b * VL) / sqrt_vec(spread + ALL(s->epsilon));
            const vec bias = LOAD(s->bias + b * VL);
#define PLANE(activation) normalize_plane(s, x + b * s->source_block, y + b * s->out_block, mean, factor, bias, activation)
            if (s->activation == FT_NONE) PLANE(FT_NONE);
            else if (s->activation == FT_RELU) PLANE(FT_RELU);
            else PLANE(s->activation);
#undef PLANE
        }
    }
}

/* ---------------------------------------------------------------- gradient of layer normalization */
typedef struct {
    vec normalized, grad, scaled; /* scaled: by the factor */
} norm_lanes;

INLINE norm_lanes norm_lanes_of(const float *x, const float *dy, const float *scale, int64_t count, vec mean, vec inverse) {
    norm_lanes v = {.normalized = (take(x, count) - mean) * inverse, .grad = take(dy, count)};
    v.scaled = scale ? v.grad * take(scale, count) : v.grad;
    return v;
}

static void layer_norm_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_layer_norm_gradient *s = &call->layer_norm_gradient;
    const int64_t columns = s->columns;
    float *by_scale = s->sums + 2 * task * columns, *by_bias = by_scale + columns;
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = s->source + row * columns, *dy = s->out_grad + row * columns;
        const vec mean = ALL(s->mean[row]), inverse = ALL(1 / sqrtf(s->variance[row] + s->epsilon));
        vec sum = ALL(0), along = ALL(0);
        for (int64_t i = 0; i < columns; i += VL) {
            const int64_t count = columns - i;
            const norm_lanes v = norm_lanes_of(x + i, dy + i, s->scale ? s->scale + i : 0, count, mean, inverse);
            sum += v.scaled, along += v.scaled * v.normalized; /* zeros behind the last column */
            give(by_scale + i, take(by_scale + i, count) + v.grad * v.normalized, count);
            give(by_bias + i, take(by_bias + i, count) + v.grad, count);
        }
        const vec level = ALL(sum_lanes(sum) / (float)columns), slope = ALL(sum_lanes(along) / (float)columns);
        for (int64_t i = 0; i < columns; i += VL) {
            const int64_t count = columns - i;
            const norm_lanes v = norm_lanes_of(x + i, dy + i, s->scale ? s->scale + i : 0, count, mean, inverse);
            give(s->source_grad + row * columns + i, (v.scaled - level - v.normalized * slope) * inverse, count);
        }
    }
}

/* ---------------------------------------------------------------- each channel over all images, row-major planes */
static void batch_norm(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_batch_norm *s = &call->batch_norm;
    const int64_t plane = s->plane, image = s->channels * plane;
    const double count = (double)(s->images * plane);
    int64_t from, to;
    part(s->channels, task, tasks, &from, &to);
    for (int64_t c = from; c < to; c++) {
        const float *x = s->source + c * plane;
        float *y = s->out + c * plane;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < s->images; i++) sum += sum_of_row(x + i * image, plane, 0, 0);
        const float mean = (float)(sum / count);
        for (int64_t i = 0; i < s->images; i++) squares += sum_of_row(x + i * image, plane, mean, 1);
        const float variance = (float)(squares / count), factor = s->scale[c] / sqrtf(variance + s->epsilon);
        s->mean[c] = mean, s->variance[c] = variance;
#define ROW(activation) \
    normalize_row(x + i * image, y + i * image, plane, mean, factor, s->bias[c], activation, &s->constants)
        for (int64_t i = 0; i < s->images; i++)
            if (s->activation == FT_RELU) ROW(FT_RELU);
            else ROW(FT_NONE);
#undef ROW
    }
}

/* Of the gradients, and of them times the normalized x; 256 of them are added up at a time. */
INLINE void add_gradients(const float *x, const float *dy, int64_t count, float mean, float inverse, double *sum,
                          double *along) {
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

static void batch_norm_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_batch_norm_gradient *s = &call->batch_norm_gradient;
    const int64_t plane = s->plane, image = s->channels * plane;
    const double count = (double)(s->images * plane);
    int64_t from, to;
    part(s->channels, task, tasks, &from, &to);
    for (int64_t c = from; c < to; c++) {
        const float *x = s->source + c * plane, *dy = s->out_grad + c * plane;
        const float mean = s->mean[c], inverse = s->inverse[c];
        float *dx = s->source_grad + c * plane;
        double sum = 0, along = 0;
        for (int64_t i = 0; i < s->images; i++)
            add_gradients(x + i * image, dy + i * image, plane, mean, inverse, &sum, &along);
        s->scale_grad[c] = (float)along, s->bias_grad[c] = (float)sum;
        const vec level = ALL(sum / count), slope = ALL(along / count), factor = ALL(s->scale[c] * inverse);
        for (int64_t i = 0; i < s->images; i++)
            for (int64_t j = 0; j < plane; j += VL) {
                const norm_lanes v = norm_lanes_of(x + i * image + j, dy + i * image + j, 0, plane - j, ALL(mean),
                                                   ALL(inverse));
                give(dx + i * image + j, (v.grad - level - v.normalized * slope) * factor, plane - j);
            }
    }
}

/* ---------------------------------------------------------------- the same, channels last, by a few pixels at a time
   The sums of CHUNK pixels are floats; kernels/normalization.py adds these up. */
#define CHUNK 64

static void channel_moments(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_channel_moments *s = &call->channel_moments;
    const int64_t channels = s->channels;
    int64_t from, to;
    part((s->pixels + CHUNK - 1) / CHUNK, task, tasks, &from, &to);
    for (int64_t chunk = from; chunk < to; chunk++) {
        const int64_t left = s->pixels - chunk * CHUNK, pixels = left < CHUNK ? left : CHUNK;
        const float *x = s->source + chunk * CHUNK * channels;
        float *means = s->out + chunk * 2 * channels;
        for (int64_t c = 0; c < channels; c += VL) {
            const int64_t count = channels - c;
            vec sum[2] = {ALL(0), ALL(0)}, squares[2] = {ALL(0), ALL(0)};
            for (int64_t i = 0; i < pixels; i++) sum[i & 1] += take(x + i * channels + c, count);
            const vec mean = (sum[0] + sum[1]) / ALL(pixels);
            for (int64_t i = 0; i < pixels; i++) {
                const vec away = take(x + i * channels + c, count) - mean;
                squares[i & 1] += away * away;
            }
            give(means + c, mean, count), give(means + channels + c, squares[0] + squares[1], count);
        }
    }
}

static void normalize_last(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_normalize_last *s = &call->normalize_last;
    const int64_t channels = s->channels;
    const vec least = s->activation == FT_RELU ? ALL(0) : ALL(-INFINITY);
    int64_t from, to;
    part(s->pixels, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float *x = s->source + i * channels;
        float *y = s->out + i * channels;
        for (int64_t c = 0; c < channels; c += VL) {
            const int64_t count = channels - c;
            const vec away = take(x + c, count) - take(s->mean + c, count);
            give(y + c, MAX(away * take(s->factor + c, count) + take(s->bias + c, count), least), count);
        }
    }
}

/* Of the gradients, and of them times the normalized x. */
static void channel_slopes(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_channel_slopes *s = &call->channel_slopes;
    const int64_t channels = s->channels;
    int64_t from, to;
    part((s->pixels + CHUNK - 1) / CHUNK, task, tasks, &from, &to);
    for (int64_t chunk = from; chunk < to; chunk++) {
        const int64_t left = s->pixels - chunk * CHUNK, pixels = left < CHUNK ? left : CHUNK, at = chunk * CHUNK * channels;
        float *sums = s->out + chunk * 2 * channels;
        for (int64_t c = 0; c < channels; c += VL) {
            const int64_t count = channels - c;
            const vec mean = take(s->mean + c, count), inverse = take(s->inverse + c, count);
            vec grads[2] = {ALL(0), ALL(0)}, slopes[2] = {ALL(0), ALL(0)};
            for (int64_t i = 0; i < pixels; i++) {
                const vec grad = take(s->out_grad + at + i * channels + c, count);
                grads[i & 1] += grad;
                slopes[i & 1] += grad * ((take(s->source + at + i * channels + c, count) - mean) * inverse);
            }
            give(sums + c, grads[0] + grads[1], count), give(sums + channels + c, slopes[0] + slopes[1], count);
        }
    }
}

static void normalize_last_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_normalize_last_gradient *s = &call->normalize_last_gradient;
    const int64_t channels = s->channels;
    int64_t from, to;
    part(s->pixels, task, tasks, &from, &to);
    for (int64_t i = from * channels; i < to * channels; i += channels)
        for (int64_t c = 0; c < channels; c += VL) {
            const int64_t count = channels - c;
            const vec normalized = (take(s->source + i + c, count) - take(s->mean + c, count)) * take(s->inverse + c, count);
            const vec grad = take(s->out_grad + i + c, count) - take(s->level + c, count);
            give(s->source_grad + i + c, (grad - normalized * take(s->slope + c, count)) * take(s->factor + c, count), count);
        }
}

/* Each number over a power of k + alpha * the sum of squares of the channels around, blocked. */
static void local_response(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_local_response *s = &call->local_response;
    int64_t from, to;
    part(s->images * s->blocks * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % s->rows, block = i / s->rows % s->blocks, image = i / (s->rows * s->blocks);
        const float *x = s->source + image * s->source_image + block * s->source_block + row * s->source_row;
        float *y = s->out + image * s->out_image + block * s->out_block + row * s->out_row;
        const veci channel = LANES + (int32_t)(block * VL), here = channel < (int32_t)s->channels,
                   next = channel + VL < (int32_t)s->channels;
        for (int64_t at = 0; at < s->columns * VL; at += VL) {
            const vec value = LOAD(x + at);
            const vec before = block ? LOAD(x + at - s->source_block) : ALL(0);
            const vec behind = block + 1 < s->blocks ? CHOOSE(next, LOAD(x + at + s->source_block), ALL(0)) : ALL(0);
            const vec square = CHOOSE(here, value * value, ALL(0)), low = before * before, high = behind * behind;
            vec sum = square;
            for (int64_t far = 1; far <= s->around; far++)
                sum += SHUFFLE(low, square, LANES + (int32_t)(VL - far)) + SHUFFLE(square, high, LANES + (int32_t)far);
            const vec root = sqrt_vec(sqrt_vec(sum * ALL(s->alpha) + ALL(s->k)));
            vec power = root;
            for (int64_t fourths = 1; fourths < s->fourths; fourths++) power *= root;
            STORE(y + at, value / power);
        }
    }
}
