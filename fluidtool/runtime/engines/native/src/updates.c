/* What optimizers do to a parameter, in one pass over it, and to some rows of one. Included by matrices.c. */

/* Part of a range of floats, at multiples of the vectors. */
INLINE void float_part(int64_t count, int64_t task, int64_t tasks, int64_t *from, int64_t *to) {
    part((count + VL - 1) / VL, task, tasks, from, to);
    *from *= VL, *to = *to * VL < count ? *to * VL : count;
}

/* Results have memory of their own, or take the place of what they are made from.
   p[0]: addresses of parameter, gradient, moment 1, moment 2, and of the new parameter, moment 1, moment 2.
   p[1]: beta1, 1 - beta1, beta2, 1 - beta2, rate, epsilon.  n: 0 floats */
static void adam(const ft_step *step, int64_t task, int64_t tasks) {
    float *const *p = (float *const *)(const void *)step->p[0];
    const float *f = step->p[1];
    int64_t from, to;
    float_part(step->n[0], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        const vec grad = take(p[1] + i, to - i);
        const vec first = ALL(f[0]) * take(p[2] + i, to - i) + ALL(f[1]) * grad;
        const vec second = ALL(f[2]) * take(p[3] + i, to - i) + ALL(f[3]) * grad * grad;
        give(p[4] + i, take(p[0] + i, to - i) - ALL(f[4]) * (first / (sqrt_vec(second) + ALL(f[5]))), to - i);
        give(p[5] + i, first, to - i), give(p[6] + i, second, to - i);
    }
}

/* Rows are looked at before any run; what they say is not relied on here all the same. */
static int is_row(int64_t row, int64_t rows) { return row >= 0 && row < rows; }

/* Some rows of parameter and moments, which change.
   p[0]: addresses of parameter, moment 1, moment 2, gradient [count][columns], the rows that it is for, each once.
   p[1]: as adam has it.  n: 0 count, 1 columns, 2 rows of the parameter */
static void adam_rows(const ft_step *step, int64_t task, int64_t tasks) {
    float *const *p = (float *const *)(const void *)step->p[0];
    const float *f = step->p[1];
    const int64_t columns = step->n[1], *rows = (const int64_t *)(const void *)p[4];
    int64_t from, to;
    part(step->n[0], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++)
        for (int64_t j = 0; j < columns && is_row(rows[i], step->n[2]); j += VL) {
            const int64_t count = columns - j, at = rows[i] * columns + j;
            const vec grad = take(p[3] + i * columns + j, count);
            const vec first = ALL(f[0]) * take(p[1] + at, count) + ALL(f[1]) * grad;
            const vec second = ALL(f[2]) * take(p[2] + at, count) + ALL(f[3]) * grad * grad;
            give(p[0] + at, take(p[0] + at, count) - ALL(f[4]) * (first / (sqrt_vec(second) + ALL(f[5]))), count);
            give(p[1] + at, first, count), give(p[2] + at, second, count);
        }
}

/* p: parameter, gradient, new parameter.  f: rate.  n: 0 floats */
static void descend(const ft_step *step, int64_t task, int64_t tasks) {
    float *const *p = step->p;
    const vec rate = ALL(step->f[0]);
    int64_t from, to;
    float_part(step->n[0], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) give(p[2] + i, take(p[0] + i, to - i) - rate * take(p[1] + i, to - i), to - i);
}

/* p: parameter, gradient, velocity, new parameter, new velocity.  f: momentum, rate.  n: 0 floats, 1 Nesterov */
static void momentum(const ft_step *step, int64_t task, int64_t tasks) {
    float *const *p = step->p;
    const vec mu = ALL(step->f[0]), rate = ALL(step->f[1]);
    int64_t from, to;
    float_part(step->n[0], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        const vec grad = take(p[1] + i, to - i), velocity = mu * take(p[2] + i, to - i) + grad;
        const vec move = step->n[1] ? (grad + mu * velocity) * rate : rate * velocity;
        give(p[3] + i, take(p[0] + i, to - i) - move, to - i);
        give(p[4] + i, velocity, to - i);
    }
}

/* y[place[i]] += f[0] * x[i], in the order of i: each task has rows of y that are its own.
   p: x [count][columns], places, y.  n: 0 count, 1 columns, 2 rows of y */
static void scatter_rows(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, columns = n[1], *places = (const int64_t *)(const void *)step->p[1];
    const vec factor = ALL(step->f[0]);
    int64_t from, to;
    part(n[2], task, tasks, &from, &to);
    for (int64_t i = 0; i < n[0]; i++) {
        if (places[i] < from || places[i] >= to) continue;
        const float *x = step->p[0] + i * columns;
        float *y = step->p[2] + places[i] * columns;
        for (int64_t j = 0; j < columns; j += VL)
            give(y + j, take(y + j, columns - j) + factor * take(x + j, columns - j), columns - j);
    }
}

/* p: parameter and moment, both of which change, gradient [count][columns], the rows that it is for, each once.
   n: 0 count, 1 columns, 2 rows of the parameter.  f: rate, epsilon */
static void adagrad_rows(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t columns = step->n[1], *rows = (const int64_t *)(const void *)step->p[3];
    const vec rate = ALL(step->f[0]), epsilon = ALL(step->f[1]);
    int64_t from, to;
    part(step->n[0], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++)
        for (int64_t j = 0; j < columns && is_row(rows[i], step->n[2]); j += VL) {
            const int64_t count = columns - j;
            float *param = step->p[0] + rows[i] * columns + j, *moment = step->p[1] + rows[i] * columns + j;
            const vec grad = take(step->p[2] + i * columns + j, count), squares = take(moment, count) + grad * grad;
            give(moment, squares, count);
            give(param, take(param, count) - rate * grad / (sqrt_vec(squares) + epsilon), count);
        }
}
