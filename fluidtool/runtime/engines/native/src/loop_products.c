/* Products with matrices, which are the same in all steps. Included by matrices.c. */
typedef struct {
    const matrix_product *product;
    int64_t groups;
} loop_product;

static void loop_product_part(void *context, int64_t task, int64_t tasks) {
    const loop_product *p = context;
    int64_t from, to;
    part(p->groups, task, tasks, &from, &to);
    product_block(p->product, 0, p->product->rows, from, to);
}

#define LOOP_GRAIN (1 << 20) /* multiply-adds worth a thread */
static void product_of_step(int64_t rows, int64_t depth, int64_t columns, const float *x, const float *w, float *y) {
    const matrix_product m = {.x = x, .w = w, .y = y, .rows = rows, .depth = depth, .columns = columns, .x_row = depth,
                              .y_row = columns};
    loop_product p = {&m, groups_of(columns)};
    const int64_t most = rows * depth * columns / LOOP_GRAIN, tasks = most < ft_threads() ? most : ft_threads();
    if (tasks > 1) ft_parallel(loop_product_part, &p, tasks < p.groups ? tasks : p.groups);
    else product_block(&m, 0, rows, 0, p.groups);
}

/* rows, matrix, packed matrix, out, the dimension where columns begin */
static int multiply_rows(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), y = SLOT(3);
    NEED(has_floats(&x) && w[6] < x.rank && y.rank == 2);
    loop_value out = x;
    int64_t rows = 1, depth = 1;
    for (int64_t i = 0; i < x.rank; i++) *(i < w[6] ? &rows : &depth) *= x.dims[i];
    NEED(depth == y.dims[0] && rows && depth);
    out.rank = w[6] + 1;
    out.dims[w[6]] = y.dims[1];
    MAKE(make_like(l, &out, &out, KEEP(0)));
    product_of_step(rows, depth, y.dims[1], x.data, (const float *)w[4], out.data);
    SLOT(5) = out;
    return 1;
}

/* gradient, factor, matrix, packed transposed matrix, out */
static int multiply_back(loop *l, const int64_t *w) {
    const loop_value grad = SLOT(2), x = SLOT(3), y = SLOT(4);
    const int64_t size = x.kind == NO_VALUE ? 0 : loop_size(&x);
    loop_value out = x;
    NEED(has_floats(&grad) && y.rank == 2 && size && !x.array);
    const int64_t rows = size / y.dims[0];
    NEED(rows * y.dims[0] == size && rows * y.dims[1] == loop_size(&grad));
    out.kind = FLOATS;
    MAKE(make_like(l, &out, &out, KEEP(0)));
    product_of_step(rows, y.dims[1], y.dims[0], grad.data, (const float *)w[5], out.data);
    SLOT(6) = out;
    return 1;
}

/* factor, gradient of one column, total, its length */
static int add_product(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), grad = SLOT(3);
    NEED(has_floats(&x) && has_floats(&grad) && loop_size(&x) == loop_size(&grad) * w[5]);
    add_rows_up(x.data, grad.data, 0, (float *)w[4], loop_size(&grad), w[5]);
    return 1;
}
