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

/* numpy's PCG64: a linear congruential generator of 128 bits whose state is folded to a word. */
__extension__ typedef unsigned __int128 state128;

INLINE state128 of_words(uint64_t low, uint64_t high) { return (state128)high << 64 | low; }

/* What `steps` steps make of a state, by squaring one step. */
static state128 state_after(state128 state, state128 times, state128 plus, uint64_t steps) {
    for (; steps; steps >>= 1) {
        if (steps & 1) state = state * times + plus;
        plus = (times + 1) * plus, times = times * times;
    }
    return state;
}

INLINE uint64_t folded(state128 state) {
    const uint64_t word = (uint64_t)(state >> 64) ^ (uint64_t)state;
    const int turn = (int)(state >> 122);
    return word >> turn | word << (-turn & 63);
}

/* Two numbers of each word, its low half first. */
static void draw(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_draw *s = &call->draw;
    const state128 times = of_words(4865540595714422341u, 2549297995355413924u), plus = of_words(s->generator[2], s->generator[3]);
    int64_t from, to;
    part(s->count / 2, task, tasks, &from, &to);
    state128 state = state_after(of_words(s->generator[0], s->generator[1]), times, plus, (uint64_t)from);
    for (int64_t i = from; i < to; i++) {
        state = state * times + plus;
        const uint64_t word = folded(state);
        s->out[2 * i] = (float)(int32_t)((uint32_t)word >> 8) * 0x1p-24f;
        s->out[2 * i + 1] = (float)(int32_t)(word >> 40) * 0x1p-24f;
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
