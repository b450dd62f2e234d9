/* GRUs; gates: update, reset, candidate. Included by matrices.c.

   u, r = gate(x + h W), c = candidate(x + (r h) W'), then h + u (c - h), or c + u (h - c) in origin mode. Rows are packed as
   recurrent.c says. */
INLINE vec gru_state(vec update, vec candidate, vec before, int64_t origin) {
    return origin ? candidate + update * (before - candidate) : before + update * (candidate - before);
}

/* ---------------------------------------------------------------- inference; every time step is cut among the threads */
typedef struct {
    const ft_gru_sequences *call;
    const float *before; /* hidden states of the step before, or 0 */
    float *after, *reset, *update;
    const int64_t *rows; /* of x, of the rows of this step */
    int64_t alive;
} gru_step;

/* ROWS rows by the weights of GATES gates of VL units. */
INLINE void add_units(const int ROWS, const int GATES, const float *h, const float *w, int64_t depth, vec (*sum)[TILE]) {
    int64_t k = 0;
    if (ROWS == 1) { /* four sums, since one would wait for itself */
        vec more[2][3];
#pragma GCC unroll 2
        for (int g = 0; g < GATES; g++) more[g][0] = more[g][1] = more[g][2] = ALL(0);
        for (; k + 4 <= depth; k += 4, w += 4 * GATES * VL)
#pragma GCC unroll 2
            for (int g = 0; g < GATES; g++) {
                sum[g][0] += LOAD(w + g * VL) * ALL(h[k]);
#pragma GCC unroll 3
                for (int j = 1; j < 4; j++) more[g][j - 1] += LOAD(w + (j * GATES + g) * VL) * ALL(h[k + j]);
            }
#pragma GCC unroll 2
        for (int g = 0; g < GATES; g++) sum[g][0] += more[g][0] + (more[g][1] + more[g][2]);
    }
    for (; k < depth; k++, w += GATES * VL) {
        vec weight[2];
#pragma GCC unroll 2
        for (int g = 0; g < GATES; g++) weight[g] = LOAD(w + g * VL);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            const vec value = ALL(h[r * depth + k]);
#pragma GCC unroll 2
            for (int g = 0; g < GATES; g++) sum[g][r] += weight[g] * value;
        }
    }
}

/* GATES gates from gate FIRST on before their activation: the product, the input and the bias. */
INLINE void gru_sums(const int ROWS, const int GATES, const int FIRST, const gru_step *s, const float *h, const float *w,
                     int64_t block, int64_t row, vec (*gate)[TILE]) {
    const int64_t size = s->call->size, units = (size + VL - 1) / VL * VL, unit = block * VL, count = size - unit;
    vec sum[2][TILE];
#pragma GCC unroll 2
    for (int g = 0; g < GATES; g++)
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) sum[g][r] = ALL(0);
    if (s->before) add_units(ROWS, GATES, h + row * size, w + block * size * GATES * VL, size, sum);
#pragma GCC unroll 2
    for (int g = 0; g < GATES; g++) {
        const vec bias = LOAD(s->call->bias + (FIRST + g) * units + unit);
        lay_down(ROWS, sum[g], gate[g]);
#pragma GCC unroll 1
        for (int r = 0; r < ROWS; r++)
            gate[g][r] += take(s->call->source + (s->rows[row + r] * 3 + FIRST + g) * size + unit, count) + bias;
    }
}

INLINE void gru_gates(const int ROWS, const gru_step *s, int64_t block, int64_t row) {
    const int64_t size = s->call->size, unit = block * VL, count = size - unit;
    vec gate[2][TILE];
    gru_sums(ROWS, 2, 0, s, s->before, s->call->weights, block, row, gate);
#pragma GCC unroll 1
    for (int r = 0; r < ROWS; r++) {
        const int64_t at = (row + r) * size + unit;
        give(s->update + at, cell_activation(gate[0][r], s->call->gate_activation), count);
        if (s->before)
            give(s->reset + at, cell_activation(gate[1][r], s->call->gate_activation) * take(s->before + at, count), count);
    }
}

