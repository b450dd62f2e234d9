/* What optimizers do to a parameter and its moments, in place and in one pass. Included by matrices.c. */

/* A gradient of all rows, or of the `count` rows at `places`. It is 0 elsewhere; if only the `listed` rows change, the
   others are not touched. */
typedef struct {
    const float *grad;
    const int64_t *places;
    int64_t rows, columns, count, listed;
} gradient;
#define GRADIENT(s) ((gradient){(s)->grad, (s)->places, (s)->rows, (s)->columns, (s)->count, (s)->listed})

/* Changes at most VL floats from `at` on. */
typedef void change(const ft_call *call, int64_t at, vec grad, int64_t count);
/* Whether so many floats from `at` on stay as they are where the gradient is 0. */
typedef int rest(const ft_call *call, int64_t at);
#define RESTING (4 * VL)

INLINE int never(const ft_call *call, int64_t at) { return (void)call, (void)at, 0; }

INLINE veci bits_of(const float *x) {
    veci bits = {0};
    for (int i = 0; i < RESTING; i += VL) bits |= (veci)LOAD(x + i);
    return bits;
}

INLINE int are_zero(veci bits) {
#pragma GCC unroll 4
    for (int half = VL / 2; half; half /= 2) bits |= (veci)SHUFFLE((vec)bits, (vec)bits, LANES ^ half);
    return !bits[0];
}

INLINE void change_all(const ft_call *call, const float *grad, int64_t from, int64_t to, change *each) {
    for (int64_t i = from; i < to; i += VL) each(call, i, take(grad + (i - from), to - i), to - i);
}

INLINE void change_without(const ft_call *call, int64_t from, int64_t to, change *each, rest *resting) {
    for (; from + RESTING <= to; from += RESTING)
        for (int64_t i = resting(call, from) ? RESTING : 0; i < RESTING; i += VL) each(call, from + i, ALL(0), VL);
    for (; from < to; from += VL) each(call, from, ALL(0), to - from);
}

/* Part of a range of floats, at multiples of the vectors. */
INLINE void float_part(int64_t count, int64_t task, int64_t tasks, int64_t *from, int64_t *to) {
    part((count + VL - 1) / VL, task, tasks, from, to);
    *from *= VL, *to = *to * VL < count ? *to * VL : count;
}

