/* Every kernel, for one instruction set. Not compiled by itself: avx2.c, avx512.c and portable.c include it after they
   have said VL (lanes), TILE (pixels of a tile of two channel blocks), UNROLL (steps of the
   innermost loops at once: less code where it is small), INSTRUCTIONS (the table's name) and NAME. */
#include "engine.h"
#include "vectors.h"

#include <math.h>

#define PRAGMA(text) _Pragma(#text)
#define UNROLLED(times) PRAGMA(GCC unroll times)
#define WEIGHT_BYTES 20480 /* of packed weights that stay in the first cache while the pixels pass */

#include "convolution.c"
#include "depthwise.c"
#include "winograd.c"
#include "bfloat16.c"
#include "products.c"
#include "pooling.c"
#include "layouts.c"
#include "elementwise.c"
#include "rows.c"
#include "attention.c"
#include "moves.c"
#include "peak.c"
#include "recurrent.c"
#include "sequences.c"
#include "gru.c"
#include "projected.c"
#include "updates.c"
#include "training.c"
#include "planes.c"
#include "losses.c"
#include "interpolation.c"
#include "reductions.c"
#include "boxes.c"
#include "ranking.c"
#include "detection.c"
#include "polygons.c"
#include "regions.c"
#include "samples.c"
#include "viterbi.c"
#include "padding.c"
#include "normalization.c"
#include "channels.c"

const ft_instructions INSTRUCTIONS = {
    .name = NAME,
    .width = VL,
    .kernels = {
        [FT_CONVOLUTION] = convolution,
        [FT_DEPTHWISE] = depthwise,
        [FT_POOL] = pool_rows,
        [FT_BLOCK] = block_layout,
        [FT_UNBLOCK] = unblock_layout,
        [FT_HALO] = zero_halo,
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
        [FT_WINOGRAD_WINDOWS] = winograd_windows,
        [FT_WINOGRAD] = winograd,
        [FT_PACK_WINOGRAD] = pack_winograd,
        [FT_SUBSAMPLE] = subsample,
        [FT_FILTER_GRADIENT] = filter_gradient,
        [FT_MAXIMUM_GRADIENT] = maximum_gradient,
        [FT_INTERPOLATE] = interpolate,
        [FT_REDUCE] = reduce,
        [FT_SOFTMAX_AXIS] = softmax_axis,
        [FT_SUPPRESS] = suppress,
#if FT_HAS_PAIRS && VL == 16
        [FT_PAIRS] = ft_pairs,
        [FT_NARROW] = ft_narrow,
        [FT_PACK_PAIRS] = ft_pack_pairs,
        [FT_MULTIPLY_PAIRS] = ft_multiply_pairs,
#endif
        [FT_EXTREME_PLACE] = extreme_place,
        [FT_TOP_K] = top_k,
        [FT_PICK] = pick,
        [FT_PAD] = pad,
        [FT_GROUP_NORM] = group_norm,
        [FT_GROUP_NORM_BLOCKED] = group_norm_blocked,
        [FT_GRU_SEQUENCES] = gru_sequences,
        [FT_GRU] = gru,
        [FT_GRU_GRADIENT] = gru_gradient,
        [FT_YOLO_BOXES] = yolo_boxes,
        [FT_YOLO_SCORES] = yolo_scores,
        [FT_DECODE_BOXES] = decode_boxes,
        [FT_LAYER_NORM_GRADIENT] = layer_norm_gradient,
        [FT_BATCH_NORM] = batch_norm,
        [FT_BATCH_NORM_GRADIENT] = batch_norm_gradient,
        [FT_SCATTER_ROWS] = scatter_rows,
        [FT_ADAGRAD_ROWS] = adagrad_rows,
        [FT_ATTENTION] = attention,
        [FT_GATHER_POOL] = gather_pool,
        [FT_ADAM_ROWS] = adam_rows,
        [FT_DESCEND] = descend,
        [FT_DEPTHWISE_PLANES] = depthwise_planes,
        [FT_DEPTHWISE_PLANES_GRADIENT] = depthwise_planes_gradient,
        [FT_CROSS_ENTROPY] = cross_entropy,
        [FT_CROSS_ENTROPY_GRADIENT] = cross_entropy_gradient,
        [FT_ACTIVATION_GRADIENT] = activation_gradient,
        [FT_BEST_BOXES] = best_boxes,
        [FT_DETECTIONS] = detections,
        [FT_ALIGN_REGIONS] = align_regions,
        [FT_POOL_REGIONS] = pool_regions,
        [FT_VITERBI] = viterbi,
        [FT_SOFTMAX_SEQUENCES] = softmax_sequences,
        [FT_COSINE] = cosine,
        [FT_REGROUP] = regroup,
        [FT_LOCAL_RESPONSE] = local_response,
        [FT_PROJECTED_SEQUENCES] = projected_sequences,
        [FT_SUPPRESS_POLYGONS] = suppress_polygons,
        [FT_SAMPLE_PLANES] = sample_planes,
        [FT_FEW_ROWS] = few_rows,
    },
};
