/* Softmax and layer normalization. Included by matrices.c. */
#define LOWEST_LOGIT -64.0f /* below the largest: no probability is 0, as in Paddle */

static inline vec exp_shifted(vec shifted) { return exp_within(MAX(shifted, ALL(LOWEST_LOGIT)), 0); }

enum { SHORT_ROW = 2 * VL }; /* columns of rows that are computed VL at once */

/* Softmax of VL rows of at most SHORT_ROW columns, that lie one after the other: each in a lane. */
static void softmax_lanes(float *rows, int64_t columns, float factor) {
    vec column[SHORT_ROW];
    for (int64_t start = 0; start < columns; start += VL) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < VL; i++) column[start + i] = LOAD(rows + i * columns + start);
        transpose(column + start);
    }
    vec most = column[0] * ALL(factor), sum = ALL(0);
    for (int64_t k = 0; k < columns; k++) {
        column[k] *= ALL(factor);
        most = MAX(most, column[k]);
    }
    for (int64_t k = 0; k < columns; k++) {
        column[k] = exp_shifted(column[k] - most);
        sum += column[k];
    }
    const vec part_of_all = ALL(1) / sum;
    for (int64_t k = 0; k < columns; k++) column[k] *= part_of_all;
    for (int64_t start = (columns - 1) / VL * VL; start >= 0; start -= VL) { /* the last ones reach into the next row */
        transpose(column + start);
#pragma GCC unroll 16
        for (int64_t i = 0; i < VL; i++) STORE(rows + i * columns + start, column[start + i]);
    }
}

static void softmax_short(const float *x, float *y, int64_t columns, float factor, int64_t from, int64_t to) {
    float rows[VL * SHORT_ROW] = {0};
    for (int64_t row = from; row < to; row += VL) {
        const size_t bytes = (size_t)((to - row < VL ? to - row : VL) * columns) * sizeof(float);
        memcpy(rows, x + row * columns, bytes);
        softmax_lanes(rows, columns, factor);
        memcpy(y + row * columns, rows, bytes);
    }
}

/* What is added to rows before their softmax: the rows as [image][head][row], and the strides of the mask. */
typedef struct {
    const float *at; /* or 0 */
    int64_t heads, rows;
    int64_t image, head, row, column;
} row_mask;

/* y = softmax(factor * x + mask) of rows that lie one after the other; in place, too. */
static void softmax_rows(const float *x, float *y, const row_mask *m, int64_t columns, float factor, int64_t from,
                         int64_t to) {
    if (columns <= SHORT_ROW && !m->at) {
        softmax_short(x, y, columns, factor, from, to);
        return;
    }
    x += from * columns;
    y += from * columns;
    for (int64_t row = from; row < to; row++, x += columns, y += columns) {
        const float *mask = 0;
        if (m->at)
            mask = m->at + row / (m->heads * m->rows) * m->image + row / m->rows % m->heads * m->head +
                   row % m->rows * m->row;
        vec most = ALL(-3.402823466e38f);
        int64_t i = 0;
        for (; i + VL <= columns; i += VL) {
            vec value = LOAD(x + i) * ALL(factor);
            if (mask) value += m->column ? LOAD(mask + i) : ALL(*mask);
            STORE(y + i, value);
            most = MAX(value, most);
        }
        if (i < columns) {
            vec value = load_some(x + i, columns - i, -3.402823466e38f) * ALL(factor);
            if (mask) value += m->column ? load_some(mask + i, columns - i, 0) : ALL(*mask);
            store_some(y + i, value, columns - i);
            float lanes[VL];
            STORE(lanes, value);
            for (int64_t j = columns - i; j < VL; j++) lanes[j] = lanes[0];
            most = MAX(LOAD(lanes), most);
        }
        const vec top = ALL(max_lanes(most));
        vec sum = ALL(0);
        for (i = 0; i + VL <= columns; i += VL) {
            const vec value = exp_shifted(LOAD(y + i) - top);
            sum += value;
            STORE(y + i, value);
        }
        float total = sum_lanes(sum);
        if (i < columns) {
            const vec value = exp_shifted(load_some(y + i, columns - i, 0) - top);
            float lanes[VL];
            STORE(lanes, value);
            for (int64_t j = 0; j < columns - i; j++) total += lanes[j], y[i + j] = lanes[j];
        }
        const vec part_of_all = ALL(1 / total);
        for (i = 0; i + VL <= columns; i += VL) STORE(y + i, LOAD(y + i) * part_of_all);
        for (; i < columns; i++) y[i] *= 1 / total;
    }
}

static void softmax(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_softmax *s = &call->softmax;
    const row_mask mask = {.at = s->mask,
                           .heads = s->heads,
                           .rows = s->head_rows,
                           .image = s->mask_image,
                           .head = s->mask_head,
                           .row = s->mask_row,
                           .column = s->mask_column};
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    softmax_rows(s->source, s->out, &mask, s->columns, s->factor, from, to);
}

/* The sum of (x - mean) to the power 1 or 2, a constant; four sums, since one would wait for itself. */
INLINE float sum_of_powers(const float *x, int64_t count, float mean, const int power) {
    vec sums[4] = {ALL(0), ALL(0), ALL(0), ALL(0)};
    float rest = 0;
    int64_t i = 0;
    for (; i + 4 * VL <= count; i += 4 * VL)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            const vec away = LOAD(x + i + k * VL) - ALL(mean);
            sums[k] += power == 1 ? away : away * away;
        }
    for (; i + VL <= count; i += VL) {
        const vec away = LOAD(x + i) - ALL(mean);
        sums[0] += power == 1 ? away : away * away;
    }
    for (; i < count; i++) rest += power == 1 ? x[i] - mean : (x[i] - mean) * (x[i] - mean);
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

static void layer_norm(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_layer_norm *s = &call->layer_norm;
    const int64_t columns = s->columns, even = columns / VL * VL;
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = s->source + row * columns, *more = s->residual ? s->residual + row * columns : 0;
        float *y = s->out + row * columns;
        if (more)
            for (int64_t i = 0; i < columns; i++) y[i] = x[i] + more[i];
        const float *from_here = more ? y : x;
        const float mean = sum_of_powers(from_here, columns, 0, 1) / (float)columns;
        const float variance = sum_of_powers(from_here, columns, mean, 2) / (float)columns;
        const float inverse = 1 / sqrtf(variance + s->epsilon);
        const float *scale = s->scale, *bias = s->bias;
        if (s->statistics) s->statistics[row] = mean, s->statistics[s->rows + row] = variance;
        for (int64_t i = 0; i < even; i += VL) {
            vec value = (LOAD(from_here + i) - ALL(mean)) * ALL(inverse);
            if (scale) value *= LOAD(scale + i);
            if (bias) value += LOAD(bias + i);
            if (s->activation) value = activate(value, s->activation, &s->constants);
            STORE(y + i, value);
        }
        for (int64_t i = even; i < columns; i++) {
            const float value = (from_here[i] - mean) * inverse * (scale ? scale[i] : 1) + (bias ? bias[i] : 0);
            store_some(y + i, activate(ALL(value), s->activation, &s->constants), 1);
        }
    }
}
