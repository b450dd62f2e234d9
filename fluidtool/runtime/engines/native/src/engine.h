/* The native engine: a program compiled to steps, run in one call. Plain C ABI, no dependency but threads. */
#ifndef FLUIDTOOL_ENGINE_H
#define FLUIDTOOL_ENGINE_H

#include <stdint.h>

/* One step. Python fills it (fluidtool/runtime/engines/native/calls.py has the same layout, a test compares them).
   `p` are pointers, `n` sizes and strides in elements, `f` numbers; their meaning by kind stands at each kernel. */
typedef struct ft_step {
    int32_t kind;
    int32_t activation;
    float *p[7];
    int64_t n[32];
    float f[4];
} ft_step;

enum ft_kind {
    FT_CONVOLUTION = 0,
    FT_DEPTHWISE,
    FT_POOL,
    FT_BLOCK,
    FT_UNBLOCK,
    FT_HALO,
    FT_ELEMENTWISE,
    FT_SOFTMAX,
    FT_LAYER_NORM,
    FT_COPY,
    FT_PACK,
    FT_PACK_FILTER,
    FT_GATHER_ROWS,
    FT_LSTM,
    FT_LSTM_GRADIENT,
    FT_ADAM,
    FT_MOMENTUM,
    FT_MULTIPLY_ADDS,
    FT_PRODUCT,
    FT_LSTM_SEQUENCES,
    FT_POOL_SEQUENCES,
    FT_WINOGRAD_WINDOWS,
    FT_WINOGRAD,
    FT_PACK_WINOGRAD,
    FT_SUBSAMPLE,
    FT_FILTER_GRADIENT,
    FT_MAXIMUM_GRADIENT,
    FT_INTERPOLATE,
    FT_REDUCE,
    FT_SOFTMAX_AXIS,
    FT_SUPPRESS,
    FT_PAIRS,
    FT_NARROW,
    FT_PACK_PAIRS,
    FT_MULTIPLY_PAIRS,
    FT_EXTREME_PLACE,
    FT_TOP_K,
    FT_PICK,
    FT_PAD,
    FT_GROUP_NORM,
    FT_GROUP_NORM_BLOCKED,
    FT_GRU_SEQUENCES,
    FT_GRU,
    FT_GRU_GRADIENT,
    FT_YOLO_BOXES,
    FT_YOLO_SCORES,
    FT_DECODE_BOXES,
    FT_LAYER_NORM_GRADIENT,
    FT_BEST_BOXES,
    FT_DETECTIONS,
    FT_BATCH_NORM,
    FT_BATCH_NORM_GRADIENT,
    FT_SCATTER_ROWS,
    FT_ADAGRAD_ROWS,
    FT_ATTENTION,
    FT_GATHER_POOL,
    FT_ALIGN_REGIONS,
    FT_POOL_REGIONS,
    FT_VITERBI,
    FT_SOFTMAX_SEQUENCES,
    FT_COSINE,
    FT_ADAM_ROWS,
    FT_DESCEND,
    FT_DEPTHWISE_PLANES,
    FT_DEPTHWISE_PLANES_GRADIENT,
    FT_CROSS_ENTROPY,
    FT_CROSS_ENTROPY_GRADIENT,
    FT_ACTIVATION_GRADIENT,
    FT_REGROUP,
    FT_LOCAL_RESPONSE,
    FT_PROJECTED_SEQUENCES,
    FT_SUPPRESS_POLYGONS,
    FT_SAMPLE_PLANES,
    FT_FEW_ROWS,
    FT_KINDS
};

enum ft_activation {
    FT_NONE = 0,
    FT_RELU,
    FT_RELU6, /* f[0] = threshold */
    FT_SIGMOID,
    FT_TANH,
    FT_GELU,
    FT_LEAKY_RELU, /* f[0] = slope */
    FT_HARD_SWISH, /* x * min(max(x + f[1], 0), f[0]) / f[2] */
    FT_SWISH,      /* x * sigmoid(f[0] * x) */
    FT_EXP,
    FT_SQRT,
    FT_SQUARE,
    FT_AFFINE,       /* f[0] * x + f[1] */
    FT_HARD_SIGMOID, /* min(max(f[0] * x + f[1], 0), 1) */
    FT_ABS,
    FT_GELU_TANH,
    FT_CLIP,     /* min(max(x, f[0]), f[1]) */
    FT_SOFTSIGN, /* x / (1 + |x|) */
    FT_ACTIVATIONS
};

/* Part `task` of `tasks` of a step. */
typedef void (*ft_kernel)(const ft_step *step, int64_t task, int64_t tasks);

/* The kernels of one unit for one instruction set, by kind; 0 where another unit has the kernel. */
typedef ft_kernel ft_table[FT_KINDS];

/* Threads (pool.c). A run enters, calls ft_parallel for each of its pieces of work, and leaves. */
typedef void (*ft_work)(void *context, int64_t task, int64_t tasks);
void ft_enter(void);
void ft_leave(void);
void ft_parallel(ft_work work, void *context, int64_t tasks);
int ft_threads(void);
int ft_set_threads(int count);

#endif
