/* An LSTM whose hidden state is projected to fewer numbers before it is fed back. Included by matrices.c. */
typedef struct {
    const ft_projected_sequences *call;
    const float *hidden;
    float *after; /* what is fed back */
    const int64_t *rows;
    int64_t alive;
} projection_step;

INLINE void project(const int ROWS, const projection_step *s, int64_t block, int64_t row) {
    const int64_t first = block * VL, count = s->call->fed_back - first;
    const float bound = s->call->projection_bound;
    vec sum[1][TILE], number[TILE];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) sum[0][r] = ALL(0);
    add_units(ROWS, 1, s->hidden + row * s->call->size, s->call->projection + block * s->call->size * VL, s->call->size, sum);
    lay_down(ROWS, sum[0], number);
#pragma GCC unroll 1
    for (int r = 0; r < ROWS; r++) {
        vec value = cell_activation(number[r], s->call->projection_activation);
        if (bound > 0) value = MIN(MAX(value, ALL(-bound)), ALL(bound));
        give(s->after + (row + r) * s->call->fed_back + first, value, count);
        give(s->call->out + s->rows[row + r] * s->call->fed_back + first, value, count);
    }
}

static void project_part(void *context, int64_t task, int64_t tasks) {
    const projection_step *s = context;
    int64_t block, block_end;
    part((s->call->fed_back + VL - 1) / VL, task, tasks, &block, &block_end);
    for (; block < block_end; block++) {
        int64_t row = 0;
#define UNITS(count) \
    for (; row + count <= s->alive; row += count) project(count, s, block, row);
#if TILE > 6
        UNITS(14) UNITS(7)
#endif
        UNITS(4) UNITS(2) UNITS(1)
#undef UNITS
    }
}

static void projected_sequences(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_projected_sequences *s = &call->projected_sequences;
    const int64_t *starts = s->table, *rows = starts + s->steps + 1;
    const lstm_layer layer = LSTM_LAYER(s);
    float *const fed = s->scratch, *const hidden = fed + 2 * s->sequences * s->fed_back;
    (void)task, (void)tasks;
    for (int64_t time = 0; time < s->steps; time++) {
        const int64_t alive = starts[time + 1] - starts[time];
        cell_step cells = {.layer = &layer,
                           .before = fed + (time + 1) % 2 * s->sequences * s->fed_back,
                           .after = hidden,
                           .state = hidden + s->sequences * s->size,
                           .rows = rows + starts[time],
                           .time = time,
                           .alive = alive};
        projection_step projection = {s, hidden, fed + time % 2 * s->sequences * s->fed_back, rows + starts[time], alive};
        ft_parallel(lstm_part, &cells, s->parts);
        ft_parallel(project_part, &projection, s->parts);
    }
}
