/* Values in another shape or slot, and how long they stay: nothing is computed. Included by matrices.c. */
/* value, out, shape of the value (-1: not wanted), rank, sizes (-1: what is left) */
static int reshape_value(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    NEED((x.kind == FLOATS || x.kind == LONGS || x.kind == INTS) && !x.array);
    NEED(w[4] < 0 || x.rank < LOOP_DIMS);
    loop_value out = x;
    const int64_t whole = loop_size(&x);
    int64_t size = 1, open = -1;
    NEED(whole > 0);
    out.rank = w[5];
    for (int64_t i = 0; i < w[5]; i++) {
        out.dims[i] = w[6 + i];
        if (!out.dims[i]) {
            NEED(i < x.rank);
            out.dims[i] = x.dims[i];
        }
        if (out.dims[i] < 0) {
            open = i;
            continue;
        }
        NEED(out.dims[i] && out.dims[i] <= whole / size);
        size *= out.dims[i];
    }
    if (open >= 0) out.dims[open] = whole / size;
    NEED(loop_size(&out) == whole);
    if (!x.rank || out.dims[0] != x.dims[0]) out.lod = 0, out.bounds = 0;
    if (w[4] >= 0) {
        loop_value shape = {.kind = DIMENSIONS, .rank = x.rank + 1, .lod = x.lod, .bounds = x.bounds};
        memcpy(shape.dims + 1, x.dims, (size_t)x.rank * sizeof *x.dims);
        SLOT(4) = shape;
    }
    SLOT(3) = out;
    return 1;
}

/* shape, gradient, out */
static int reshape_back(loop *l, const int64_t *w) {
    const loop_value shape = SLOT(2), grad = SLOT(3);
    NEED(has_floats(&grad) && shape.kind == DIMENSIONS && shape.rank > 0);
    loop_value out = grad;
    out.rank = shape.rank - 1;
    memcpy(out.dims, shape.dims + 1, (size_t)out.rank * sizeof *out.dims);
    NEED(loop_size(&out) == loop_size(&grad));
    out.lod = shape.lod, out.bounds = shape.bounds;
    SLOT(4) = out;
    return 1;
}

/* value, out */
static int assign_value(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    NEED(!x.array && x.kind != NO_VALUE && x.kind != DIMENSIONS);
    SLOT(3) = x;
    return 1;
}

/* from, to: a gradient from outside, or one for the step before; nothing stays as it is where `to` has to have something */
static int hand_on(loop *l, const int64_t *w) {
    if (SLOT(2).kind != NO_VALUE || SLOT(2).array || !w[4]) SLOT(3) = SLOT(2);
    return 1;
}

/* slot: its value stays until the loop has ended, or the next step */
static int keep_value(loop *l, const int64_t *w) { return stay(l, &SLOT(2), 1); }
static int carry_value(loop *l, const int64_t *w) { return stay(l, &SLOT(2), 0); }

/* slot: only its shape and LoD stay */
static int hollow_value(loop *l, const int64_t *w) {
    if (!SLOT(2).array) SLOT(2).data = 0, SLOT(2).borrowed = 0;
    return 1;
}
