/* Values whose rows are sequences: expanded, pooled, normalized. Included by matrices.c. */
/* value, sequences, out */
static int expand(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), y = SLOT(3);
    NEED(has_floats(&x) && !x.lod && x.rank == 2 && y.lod && y.bounds == x.dims[0] + 1);
    const int64_t columns = x.dims[1], rows = y.lod[y.bounds - 1];
    NEED(rows > 0 && columns > 0);
    loop_value out;
    MAKE(make_rows(l, &out, rows, columns, KEEP(0)));
    float *to = out.data;
    for (int64_t i = 0; i + 1 < y.bounds; i++)
        for (int64_t j = y.lod[i]; j < y.lod[i + 1]; j++, to += columns)
            memcpy(to, (const float *)x.data + i * columns, (size_t)columns * sizeof(float));
    SLOT(4) = out;
    return 1;
}

static void pool_rows(const loop_value *x, const loop_value *lod, float *out, int64_t how) {
    ft_call call = {.pool_sequences = {.source = x->data, .out = out, .offsets = lod->lod, .sequences = lod->bounds - 1,
                                       .columns = loop_size(x) / x->dims[0], .how = how, .source_rows = x->dims[0]}};
    pool_sequences(&call, 0, 1);
}

/* value (only its shape is read), sequences, gradient, out */
static int expand_back(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), y = SLOT(3), grad = SLOT(4);
    NEED(has_floats(&grad) && x.kind != NO_VALUE && !x.lod && x.rank == 2 && y.lod && y.bounds == x.dims[0] + 1);
    NEED(grad.rank == 2 && grad.dims[0] == y.lod[y.bounds - 1] && grad.dims[0] && grad.dims[1] == x.dims[1]);
    loop_value out;
    MAKE(make_rows(l, &out, x.dims[0], x.dims[1], KEEP(0)));
    pool_rows(&grad, &y, out.data, POOL_SUM);
    SLOT(5) = out;
    return 1;
}

/* Whether the rows are sequences that lie one after the other, with a number each. */
INLINE int are_numbers(const loop_value *v, const loop_value *lod) {
    return has_floats(v) && v->rank && v->dims[0] && loop_size(v) == v->dims[0] && lod->lod &&
           lod->lod[lod->bounds - 1] == v->dims[0];
}

/* value, out */
static int normalize_sequences(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    loop_value out;
    NEED(are_numbers(&x, &x));
    MAKE(make_like(l, &out, &x, KEEP(0)));
    ft_call call = {.softmax_sequences = {.source = x.data, .out = out.data, .offsets = x.lod, .sequences = x.bounds - 1}};
    softmax_sequences(&call, 0, 1);
    SLOT(3) = out;
    return 1;
}

/* value (its LoD is read), what came of it, gradient, out */
static int normalize_sequences_back(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), y = SLOT(3), grad = SLOT(4);
    loop_value out;
    NEED(are_numbers(&y, &x) && has_floats(&grad) && same_shape(&y, &grad));
    MAKE(make_like(l, &out, &y, KEEP(0)));
    out.lod = x.lod, out.bounds = x.bounds;
    for (int64_t k = 0; k + 1 < x.bounds; k++) {
        const int64_t from = x.lod[k], count = x.lod[k + 1] - from;
        const float *made = (const float *)y.data + from, *given = (const float *)grad.data + from;
        float *to = (float *)out.data + from;
        vec sum = ALL(0);
        for (int64_t i = 0; i < count; i += VL) sum += take(made + i, count - i) * take(given + i, count - i);
        const vec level = ALL(sum_lanes(sum));
        NUMBERS(count, to, take(made + i, left) * (take(given + i, left) - level))
    }
    SLOT(5) = out;
    return 1;
}

/* value, out, how */
static int pool_value(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    NEED(has_floats(&x) && x.rank && x.lod && loop_size(&x) && x.lod[x.bounds - 1] == x.dims[0]);
    loop_value out = x;
    out.dims[0] = x.bounds - 1;
    out.lod = 0, out.bounds = 0;
    MAKE(make_like(l, &out, &out, KEEP(0)));
    pool_rows(&x, &x, out.data, w[4]);
    SLOT(3) = out;
    return 1;
}

/* value (its shape and LoD are read), gradient, out, how */
static int pool_back(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), grad = SLOT(3);
    NEED(has_floats(&grad) && x.kind != NO_VALUE && x.rank && x.lod && loop_size(&x) && x.lod[x.bounds - 1] == x.dims[0]);
    loop_value out = x;
    const int64_t columns = loop_size(&x) / x.dims[0];
    NEED(loop_size(&grad) == columns * (x.bounds - 1));
    out.kind = FLOATS;
    MAKE(make_like(l, &out, &out, KEEP(0)));
    float *to = out.data;
    for (int64_t k = 0; k + 1 < x.bounds; k++) {
        const float *from = (const float *)grad.data + k * columns;
        const int64_t count = x.lod[k + 1] - x.lod[k];
        const float share = w[5] == POOL_MEAN ? 1 / (float)count : w[5] == POOL_SQUARE_ROOT ? 1 / __builtin_sqrtf((float)count) : 1;
        for (int64_t j = 0; j < count; j++, to += columns) combine_one(from, share, to, columns, MULTIPLY);
    }
    SLOT(4) = out;
    return 1;
}
