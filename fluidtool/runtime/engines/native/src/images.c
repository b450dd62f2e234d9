/* The kernels of images: convolutions, pooling, layouts, boxes and regions. */
#include "kernels.h"

#include "convolution.c"
#include "depthwise.c"
#include "winograd.c"
#include "pooling.c"
#include "layouts.c"
#include "planes.c"
#include "interpolation.c"
#include "boxes.c"
#include "ranking.c"
#include "detection.c"
#include "polygons.c"
#include "regions.c"
#include "samples.c"
#include "padding.c"
#include "channels.c"

const ft_table TABLE = {
    [FT_CONVOLUTION] = convolution,
    [FT_DEPTHWISE] = depthwise,
    [FT_POOL] = pool_rows,
    [FT_BLOCK] = block_layout,
    [FT_UNBLOCK] = unblock_layout,
    [FT_HALO] = zero_halo,
    [FT_WINOGRAD_WINDOWS] = winograd_windows,
    [FT_WINOGRAD] = winograd,
    [FT_PACK_WINOGRAD] = pack_winograd,
    [FT_WINOGRAD_FILTER_GRADIENT] = winograd_filter_gradient,
    [FT_SUBSAMPLE] = subsample,
    [FT_INTERPOLATE] = interpolate,
    [FT_SUPPRESS] = suppress,
    [FT_PAD] = pad,
    [FT_YOLO_BOXES] = yolo_boxes,
    [FT_YOLO_SCORES] = yolo_scores,
    [FT_DECODE_BOXES] = decode_boxes,
    [FT_DEPTHWISE_PLANES] = depthwise_planes,
    [FT_DEPTHWISE_PLANES_GRADIENT] = depthwise_planes_gradient,
    [FT_BEST_BOXES] = best_boxes,
    [FT_DETECTIONS] = detections,
    [FT_ALIGN_REGIONS] = align_regions,
    [FT_POOL_REGIONS] = pool_regions,
    [FT_REGROUP] = regroup,
    [FT_SUPPRESS_POLYGONS] = suppress_polygons,
    [FT_SAMPLE_PLANES] = sample_planes,
    [FT_EXTREME_PLACE] = extreme_place,
    [FT_TOP_K] = top_k,
    [FT_PICK] = pick,
};
