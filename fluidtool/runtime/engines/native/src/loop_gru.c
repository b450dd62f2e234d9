/* A step of a GRU, and its gradient. Included by matrices.c. */
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
