/* The numbers that a loop counts with. Included by matrices.c. */
/* value, out, step as bits of a double */
static int increment_value(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2);
    double by;
    memcpy(&by, &w[4], sizeof by);
    NEED((x.kind == FLOATS || x.kind == LONGS || x.kind == INTS) && !x.array && x.data && loop_size(&x) == 1);
    loop_value out;
    MAKE(make_like(l, &out, &x, KEEP(0)));
    if (x.kind == FLOATS) *(float *)out.data = *(const float *)x.data + (float)by;
    else if (x.kind == LONGS) *(int64_t *)out.data = *(const int64_t *)x.data + (int64_t)by;
    else *(int32_t *)out.data = *(const int32_t *)x.data + (int32_t)by;
    SLOT(3) = out;
    return 1;
}

/* two numbers, out, comparison */
enum { LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL };
static int compare(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), y = SLOT(3);
    NEED(x.kind == y.kind && (x.kind == FLOATS || x.kind == LONGS || x.kind == INTS) && !x.array && !y.array);
    NEED(loop_size(&x) == 1 && same_shape(&x, &y) && x.data && y.data);
    loop_value out = x;
    out.kind = TRUTHS;
    MAKE(make_like(l, &out, &out, KEEP(0)));
#define COMPARED(type)                                                                              \
    {                                                                                               \
        const type a = *(const type *)x.data, b = *(const type *)y.data;                            \
        const int found[] = {a < b, a <= b, a > b, a >= b};                         \
        *(uint8_t *)out.data = (uint8_t)found[w[5]];                                                \
    }
    if (x.kind == FLOATS) COMPARED(float)
    else if (x.kind == LONGS) COMPARED(int64_t)
    else COMPARED(int32_t)
#undef COMPARED
    SLOT(4) = out;
    return 1;
}