/* The first of ascending places that is not below a row. */
INLINE int64_t place_from(const int64_t *places, int64_t count, int64_t row) {
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (places[middle] < row) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Rows are looked at before any run; what they say is not relied on here all the same. */
static int is_row(int64_t row, int64_t rows) { return row >= 0 && row < rows; }

INLINE void change_listed(const ft_call *call, gradient g, int64_t task, int64_t tasks, change *each) {
    int64_t from, to;
    part(g.count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++)
        if (is_row(g.places[i], g.rows))
            change_all(call, g.grad + i * g.columns, g.places[i] * g.columns, (g.places[i] + 1) * g.columns, each);
}

INLINE void change_rows(const ft_call *call, gradient g, int64_t task, int64_t tasks, change *each, rest *resting) {
    int64_t row, to;
    part(g.rows, task, tasks, &row, &to);
    for (int64_t i = place_from(g.places, g.count, row); row < to; i++) {
        const int64_t next = i < g.count && g.places[i] < to ? g.places[i] : to;
        if (next < row) continue;
        change_without(call, row * g.columns, next * g.columns, each, resting);
        if (next < to) change_all(call, g.grad + i * g.columns, next * g.columns, (next + 1) * g.columns, each);
        row = next + 1;
    }
}

INLINE void update(const ft_call *call, gradient g, int64_t task, int64_t tasks, change *each, rest *resting) {
    if (!g.places) {
        int64_t from, to;
        float_part(g.rows * g.columns, task, tasks, &from, &to);
        change_all(call, g.grad + from, from, to, each);
    } else if (g.listed) {
        change_listed(call, g, task, tasks, each);
    } else {
        change_rows(call, g, task, tasks, each, resting);
    }
}

INLINE int is_finite(float x) { return x - x == 0; }

INLINE void change_adam(const ft_call *call, int64_t at, vec grad, int64_t count) {
    const ft_adam *s = &call->adam;
    const vec first = ALL(s->beta1) * take(s->moment1 + at, count) + ALL(s->beta1_rest) * grad;
    const vec second = ALL(s->beta2) * take(s->moment2 + at, count) + ALL(s->beta2_rest) * grad * grad;
    give(s->param + at, take(s->param + at, count) - ALL(s->rate) * (first / (sqrt_vec(second) + ALL(s->epsilon))), count);
    give(s->moment1 + at, first, count), give(s->moment2 + at, second, count);
}

/* Zeros by a positive number. */
INLINE int adam_rests(const ft_call *call, int64_t at) {
    const ft_adam *s = &call->adam;
    return s->epsilon > 0 && is_finite(s->rate) && are_zero(bits_of(s->moment1 + at) | bits_of(s->moment2 + at));
}

static void adam(const ft_call *call, int64_t task, int64_t tasks) {
    update(call, GRADIENT(&call->adam), task, tasks, change_adam, adam_rests);
}

INLINE void change_descend(const ft_call *call, int64_t at, vec grad, int64_t count) {
    const ft_descend *s = &call->descend;
    give(s->param + at, take(s->param + at, count) - ALL(s->rate) * grad, count);
}

static void descend(const ft_call *call, int64_t task, int64_t tasks) {
    update(call, GRADIENT(&call->descend), task, tasks, change_descend, never);
}

INLINE void change_momentum(const ft_call *call, int64_t at, vec grad, int64_t count) {
    const ft_momentum *s = &call->momentum;
    const vec mu = ALL(s->momentum), rate = ALL(s->rate), velocity = mu * take(s->velocity + at, count) + grad;
    const vec move = s->nesterov ? (grad + mu * velocity) * rate : rate * velocity;
    give(s->param + at, take(s->param + at, count) - move, count), give(s->velocity + at, velocity, count);
}

INLINE int momentum_rests(const ft_call *call, int64_t at) {
    const ft_momentum *s = &call->momentum;
    return is_finite(s->rate) && is_finite(s->momentum) && are_zero(bits_of(s->velocity + at));
}

static void momentum(const ft_call *call, int64_t task, int64_t tasks) {
    update(call, GRADIENT(&call->momentum), task, tasks, change_momentum, momentum_rests);
}

INLINE void change_adagrad(const ft_call *call, int64_t at, vec grad, int64_t count) {
    const ft_adagrad *s = &call->adagrad;
    const vec squares = ALL(s->decay) * take(s->moment + at, count) + ALL(s->rest) * grad * grad;
    give(s->param + at, take(s->param + at, count) - ALL(s->rate) * grad / (sqrt_vec(squares) + ALL(s->epsilon)), count);
    give(s->moment + at, squares, count);
}

static void adagrad(const ft_call *call, int64_t task, int64_t tasks) {
    update(call, GRADIENT(&call->adagrad), task, tasks, change_adagrad, never);
}

INLINE void change_rmsprop(const ft_call *call, int64_t at, vec grad, int64_t count) {
    const ft_rmsprop *s = &call->rmsprop;
    const vec squares = ALL(s->decay) * take(s->squares + at, count) + ALL(s->rest) * grad * grad;
    const vec moment =
        ALL(s->momentum) * take(s->moment + at, count) + ALL(s->rate) * grad / sqrt_vec(squares + ALL(s->epsilon));
    give(s->param + at, take(s->param + at, count) - moment, count);
    give(s->squares + at, squares, count), give(s->moment + at, moment, count);
}

INLINE int rmsprop_rests(const ft_call *call, int64_t at) {
    const ft_rmsprop *s = &call->rmsprop;
    return s->epsilon > 0 && is_finite(s->rate) && are_zero(bits_of(s->squares + at) | bits_of(s->moment + at));
}

static void rmsprop(const ft_call *call, int64_t task, int64_t tasks) {
    update(call, GRADIENT(&call->rmsprop), task, tasks, change_rmsprop, rmsprop_rests);
}

INLINE void change_ftrl(const ft_call *call, int64_t at, vec grad, int64_t count) {
    const ft_ftrl *s = &call->ftrl;
    const vec rate = ALL(s->rate), l1 = ALL(s->l1), squares = take(s->squares + at, count), total = squares + grad * grad;
    const vec root = sqrt_vec(total), param = take(s->param + at, count);
    const vec linear = take(s->linear + at, count) + grad - (root - sqrt_vec(squares)) / rate * param;
    const vec shrunk = (CHOOSE(linear < ALL(0), -l1, l1) - linear) / (root / rate + ALL(2 * s->l2));
    give(s->param + at, CHOOSE(MAX(linear, -linear) > l1, shrunk, ALL(0)), count);
    give(s->squares + at, total, count), give(s->linear + at, linear, count);
}

static void ftrl(const ft_call *call, int64_t task, int64_t tasks) {
    update(call, GRADIENT(&call->ftrl), task, tasks, change_ftrl, never);
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
