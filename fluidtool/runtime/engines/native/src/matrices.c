/* The kernels of matrices and sequences: products, rows, recurrent layers, reductions, training. */
#include "kernels.h"

#include "bfloat16.h"

#include "products.c"
#include "elementwise.c"
#include "rows.c"
#include "attention.c"
#include "moves.c"
#include "peak.c"
#include "recurrent.c"
#include "sequences.c"
#include "gru.c"
#include "projected.c"
#include "lstmp.c"
#include "updates.c"
#include "training.c"
#include "losses.c"
#include "backward.c"
#include "reductions.c"
#include "viterbi.c"
#include "normalization.c"
#include "loop_values.c"
#include "loop_elementwise.c"
#include "loop_products.c"
#include "loop_arrays.c"
#include "loop_sequences.c"
#include "loop_views.c"
#include "loop_gru.c"
#include "loop_rows.c"
#include "loop_counters.c"
#include "loops.c"

const ft_table TABLE = {
    [FT_ELEMENTWISE] = elementwise,
    [FT_SOFTMAX] = softmax,
    [FT_LAYER_NORM] = layer_norm,
    [FT_COPY] = copy_strided,
    [FT_PACK] = pack,
    [FT_PACK_FILTER] = pack_filter,
    [FT_GATHER_ROWS] = gather_rows,
    [FT_LSTM] = lstm,
    [FT_LSTM_GRADIENT] = lstm_gradient,
    [FT_ADAM] = adam,
    [FT_MOMENTUM] = momentum,
    [FT_MULTIPLY_ADDS] = multiply_adds,
    [FT_PRODUCT] = product,
    [FT_LSTM_SEQUENCES] = lstm_sequences,
    [FT_POOL_SEQUENCES] = pool_sequences,
    [FT_FILTER_GRADIENT] = filter_gradient,
    [FT_SPREAD] = spread,
    [FT_PACK_TAPS] = pack_taps,
    [FT_POOL_LAST] = pool_last,
    [FT_POOL_LAST_GRADIENT] = pool_last_gradient,
    [FT_CHANNEL_MOMENTS] = channel_moments,
    [FT_NORMALIZE_LAST] = normalize_last,
    [FT_CHANNEL_SLOPES] = channel_slopes,
    [FT_NORMALIZE_LAST_GRADIENT] = normalize_last_gradient,
    [FT_MAXIMUM_GRADIENT] = maximum_gradient,
    [FT_REDUCE] = reduce,
    [FT_SOFTMAX_AXIS] = softmax_axis,
    [FT_GROUP_NORM] = group_norm,
    [FT_GROUP_NORM_BLOCKED] = group_norm_blocked,
    [FT_GRU_SEQUENCES] = gru_sequences,
    [FT_GRU] = gru,
    [FT_GRU_GRADIENT] = gru_gradient,
    [FT_LAYER_NORM_GRADIENT] = layer_norm_gradient,
    [FT_BATCH_NORM] = batch_norm,
    [FT_BATCH_NORM_GRADIENT] = batch_norm_gradient,
    [FT_SCATTER_ROWS] = scatter_rows,
    [FT_ADAGRAD] = adagrad,
    [FT_ATTENTION] = attention,
    [FT_GATHER_POOL] = gather_pool,
    [FT_FTRL] = ftrl,
    [FT_RMSPROP] = rmsprop,
    [FT_DESCEND] = descend,
    [FT_CROSS_ENTROPY] = cross_entropy,
    [FT_CROSS_ENTROPY_GRADIENT] = cross_entropy_gradient,
    [FT_ACTIVATION_GRADIENT] = activation_gradient,
    [FT_VITERBI] = viterbi,
    [FT_SOFTMAX_SEQUENCES] = softmax_sequences,
    [FT_COSINE] = cosine,
    [FT_LOCAL_RESPONSE] = local_response,
    [FT_PROJECTED_SEQUENCES] = projected_sequences,
    [FT_PROJECTED_LSTM] = projected_lstm,
    [FT_PROJECTED_LSTM_GRADIENT] = projected_lstm_gradient,
    [FT_FEW_ROWS] = few_rows,
    [FT_MULTIPLY] = multiply,
    [FT_INPUT_GRADIENT] = input_gradient,
    [FT_SOFTMAX_GRADIENT] = softmax_gradient,
    [FT_DROP] = drop,
    [FT_DRAW] = draw,
    [FT_DROP_GRADIENT] = drop_gradient,
    [FT_ACTIVATE] = activate_all,
    [FT_ADD] = add,
    [FT_LOOP] = run_loop,
};
