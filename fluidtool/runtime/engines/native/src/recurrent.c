/* Recurrent layers over packed sequences (fluidtool/ops/rnn/packing.py): longest first, at each step one row for every
   sequence that still runs. A task takes some of the sequences through all of the steps, so that none waits for another.
   Included by matrices.c. */

/* y = x * w, or y += x * w: w as `pack` leaves it. */
static void plain_product(int64_t rows, int64_t depth, int64_t columns, const float *x, int64_t x_row, const float *w,
                          float *y, int64_t y_row, int add) {
    const matrix_product m = {.x = x, .w = w, .residual = add ? y : 0, .y = y, .rows = rows, .depth = depth,
                              .columns = columns, .x_row = x_row, .y_row = y_row, .residual_row = y_row};
    product_block(&m, 0, rows, 0, (columns + GROUP * VL - 1) / (GROUP * VL));
}

/* The sigmoid of recurrent layers holds its argument within [-40, 13]; that of single steps does not. */
#define FULL_SIGMOID 64

INLINE vec cell_activation(vec x, int64_t kind) {
    switch (kind) {
        case FULL_SIGMOID: return sigmoid_vec(x);
        case FT_SIGMOID: return sigmoid_vec(MIN(MAX(x, ALL(-40)), ALL(13)));
        case FT_TANH: return tanh_vec(x);
        case FT_RELU: return MAX(x, ALL(0));
        default: return x;
    }
}

/* Sums from registers into memory, so that a loop can go over them: what follows the product of a tile is then compiled once
   and not for each of its rows. */
INLINE void lay_down(const int ROWS, const vec *sum, vec *to) {
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) to[r] = sum[r];
}

/* dx of y = activation(x). */
INLINE vec cell_slope(vec y, vec dy, int64_t kind) {
    switch (kind) {
        case FULL_SIGMOID:
        case FT_SIGMOID: return dy * y * (ALL(1) - y);
        case FT_TANH: return dy * (ALL(1) - y * y);
        case FT_RELU: return dy * CHOOSE(y > ALL(0), ALL(1), ALL(0));
        default: return dy;
    }
}

/* ---------------------------------------------------------------- LSTM; gates: candidate, input, forget, output
   p[0]: addresses of 0 x, 1 weights [size][4 size] packed, 2 bias (and peepholes), 3 h0 or 0, 4 c0 or 0 (longest first),
   5 hidden, 6 cell (rows as in x), 7 gates, 8 activated cells (packed rows), 9 starts of the steps, 10 the row of x that
   each packed row is, 11 memory: 2 size for each sequence
   n: 0 steps, 1 size, 2 sequences of a task, 3 peepholes, 4-6 activations of gates, cell, candidate */
typedef struct {
    int64_t size, gate, cell, candidate;
    const float *peepholes; /* input, forget, output, or 0 */
} lstm_cell;

static lstm_cell lstm_cell_of(const ft_step *step, const float *bias) {
    const int64_t *n = step->n;
    return (lstm_cell){n[1], n[4], n[5], n[6], n[3] ? bias + 4 * n[1] : 0};
}

/* One row of one step: gates become their activations, `state` the next one. */
static void lstm_row(const lstm_cell *c, float *gates, int has_before, float *state, float *activated, float *hidden) {
    const int64_t size = c->size;
    const float *peep = c->peepholes;
    for (int64_t i = 0; i < size; i += VL) {
        const int64_t count = size - i;
        const vec before = has_before ? take(state + i, count) : ALL(0);
        vec in = take(gates + size + i, count), forget = take(gates + 2 * size + i, count);
        vec out = take(gates + 3 * size + i, count);
        const vec candidate = cell_activation(take(gates + i, count), c->candidate);
        if (peep && has_before) {
            in += before * take(peep + i, count);
            forget += before * take(peep + size + i, count);
        }
        in = cell_activation(in, c->gate), forget = cell_activation(forget, c->gate);
        vec now = candidate * in;
        if (has_before) now += before * forget;
        if (peep) out += now * take(peep + 2 * size + i, count);
        out = cell_activation(out, c->gate);
        const vec active = cell_activation(now, c->cell);
        give(gates + i, candidate, count), give(gates + size + i, in, count);
        give(gates + 2 * size + i, forget, count), give(gates + 3 * size + i, out, count);
        give(state + i, now, count), give(activated + i, active, count), give(hidden + i, out * active, count);
    }
}

static void add_rows(float *to, const float *a, const float *b, int64_t count) {
    for (int64_t i = 0; i < count; i += VL) give(to + i, take(a + i, count - i) + take(b + i, count - i), count - i);
}

/* How many of a task's sequences run in a step. */
INLINE int64_t running(const int64_t *starts, int64_t time, int64_t first, int64_t most) {
    const int64_t there = starts[time + 1] - starts[time] - first;
    return there < 0 ? 0 : there < most ? there : most;
}

