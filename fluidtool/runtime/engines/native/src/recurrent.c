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

/* ---------------------------------------------------------------- LSTM; gates: candidate, input, forget, output */
typedef struct {
    int64_t size, gate, cell, candidate;
    const float *peepholes; /* input, forget, output, or 0 */
} lstm_cell;

#define LSTM_CELL(s)                                                                                                     \
    {                                                                                                                    \
        (s)->size, (s)->gate_activation, (s)->cell_activation, (s)->candidate_activation,                               \
            (s)->peepholes ? (s)->bias + 4 * (s)->size : 0                                                               \
    }

/* What one row of one step reads and writes: `product` is that of the weights, or 0; state before and after in one place. */
typedef struct {
    const float *source, *product, *bias;
    int has_before;
    float *gates, *state, *activated, *hidden;
} lstm_step_row;

INLINE vec lstm_gate(const lstm_step_row *row, int64_t at, int64_t count) {
    const vec sum = take(row->source + at, count) + take(row->bias + at, count);
    return row->product ? take(row->product + at, count) + sum : sum;
}

/* Gates become their activations, `state` the next one. */
static void lstm_row(const lstm_cell *c, const lstm_step_row *row) {
    const int64_t size = c->size;
    const float *peep = c->peepholes;
    for (int64_t i = 0; i < size; i += VL) {
        const int64_t count = size - i;
        const vec before = row->has_before ? take(row->state + i, count) : ALL(0);
        vec in = lstm_gate(row, size + i, count), forget = lstm_gate(row, 2 * size + i, count);
        vec out = lstm_gate(row, 3 * size + i, count);
        const vec candidate = cell_activation(lstm_gate(row, i, count), c->candidate);
        if (peep && row->has_before) {
            in += before * take(peep + i, count);
            forget += before * take(peep + size + i, count);
        }
        in = cell_activation(in, c->gate), forget = cell_activation(forget, c->gate);
        vec now = candidate * in;
        if (row->has_before) now += before * forget;
        if (peep) out += now * take(peep + 2 * size + i, count);
        out = cell_activation(out, c->gate);
        const vec active = cell_activation(now, c->cell);
        give(row->gates + i, candidate, count), give(row->gates + size + i, in, count);
        give(row->gates + 2 * size + i, forget, count), give(row->gates + 3 * size + i, out, count);
        give(row->state + i, now, count), give(row->activated + i, active, count);
        give(row->hidden + i, out * active, count);
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

/* Sequences dealt out one by one, so that all tasks get long and short ones: how many of a task's run in a step. */
INLINE int64_t dealt(const int64_t *starts, int64_t time, int64_t task, int64_t tasks, int64_t most) {
    const int64_t there = (starts[time + 1] - starts[time] - task + tasks - 1) / tasks;
    return there < 0 ? 0 : there < most ? there : most;
}

/* One row is summed in another order than several: one that is left of more is multiplied with its neighbor's, so that
   results do not depend on the number of tasks. */
INLINE int64_t rows_to_multiply(int64_t alive, int64_t most) { return alive == 1 && most > 1 ? 2 : alive; }

static void lstm(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_lstm *s = &call->lstm;
    const int64_t size = s->size, most = s->task_sequences;
    const int64_t *starts = s->starts, *rows = s->row_of;
    const lstm_cell cell = LSTM_CELL(s);
    const size_t bytes = (size_t)size * sizeof(float);
    float *hidden = s->scratch + 6 * size * most * task, *state = hidden + most * size, *product = state + most * size;
    for (int64_t time = 0; time < s->steps; time++) {
        const int64_t alive = dealt(starts, time, task, tasks, most), begin = starts[time] + task;
        if (!alive) break;
        const int multiplied = time || s->initial_hidden, has_before = time || s->initial_cell;
        if (time)
            plain_product(rows_to_multiply(alive, most), size, 4 * size, hidden, size, s->weights, product, 4 * size, 0);
        else if (multiplied)
            plain_product(alive, size, 4 * size, s->initial_hidden + task * size, tasks * size, s->weights, product,
                          4 * size, 0);
        for (int64_t r = 0; !time && has_before && r < alive; r++)
            memcpy(state + r * size, s->initial_cell + (task + r * tasks) * size, bytes);
        for (int64_t r = 0; r < alive; r++) {
            const int64_t at = begin + r * tasks, here = rows[at];
            const lstm_step_row row = {.source = s->source + here * 4 * size,
                                       .product = multiplied ? product + r * 4 * size : 0,
                                       .bias = s->bias, .has_before = has_before, .gates = s->gates + at * 4 * size,
                                       .state = state + r * size, .activated = s->activated + at * size,
                                       .hidden = hidden + r * size};
            lstm_row(&cell, &row);
            memcpy(s->hidden + here * size, row.hidden, bytes);
            memcpy(s->cell + here * size, row.state, bytes);
        }
    }
}

/* The gradient. */
typedef struct {
    const float *gates, *activated, *before, *hidden; /* before: the state before or 0; hidden: the gradient from outside */
    float *later_hidden, *later_state, *grads; /* gradients that the step after gave, or 0, replaced by this one's */
} lstm_gradient_row;

static void lstm_row_gradient(const lstm_cell *c, int only_later, const lstm_gradient_row *row) {
    const int64_t size = c->size;
    const float *peep = c->peepholes, *gates = row->gates;
    for (int64_t i = 0; i < size; i += VL) {
        const int64_t count = size - i;
        const vec candidate = take(gates + i, count), in = take(gates + size + i, count);
        const vec forget = take(gates + 2 * size + i, count), out = take(gates + 3 * size + i, count);
        const vec active = take(row->activated + i, count);
        vec hidden = take(row->hidden + i, count);
        if (row->later_hidden) hidden += take(row->later_hidden + i, count);
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

static void lstm_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_lstm_gradient *s = &call->lstm_gradient;
    const int64_t size = s->size, most = s->task_sequences;
    const int64_t *starts = s->starts, *rows = s->row_of;
    const lstm_cell cell = LSTM_CELL(s);
    const size_t bytes = (size_t)size * sizeof(float);
    float *later_hidden = s->scratch + 6 * size * most * task, *later_state = later_hidden + most * size;
    float *grads = later_state + most * size;
    memset(later_hidden, 0, 6 * (size_t)most * bytes);
    for (int64_t time = s->steps - 1; time >= 0; time--) {
        const int64_t alive = dealt(starts, time, task, tasks, most), begin = starts[time] + task;
        if (!alive) continue;
        for (int64_t r = 0; r < alive; r++) {
            const int64_t at = begin + r * tasks, sequence = task + r * tasks, here = rows[at];
            const int64_t there = time ? rows[starts[time - 1] + sequence] : 0;
            const float *initial_hidden = s->initial_hidden ? s->initial_hidden + sequence * size : 0;
            const float *initial_state = s->initial_cell ? s->initial_cell + sequence * size : 0;
            const lstm_gradient_row row = {
                .gates = s->gates + at * 4 * size, .activated = s->activated + at * size,
                .before = time ? s->cell + there * size : initial_state, .hidden = s->hidden_grad + here * size,
                .later_hidden = later_hidden + r * size, .later_state = later_state + r * size,
                .grads = grads + r * 4 * size};
            lstm_row_gradient(&cell, s->only_later != 0, &row);
            memcpy(s->source_grad + here * 4 * size, row.grads, 4 * bytes);
            copy_or_zero(s->hidden_before ? s->hidden_before + here * size : 0,
                         time ? s->hidden + there * size : initial_hidden, bytes);
            copy_or_zero(s->cell_before ? s->cell_before + here * size : 0, row.before, bytes);
        }
        if (time || s->initial_hidden_grad)
            plain_product(rows_to_multiply(alive, most), 4 * size, size, grads, 4 * size, s->weights, later_hidden, size, 0);
    }
    for (int64_t r = 0; r < dealt(starts, 0, task, tasks, most); r++) {
        const int64_t at = (task + r * tasks) * size;
        if (s->initial_hidden_grad) memcpy(s->initial_hidden_grad + at, later_hidden + r * size, bytes);
        if (s->initial_cell_grad) memcpy(s->initial_cell_grad + at, later_state + r * size, bytes);
    }
}
