/* Items of arrays, and the first rows of a value: sequences that have ended have none in a step. Included by matrices.c. */
/* array, index, out, what was written (-1: none), whether a missing item is 0 */
static int read_item(loop *l, const int64_t *w) {
    const int64_t array = SLOT(2).array, index = index_of(&SLOT(3));
    NEED((array || (w[6] && SLOT(2).kind == NO_VALUE)) && index >= 0);
    const loop_array *a = &l->arrays[array - 1];
    if (array && index < a->count && a->items[index].kind != NO_VALUE) {
        SLOT(4) = a->items[index];
        return 1;
    }
    NEED(w[6]);
    const loop_value like = w[5] < 0 ? (loop_value){0} : SLOT(5);
    loop_value made = {0};
    if (like.kind != NO_VALUE) {
        NEED(!like.array && like.kind != DIMENSIONS);
        MAKE(make_like(l, &made, &like, KEEP(0)));
        memset(made.data, 0, (size_t)loop_bytes(&made));
    }
    SLOT(4) = made;
    return 1;
}

/* value, index, array, whether the item must not be there yet */
static int write_item(loop *l, const int64_t *w) {
    const int64_t index = index_of(&SLOT(3));
    NEED(SLOT(4).array && !SLOT(2).array && SLOT(2).kind != DIMENSIONS && index >= 0 && index < MOST_ITEMS);
    loop_array *a = &l->arrays[SLOT(4).array - 1];
    if (index >= a->room) {
        l->state->state = MORE_ITEMS;
        l->state->wanted = SLOT(4).array - 1 + (index + 1) * 1024;
        return 0;
    }
    NEED(!w[5] || index >= a->count || a->items[index].kind == NO_VALUE);
    loop_value value = SLOT(2);
    MAKE(stay(l, &value, 1));
    for (; a->count <= index; a->count++) a->items[a->count] = (loop_value){0};
    if (value.kind != NO_VALUE) a->items[index] = value;
    return 1;
}

/* value, index, out, lengths of the sequences, their number */
static int first_rows(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    const int64_t *lengths = (const int64_t *)w[5], index = index_of(&SLOT(3));
    NEED((x.kind == FLOATS || x.kind == LONGS) && !x.array && x.rank && index >= 0);
    int64_t count = 0;
    for (int64_t i = 0; i < w[6]; i++) count += lengths[i] > index;
    loop_value out = x;
    NEED(count && count <= (x.lod ? x.bounds - 1 : x.dims[0]));
    out.dims[0] = x.lod ? x.lod[count] : count;
    out.bounds = x.lod ? count + 1 : 0;
    NEED(out.dims[0] <= x.dims[0]);
    SLOT(4) = out;
    return 1;
}

/* value (its shape is read), gradient (-1: none), out */
static int first_rows_back(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), grad = w[3] < 0 ? (loop_value){0} : SLOT(3);
    NEED((x.kind == FLOATS || x.kind == DIMENSIONS) && !x.array && x.rank);
    NEED(grad.kind == NO_VALUE || (has_floats(&grad) && loop_size(&grad) <= loop_size(&x)));
    loop_value out = x;
    out.kind = FLOATS;
    MAKE(make_like(l, &out, &out, KEEP(0)));
    const size_t there = (size_t)loop_bytes(&grad);
    if (there) memcpy(out.data, grad.data, there);
    memset((char *)out.data + there, 0, (size_t)loop_bytes(&out) - there);
    SLOT(4) = out;
    return 1;
}

/* gradient, total, its length: of first rows */
static int add_first_rows(loop *l, const int64_t *w) {
    const loop_value grad = SLOT(2);
    if (grad.kind == NO_VALUE) return 1;
    NEED(has_floats(&grad) && loop_size(&grad) <= w[4]);
    float *total = (float *)w[3];
    combine_numbers(total, grad.data, total, loop_size(&grad), ADD);
    return 1;
}