static void lstm(const ft_step *step, int64_t task, int64_t tasks) {
    float *const *p = (float *const *)(const void *)step->p[0];
    const int64_t *n = step->n, size = n[1], most = n[2], first = task * most;
    const int64_t *starts = (const int64_t *)(const void *)p[9], *rows = (const int64_t *)(const void *)p[10];
    const lstm_cell cell = lstm_cell_of(step, p[2]);
    const size_t bytes = (size_t)size * sizeof(float);
    float *hidden = p[11] + 2 * size * first, *state = hidden + most * size;
    (void)tasks;
    for (int64_t time = 0; time < n[0]; time++) {
        const int64_t alive = running(starts, time, first, most), begin = starts[time] + first;
        if (!alive) break;
        float *gates = p[7] + begin * 4 * size;
        for (int64_t r = 0; r < alive; r++)
            add_rows(gates + r * 4 * size, p[0] + rows[begin + r] * 4 * size, p[2], 4 * size);
        if (time) plain_product(alive, size, 4 * size, hidden, size, p[1], gates, 4 * size, 1);
        else if (p[3]) plain_product(alive, size, 4 * size, p[3] + first * size, size, p[1], gates, 4 * size, 1);
        if (!time && p[4]) memcpy(state, p[4] + first * size, (size_t)alive * bytes);
        for (int64_t r = 0; r < alive; r++) {
            lstm_row(&cell, gates + r * 4 * size, time || p[4], state + r * size, p[8] + (begin + r) * size,
                     hidden + r * size);
            memcpy(p[5] + rows[begin + r] * size, hidden + r * size, bytes);
            memcpy(p[6] + rows[begin + r] * size, state + r * size, bytes);
        }
    }
}

/* The gradient. p[0]: addresses of 0 gradient of hidden, 1 weights transposed and packed, 2 bias, 3-10 as above, 11 memory:
   6 size for each sequence, 12 gradient of x, 13 hidden of the step before or 0, 14 cell of the step before or 0 (all in
   rows as in x), 15 gradient of h0 or 0, 16 of c0 or 0 (longest first)
   n: as above, 7: the cell takes no gradient of its own step (fluidtool/ops/rnn/lstm_cell.py says why) */
typedef struct {
    const float *gates, *activated, *before, *hidden; /* before: the state before or 0; hidden: the gradient from outside */
    float *later_hidden, *later_state, *grads;        /* gradients that the step after gave, replaced by this one's */
} lstm_gradient_row;

static void lstm_row_gradient(const lstm_cell *c, int only_later, const lstm_gradient_row *row) {
    const int64_t size = c->size;
    const float *peep = c->peepholes, *gates = row->gates;
    for (int64_t i = 0; i < size; i += VL) {
        const int64_t count = size - i;
        const vec candidate = take(gates + i, count), in = take(gates + size + i, count);
        const vec forget = take(gates + 2 * size + i, count), out = take(gates + 3 * size + i, count);
        const vec active = take(row->activated + i, count);
        const vec hidden = take(row->hidden + i, count) + take(row->later_hidden + i, count);
        const vec out_grad = cell_slope(out, hidden * active, c->gate);
        vec state = take(row->later_state + i, count);
        if (!only_later) {
            state += cell_slope(active, hidden * out, c->cell);
            if (peep) state += out_grad * take(peep + 2 * size + i, count);
        }
        const vec in_grad = cell_slope(in, state * candidate, c->gate);
        const vec forget_grad = row->before ? cell_slope(forget, state * take(row->before + i, count), c->gate) : ALL(0);
        vec before = state * forget;
        if (peep) before += in_grad * take(peep + i, count) + forget_grad * take(peep + size + i, count);
        give(row->grads + i, cell_slope(candidate, state * in, c->candidate), count);
        give(row->grads + size + i, in_grad, count), give(row->grads + 2 * size + i, forget_grad, count);
        give(row->grads + 3 * size + i, out_grad, count);
        give(row->later_state + i, before, count);
    }
}

static void copy_or_zero(float *to, const float *from, size_t bytes) {
    if (!to) return;
    if (from) memcpy(to, from, bytes);
    else memset(to, 0, bytes);
}

static void lstm_gradient(const ft_step *step, int64_t task, int64_t tasks) {
    float *const *p = (float *const *)(const void *)step->p[0];
    const int64_t *n = step->n, size = n[1], most = n[2], first = task * most;
    const int64_t *starts = (const int64_t *)(const void *)p[9], *rows = (const int64_t *)(const void *)p[10];
    const lstm_cell cell = lstm_cell_of(step, p[2]);
    const size_t bytes = (size_t)size * sizeof(float);
    float *later_hidden = p[11] + 6 * size * first, *later_state = later_hidden + most * size;
    float *grads = later_state + most * size;
    (void)tasks;
    memset(later_hidden, 0, 2 * (size_t)most * bytes);
    for (int64_t time = n[0] - 1; time >= 0; time--) {
        const int64_t alive = running(starts, time, first, most), begin = starts[time] + first;
        for (int64_t r = 0; r < alive; r++) {
            const int64_t here = rows[begin + r], there = time ? rows[starts[time - 1] + first + r] : 0;
            const float *initial_hidden = p[3] ? p[3] + (first + r) * size : 0;
            const float *initial_state = p[4] ? p[4] + (first + r) * size : 0;
            const lstm_gradient_row row = {
                .gates = p[7] + (begin + r) * 4 * size, .activated = p[8] + (begin + r) * size,
                .before = time ? p[6] + there * size : initial_state, .hidden = p[0] + here * size,
                .later_hidden = later_hidden + r * size, .later_state = later_state + r * size,
                .grads = grads + r * 4 * size};
            lstm_row_gradient(&cell, n[7] != 0, &row);
            memcpy(p[12] + here * 4 * size, row.grads, 4 * bytes);
            copy_or_zero(p[13] ? p[13] + here * size : 0, time ? p[5] + there * size : initial_hidden, bytes);
            copy_or_zero(p[14] ? p[14] + here * size : 0, row.before, bytes);
        }
        if (alive && (time || p[15]))
            plain_product(alive, 4 * size, size, grads, 4 * size, p[1], later_hidden, size, 0);
    }
    const size_t there = (size_t)running(starts, 0, first, most) * bytes;
    if (p[15]) memcpy(p[15] + first * size, later_hidden, there);
    if (p[16]) memcpy(p[16] + first * size, later_state, there);
}
