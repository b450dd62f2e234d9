/* Passes over the numbers of values, and the instructions that are such a pass. Included by matrices.c. */
#define NUMBERS(count, from, expression)                                     \
    for (int64_t i = 0; i < (count); i += VL) {                           \
        const int64_t left = (count) - i;                                 \
        give((from) + i, expression, left);                               \
    }

INLINE void combine_numbers(const float *a, const float *b, float *y, int64_t count, const int64_t operation) {
    NUMBERS(count, y, combine(take(a + i, left), take(b + i, left), operation))
}

INLINE void combine_one(const float *a, float b, float *y, int64_t count, const int64_t operation) {
    NUMBERS(count, y, combine(take(a + i, left), ALL(b), operation))
}

/* How the smaller factor fits the larger: it is as large, its numbers stand for columns, or for rows. */
enum { NO_FIT, ALIKE, BY_COLUMN, BY_ROW };
static int64_t fit_of(const loop_value *x, const loop_value *y, int64_t axis) {
    if (same_shape(x, y)) return ALIKE;
    if (!y->rank || y->rank >= x->rank || !loop_size(y)) return NO_FIT;
    const int64_t last = x->rank - y->rank;
    int64_t columns = axis == -1 || axis == last, rows = axis == 0;
    for (int64_t i = 0; i < y->rank; i++) {
        columns &= y->dims[i] == x->dims[last + i];
        rows &= y->dims[i] == x->dims[i];
    }
    return columns ? BY_COLUMN : rows ? BY_ROW : NO_FIT;
}

INLINE void combine_fitting(const loop_value *x, const loop_value *y, float *out, int64_t fit, const int64_t operation) {
    const int64_t size = loop_size(x), inner = fit == BY_COLUMN ? loop_size(y) : fit == BY_ROW ? size / loop_size(y) : size;
    const float *a = x->data, *b = y->data;
    for (int64_t row = 0, at = 0; at < size; row++, at += inner)
        if (fit == BY_ROW) combine_one(a + at, b[row], out + at, inner, operation);
        else combine_numbers(a + at, b, out + at, inner, operation);
}

static void combine_values(const loop_value *x, const loop_value *y, float *out, int64_t fit, int64_t operation) {
    if (operation == ADD) combine_fitting(x, y, out, fit, ADD);
    else if (operation == SUBTRACT) combine_fitting(x, y, out, fit, SUBTRACT);
    else combine_fitting(x, y, out, fit, MULTIPLY);
}

/* total[columns] += the sums over the rows of x, each times a number of `by`, or times the same of `with`, if they are there. */
static void add_rows_up(const float *x, const float *by, const float *with, float *total, int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; row++) {
        const float *from = x + row * columns, *other = with + row * columns;
        const vec factor = by ? ALL(by[row]) : ALL(1);
        if (with) NUMBERS(columns, total, take(total + i, left) + take(from + i, left) * take(other + i, left))
        else NUMBERS(columns, total, take(total + i, left) + take(from + i, left) * factor)
    }
}

/* two values, out, operation, axis */
static int combine_two(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), y = SLOT(3);
    NEED(has_floats(&x) && has_floats(&y) && loop_size(&x));
    const int64_t fit = fit_of(&x, &y, w[6]);
    loop_value out;
    NEED(fit != NO_FIT);
    MAKE(make_like(l, &out, &x, KEEP(0)));
    combine_values(&x, &y, out.data, fit, w[5]);
    SLOT(4) = out;
    return 1;
}

