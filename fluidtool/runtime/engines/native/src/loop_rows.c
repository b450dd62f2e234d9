/* Rows of scores and of tables: softmax, the largest score, rows by id. Included by matrices.c. */
/* value, out */
static int normalize_rows(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    loop_value out;
    NEED(has_floats(&x) && x.rank > 1 && loop_size(&x));
    MAKE(make_like(l, &out, &x, KEEP(0)));
    const int64_t columns = x.dims[x.rank - 1];
    const row_mask none = {0};
    softmax_rows(x.data, out.data, &none, columns, 1, 0, loop_size(&x) / columns);
    SLOT(3) = out;
    return 1;
}

/* what came of it, gradient, out */
static int normalize_rows_back(loop *l, const int64_t *w) {
    const loop_value y = SLOT(2), grad = SLOT(3);
    loop_value out;
    NEED(has_floats(&y) && has_floats(&grad) && y.rank > 1 && loop_size(&y) && same_shape(&y, &grad));
    MAKE(make_like(l, &out, &grad, KEEP(0)));
    const int64_t columns = y.dims[y.rank - 1];
    ft_call call = {.softmax_gradient = {.out = y.data, .out_grad = grad.data, .source_grad = out.data,
                                         .rows = loop_size(&y) / columns, .columns = columns}};
    softmax_gradient(&call, 0, 1);
    out.lod = y.lod, out.bounds = y.bounds;
    SLOT(4) = out;
    return 1;
}

/* value, the largest of each row, its place */
static int largest(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    loop_value out = x, places;
    NEED(has_floats(&x) && x.rank && loop_size(&x));
    const int64_t columns = x.dims[x.rank - 1], rows = loop_size(&x) / columns;
    out.dims[x.rank - 1] = 1;
    MAKE(make_like(l, &out, &out, KEEP(0)));
    places = out;
    places.kind = LONGS;
    MAKE(make_like(l, &places, &places, KEEP(1)));
    for (int64_t row = 0; row < rows; row++) {
        const float *from = (const float *)x.data + row * columns;
        vec most = ALL(-INFINITY);
        veci none = {0};
        for (int64_t i = 0; i < columns; i += VL) {
            const vec value = load_some(from + i, columns - i, -INFINITY);
            most = MAX(most, value);
            none |= value != value;
        }
        for (int i = 0; i < VL; i++) NEED(!none[i]);
        const float peak = max_lanes(most);
        int64_t place = 0;
        while (from[place] != peak) place++;
        ((float *)out.data)[row] = peak;
        ((int64_t *)places.data)[row] = place;
    }
    SLOT(3) = out;
    SLOT(4) = places;
    return 1;
}

/* table, ids, out, id of zeros (-1: none) */
static int look_up(loop *l, const int64_t *w) {
    const loop_value table = SLOT(2), ids = SLOT(3);
    NEED(has_floats(&table) && table.rank == 2 && ids.kind == LONGS && !ids.array && ids.data && ids.rank && loop_size(&ids));
    NEED(ids.dims[ids.rank - 1] == 1 && (ids.rank > 1));
    const int64_t *id = ids.data, columns = table.dims[1], count = loop_size(&ids);
    loop_value out = ids;
    out.kind = FLOATS;
    out.dims[ids.rank - 1] = columns;
    for (int64_t i = 0; i < count; i++) NEED((id[i] >= 0 && id[i] < table.dims[0]));
    MAKE(make_like(l, &out, &out, KEEP(0)));
    for (int64_t i = 0; i < count; i++) {
        float *to = (float *)out.data + i * columns;
        if (id[i] == w[5]) memset(to, 0, (size_t)columns * sizeof(float));
        else memcpy(to, (const float *)table.data + id[i] * columns, (size_t)columns * sizeof(float));
    }
    SLOT(4) = out;
    return 1;
}
