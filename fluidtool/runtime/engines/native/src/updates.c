/* What optimizers do to a parameter, in one pass over it, and to some rows of one. Included by matrices.c. */

/* Part of a range of floats, at multiples of the vectors. */
INLINE void float_part(int64_t count, int64_t task, int64_t tasks, int64_t *from, int64_t *to) {
    part((count + VL - 1) / VL, task, tasks, from, to);
    *from *= VL, *to = *to * VL < count ? *to * VL : count;
}

/* Results have memory of their own, or take the place of what they are made from. */
static void adam(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_adam *s = &call->adam;
    int64_t from, to;
    float_part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        const vec grad = take(s->grad + i, to - i);
        const vec first = ALL(s->beta1) * take(s->moment1 + i, to - i) + ALL(s->beta1_rest) * grad;
        const vec second = ALL(s->beta2) * take(s->moment2 + i, to - i) + ALL(s->beta2_rest) * grad * grad;
        give(s->new_param + i, take(s->param + i, to - i) - ALL(s->rate) * (first / (sqrt_vec(second) + ALL(s->epsilon))),
             to - i);
        give(s->new_moment1 + i, first, to - i), give(s->new_moment2 + i, second, to - i);
    }
}

/* Rows are looked at before any run; what they say is not relied on here all the same. */
static int is_row(int64_t row, int64_t rows) { return row >= 0 && row < rows; }

/* Some rows of parameter and moments, which change. */
static void adam_rows(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_adam_rows *s = &call->adam_rows;
    const int64_t columns = s->columns, *rows = s->places;
    int64_t from, to;
    part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++)
        for (int64_t j = 0; j < columns && is_row(rows[i], s->rows); j += VL) {
            const int64_t count = columns - j, at = rows[i] * columns + j;
            const vec grad = take(s->grad + i * columns + j, count);
            const vec first = ALL(s->beta1) * take(s->moment1 + at, count) + ALL(s->beta1_rest) * grad;
            const vec second = ALL(s->beta2) * take(s->moment2 + at, count) + ALL(s->beta2_rest) * grad * grad;
            give(s->param + at, take(s->param + at, count) - ALL(s->rate) * (first / (sqrt_vec(second) + ALL(s->epsilon))),
                 count);
            give(s->moment1 + at, first, count), give(s->moment2 + at, second, count);
        }
}

static void descend(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_descend *s = &call->descend;
    const vec rate = ALL(s->rate);
    int64_t from, to;
    float_part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL)
        give(s->new_param + i, take(s->param + i, to - i) - rate * take(s->grad + i, to - i), to - i);
}

static void momentum(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_momentum *s = &call->momentum;
    const vec mu = ALL(s->momentum), rate = ALL(s->rate);
    int64_t from, to;
    float_part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        const vec grad = take(s->grad + i, to - i), velocity = mu * take(s->velocity + i, to - i) + grad;
        const vec move = s->nesterov ? (grad + mu * velocity) * rate : rate * velocity;
        give(s->new_param + i, take(s->param + i, to - i) - move, to - i);
        give(s->new_velocity + i, velocity, to - i);
    }
}

/* In the order of the places: each task has rows of out that are its own. */
static void scatter_rows(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_scatter_rows *s = &call->scatter_rows;
    const int64_t columns = s->columns, *places = s->places;
    const vec factor = ALL(s->factor);
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t i = 0; i < s->count; i++) {
        if (places[i] < from || places[i] >= to) continue;
        const float *x = s->source + i * columns;
        float *y = s->out + places[i] * columns;
        for (int64_t j = 0; j < columns; j += VL)
            give(y + j, take(y + j, columns - j) + factor * take(x + j, columns - j), columns - j);
    }
}

static void adagrad_rows(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_adagrad_rows *s = &call->adagrad_rows;
    const int64_t columns = s->columns, *rows = s->places;
    const vec rate = ALL(s->rate), epsilon = ALL(s->epsilon);
    int64_t from, to;
    part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++)
        for (int64_t j = 0; j < columns && is_row(rows[i], s->rows); j += VL) {
            const int64_t count = columns - j;
            float *param = s->param + rows[i] * columns + j, *moment = s->moment + rows[i] * columns + j;
            const vec grad = take(s->grad + i * columns + j, count), squares = take(moment, count) + grad * grad;
            give(moment, squares, count);
            give(param, take(param, count) - rate * grad / (sqrt_vec(squares) + epsilon), count);
        }
}
