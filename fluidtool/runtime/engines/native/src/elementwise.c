/* Elementwise operations. Included by matrices.c. */
/* ---------------------------------------------------------------- elementwise, with broadcasting
   p: a, b or 0, what is added or 0, y.  n: 0-3 outer axes, 4 inner length; 5-8 a strides, 9-12 b strides, 13-16 y strides of the outer axes;
   17-18 inner strides of a and b (0 or 1); 19 operation; 20-23 strides of the outer axes of what is added after the
   operation, whose inner stride is 1.  The activation comes last. */
enum { ADD, SUBTRACT, MULTIPLY, DIVIDE, LARGER, SMALLER, ALONE, PRELU };

INLINE vec combine(vec a, vec b, int64_t operation) {
    switch (operation) {
        case ADD: return a + b;
        case SUBTRACT: return a - b;
        case MULTIPLY: return a * b;
        case DIVIDE: return a / b;
        case LARGER: return CHOOSE(b == b, MAX(a, b), b);
        case SMALLER: return CHOOSE(b == b, MIN(a, b), b);
        case PRELU: return CHOOSE(a < ALL(0), a * b, a);
        default: return a;
    }
}

static void combine_row(const ft_step *step, const float *a, const float *b, float *y, int64_t from, int64_t to,
                        const int64_t operation, const int32_t activation) {
    const int64_t a_step = step->n[17], b_step = step->n[18];
    int64_t i = from;
    for (; i + VL <= to; i += VL) {
        const vec left = a_step ? LOAD(a + i) : ALL(*a);
        const vec right = operation == ALONE ? left : b_step ? LOAD(b + i) : ALL(*b);
        STORE(y + i, activate(combine(left, right, operation), activation, step->f));
    }
    if (i < to) {
        const vec left = a_step ? load_some(a + i, to - i, 1) : ALL(*a);
        const vec right = operation == ALONE ? left : b_step ? load_some(b + i, to - i, 1) : ALL(*b);
        store_some(y + i, activate(combine(left, right, operation), activation, step->f), to - i);
    }
}

/* The same with something added before the activation. */
static void combine_row_and_add(const ft_step *step, const float *a, const float *b, const float *c, float *y, int64_t from,
                                int64_t to) {
    const int64_t a_step = step->n[17], b_step = step->n[18];
    for (int64_t i = from; i < to; i += VL) {
        const vec left = a_step ? take(a + i, to - i) : ALL(*a), right = b_step ? take(b + i, to - i) : ALL(*b);
        const vec value = combine(left, right, step->n[19]) + take(c + i, to - i);
        give(y + i, step->activation == FT_RELU ? MAX(value, ALL(0)) : activate(value, step->activation, step->f), to - i);
    }
}

static void elementwise(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, rows = n[0] * n[1] * n[2] * n[3];
    int64_t from = 0, to = rows, start = 0, end = n[4];
    if (rows >= tasks) part(rows, task, tasks, &from, &to);
    else part(n[4], task, tasks, &start, &end);
    for (int64_t row = from; row < to; row++) {
        const int64_t i3 = row % n[3], i2 = row / n[3] % n[2], i1 = row / (n[3] * n[2]) % n[1],
                      i0 = row / (n[3] * n[2] * n[1]);
        const float *a = step->p[0] + i0 * n[5] + i1 * n[6] + i2 * n[7] + i3 * n[8];
        const float *b = step->p[1] ? step->p[1] + i0 * n[9] + i1 * n[10] + i2 * n[11] + i3 * n[12] : 0;
        float *y = step->p[3] + i0 * n[13] + i1 * n[14] + i2 * n[15] + i3 * n[16];
        if (step->p[2]) {
            const float *c = step->p[2] + i0 * n[20] + i1 * n[21] + i2 * n[22] + i3 * n[23];
            combine_row_and_add(step, a, b, c, y, start, end);
        } else if (n[19] == ADD && step->activation == FT_NONE) combine_row(step, a, b, y, start, end, ADD, FT_NONE);
        else if (n[19] == ADD && step->activation == FT_RELU) combine_row(step, a, b, y, start, end, ADD, FT_RELU);
        else if (n[19] == MULTIPLY && step->activation == FT_NONE)
            combine_row(step, a, b, y, start, end, MULTIPLY, FT_NONE);
        else combine_row(step, a, b, y, start, end, n[19], step->activation);
    }
}