/* two factors, gradient, gradients of the two (-1: not wanted), axis, operation */
static int combine_back(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), y = SLOT(3), grad = SLOT(4);
    const int64_t operation = w[8];
    NEED(has_floats(&grad) && x.kind != NO_VALUE && y.kind != NO_VALUE && loop_size(&grad));
    NEED(same_shape(&x, &grad) && (operation != MULTIPLY || (has_floats(&x) && has_floats(&y))));
    const int64_t fit = fit_of(&grad, &y, w[7]), inner = fit == BY_ROW ? loop_size(&grad) / loop_size(&y) : loop_size(&y);
    loop_value dx = grad, dy = {.kind = FLOATS, .rank = y.rank};
    NEED(fit != NO_FIT);
    if (w[5] >= 0 && operation == MULTIPLY) {
        MAKE(make_like(l, &dx, &grad, KEEP(0)));
        combine_values(&grad, &y, dx.data, fit, MULTIPLY);
    }
    if (w[6] >= 0) {
        const float *from = grad.data, *other = operation == MULTIPLY ? x.data : 0;
        if (fit == ALIKE && operation == ADD) {
            dy = grad;
        } else {
            memcpy(dy.dims, y.dims, sizeof dy.dims);
            MAKE(make_like(l, &dy, &dy, KEEP(1)));
            float *to = dy.data;
            const int64_t size = loop_size(&grad);
            if (fit == ALIKE && operation == MULTIPLY) combine_numbers(from, other, to, size, MULTIPLY);
            else if (fit == ALIKE) combine_one(from, -1, to, size, MULTIPLY);
            else if (fit == BY_COLUMN) {
                memset(to, 0, (size_t)inner * sizeof(float));
                add_rows_up(from, 0, other, to, size / inner, inner);
            } else
                for (int64_t row = 0; row * inner < size; row++) {
                    vec sum = ALL(0);
                    for (int64_t i = 0; i < inner; i += VL) {
                        const vec value = take(from + row * inner + i, inner - i);
                        sum += other ? value * take(other + row * inner + i, inner - i) : value;
                    }
                    to[row] = sum_lanes(sum);
                }
            if (operation == SUBTRACT && fit != ALIKE) combine_one(to, -1, to, loop_size(&dy), MULTIPLY);
        }
    }
    if (w[5] >= 0) SLOT(5) = dx;
    dy.lod = y.lod, dy.bounds = y.bounds;
    if (w[6] >= 0) SLOT(6) = dy;
    return 1;
}

/* value, out, activation */
static int apply(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    const float *from = x.data;
    loop_value out;
    NEED(has_floats(&x));
    MAKE(make_like(l, &out, &x, KEEP(0)));
    const int64_t size = loop_size(&x);
    float *to = out.data;
    switch (w[4]) {
        case FT_TANH: NUMBERS(size, to, tanh_vec(take(from + i, left))) break;
        case FT_SIGMOID: NUMBERS(size, to, sigmoid_vec(take(from + i, left))) break;
        default: NUMBERS(size, to, MAX(take(from + i, left), ALL(0)))
    }
    SLOT(3) = out;
    return 1;
}

/* what the activation gave, gradient, out, activation */
static int apply_back(loop *l, const int64_t *w) {
    const loop_value y = SLOT(2), grad = SLOT(3);
    const float *made = y.data, *from = grad.data;
    loop_value out;
    NEED(has_floats(&y) && has_floats(&grad) && same_shape(&y, &grad));
    MAKE(make_like(l, &out, &grad, KEEP(0)));
    const int64_t size = loop_size(&y);
    float *to = out.data;
    switch (w[5]) {
        case FT_TANH: NUMBERS(size, to, cell_slope(take(made + i, left), take(from + i, left), FT_TANH)) break;
        case FT_SIGMOID: NUMBERS(size, to, cell_slope(take(made + i, left), take(from + i, left), FT_SIGMOID)) break;
        default: NUMBERS(size, to, cell_slope(take(made + i, left), take(from + i, left), FT_RELU))
    }
    out.lod = y.lod, out.bounds = y.bounds;
    SLOT(4) = out;
    return 1;
}

/* out, count, values */
static int add_values(loop *l, const int64_t *w) {
    const loop_value first = SLOT(4);
    loop_value out;
    for (int64_t k = 0; k < w[3]; k++) {
        const loop_value *x = &SLOT(4 + k);
        NEED(has_floats(x) && same_shape(x, &first));
    }
    MAKE(make_like(l, &out, &first, KEEP(0)));
    const int64_t size = loop_size(&first);
    float *to = out.data;
    if (w[3] == 1) memcpy(to, first.data, (size_t)size * sizeof(float));
    for (int64_t k = 1; k < w[3]; k++)
        combine_numbers(k == 1 ? (const float *)first.data : to, (const float *)SLOT(4 + k).data, to, size, ADD);
    SLOT(2) = out;
    return 1;
}

/* value, out, factor and addend as bits of floats */
static int scale_value(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    float factor, addend;
    memcpy(&factor, &w[4], sizeof factor);
    memcpy(&addend, &w[5], sizeof addend);
    NEED(has_floats(&x));
    loop_value out = x;
    if (factor != 1 || addend != 0) {
        MAKE(make_like(l, &out, &x, KEEP(0)));
        const float *from = x.data;
        float *to = out.data;
        NUMBERS(loop_size(&x), to, take(from + i, left) * ALL(factor) + ALL(addend))
    }
    SLOT(3) = out;
    return 1;
}
