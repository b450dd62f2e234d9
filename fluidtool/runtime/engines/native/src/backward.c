/* What stands between products in training: gradients of activations by their inputs, of softmax, and dropout. Included by
   matrices.c. */

/* The density of a normal distribution. */
INLINE vec density_vec(vec x) { return ALL(0.39894228f) * exp_vec(ALL(-0.5f) * x * x); }

INLINE vec gelu_slope(vec x) { return below_vec(x) + x * density_vec(x); }

/* Of 0.5 x (1 + tanh(a x (1 + b x^2))). */
INLINE vec gelu_tanh_slope(vec x) {
    const vec square = x * x, inner = tanh_vec(ALL(0.79788456f) * x * (ALL(1) + ALL(0.044715f) * square));
    const vec slope = ALL(0.79788456f) * (ALL(1) + ALL(0.134145f) * square);
    return ALL(0.5f) * (ALL(1) + inner + x * (ALL(1) - inner * inner) * slope);
}

static void input_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_input_gradient *s = &call->input_gradient;
    int64_t from, to;
    float_part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        const vec x = take(s->source + i, to - i);
        const vec slope = s->activation == FT_GELU ? gelu_slope(x) : gelu_tanh_slope(x);
        give(s->source_grad + i, take(s->out_grad + i, to - i) * slope, to - i);
    }
}

static void softmax_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_softmax_gradient *s = &call->softmax_gradient;
    const int64_t columns = s->columns;
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *y = s->out + row * columns, *grad = s->out_grad + row * columns;
        float *x = s->source_grad + row * columns;
        vec sum = ALL(0);
        for (int64_t i = 0; i < columns; i += VL) sum += take(y + i, columns - i) * take(grad + i, columns - i);
        const vec level = ALL(sum_lanes(sum));
        for (int64_t i = 0; i < columns; i += VL)
            give(x + i, take(y + i, columns - i) * (take(grad + i, columns - i) - level), columns - i);
    }
}

typedef uint8_t bytes_of_vec __attribute__((vector_size(VL)));

INLINE size_t some_bytes(int64_t count) { return (size_t)(count < VL ? count : VL); }

static void drop(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_drop *s = &call->drop;
    int64_t from, to;
    float_part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        const veci kept = take(s->drawn + i, to - i) >= ALL(s->rate);
        const bytes_of_vec mask = __builtin_convertvector(-kept, bytes_of_vec);
        memcpy(s->mask + i, &mask, some_bytes(to - i));
        give(s->out + i, take(s->source + i, to - i) * CHOOSE(kept, ALL(s->factor), ALL(0)), to - i);
    }
}

static void drop_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_drop_gradient *s = &call->drop_gradient;
    int64_t from, to;
    float_part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        bytes_of_vec mask = {0};
        memcpy(&mask, s->mask + i, some_bytes(to - i));
        give(s->source_grad + i, take(s->out_grad + i, to - i) * __builtin_convertvector(mask, vec) * ALL(s->factor), to - i);
    }
}

static void activate_all(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_activate *s = &call->activate;
    int64_t from, to;
    float_part(s->count, task, tasks, &from, &to);
    if (s->activation == FT_RELU)
        for (int64_t i = from; i < to; i += VL) give(s->out + i, MAX(take(s->source + i, to - i), ALL(0)), to - i);
    else
        for (int64_t i = from; i < to; i += VL)
            give(s->out + i, activate(take(s->source + i, to - i), s->activation, &s->constants), to - i);
}

/* Where rows are many, tasks are whole rows; one long row is cut. */
static void add(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_add *s = &call->add;
    int64_t row, to, from = 0, end = s->columns;
    if (s->rows > 1) part(s->rows, task, tasks, &row, &to);
    else row = 0, to = s->rows, float_part(s->columns, task, tasks, &from, &end);
    for (; row < to; row++) {
        const float *x = s->source + row * s->columns, *y = s->other + (s->each_row ? row * s->columns : 0);
        float *out = s->out + row * s->columns;
        for (int64_t i = from; i < end; i += VL) give(out + i, take(x + i, end - i) + take(y + i, end - i), end - i);
    }
}