INLINE void gru_states(const int ROWS, const gru_step *s, int64_t block, int64_t row) {
    const int64_t size = s->call->size, unit = block * VL, count = size - unit;
    vec candidate[1][TILE];
    gru_sums(ROWS, 1, 2, s, s->reset, s->call->weights + (size + VL - 1) / VL * VL * 2 * size, block, row, candidate);
#pragma GCC unroll 1
    for (int r = 0; r < ROWS; r++) {
        const int64_t at = (row + r) * size + unit;
        const vec before = s->before ? take(s->before + at, count) : ALL(0);
        const vec state = gru_state(take(s->update + at, count),
                                    cell_activation(candidate[0][r], s->call->candidate_activation), before, s->call->origin);
        give(s->after + at, state, count);
        give(s->call->out + s->rows[row + r] * size + unit, state, count);
    }
}

#define UNITS(what, rows) \
    for (; row + rows <= s->alive; row += rows) what(rows, s, block, row);
#if TILE > 6
#define ALL_UNITS(what) UNITS(what, 14) UNITS(what, 7) UNITS(what, 4) UNITS(what, 2) UNITS(what, 1)
#else
#define ALL_UNITS(what) UNITS(what, 6) UNITS(what, 3) UNITS(what, 2) UNITS(what, 1)
#endif

static void gru_gates_part(void *context, int64_t task, int64_t tasks) {
    const gru_step *s = context;
    int64_t block, block_end;
    part((s->call->size + VL - 1) / VL, task, tasks, &block, &block_end);
    for (; block < block_end; block++) {
        int64_t row = 0;
        ALL_UNITS(gru_gates)
    }
}

static void gru_states_part(void *context, int64_t task, int64_t tasks) {
    const gru_step *s = context;
    int64_t block, block_end;
    part((s->call->size + VL - 1) / VL, task, tasks, &block, &block_end);
    for (; block < block_end; block++) {
        int64_t row = 0;
        ALL_UNITS(gru_states)
    }
}
#undef ALL_UNITS
#undef UNITS

static void gru_sequences(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_gru_sequences *s = &call->gru_sequences;
    const int64_t *starts = s->table, *rows = starts + s->steps + 1, room = s->size * s->sequences;
    float *const memory = s->scratch;
    (void)task, (void)tasks;
    for (int64_t time = 0; time < s->steps; time++) {
        gru_step now = {.call = s, .before = time || s->has_initial ? memory + (time + 1) % 2 * room : 0,
                      .after = memory + time % 2 * room, .reset = memory + 2 * room, .update = memory + 3 * room,
                      .rows = rows + starts[time], .alive = starts[time + 1] - starts[time]};
        ft_parallel(gru_gates_part, &now, s->parts);
        ft_parallel(gru_states_part, &now, s->parts);
    }
}

/* ---------------------------------------------------------------- for training */
static void gru_activate(const ft_gru *s, float *gates, const float *before, float *reset) {
    const int64_t size = s->size;
    for (int64_t i = 0; i < size; i += VL) {
        const int64_t count = size - i;
        const vec again = cell_activation(take(gates + size + i, count), s->gate_activation);
        give(gates + i, cell_activation(take(gates + i, count), s->gate_activation), count);
        give(gates + size + i, again, count);
        give(reset + i, before ? again * take(before + i, count) : ALL(0), count);
    }
}

static void gru_finish(const ft_gru *s, float *gates, const float *before, float *hidden) {
    const int64_t size = s->size;
    for (int64_t i = 0; i < size; i += VL) {
        const int64_t count = size - i;
        const vec candidate = cell_activation(take(gates + 2 * size + i, count), s->candidate_activation);
        const vec old = before ? take(before + i, count) : ALL(0);
        give(gates + 2 * size + i, candidate, count);
        give(hidden + i, gru_state(take(gates + i, count), candidate, old, s->origin), count);
    }
}

/* The states before a step: of the step before, or the first; 0 for zeros. */
INLINE const float *gru_before(const int64_t *starts, int64_t time, int64_t first, int64_t size, const float *hidden,
                               const float *initial) {
    if (time) return hidden + (starts[time - 1] + first) * size;
    return initial ? initial + first * size : 0;
}

