/* Softmax with cross entropy, row by row, and its gradient; gradients of activations. Included by matrices.c. */
#define LOWEST_LOGIT -64.0f /* below the largest: no probability is 0 */

/* Labels are looked at before any run; what they say is not relied on here all the same. */
static int is_class(int64_t label, int64_t columns) { return label >= 0 && label < columns; }

/* p: logits, labels (numbers of classes, or -1: no loss) or 0, probabilities of classes where there are no labels,
   softmax, loss.  n: 0 rows, 1 columns */
static void cross_entropy(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t columns = step->n[1], *labels = (const int64_t *)(const void *)step->p[1];
    int64_t from, to;
    part(step->n[0], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = step->p[0] + row * columns, *wanted = labels ? 0 : step->p[2] + row * columns;
        float *y = step->p[3] + row * columns, *loss = step->p[4] + row;
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

/* dlogits = dloss * (softmax - label).  p: softmax, labels or 0, probabilities where there are no labels, dlogits, dloss;
   rows of label -1 get 0.  n: 0 rows, 1 columns */
static void cross_entropy_gradient(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t columns = step->n[1], *labels = (const int64_t *)(const void *)step->p[1];
    int64_t from, to;
    part(step->n[0], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *softmax = step->p[0] + row * columns, *wanted = labels ? 0 : step->p[2] + row * columns;
        float *y = step->p[3] + row * columns;
        const vec grad = ALL(step->p[4][row]);
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
        if (labels) y[labels[row]] = step->p[4][row] * (softmax[labels[row]] - 1);
    }
}

/* p: what the activation made, its gradient, the gradient of what it was made from.  n: 0 floats */
static void activation_gradient(const ft_step *step, int64_t task, int64_t tasks) {
    const vec limit = ALL(step->f[0]), zero = ALL(0);
    int64_t from, to;
    float_part(step->n[0], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i += VL) {
        const vec y = take(step->p[0] + i, to - i), grad = take(step->p[1] + i, to - i);
        vec slope;
        switch (step->activation) {
            case FT_RELU6: slope = CHOOSE((y > zero) & (limit > y), ALL(1), zero); break;
            case FT_SIGMOID: slope = y * (ALL(1) - y); break;
            case FT_TANH: slope = ALL(1) - y * y; break;
            case FT_LEAKY_RELU: slope = CHOOSE(y > zero, ALL(1), limit); break;
            default: slope = CHOOSE(y > zero, ALL(1), zero);
        }
        give(step->p[2] + i, grad * slope, to - i);
    }
}
