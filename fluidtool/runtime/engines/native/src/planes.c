/* Convolutions of every channel by a filter of its own, on row-major planes: one plane at a time, copied with its padding
   to memory that stays in the first cache, where a plane is one long row and a tap of the filter an offset into it.
   Gradients there lie where the first cell of their window lies, with zeros between where windows move by more than one,
   so that every stride is the same sum. Included by images.c.
   n: 0 images, 1 channels, 2-3 rows and columns of x, 4-5 of y, 6-7 strides, 8-9 zeros above and left, 10 rows of the
   padded plane, 11 its row, 12 taps, 13 floats of memory for a task. */
#define PLANE_TAPS 9 /* of the filter that are summed at once */

/* The rows of x into the padded plane, which is zero around them; what sticks out is left out. */
INLINE void pad_plane(const int64_t *n, const float *x, float *plane) {
    for (int64_t r = 0; r < n[2]; r++) {
        const int64_t row = r + n[8], first = n[9] < 0 ? -n[9] : 0;
        if (row < 0 || row >= n[10]) continue;
        const int64_t room = n[11] - n[9], count = (n[3] < room ? n[3] : room) - first;
        if (count > 0) memcpy(plane + row * n[11] + n[9] + first, x + r * n[3] + first, (size_t)count * sizeof(float));
    }
}

/* The rows of y, or of their gradients, to where the first cells of their windows lie. */
INLINE void spread_plane(const int64_t *n, const float *y, float *plane) {
    for (int64_t r = 0; r < n[4]; r++, y += n[5]) {
        float *to = plane + r * n[6] * n[11];
        if (n[7] == 1) memcpy(to, y, (size_t)n[5] * sizeof(float));
        else
            for (int64_t c = 0; c < n[5]; c++) to[c * n[7]] = y[c];
    }
}

/* The runs of a plane in which windows begin: one, or one for each row of windows where a vector more does not reach the
   next. */
INLINE int64_t plane_runs(const int64_t *n, int64_t *stride, int64_t *length) {
    *stride = n[6] * n[11];
    *length = (n[5] - 1) * n[7] + 1;
    if (n[6] > 1 && *stride - *length >= VL) return n[4];
    *length += (n[4] - 1) * *stride;
    return 1;
}

/* y[i] = the sum of factor[t] * x[i + at[t]], or of x[i - at[t]], over all taps. */
INLINE void sum_taps(const float *x, const int64_t *at, const float *factors, int64_t taps, int sign, float *y, int64_t count) {
    for (int64_t i = 0; i < count; i += 4 * VL) {
        vec a = ALL(0), b = a, c = a, d = a;
        for (int64_t t = 0; t < taps; t++) {
            const float *from = x + i + sign * at[t];
            const vec factor = ALL(factors[t]);
            a += factor * LOAD(from), b += factor * LOAD(from + VL);
            c += factor * LOAD(from + 2 * VL), d += factor * LOAD(from + 3 * VL);
        }
        STORE(y + i, a), STORE(y + i + VL, b), STORE(y + i + 2 * VL, c), STORE(y + i + 3 * VL, d);
    }
}

/* p: x, filters [channels][taps], -, y, memory for each task, offset of each tap */
static void depthwise_planes(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *at = OFFSETS(step), size = n[10] * n[11];
    float *plane = step->p[4] + task * n[13], *whole = plane + size + 4 * VL + at[n[12] - 1];
    int64_t from, to, stride, length;
    const int64_t runs = plane_runs(n, &stride, &length);
    part(n[0] * n[1], task, tasks, &from, &to);
    memset(plane, 0, (size_t)n[13] * sizeof(float));
    for (int64_t number = from; number < to; number++) {
        const float *filter = step->p[1] + number % n[1] * n[12];
        pad_plane(n, step->p[0] + number * n[2] * n[3], plane);
        for (int64_t run = 0; run < runs; run++)
            sum_taps(plane + run * stride, at, filter, n[12], 1, whole + run * stride, length);
        float *y = step->p[3] + number * n[4] * n[5];
        for (int64_t r = 0; r < n[4]; r++, y += n[5]) {
            const float *row = whole + r * n[6] * n[11];
            if (n[7] == 1) memcpy(y, row, (size_t)n[5] * sizeof(float));
            else
                for (int64_t c = 0; c < n[5]; c++) y[c] = row[c * n[7]];
        }
    }
}

/* sums[t] += the sum of dy[i] * x[i + at[t]], for PLANE_TAPS taps. */
INLINE void meet_taps(const float *x, const float *dy, const int64_t *at, int64_t count, vec *sums) {
    vec total[PLANE_TAPS];
#pragma GCC unroll 9
    for (int t = 0; t < PLANE_TAPS; t++) total[t] = sums[t];
    for (int64_t i = 0; i < count; i += VL) {
        const vec grad = LOAD(dy + i);
#pragma GCC unroll 9
        for (int t = 0; t < PLANE_TAPS; t++) total[t] += grad * LOAD(x + i + at[t]);
    }
#pragma GCC unroll 9
    for (int t = 0; t < PLANE_TAPS; t++) sums[t] = total[t];
}

/* p: x, filters, dy, dx or 0, memory for each task, offset of each tap, dfilters or 0 */
static void depthwise_planes_gradient(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *at = OFFSETS(step), size = n[10] * n[11], taps = n[12], reach = at[taps - 1];
    float *plane = step->p[4] + task * n[13], *grads = plane + size + 4 * VL + 2 * reach;
    float *whole = grads + size + 4 * VL;
    int64_t from, to, stride, length;
    const int64_t runs = plane_runs(n, &stride, &length);
    part(n[1], task, tasks, &from, &to);
    memset(plane, 0, (size_t)n[13] * sizeof(float));
    for (int64_t channel = from; channel < to; channel++) {
        const float *filter = step->p[1] + channel * taps;
        for (int64_t first = 0; first < taps; first += PLANE_TAPS) {
            int64_t here[PLANE_TAPS];
            vec sums[PLANE_TAPS];
            for (int t = 0; t < PLANE_TAPS; t++) here[t] = at[first + t < taps ? first + t : taps - 1], sums[t] = ALL(0);
            for (int64_t image = 0; image < n[0]; image++) {
                const int64_t number = image * n[1] + channel;
                spread_plane(n, step->p[2] + number * n[4] * n[5], grads);
                if (step->p[6]) {
                    pad_plane(n, step->p[0] + number * n[2] * n[3], plane);
                    for (int64_t run = 0; run < runs; run++)
                        meet_taps(plane + run * stride, grads + run * stride, here, length, sums);
                }
                if (!step->p[3] || first) continue;
                float *dx = step->p[3] + number * n[2] * n[3];
                const int64_t top = n[8] > 0 ? n[8] : 0, begin = top * n[11];
                sum_taps(grads + begin, at, filter, taps, -1, whole, n[2] * n[11]);
                for (int64_t r = 0; r < n[2]; r++) memcpy(dx + r * n[3], whole + r * n[11] + n[9], (size_t)n[3] * sizeof(float));
            }
            for (int64_t t = 0; step->p[6] && t < PLANE_TAPS && first + t < taps; t++)
                step->p[6][channel * taps + first + t] = sum_lanes(sums[t]);
            if (!step->p[6]) break;
        }
    }
}
