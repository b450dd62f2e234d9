/* Kernels of the engine beside the C library's functions, without Python, with every instruction set that there is: for
   processors and systems that are only emulated here. */
#include "engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void ft_run(const ft_call *calls, int64_t count);
const char *ft_instructions_name(void);
int64_t ft_vector_width(void);
int ft_use_threads(int count);
int ft_use_instructions(const char *name);

enum { NUMBERS = 1003, ROWS = 13, COLUMNS = 77, DEPTH = 131, RUNS = 500 };
static float x[NUMBERS], y[NUMBERS];
static float left[ROWS * DEPTH], right[DEPTH * COLUMNS], packed[DEPTH * 96] __attribute__((aligned(64)));
static ft_call products[RUNS];

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
    const ft_elementwise arguments = {.kind = FT_ELEMENTWISE, .activation = kind, .tasks = 3, .source = x, .out = y,
                                      .shape = {1, 1, 1, 1}, .columns = NUMBERS, .source_column = 1, .operation = 6};
    const ft_call call = {.elementwise = arguments};
    ft_run(&call, 1);
    for (int i = 0; i < NUMBERS; i++) {
        const double want = expected(kind, x[i]);
        if (!(fabs(y[i] - want) <= 3e-6 * fmax(1, fabs(want)))) wrong++;
    }
    return wrong;
}

static int wrong_softmax(int columns) {
    int wrong = 0;
    const ft_softmax arguments = {.kind = FT_SOFTMAX, .tasks = 5, .source = x, .out = y, .rows = ROWS, .columns = columns,
                                  .heads = 1, .head_rows = 1, .factor = 1};
    const ft_call call = {.softmax = arguments};
    ft_run(&call, 1);
    for (const float *row = x, *out = y; row < x + ROWS * columns; row += columns, out += columns) {
        double sum = 0;
        for (int i = 0; i < columns; i++) sum += exp(row[i]);
        for (int i = 0; i < columns; i++)
            if (!(fabs(out[i] - exp(row[i]) / sum) <= 1e-6)) wrong++;
    }
    return wrong;
}

/* A product in four parts, many times: threads, and sums that fill the registers. */
static int wrong_product(void) {
    int wrong = 0;
    for (int i = 0; i < ROWS * DEPTH; i++) left[i] = (float)(i * 31 % 17 - 8) / 8;
    for (int i = 0; i < DEPTH * COLUMNS; i++) right[i] = (float)(i * 13 % 23 - 11) / 16;
    const ft_pack pack = {.kind = FT_PACK, .tasks = 2, .source = right, .out = packed, .depth = DEPTH, .columns = COLUMNS,
                          .source_row = COLUMNS, .source_column = 1, .matrices = 1, .outer = 1, .all_columns = COLUMNS};
    const ft_call packing = {.pack = pack};
    ft_run(&packing, 1);
    const ft_product product = {.kind = FT_PRODUCT, .tasks = 4, .source = left, .weights = packed, .out = y, .rows = ROWS,
                                .depth = DEPTH, .columns = COLUMNS, .source_row = DEPTH, .out_row = COLUMNS, .outer = 1,
                                .inner = 1, .column_parts = 2, .row_parts = 2};
    for (int i = 0; i < RUNS; i++) products[i] = (ft_call){.product = product};
    memset(y, 0, sizeof y);
    ft_run(products, RUNS);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS && i * COLUMNS + j < NUMBERS; j++) {
            double want = 0;
            for (int k = 0; k < DEPTH; k++) want += (double)left[i * DEPTH + k] * right[k * COLUMNS + j];
            if (!(fabs(y[i * COLUMNS + j] - want) <= 3e-6 * 30)) wrong++;
        }
    return wrong;
}

int main(void) {
    const int kinds[] = {FT_RELU, FT_SIGMOID, FT_TANH, FT_GELU, FT_EXP, FT_SQUARE, FT_ABS};
    const char *names[] = {"portable", "avx2", "avx512"};
    int all = 0;
    for (int threads = 1; threads <= 3; threads += 2)
        for (size_t set = 0; set < sizeof names / sizeof *names; set++) {
            if (!ft_use_instructions(names[set])) continue;
            for (int i = 0; i < NUMBERS; i++) x[i] = (float)(i * 37 % 101 - 50) / 10;
            const int there = ft_use_threads(threads);
            int wrong = wrong_softmax(COLUMNS) + wrong_softmax(11) + wrong_product();
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) wrong += wrong_activations(kinds[k]);
            printf("%s, %d floats in a vector, %d threads: %d wrong\n", ft_instructions_name(), (int)ft_vector_width(), there,
                   wrong);
            all += wrong;
        }
    return all != 0;
}
