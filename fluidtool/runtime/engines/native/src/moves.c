/* What only moves numbers. Included by matrices.c. */
/* ---------------------------------------------------------------- moves */
/* Two neighbors at a time, `count` times. */
INLINE void copy_pairs(const float *source, float *target, int64_t source_step, int64_t target_step, int64_t count) {
    for (int64_t i = 0; i < count; i++) memcpy(target + i * target_step, source + i * source_step, 2 * sizeof(float));
}

static void copy_strided(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_copy *s = &call->copy;
    const int64_t *shape = s->shape, *xs = s->source_strides, *ys = s->out_strides;
    int64_t from, to;
    part(s->shape[0] * s->shape[1] * s->shape[2] * s->shape[3] * s->shape[4], task, tasks, &from, &to);
    if (from >= to) return;
    int64_t index[5], rest = from, x = 0, y = 0;
    for (int axis = 4; axis >= 0; axis--) {
        index[axis] = rest % shape[axis], rest /= shape[axis];
        x += index[axis] * xs[axis], y += index[axis] * ys[axis];
    }
    const int64_t columns = shape[5], source_step = xs[5], target_step = ys[5];
    const int pairs = source_step == 1 && target_step == 1 && columns == 2;
    for (int64_t row = from, taken; row < to; row += taken) {
        const float *source = s->source + x;
        float *target = s->out + y;
        const int64_t left = shape[4] - index[4];
        taken = !pairs ? 1 : left < to - row ? left : to - row;
        if (pairs) copy_pairs(source, target, xs[4], ys[4], taken);
        else if (source_step == 1 && target_step == 1 && columns > 4) memcpy(target, source, (size_t)columns * sizeof(float));
        else
            for (int64_t i = 0; i < columns; i++) target[i * target_step] = source[i * source_step];
        x += taken * xs[4], y += taken * ys[4]; /* to the next row, of whichever axis */
        index[4] += taken;
        for (int axis = 4; axis > 0 && index[axis] == shape[axis]; axis--) {
            x += xs[axis - 1] - shape[axis] * xs[axis], y += ys[axis - 1] - shape[axis] * ys[axis];
            index[axis] = 0;
            index[axis - 1]++;
        }
    }
}

/* Where the number of an inner channel and a tap goes: taps of so many lanes together. */
INLINE int64_t place_in_filter(int64_t number, const ft_pack_filter *s) {
    const int64_t channel = number / s->taps, tap = number % s->taps, start = channel / s->lanes * s->lanes;
    const int64_t lanes = s->channels - start < s->lanes ? s->channels - start : s->lanes;
    return start * s->taps + tap * lanes + channel - start;
}

/* Filters [O][I][taps] to packed weights, in the order input block, tap, lane. */
static void pack_filter(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pack_filter *s = &call->pack_filter;
    const int64_t depth = s->channels * s->taps, blocks = (s->filters + VL - 1) / VL, pairs = (blocks + 1) / 2;
    int64_t from, to;
    part(s->groups * pairs, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t pair = i % pairs, group = i / pairs, width = (2 * pair + 1 < blocks ? 2 : 1) * VL;
        for (int64_t half = 0; half < width; half += VL) {
            const int64_t first = pair * 2 * VL + half, there = s->filters - first < VL ? s->filters - first : VL;
            const loose *x = (const loose *)s->source + (group * s->filters + first) * depth;
            const vec factor = s->scale ? take_loose((const loose *)s->scale + group * s->filters + first, there) : ALL(1);
            float *y = s->out + group * s->out_group + pair * depth * 2 * VL + half;
            for (int64_t k = 0; k < depth; k += VL) {
                const int64_t count = depth - k < VL ? depth - k : VL;
                vec lines[VL];
                for (int64_t j = 0; j < VL; j++) lines[j] = take_loose(x + j * depth + k, j < there ? count : 0);
                transpose(lines);
                for (int64_t j = 0; j < count; j++)
                    STORE(y + place_in_filter(k + j, s) * width, lines[j] * factor);
            }
        }
    }
}

static void gather_rows(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_gather_rows *s = &call->gather_rows;
    const int64_t *ids = s->ids;
    int64_t from, to;
    part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        float *y = s->out + i * s->columns;
        if (ids[i] < 0 || ids[i] >= s->table_rows) {
            __atomic_store_n((int64_t *)&s->beyond, 1, __ATOMIC_RELAXED);
            continue;
        }
        const float *x = s->table + ids[i] * s->columns;
        const int zero = ids[i] == s->zero_id;
        if (s->add)
            for (int64_t j = 0; j < s->columns; j++) y[j] += zero ? 0 : x[j];
        else if (zero) memset(y, 0, (size_t)s->columns * sizeof(float));
        else memcpy(y, x, (size_t)s->columns * sizeof(float));
    }
}