static void gru(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_gru *s = &call->gru;
    const int64_t size = s->size, first = task * s->task_sequences;
    const int64_t *starts = s->starts, *rows = s->row_of;
    (void)tasks;
    for (int64_t time = 0; time < s->steps; time++) {
        const int64_t alive = running(starts, time, first, s->task_sequences), begin = starts[time] + first;
        if (!alive) break;
        float *gates = s->gates + begin * 3 * size, *hidden = s->packed_hidden + begin * size,
              *reset = s->reset + begin * size;
        const float *before = gru_before(starts, time, first, size, s->packed_hidden, s->initial);
        for (int64_t r = 0; r < alive; r++) {
            const float *x = s->source + rows[begin + r] * 3 * size;
            if (s->bias) add_rows(gates + r * 3 * size, x, s->bias, 3 * size);
            else memcpy(gates + r * 3 * size, x, 3 * (size_t)size * sizeof(float));
        }
        if (before) plain_product(alive, size, 2 * size, before, size, s->gate_weights, gates, 3 * size, 1);
        for (int64_t r = 0; r < alive; r++)
            gru_activate(s, gates + r * 3 * size, before ? before + r * size : 0, reset + r * size);
        if (before) plain_product(alive, size, size, reset, size, s->candidate_weights, gates + 2 * size, 3 * size, 1);
        for (int64_t r = 0; r < alive; r++) {
            gru_finish(s, gates + r * 3 * size, before ? before + r * size : 0, hidden + r * size);
            memcpy(s->hidden + rows[begin + r] * size, hidden + r * size, (size_t)size * sizeof(float));
        }
    }
}

/* The gradient. */
static void gru_candidate_gradient(const ft_gru_gradient *s, const float *gates, const float *before, const float *outside,
                                   float *later, float *grads) {
    const int64_t size = s->size;
    for (int64_t i = 0; i < size; i += VL) {
        const int64_t count = size - i;
        const vec update = take(gates + i, count), candidate = take(gates + 2 * size + i, count);
        const vec old = before ? take(before + i, count) : ALL(0), move = s->origin ? old - candidate : candidate - old;
        const vec kept = s->origin ? ALL(1) - update : update, hidden = take(outside + i, count) + take(later + i, count);
        give(grads + i, cell_slope(update, hidden * move, s->gate_activation), count);
        give(grads + 2 * size + i, cell_slope(candidate, hidden * kept, s->candidate_activation), count);
        give(later + i, hidden * (ALL(1) - kept), count);
    }
}

static void gru_reset_gradient(const ft_gru_gradient *s, const float *gates, const float *before, const float *reset_grad,
                               float *later, float *grads) {
    const int64_t size = s->size;
    for (int64_t i = 0; i < size; i += VL) {
        const int64_t count = size - i;
        const vec reset = take(gates + size + i, count), grad = take(reset_grad + i, count);
        const vec old = before ? take(before + i, count) : ALL(0);
        give(grads + size + i, cell_slope(reset, grad * old, s->gate_activation), count);
        give(later + i, take(later + i, count) + grad * reset, count);
    }
}

static void gru_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_gru_gradient *s = &call->gru_gradient;
    const int64_t size = s->size, most = s->task_sequences, first = task * most;
    const int64_t *starts = s->starts, *rows = s->row_of;
    float *later = s->scratch + 2 * size * first, *reset_grad = later + most * size;
    (void)tasks;
    memset(later, 0, (size_t)(most * size) * sizeof(float));
    for (int64_t time = s->steps - 1; time >= 0; time--) {
        const int64_t alive = running(starts, time, first, most), begin = starts[time] + first;
        if (!alive) continue;
        const float *before = gru_before(starts, time, first, size, s->packed_hidden, s->initial),
                    *gates = s->gates + begin * 3 * size;
        float *grads = s->gates_grad + begin * 3 * size;
        for (int64_t r = 0; r < alive; r++)
            gru_candidate_gradient(s, gates + r * 3 * size, before ? before + r * size : 0,
                                   s->hidden_grad + rows[begin + r] * size, later + r * size, grads + r * 3 * size);
        plain_product(alive, size, size, grads + 2 * size, 3 * size, s->candidate_weights, reset_grad, size, 0);
        for (int64_t r = 0; r < alive; r++)
            gru_reset_gradient(s, gates + r * 3 * size, before ? before + r * size : 0, reset_grad + r * size,
                               later + r * size, grads + r * 3 * size);
        if (before) plain_product(alive, 2 * size, size, grads, 3 * size, s->gate_weights, later, size, 1);
    }
    const int64_t there = running(starts, 0, first, most);
    if (s->initial_grad) memcpy(s->initial_grad + first * size, later, (size_t)(there * size) * sizeof(float));
}
