/* Elementwise operations. Included by matrices.c. */
/* ---------------------------------------------------------------- elementwise, with broadcasting */
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

static void combine_row(const ft_elementwise *s, const float *a, const float *b, float *y, int64_t from, int64_t to,
                        const int64_t operation, const int32_t activation) {
    const int64_t a_step = s->source_column, b_step = s->other_column;
    int64_t i = from;
    for (; i + VL <= to; i += VL) {
        const vec left = a_step ? LOAD(a + i) : ALL(*a);
        const vec right = operation == ALONE ? left : b_step ? LOAD(b + i) : ALL(*b);
        STORE(y + i, activate(combine(left, right, operation), activation, &s->constants));
    }
    if (i < to) {
        const vec left = a_step ? load_some(a + i, to - i, 1) : ALL(*a);
        const vec right = operation == ALONE ? left : b_step ? load_some(b + i, to - i, 1) : ALL(*b);
        store_some(y + i, activate(combine(left, right, operation), activation, &s->constants), to - i);
    }
}

/* The same with something added before the activation. */
static void combine_row_and_add(const ft_elementwise *s, const float *a, const float *b, const float *c, float *y,
                                int64_t from, int64_t to) {
    const int64_t a_step = s->source_column, b_step = s->other_column;
    for (int64_t i = from; i < to; i += VL) {
        const vec left = a_step ? take(a + i, to - i) : ALL(*a), right = b_step ? take(b + i, to - i) : ALL(*b);
        const vec value = combine(left, right, s->operation) + take(c + i, to - i);
        give(y + i, s->activation == FT_RELU ? MAX(value, ALL(0)) : activate(value, s->activation, &s->constants), to - i);
    }
}

/* `count` neighbors along the last axis but one, each a vector: images whose channels lie in blocks. */
INLINE void combine_each(const ft_elementwise *s, const float *a, const float *b, const float *c, float *y, int64_t count,
                         const int64_t operation, const int32_t activation) {
    const int64_t a_step = s->source_strides[3], b_step = s->other_strides[3], c_step = s->added_strides[3];
    for (int64_t i = 0; i < count; i++, a += a_step, y += s->out_strides[3]) {
        vec value = combine(LOAD(a), operation == ALONE ? ALL(0) : LOAD(b + i * b_step), operation);
        if (c) value += LOAD(c + i * c_step);
        STORE(y, activate(value, activation, &s->constants));
    }
}

static void combine_vectors(const ft_elementwise *s, const float *a, const float *b, const float *c, float *y,
                            int64_t count) {
#define FOR(named, kind)                                              \
    if (s->operation == named && s->activation == kind) {             \
        if (c) combine_each(s, a, b, c, y, count, named, kind);       \
        else combine_each(s, a, b, 0, y, count, named, kind);         \
        return;                                                       \
    }
    FOR(MULTIPLY, FT_NONE)
    FOR(MULTIPLY, FT_RELU)
    FOR(ADD, FT_NONE)
    FOR(ADD, FT_RELU)
    FOR(ALONE, FT_HARD_SWISH)
#undef FOR
    combine_each(s, a, b, c, y, count, s->operation, s->activation);
}

static void elementwise(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_elementwise *s = &call->elementwise;
    const int64_t rows = s->shape[0] * s->shape[1] * s->shape[2] * s->shape[3];
    const int vectors = s->columns == VL && s->source_column && (!s->other || s->other_column);
    int64_t from = 0, to = rows, start = 0, end = s->columns, taken = 1;
    if (rows >= tasks) part(rows, task, tasks, &from, &to);
    else part(s->columns, task, tasks, &start, &end);
    for (int64_t row = from; row < to; row += taken) {
        const int64_t i3 = row % s->shape[3], i2 = row / s->shape[3] % s->shape[2],
                      i1 = row / (s->shape[3] * s->shape[2]) % s->shape[1],
                      i0 = row / (s->shape[3] * s->shape[2] * s->shape[1]);
        const float *a = s->source + i0 * s->source_strides[0] + i1 * s->source_strides[1] + i2 * s->source_strides[2] +
                         i3 * s->source_strides[3];
        const float *b = s->other ? s->other + i0 * s->other_strides[0] + i1 * s->other_strides[1] +
                                        i2 * s->other_strides[2] + i3 * s->other_strides[3]
                                  : 0;
        float *y = s->out + i0 * s->out_strides[0] + i1 * s->out_strides[1] + i2 * s->out_strides[2] + i3 * s->out_strides[3];
        const float *c = s->added ? s->added + i0 * s->added_strides[0] + i1 * s->added_strides[1] +
                                        i2 * s->added_strides[2] + i3 * s->added_strides[3]
                                  : 0;
        if (vectors && end - start == VL) {
            taken = s->shape[3] - i3 < to - row ? s->shape[3] - i3 : to - row;
            combine_vectors(s, a, b, c, y, taken);
        } else if (c) combine_row_and_add(s, a, b, c, y, start, end);
        else if (s->operation == ADD && s->activation == FT_NONE) combine_row(s, a, b, y, start, end, ADD, FT_NONE);
        else if (s->operation == ADD && s->activation == FT_RELU) combine_row(s, a, b, y, start, end, ADD, FT_RELU);
        else if (s->operation == MULTIPLY && s->activation == FT_NONE)
            combine_row(s, a, b, y, start, end, MULTIPLY, FT_NONE);
        else combine_row(s, a, b, y, start, end, s->operation, s->activation);
    }
}
