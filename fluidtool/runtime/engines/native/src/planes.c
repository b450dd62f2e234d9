/* Convolutions of every channel by a filter of its own, on row-major planes: one plane at a time, copied with its padding
   to memory that stays in the first cache, where a plane is one long row and a tap of the filter an offset into it.
   Gradients there lie where the first cell of their window lies, with zeros between where windows move by more than one,
   so that every stride is the same sum. Included by images.c. */
#define PLANE_TAPS 9 /* of the filter that are summed at once */

/* A plane, its windows, and the plane with its padding: what both kernels say of them. */
typedef struct {
    int64_t source_height, source_width, rows, columns, stride_h, stride_w, pad_top, pad_left, padded_rows, padded_columns;
} plane_windows;

#define PLANE_WINDOWS(s)                                                                                               \
    {                                                                                                                  \
        (s)->source_height, (s)->source_width, (s)->rows, (s)->columns, (s)->stride_h, (s)->stride_w, (s)->pad_top,    \
            (s)->pad_left, (s)->padded_rows, (s)->padded_columns                                                       \
    }

/* The rows of x into the padded plane, which is zero around them; what sticks out is left out. */
INLINE void pad_plane(const plane_windows *s, const float *x, float *plane) {
    for (int64_t r = 0; r < s->source_height; r++) {
        const int64_t row = r + s->pad_top, first = s->pad_left < 0 ? -s->pad_left : 0;
        if (row < 0 || row >= s->padded_rows) continue;
        const int64_t room = s->padded_columns - s->pad_left,
                      count = (s->source_width < room ? s->source_width : room) - first;
        if (count > 0)
            memcpy(plane + row * s->padded_columns + s->pad_left + first, x + r * s->source_width + first,
                   (size_t)count * sizeof(float));
    }
}

/* The rows of y, or of their gradients, to where the first cells of their windows lie. */
INLINE void spread_plane(const plane_windows *s, const float *y, float *plane) {
    for (int64_t r = 0; r < s->rows; r++, y += s->columns) {
        float *to = plane + r * s->stride_h * s->padded_columns;
        if (s->stride_w == 1) memcpy(to, y, (size_t)s->columns * sizeof(float));
        else
            for (int64_t c = 0; c < s->columns; c++) to[c * s->stride_w] = y[c];
    }
}

/* The runs of a plane in which windows begin: one, or one for each row of windows where a vector more does not reach the
   next. */
INLINE int64_t plane_runs(const plane_windows *s, int64_t *stride, int64_t *length) {
    *stride = s->stride_h * s->padded_columns;
    *length = (s->columns - 1) * s->stride_w + 1;
    if (s->stride_h > 1 && *stride - *length >= VL) return s->rows;
    *length += (s->rows - 1) * *stride;
    return 1;
}

/* y[i] = the sum of factor[t] * x[i + at[t]], or of x[i - at[t]], over all taps. */
INLINE void sum_taps(const float *x, const int64_t *at, const float *factors, int64_t taps, int sign, float *y,
                     int64_t count) {
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

static void depthwise_planes(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_depthwise_planes *s = &call->depthwise_planes;
    const int64_t *at = s->offsets, size = s->padded_rows * s->padded_columns;
    float *plane = s->scratch + task * s->task_scratch, *whole = plane + size + 4 * VL + at[s->taps - 1];
    int64_t from, to, stride, length;
    const plane_windows w = PLANE_WINDOWS(s);
    const int64_t runs = plane_runs(&w, &stride, &length);
    part(s->images * s->channels, task, tasks, &from, &to);
    memset(plane, 0, (size_t)s->task_scratch * sizeof(float));
    for (int64_t number = from; number < to; number++) {
        const float *filter = s->filters + number % s->channels * s->taps;
        pad_plane(&w, s->source + number * s->source_height * s->source_width, plane);
        for (int64_t run = 0; run < runs; run++)
            sum_taps(plane + run * stride, at, filter, s->taps, 1, whole + run * stride, length);
        float *y = s->out + number * s->rows * s->columns;
        for (int64_t r = 0; r < s->rows; r++, y += s->columns) {
            const float *row = whole + r * s->stride_h * s->padded_columns;
            if (s->stride_w == 1) memcpy(y, row, (size_t)s->columns * sizeof(float));
            else
                for (int64_t c = 0; c < s->columns; c++) y[c] = row[c * s->stride_w];
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

static void depthwise_planes_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_depthwise_planes_gradient *s = &call->depthwise_planes_gradient;
    const int64_t *at = s->offsets, size = s->padded_rows * s->padded_columns, taps = s->taps, reach = at[taps - 1];
    float *plane = s->scratch + task * s->task_scratch, *grads = plane + size + 4 * VL + 2 * reach;
    float *whole = grads + size + 4 * VL;
    int64_t from, to, stride, length;
    const plane_windows w = PLANE_WINDOWS(s);
    const int64_t runs = plane_runs(&w, &stride, &length);
    part(s->channels, task, tasks, &from, &to);
    memset(plane, 0, (size_t)s->task_scratch * sizeof(float));
    for (int64_t channel = from; channel < to; channel++) {
        const float *filter = s->filters + channel * taps;
        for (int64_t first = 0; first < taps; first += PLANE_TAPS) {
            int64_t here[PLANE_TAPS];
            vec sums[PLANE_TAPS];
            for (int t = 0; t < PLANE_TAPS; t++) here[t] = at[first + t < taps ? first + t : taps - 1], sums[t] = ALL(0);
            for (int64_t image = 0; image < s->images; image++) {
                const int64_t number = image * s->channels + channel;
                spread_plane(&w, s->grad + number * s->rows * s->columns, grads);
                if (s->filters_grad) {
                    pad_plane(&w, s->source + number * s->source_height * s->source_width, plane);
                    for (int64_t run = 0; run < runs; run++)
                        meet_taps(plane + run * stride, grads + run * stride, here, length, sums);
                }
                if (!s->source_grad || first) continue;
                float *dx = s->source_grad + number * s->source_height * s->source_width;
                const int64_t top = s->pad_top > 0 ? s->pad_top : 0, begin = top * s->padded_columns;
                sum_taps(grads + begin, at, filter, taps, -1, whole, s->source_height * s->padded_columns);
                for (int64_t r = 0; r < s->source_height; r++)
                    memcpy(dx + r * s->source_width, whole + r * s->padded_columns + s->pad_left,
                           (size_t)s->source_width * sizeof(float));
            }
            for (int64_t t = 0; s->filters_grad && t < PLANE_TAPS && first + t < taps; t++)
                s->filters_grad[channel * taps + first + t] = sum_lanes(sums[t]);
            if (!s->filters_grad) break;
        }
    }
}
