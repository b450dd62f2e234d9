/* Kernels of the engine beside the C library's functions, without Python: for processors that are only emulated here. */
#include "engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void ft_run(const ft_step *steps, int64_t count);
const char *ft_instructions_name(void);
int64_t ft_vector_width(void);
int ft_use_threads(int count);

enum { NUMBERS = 1003, ROWS = 13, COLUMNS = 77 };
static float x[NUMBERS], y[NUMBERS];

static double expected(int kind, double v) {
    switch (kind) {
        case FT_RELU: return v > 0 ? v : 0;
        case FT_SIGMOID: return 1 / (1 + exp(-v));
        case FT_TANH: return tanh(v);
        case FT_GELU: return 0.5 * v * (1 + erf(v * 0.70710678118654752));
        case FT_EXP: return exp(v);
        case FT_SQUARE: return v * v;
        default: return fabs(v);
    }
}

static int wrong_activations(int kind) {
    int wrong = 0;
    ft_step step = {.kind = FT_ELEMENTWISE, .activation = kind, .p = {[0] = x, [3] = y}};
    step.n[0] = step.n[1] = step.n[2] = step.n[3] = step.n[17] = 1;
    step.n[4] = NUMBERS, step.n[19] = 6, step.n[31] = 3;
    ft_run(&step, 1);
    for (int i = 0; i < NUMBERS; i++) {
        const double want = expected(kind, x[i]);
        if (!(fabs(y[i] - want) <= 3e-6 * fmax(1, fabs(want)))) wrong++;
    }
    return wrong;
}

static int wrong_softmax(void) {
    int wrong = 0;
    ft_step step = {.kind = FT_SOFTMAX, .p = {[0] = x, [3] = y}, .f = {1}};
    step.n[0] = ROWS, step.n[1] = COLUMNS, step.n[2] = step.n[3] = 1, step.n[31] = 5;
    ft_run(&step, 1);
    for (const float *row = x, *out = y; row < x + ROWS * COLUMNS; row += COLUMNS, out += COLUMNS) {
        double sum = 0;
        for (int i = 0; i < COLUMNS; i++) sum += exp(row[i]);
        for (int i = 0; i < COLUMNS; i++)
            if (!(fabs(out[i] - exp(row[i]) / sum) <= 1e-6)) wrong++;
    }
    return wrong;
}

int main(void) {
    const int kinds[] = {FT_RELU, FT_SIGMOID, FT_TANH, FT_GELU, FT_EXP, FT_SQUARE, FT_ABS};
    for (int i = 0; i < NUMBERS; i++) x[i] = (float)(i * 37 % 101 - 50) / 10;
    int wrong = wrong_softmax();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) wrong += wrong_activations(kinds[k]);
    printf("%s, %d floats in a vector, %d threads: %d wrong\n", ft_instructions_name(), (int)ft_vector_width(),
           ft_use_threads(2), wrong);
    return wrong != 0;
}
