/* Softmax with cross entropy, row by row, and its gradient; gradients of activations. Included by matrices.c. */

/* Labels are looked at before any run; what they say is not relied on here all the same. */
static int is_class(int64_t label, int64_t columns) { return label >= 0 && label < columns; }

static void cross_entropy(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_cross_entropy *s = &call->cross_entropy;
    const int64_t columns = s->columns, *labels = s->labels;
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = s->logits + row * columns, *wanted = labels ? 0 : s->probabilities + row * columns;
        float *y = s->softmax + row * columns, *loss = s->loss + row;
        vec most = ALL(-INFINITY), sum = ALL(0), met = ALL(0), all_wanted = ALL(0);
        int64_t i = 0;
        for (; i + VL <= columns; i += VL) most = MAX(LOAD(x + i), most);
        if (i < columns) most = MAX(load_some(x + i, columns - i, -INFINITY), most);
        const float top = max_lanes(most);
        for (i = 0; i < columns; i += VL) {
            const int64_t count = columns - i;
            const vec shifted = MAX(take(x + i, count) - ALL(top), ALL(LOWEST_LOGIT)), power = exp_vec(shifted);
            give(y + i, power, count);
            sum += take(y + i, count);
            if (!labels) {
                const vec probability = take(wanted + i, count);
                met += probability * shifted, all_wanted += probability;
            }
        }
        const float total = sum_lanes(sum);
        const vec factor = ALL(1 / total);
        for (i = 0; i < columns; i += VL) give(y + i, take(y + i, columns - i) * factor, columns - i);
        if (!labels) *loss = sum_lanes(all_wanted) * logf(total) - sum_lanes(met);
        else if (!is_class(labels[row], columns)) *loss = 0;
        else {
            const float shifted = x[labels[row]] - top;
            *loss = logf(total) - (shifted < LOWEST_LOGIT ? LOWEST_LOGIT : shifted);
        }
    }
}

static void cross_entropy_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_cross_entropy_gradient *s = &call->cross_entropy_gradient;
    const int64_t columns = s->columns, *labels = s->labels;
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *softmax = s->softmax + row * columns, *wanted = labels ? 0 : s->probabilities + row * columns;
        float *y = s->logits_grad + row * columns;
        const vec grad = ALL(s->loss_grad[row]);
        if (labels && !is_class(labels[row], columns)) {
            memset(y, 0, (size_t)columns * sizeof(float));
            continue;
        }
        for (int64_t i = 0; i < columns; i += VL) {
            const int64_t count = columns - i;
            vec part = take(softmax + i, count);
            if (!labels) part -= take(wanted + i, count);
            give(y + i, grad * part, count);
        }
        if (labels) y[labels[row]] = s->loss_grad[row] * (softmax[labels[row]] - 1);
    }
}

static void activation_gradient(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_activation_gradient *s = &call->activation_gradient;
    const ft_constants *c = &s->constants;
    const vec limit = ALL(s->activation == FT_RELU6 ? c->relu6.threshold : c->leaky_relu.slope), zero = ALL(0);
    int64_t from, to;
    float_part(s->count, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        const vec y = take(s->out + i, to - i), grad = take(s->out_grad + i, to - i);
        vec slope;
        switch (s->activation) {
            case FT_RELU6: slope = CHOOSE((y > zero) & (limit > y), ALL(1), zero); break;
            case FT_SIGMOID: slope = y * (ALL(1) - y); break;
            case FT_TANH: slope = ALL(1) - y * y; break;
            case FT_LEAKY_RELU: slope = CHOOSE(y > zero, ALL(1), limit); break;
            default: slope = CHOOSE(y > zero, ALL(1), zero);
        }
        give(s->source_grad + i, grad * slope, to - i);
    }
}
