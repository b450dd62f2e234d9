/* What only moves numbers. Included by matrices.c. */
/* ---------------------------------------------------------------- moves
   copy: p: x, -, -, y. n: 0-5 sizes, 6-11 x strides, 12-17 y strides */
static void copy_strided(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *xs = n + 6, *ys = n + 12;
    int64_t from, to;
    part(n[0] * n[1] * n[2] * n[3] * n[4], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        int64_t rest = row, x = 0, y = 0;
        for (int axis = 4; axis >= 0; axis--) {
            x += rest % n[axis] * xs[axis], y += rest % n[axis] * ys[axis];
            rest /= n[axis];
        }
        const float *source = step->p[0] + x;
        float *target = step->p[3] + y;
        if (xs[5] == 1 && ys[5] == 1) memcpy(target, source, (size_t)n[5] * sizeof(float));
        else
            for (int64_t i = 0; i < n[5]; i++) target[i * ys[5]] = source[i * xs[5]];
    }
}

/* Where the number of an inner channel and a tap goes: taps of `n[5]` channels together. */
INLINE int64_t place_in_filter(int64_t number, const int64_t *n) {
    const int64_t channel = number / n[2], tap = number % n[2], start = channel / n[5] * n[5];
    const int64_t lanes = n[1] - start < n[5] ? n[1] - start : n[5];
    return start * n[2] + tap * lanes + channel - start;
}

/* Filters [O][I][taps] to packed weights, in the order input block, tap, lane: p: x and factor by filter or 0 (both at any
   address), -, y.
   n: 0 O and 1 I of a group, 2 taps, 3 groups, 4 stride of a group in y, 5 lanes of an input block */
static void pack_filter(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, depth = n[1] * n[2], blocks = (n[0] + VL - 1) / VL, pairs = (blocks + 1) / 2;
    int64_t from, to;
    part(n[3] * pairs, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t pair = i % pairs, group = i / pairs, width = (2 * pair + 1 < blocks ? 2 : 1) * VL;
        for (int64_t half = 0; half < width; half += VL) {
            const int64_t first = pair * 2 * VL + half, there = n[0] - first < VL ? n[0] - first : VL;
            const loose *x = (const loose *)step->p[0] + (group * n[0] + first) * depth;
            const vec factor = step->p[1] ? take_loose((const loose *)step->p[1] + group * n[0] + first, there) : ALL(1);
            float *y = step->p[3] + group * n[4] + pair * depth * 2 * VL + half;
            for (int64_t k = 0; k < depth; k += VL) {
                const int64_t count = depth - k < VL ? depth - k : VL;
                vec lines[VL];
                for (int64_t j = 0; j < VL; j++) lines[j] = take_loose(x + j * depth + k, j < there ? count : 0);
                transpose(lines);
                for (int64_t j = 0; j < count; j++)
                    STORE(y + place_in_filter(k + j, n) * width, lines[j] * factor);
            }
        }
    }
}

/* p: table, -, -, y, -, ids (int64). n: 0 ids, 1 width, 2 add to y, 3 the id whose row is zero (-1: none), 4 rows of the table,
   5 set to 1 when an id is none of them: then y is not to be used */
static void gather_rows(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *ids = OFFSETS(step);
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        float *y = step->p[3] + i * n[1];
        if (ids[i] < 0 || ids[i] >= n[4]) {
            __atomic_store_n((int64_t *)&n[5], 1, __ATOMIC_RELAXED);
            continue;
        }
        const float *x = step->p[0] + ids[i] * n[1];
        const int zero = ids[i] == n[3];
        if (n[2])
            for (int64_t j = 0; j < n[1]; j++) y[j] += zero ? 0 : x[j];
        else if (zero) memset(y, 0, (size_t)n[1] * sizeof(float));
        else memcpy(y, x, (size_t)n[1] * sizeof(float));
    }
}
