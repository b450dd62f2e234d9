/* The LSTM of projected.c for training: what its gradient needs is kept. Included by matrices.c. */
static void projected_lstm(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_projected_lstm *s = &call->projected_lstm;
    const int64_t size = s->size, fed_back = s->fed_back, most = s->task_sequences, first = task * most;
    const int64_t *starts = s->starts, *rows = s->row_of;
    const lstm_cell cell = LSTM_CELL(s);
    const size_t bytes = (size_t)size * sizeof(float), fed_bytes = (size_t)fed_back * sizeof(float);
    float *state = s->scratch + (size + fed_back) * first, *fed = state + most * size;
    (void)tasks;
    for (int64_t time = 0; time < s->steps; time++) {
        const int64_t alive = running(starts, time, first, most), begin = starts[time] + first;
        if (!alive) break;
        const float *before = time ? fed : s->initial_out ? s->initial_out + first * fed_back : 0;
        float *gates = s->gates + begin * 4 * size, *hidden = s->hidden + begin * size;
        if (before) plain_product(alive, fed_back, 4 * size, before, fed_back, s->weights, gates, 4 * size, 0);
        if (!time && s->initial_cell) memcpy(state, s->initial_cell + first * size, (size_t)alive * bytes);
        for (int64_t r = 0; r < alive; r++) {
            const lstm_step_row row = {.source = s->source + rows[begin + r] * 4 * size,
                                       .product = before ? gates + r * 4 * size : 0, .bias = s->bias,
                                       .has_before = time || s->initial_cell, .gates = gates + r * 4 * size,
                                       .state = state + r * size, .activated = s->activated + (begin + r) * size,
                                       .hidden = hidden + r * size};
            lstm_row(&cell, &row);
            memcpy(s->cell + rows[begin + r] * size, state + r * size, bytes);
        }
        plain_product(alive, size, fed_back, hidden, size, s->projection, fed, fed_back, 0);
        for (int64_t i = 0; s->projection_activation && i < alive * fed_back; i += VL)
            give(fed + i, cell_activation(take(fed + i, alive * fed_back - i), s->projection_activation),
                 alive * fed_back - i);
        for (int64_t r = 0; r < alive; r++)
            memcpy(s->out + rows[begin + r] * fed_back, fed + r * fed_back, fed_bytes);
    }
}

/* The gradient of what is projected, from that of the result and what the step after gave. */
static void projection_gradient(int64_t count, const float *out, const float *grad, const float *later, float *to,
                                int64_t kind) {
    for (int64_t i = 0; i < count; i += VL) {
        const int64_t left = count - i;
        give(to + i, cell_slope(take(out + i, left), take(grad + i, left) + take(later + i, left), kind), left);
    }
}

static void projected_lstm_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_projected_lstm_gradient *s = &call->projected_lstm_gradient;
    const int64_t size = s->size, fed_back = s->fed_back, most = s->task_sequences, first = task * most;
    const int64_t *starts = s->starts, *rows = s->row_of;
    const lstm_cell cell = LSTM_CELL(s);
    const size_t bytes = (size_t)size * sizeof(float), fed_bytes = (size_t)fed_back * sizeof(float);
    float *later_state = s->scratch + (6 * size + fed_back) * first, *hidden_grad = later_state + most * size;
    float *grads = hidden_grad + most * size, *later = grads + most * 4 * size;
    (void)tasks;
    memset(later_state, 0, (size_t)most * bytes);
    memset(later, 0, (size_t)most * fed_bytes);
    for (int64_t time = s->steps - 1; time >= 0; time--) {
        const int64_t alive = running(starts, time, first, most), begin = starts[time] + first;
        float *projected = s->projected_grad + begin * fed_back;
        if (!alive) continue;
        for (int64_t r = 0; r < alive; r++) {
            const int64_t here = rows[begin + r] * fed_back;
            projection_gradient(fed_back, s->out + here, s->out_grad + here, later + r * fed_back, projected + r * fed_back,
                                s->projection_activation);
        }
        plain_product(alive, fed_back, size, projected, fed_back, s->projection, hidden_grad, size, 0);
        for (int64_t r = 0; r < alive; r++) {
            const int64_t here = rows[begin + r], there = time ? rows[starts[time - 1] + first + r] : 0;
            const float *initial_out = s->initial_out ? s->initial_out + (first + r) * fed_back : 0;
            const float *initial_state = s->initial_cell ? s->initial_cell + (first + r) * size : 0;
            const lstm_gradient_row row = {
                .gates = s->gates + (begin + r) * 4 * size, .activated = s->activated + (begin + r) * size,
                .before = time ? s->cell + there * size : initial_state, .hidden = hidden_grad + r * size,
                .later_state = later_state + r * size, .grads = grads + r * 4 * size};
            lstm_row_gradient(&cell, s->only_later != 0, &row);
            memcpy(s->source_grad + here * 4 * size, row.grads, 4 * bytes);
            copy_or_zero(s->out_before + here * fed_back, time ? s->out + there * fed_back : initial_out, fed_bytes);
            copy_or_zero(s->cell_before ? s->cell_before + here * size : 0, row.before, bytes);
        }
        if (time || s->initial_out_grad)
            plain_product(alive, 4 * size, fed_back, grads, 4 * size, s->weights, later, fed_back, 0);
    }
    const size_t there = (size_t)running(starts, 0, first, most);
    if (s->initial_out_grad) memcpy(s->initial_out_grad + first * fed_back, later, there * fed_bytes);
    if (s->initial_cell_grad) memcpy(s->initial_cell_grad + first * size, later_state, there * bytes);
}
