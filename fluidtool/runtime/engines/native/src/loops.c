/* Loops: the operators of a block as instructions, run step after step without Python. Included by matrices.c.

   Sizes are known only when an instruction runs, since batches shrink from step to step. A value is a place in memory with its
   shape and LoD, and is never changed once it is made; so that values can share memory. Memory comes from the caller, who is
   asked for more and then calls again: an instruction that lacked some runs once more from its beginning. What an instruction
   cannot compute (another data type, an id out of range) ends the loop as UNSUITABLE: nothing outside has changed. */
enum { NO_VALUE, FLOATS, LONGS, INTS, TRUTHS, DIMENSIONS }; /* kinds of values */
enum { LOOP_DIMS = 4, LOOP_WORDS = 24, MOST_ITEMS = 1 << 24 };
#define MOST_NUMBERS ((int64_t)1 << 46) /* in a value: more would have no memory, and could not be counted */

typedef struct {
    void *data;
    int64_t kind, rank, dims[LOOP_DIMS];
    const int64_t *lod; /* offsets of the only level, or 0 */
    int64_t bounds;     /* of them */
    int64_t borrowed;   /* 1 or 2: in which of the two memories that are used anew by every second step; 0: it stays */
    int64_t array;      /* its number, from 1, if this is an array of values */
} loop_value;

typedef struct {
    loop_value *items;
    int64_t count, room;
} loop_array;

enum { RUNNING, FINISHED, MORE_KEPT, MORE_BORROWED, MORE_STEPS, MORE_ITEMS, UNSUITABLE }; /* states */

typedef struct {
    int64_t state, wanted; /* bytes, or the number of an array, or of an instruction */
    int64_t step, next;    /* instruction */
    char *kept, *kept_end;
    char *borrowed[2], *borrowed_start[2], *borrowed_end[2];
    int64_t most;      /* steps, or -1: as long as the condition is true */
    int64_t condition; /* slot */
} loop_state;

typedef struct {
    loop_state *state;
    loop_value *slots;
    loop_array *arrays;
} loop;

INLINE int64_t loop_size(const loop_value *v) {
    int64_t size = 1;
    for (int64_t i = 0; i < v->rank; i++) size *= v->dims[i];
    return size;
}

INLINE int64_t loop_bytes(const loop_value *v) {
    const int64_t each = v->kind == LONGS ? 8 : v->kind == TRUTHS ? 1 : 4;
    return v->kind == NO_VALUE || v->kind == DIMENSIONS ? 0 : each * loop_size(v);
}

/* Of a value that is only looked at for its shape there may be no more. */
INLINE int has_floats(const loop_value *v) { return v->kind == FLOATS && !v->array && v->data; }

