/* Sums, extremes and softmax along one axis of [outer][axis][inner]. Included by matrices.c. */

enum { REDUCE_SUM, REDUCE_MEAN, REDUCE_LARGEST, REDUCE_SMALLEST, REDUCE_PRODUCT };

INLINE vec reduce_two(vec a, vec b, int64_t how) {
    switch (how) {
        case REDUCE_LARGEST: return CHOOSE(b == b, MAX(a, b), b); /* a NaN stays */
        case REDUCE_SMALLEST: return CHOOSE(b == b, MIN(a, b), b);
        case REDUCE_PRODUCT: return a * b;
        default: return a + b;
    }
}

INLINE float first_of_reduction(int64_t how) {
    return how == REDUCE_LARGEST ? -__builtin_inff() : how == REDUCE_SMALLEST ? __builtin_inff() : how == REDUCE_PRODUCT;
}

/* Along memory: sums of 256 numbers are added up, so that rounding does not grow with the length. */
static float reduce_row(const float *x, int64_t count, int64_t how) {
    const float first = first_of_reduction(how);
    vec total = ALL(first);
    for (int64_t i = 0; i < count; i += 256) {
        const int64_t end = i + 256 < count ? i + 256 : count;
        vec sum = ALL(first);
        int64_t j = i;
        for (; j + VL <= end; j += VL) sum = reduce_two(sum, LOAD(x + j), how);
        if (j < end) sum = reduce_two(sum, load_some(x + j, end - j, first), how);
        total = reduce_two(total, sum, how);
    }
    float lanes[VL];
    for (int half = VL / 2; half; half /= 2) {
        STORE(lanes, total);
        float moved[VL];
        for (int i = 0; i < VL; i++) moved[i] = i < half ? lanes[i + half] : first;
        total = reduce_two(total, LOAD(moved), how);
    }
    STORE(lanes, total);
    return lanes[0];
}

static void reduce(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_reduce *s = &call->reduce;
    const int64_t axis = s->axis, inner = s->inner, how = s->how;
    const float factor = how == REDUCE_MEAN ? 1 / (float)axis : 1, first = first_of_reduction(how);
    const int64_t chunks = (inner + VL - 1) / VL;
    int64_t from, to;
    part(inner == 1 ? s->outer : s->outer * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        if (inner == 1) {
            s->out[i] = reduce_row(s->source + i * axis, axis, how) * factor;
            continue;
        }
        const int64_t outer = i / chunks, start = i % chunks * VL, there = inner - start;
        const float *x = s->source + outer * axis * inner + start;
        vec total = ALL(first);
        for (int64_t j = 0; j < axis; j += 64) {
            const int64_t end = j + 64 < axis ? j + 64 : axis;
            vec sum = ALL(first);
            for (int64_t k = j; k < end; k++) sum = reduce_two(sum, take(x + k * inner, there), how);
            total = reduce_two(total, sum, how);
        }
        give(s->out + outer * inner + start, total * ALL(factor), there);
    }
}

static void softmax_axis(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_softmax_axis *s = &call->softmax_axis;
    const int64_t axis = s->axis, inner = s->inner, chunks = (inner + VL - 1) / VL;
    int64_t from, to;
    part(s->outer * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t start = i % chunks * VL, there = inner - start, at = i / chunks * axis * inner + start;
        const float *x = s->source + at;
        float *y = s->out + at;
        vec most = take(x, there), sum = ALL(0);
        for (int64_t k = 1; k < axis; k++) most = MAX(most, take(x + k * inner, there));
        for (int64_t k = 0; k < axis; k++) {
            const vec value = exp_shifted(take(x + k * inner, there) - most);
            sum += value;
            give(y + k * inner, value, there);
        }
        const vec factor = ALL(1) / sum;
        for (int64_t k = 0; k < axis; k++) give(y + k * inner, take(y + k * inner, there) * factor, there);
    }
}