INLINE int same_shape(const loop_value *a, const loop_value *b) {
    if (a->rank != b->rank) return 0;
    for (int64_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return 0;
    return 1;
}

static int unsuitable(loop *l) {
    l->state->state = UNSUITABLE;
    l->state->wanted = l->state->next;
    return 0;
}

/* Memory for a value; 0 where there is not enough. */
static void *loop_memory(loop *l, int64_t bytes, int keep) {
    loop_state *s = l->state;
    char **at = keep ? &s->kept : &s->borrowed[s->step % 2], *end = keep ? s->kept_end : s->borrowed_end[s->step % 2];
    const int64_t room = (bytes + 63) / 64 * 64 + 64; /* vectors may reach behind the last number */
    if (end - *at < room) {
        s->state = keep ? MORE_KEPT : MORE_BORROWED;
        s->wanted = room;
        return 0;
    }
    void *found = *at;
    *at += room;
    return found;
}

/* Whether the numbers of a shape can be counted. */
INLINE int is_countable(const loop_value *v) {
    int64_t size = 1;
    for (int64_t i = 0; i < v->rank; i++) {
        if (v->dims[i] < 0 || (v->dims[i] && size > MOST_NUMBERS / v->dims[i])) return 0;
        size *= v->dims[i];
    }
    return 1;
}

/* A new value with the shape, data type and LoD of another; 0 where memory lacks. */
static int make_like(loop *l, loop_value *made, const loop_value *like, int keep) {
    if (!is_countable(like)) return unsuitable(l);
    *made = *like;
    made->array = 0;
    made->borrowed = keep ? 0 : 1 + l->state->step % 2;
    made->data = loop_memory(l, loop_bytes(made), keep);
    return made->data != 0;
}

/* The same with the rows and columns given, and without LoD. */
static int make_rows(loop *l, loop_value *made, int64_t rows, int64_t columns, int keep) {
    const loop_value like = {.kind = FLOATS, .rank = 2, .dims = {rows, columns}};
    return make_like(l, made, &like, keep);
}

static int stay(loop *l, loop_value *v, int keep) {
    if (!v->borrowed || (!keep && v->borrowed == 1 + l->state->step % 2)) return 1;
    loop_value made;
    if (!make_like(l, &made, v, keep)) return 0;
    memcpy(made.data, v->data, (size_t)loop_bytes(v));
    *v = made;
    return 1;
}

/* ---------------------------------------------------------------- passes over numbers */
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

/* ---------------------------------------------------------------- products */
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

/* ---------------------------------------------------------------- instructions: words from 2 on, by name */
#define SLOT(word) (l->slots[w[word]])
#define KEEP(output) (int)(w[1] >> (output)&1)
#define NEED(condition) \
    if (!(condition)) return unsuitable(l)
#define MAKE(condition) \
    if (!(condition)) return 0

INLINE int64_t index_of(const loop_value *v) {
    if (loop_size(v) != 1 || !v->data) return -1;
    return v->kind == LONGS ? *(const int64_t *)v->data : v->kind == INTS ? *(const int32_t *)v->data : -1;
}

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

/* input, state before, matrix, bias (-1: none), packed gates, packed candidate, gates, reset state, state, gate and candidate
   activation, origin */
static int gru_value(loop *l, const int64_t *w) {
    const loop_value x = SLOT(2), before = SLOT(3), y = SLOT(4);
    NEED(has_floats(&x) && has_floats(&before) && x.rank == 2 && before.rank == 2 && y.rank == 2);
    const int64_t rows = x.dims[0], size = y.dims[0];
    NEED(rows && x.dims[1] == 3 * size && before.dims[0] == rows && before.dims[1] == size);
    NEED(w[5] < 0 || (has_floats(&SLOT(5)) && loop_size(&SLOT(5)) == 3 * size));
    const float *bias = w[5] < 0 ? 0 : SLOT(5).data, *old = before.data;
    const ft_gru cell = {.size = size, .gate_activation = w[11], .candidate_activation = w[12], .origin = w[13]};
    loop_value gates, reset, hidden;
    MAKE(make_rows(l, &gates, rows, 3 * size, KEEP(0)));
    MAKE(make_rows(l, &reset, rows, size, KEEP(1)));
    MAKE(make_rows(l, &hidden, rows, size, KEEP(2)));
    float *gate = gates.data, *again = reset.data, *state = hidden.data;
    for (int64_t r = 0; r < rows; r++) {
        const float *from = (const float *)x.data + r * 3 * size;
        if (bias) combine_numbers(from, bias, gate + r * 3 * size, 3 * size, ADD);
        else memcpy(gate + r * 3 * size, from, 3 * (size_t)size * sizeof(float));
    }
    plain_product(rows, size, 2 * size, old, size, (const float *)w[6], gate, 3 * size, 1);
    for (int64_t r = 0; r < rows; r++) gru_activate(&cell, gate + r * 3 * size, old + r * size, again + r * size);
    plain_product(rows, size, size, again, size, (const float *)w[7], gate + 2 * size, 3 * size, 1);
    for (int64_t r = 0; r < rows; r++) gru_finish(&cell, gate + r * 3 * size, old + r * size, state + r * size);
    SLOT(8) = gates;
    SLOT(9) = reset;
    SLOT(10) = hidden;
    return 1;
}

/* state before, matrix, gates, gradient, packed transposed gates, the same of the candidate, gradients of the input and of the
   state before (-1: not wanted), gate and candidate activation, origin */
static int gru_back(loop *l, const int64_t *w) {
    const loop_value before = SLOT(2), y = SLOT(3), gates = SLOT(4), grad = SLOT(5);
    NEED(has_floats(&before) && has_floats(&gates) && has_floats(&grad) && y.rank == 2 && before.rank == 2);
    const int64_t rows = before.dims[0], size = y.dims[0];
    NEED(rows && before.dims[1] == size && loop_size(&gates) == 3 * rows * size && loop_size(&grad) == rows * size);
    const ft_gru_gradient cell = {.size = size, .gate_activation = w[10], .candidate_activation = w[11], .origin = w[12]};
    loop_value input, state, reset;
    MAKE(make_rows(l, &input, rows, 3 * size, KEEP(0)));
    MAKE(make_rows(l, &state, rows, size, KEEP(1)));
    MAKE(make_rows(l, &reset, rows, size, 0));
    const float *gate = gates.data, *old = before.data, *given = grad.data;
    float *grads = input.data, *later = state.data, *again = reset.data;
    memset(later, 0, (size_t)(rows * size) * sizeof(float));
    for (int64_t r = 0; r < rows; r++)
        gru_candidate_gradient(&cell, gate + r * 3 * size, old + r * size, given + r * size, later + r * size,
                               grads + r * 3 * size);
    plain_product(rows, size, size, grads + 2 * size, 3 * size, (const float *)w[7], again, size, 0);
    for (int64_t r = 0; r < rows; r++)
        gru_reset_gradient(&cell, gate + r * 3 * size, old + r * size, again + r * size, later + r * size,
                           grads + r * 3 * size);
    plain_product(rows, 2 * size, size, grads, 3 * size, (const float *)w[6], later, size, 1);
    SLOT(8) = input;
    if (w[9] >= 0) SLOT(9) = state;
    return 1;
}

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

/* slot: its value stays until the loop has ended, or the next step */
static int keep_value(loop *l, const int64_t *w) { return stay(l, &SLOT(2), 1); }
static int carry_value(loop *l, const int64_t *w) { return stay(l, &SLOT(2), 0); }

/* slot: only its shape and LoD stay */
static int hollow_value(loop *l, const int64_t *w) {
    if (!SLOT(2).array) SLOT(2).data = 0, SLOT(2).borrowed = 0;
    return 1;
}

typedef int (*loop_instruction)(loop *, const int64_t *);
static const loop_instruction loop_instructions[] = {
    read_item, write_item, first_rows, multiply_rows, multiply_back, add_product, expand, expand_back, combine_two,
    combine_back, apply, apply_back, normalize_sequences, normalize_sequences_back, reshape_value, reshape_back, pool_value, pool_back,
    add_values, scale_value, assign_value, hand_on, gru_value, gru_back, increment_value, compare, normalize_rows,
    normalize_rows_back, largest, look_up, first_rows_back, add_first_rows, keep_value, carry_value,
    hollow_value,
};
#define LOOP_INSTRUCTIONS (int64_t)(sizeof loop_instructions / sizeof *loop_instructions)

/* kept[step][slot]: what outer variables hold before a step and others after it; where values are given, those of each step
   that are something are there before it. */
static void begin_step(loop *l, const ft_loop *s, loop_value *row) {
    loop_state *state = l->state;
    state->borrowed[state->step % 2] = state->borrowed_start[state->step % 2];
    for (int64_t i = 0; i < s->slot_count; i++) {
        if (s->given && (row[i].kind != NO_VALUE || row[i].array)) l->slots[i] = row[i];
        else if (!s->outer[i]) l->slots[i] = (loop_value){0};
        if (s->keeps && s->outer[i]) row[i] = l->slots[i];
    }
}

/* Whether another step is to begin, and can. */
static int goes_on(loop *l, const ft_loop *s) {
    loop_state *state = l->state;
    int more = state->step < state->most;
    if (state->most < 0) {
        const loop_value *condition = &l->slots[state->condition];
        NEED(condition->kind == TRUTHS && condition->data && loop_size(condition) == 1);
        more = *(const uint8_t *)condition->data != 0;
    }
    if (!more) state->state = FINISHED;
    else if (state->step >= s->kept_steps) state->state = MORE_STEPS; /* without values that are kept: a caller may stop it */
    return state->state == RUNNING;
}

static void run_loop(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_loop *s = &call->loop;
    loop l = {(loop_state *)s->state, (loop_value *)s->values, (loop_array *)s->arrays};
    loop_state *state = l.state;
    (void)tasks;
    if (task) return;
    for (state->state = RUNNING;; state->next = 0, state->step++) {
        if (!state->next && !goes_on(&l, s)) return;
        loop_value *row = s->kept ? (loop_value *)s->kept + state->step * s->slot_count : 0;
        if (!state->next) begin_step(&l, s, row);
        for (; state->next < s->count; state->next++) {
            const int64_t *w = s->instructions + state->next * LOOP_WORDS;
            if (w[0] < 0 || w[0] >= LOOP_INSTRUCTIONS) unsuitable(&l);
            else loop_instructions[w[0]](&l, w);
            if (state->state != RUNNING) return;
        }
        for (int64_t i = 0; s->keeps && i < s->slot_count; i++)
            if (!s->outer[i]) row[i] = l.slots[i];
    }
}
