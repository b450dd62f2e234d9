"""Networks of detection layers."""


def _data(fluid, name, shape, dtype="float32", lod_level=0):
    x = fluid.layers.data(name, shape, append_batch_size=False, dtype=dtype, lod_level=lod_level)
    x.stop_gradient = dtype != "float32"
    return x


def net_prior_box(fluid):
    feature, image = _data(fluid, "feature", [-1, 8, 6, 5]), _data(fluid, "image", [-1, 3, 48, 40])
    fluid.layers.prior_box(feature, image, [8.0])
    fluid.layers.prior_box(
        feature,
        image,
        min_sizes=[8, 16],
        max_sizes=[16.0, 24.0],
        aspect_ratios=[1.0, 2.0],
        variance=[0.2, 0.2, 0.1, 0.1],
        flip=True,
        clip=True,
        steps=[8, 8],
        offset=0.25,
        name="priors",
        min_max_aspect_ratios_order=True,
    )


def net_density_prior_box(fluid):
    feature, image = _data(fluid, "feature", [-1, 8, 6, 5]), _data(fluid, "image", [-1, 3, 48, 40])
    sizes = {"densities": [4, 2], "fixed_sizes": [32, 64.0], "fixed_ratios": [1.0, 2.0]}
    fluid.layers.density_prior_box(feature, image, **sizes)
    fluid.layers.density_prior_box(
        feature, image, clip=True, steps=(8.0, 4.0), offset=0.25, flatten_to_2d=True, name="dense", **sizes
    )


def net_anchor_generator(fluid):
    feature = _data(fluid, "feature", [-1, 8, 6, 5])
    fluid.layers.anchor_generator(feature, anchor_sizes=[64, 128.0], aspect_ratios=[0.5, 1.0], stride=[16.0, 16.0])
    fluid.layers.anchor_generator(feature, 32.0, 1.0, [0.1, 0.2, 0.3, 0.4], (8, 8), 0.25, "anchors")


def _features(fluid, count):
    return [_data(fluid, "f%d" % i, [-1, 4, 8 - i, 8 - i]) for i in range(count)]


def net_multi_box_head(fluid):
    image = _data(fluid, "image", [-1, 3, 64, 64])
    fluid.layers.multi_box_head(
        inputs=_features(fluid, 4),
        image=image,
        base_size=64,
        num_classes=5,
        aspect_ratios=[[2.0], [2.0, 3.0], 2.0, [2.0]],
        min_ratio=20,
        max_ratio=90,
        kernel_size=3,
        pad=1,
        offset=0.25,
        flip=False,
        clip=True,
        min_max_aspect_ratios_order=True,
    )


def net_multi_box_head_with_sizes(fluid):
    image = _data(fluid, "image", [-1, 3, 64, 64])
    sizes = {"min_sizes": [8.0, [16.0]], "max_sizes": [[], 32.0], "aspect_ratios": [[1.0], [2.0]]}
    sizes["max_sizes"] = [[16.0], 32.0]
    fluid.layers.multi_box_head(_features(fluid, 2), image, 64, 5, steps=[8.0, 16.0], **sizes)


def net_multi_box_head_of_one_map(fluid):
    image = _data(fluid, "image", [-1, 3, 64, 64])
    fluid.layers.multi_box_head(
        _features(fluid, 1), image, 64, 5, [[2.0]], min_sizes=[8.0], max_sizes=[16.0], step_w=[8.0], step_h=[4.0]
    )


def net_boxes(fluid):
    x, y = _data(fluid, "x", [-1, 4], lod_level=1), _data(fluid, "y", [20, 4])
    fluid.layers.iou_similarity(x, y)
    fluid.layers.iou_similarity(x, y, box_normalized=False, name="overlap")
    var = _data(fluid, "var", [20, 4])
    fluid.layers.box_coder(y, var, x)
    fluid.layers.box_coder(y, [0.1, 0.2, 0.1, 0.2], x, box_normalized=False, name="coder")
    target = _data(fluid, "target", [-1, 20, 4])
    fluid.layers.box_coder(y, var, target, code_type="decode_center_size")
    fluid.layers.box_coder(y, var, _data(fluid, "t2", [20, 7, 4]), code_type="decode_center_size", axis=1)
    fluid.layers.box_clip(x, _data(fluid, "info", [-1, 3]))
    deltas, scores = _data(fluid, "deltas", [20, 324]), _data(fluid, "scores", [20, 81])
    fluid.layers.box_decoder_and_assign(y, _data(fluid, "v4", [4]), deltas, scores, 4.135)
    fluid.layers.polygon_box_transform(_data(fluid, "offsets", [-1, 8, 6, 5]))


def net_roi_perspective_transform(fluid):
    x, rois = _data(fluid, "x", [-1, 256, 28, 28]), _data(fluid, "rois", [-1, 8], lod_level=1)
    out, _, _ = fluid.layers.roi_perspective_transform(x, rois, 7, 7, 1.0)
    fluid.layers.roi_perspective_transform(x, rois, 4, 5, 0.5, name="quads")
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))


def net_matching(fluid):
    x, y = _data(fluid, "x", [-1, 4], lod_level=1), _data(fluid, "y", [20, 4])
    iou = fluid.layers.iou_similarity(x, y)
    indices, _ = fluid.layers.bipartite_match(iou)
    fluid.layers.bipartite_match(iou, match_type="per_prediction", dist_threshold=0.6, name="match")
    truth = _data(fluid, "truth", [-1, 20, 4], lod_level=1)
    fluid.layers.target_assign(truth, indices, mismatch_value=3)
    negative = _data(fluid, "negative", [-1, 1], dtype="int32", lod_level=1)
    fluid.layers.target_assign(truth, indices, negative_indices=negative, name="targets")


def _anchors(fluid):
    return {
        "bbox_pred": _data(fluid, "bbox_pred", [-1, 100, 4]),
        "anchor_box": _data(fluid, "anchor_box", [100, 4]),
        "anchor_var": _data(fluid, "anchor_var", [100, 4]),
        "gt_boxes": _data(fluid, "gt_boxes", [-1, 4], lod_level=1),
        "is_crowd": _data(fluid, "is_crowd", [-1], dtype="int32", lod_level=1),
        "im_info": _data(fluid, "im_info", [-1, 3]),
    }


def net_rpn_target_assign(fluid):
    logits = _data(fluid, "cls_logits", [-1, 100, 1])
    out = fluid.layers.rpn_target_assign(cls_logits=logits, **_anchors(fluid))
    fluid.layers.rpn_target_assign(
        cls_logits=logits,
        rpn_batch_size_per_im=64,
        rpn_straddle_thresh=0.1,
        rpn_fg_fraction=0.25,
        rpn_positive_overlap=0.6,
        rpn_negative_overlap=0.2,
        use_random=False,
        **_anchors(fluid),
    )
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out[0]))


def net_retinanet_target_assign(fluid):
    logits = _data(fluid, "cls_logits", [-1, 100, 10])
    labels = _data(fluid, "gt_labels", [-1, 1], dtype="int32", lod_level=1)
    out = fluid.layers.retinanet_target_assign(
        cls_logits=logits, gt_labels=labels, num_classes=10, positive_overlap=0.6, **_anchors(fluid)
    )
    foreground = fluid.layers.reduce_sum(out[5])
    loss = fluid.layers.sigmoid_focal_loss(out[0], out[2], foreground, gamma=1.5, alpha=0.5)
    fluid.layers.sigmoid_focal_loss(out[0], out[2], foreground)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(loss))


def _ssd(fluid, **kwargs):
    arguments = {
        "location": _data(fluid, "location", [-1, 10, 4]),
        "confidence": _data(fluid, "confidence", [-1, 10, 21]),
        "gt_box": _data(fluid, "gt_box", [-1, 4], lod_level=1),
        "gt_label": _data(fluid, "gt_label", [-1, 1], dtype="int32", lod_level=1),
        "prior_box": _data(fluid, "prior_box", [10, 4]),
        "prior_box_var": _data(fluid, "prior_box_var", [10, 4]),
    }
    arguments.update(kwargs)
    return fluid.layers.ssd_loss(**arguments)


def net_ssd_loss(fluid):
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(_ssd(fluid)))


def net_ssd_loss_with_everything(fluid):
    _ssd(
        fluid,
        prior_box_var=[0.1, 0.1, 0.2, 0.2],
        background_label=3,
        overlap_threshold=0.6,
        neg_pos_ratio=2.0,
        neg_overlap=0.4,
        loc_loss_weight=0.5,
        conf_loss_weight=2.0,
        match_type="bipartite",
        normalize=False,
        sample_size=16,
    )


def net_proposals(fluid):
    scores, deltas = _data(fluid, "scores", [-1, 4, 5, 5]), _data(fluid, "deltas", [-1, 16, 5, 5])
    info = _data(fluid, "info", [-1, 3])
    anchors, variances = _data(fluid, "anchors", [5, 5, 4, 4]), _data(fluid, "variances", [5, 5, 4, 4])
    fluid.layers.generate_proposals(scores, deltas, info, anchors, variances)
    fluid.layers.generate_proposals(
        scores, deltas, info, anchors, variances, 100, 50, 0.7, 0.5, 0.9, "proposals", return_rois_num=True
    )


def net_proposal_labels(fluid):
    rois = _data(fluid, "rois", [-1, 4], lod_level=1)
    classes = _data(fluid, "classes", [-1, 1], dtype="int32", lod_level=1)
    crowd = _data(fluid, "crowd", [-1, 1], dtype="int32", lod_level=1)
    boxes, info = _data(fluid, "boxes", [-1, 4], lod_level=1), _data(fluid, "info", [-1, 3])
    out = fluid.layers.generate_proposal_labels(rois, classes, crowd, boxes, info, class_nums=10)
    fluid.layers.generate_proposal_labels(
        rois,
        classes,
        crowd,
        boxes,
        info,
        batch_size_per_im=64,
        fg_fraction=0.5,
        fg_thresh=0.5,
        bg_thresh_hi=0.4,
        bg_thresh_lo=0.1,
        bbox_reg_weights=[0.2, 0.2, 0.1, 0.1],
        class_nums=5,
        use_random=False,
        is_cls_agnostic=True,
        is_cascade_rcnn=True,
    )
    segments = _data(fluid, "segments", [-1, 2], lod_level=3)
    fluid.layers.generate_mask_labels(info, classes, crowd, segments, out[0], out[1], num_classes=10, resolution=14)


def net_pyramid(fluid):
    rois = _data(fluid, "rois", [-1, 4], lod_level=1)
    levels, _ = fluid.layers.distribute_fpn_proposals(rois, 2, 5, 4, 224)
    scores = [_data(fluid, "s%d" % i, [-1, 1], lod_level=1) for i in range(4)]
    fluid.layers.collect_fpn_proposals(levels, scores, 2, 5, 2000)
    fluid.layers.collect_fpn_proposals(levels, scores, 2, 3, 100, name="two")


def net_suppression(fluid):
    boxes, scores = _data(fluid, "boxes", [-1, 81, 4]), _data(fluid, "scores", [-1, 21, 81])
    fluid.layers.multiclass_nms(boxes, scores, 0.5, 400, 200)
    fluid.layers.multiclass_nms(boxes, scores, 0.5, 400, 200, 0.7, False, 0.9, 3, "nms")
    one = _data(fluid, "one", [-1, 1, 81])
    fluid.layers.locality_aware_nms(boxes, one, 0.5, 400, 200)
    fluid.layers.locality_aware_nms(boxes, one, 0.5, 400, 200, 0.7, False, 0.9, 0, "aware")


def net_matrix_suppression(fluid):
    boxes, scores = _data(fluid, "boxes", [-1, 81, 4]), _data(fluid, "scores", [-1, 21, 81])
    fluid.layers.matrix_nms(boxes, scores, 0.5, 0.1, 400, 200)
    fluid.layers.matrix_nms(boxes, scores, 0.5, 0.1, 400, 200, True, 1.5, 3, False, True, "matrix")


def net_detection_output(fluid):
    loc, scores = _data(fluid, "loc", [-1, 21, 4]), _data(fluid, "scores", [-1, 21, 10])
    prior, var = _data(fluid, "prior", [21, 4]), _data(fluid, "var", [21, 4])
    fluid.layers.detection_output(loc, scores, prior, var)
    fluid.layers.detection_output(loc, scores, prior, [0.1, 0.1, 0.2, 0.2], 3, 0.5, 100, 50, 0.1, 0.9, True)


def net_retinanet_detection_output(fluid):
    boxes = [_data(fluid, "b%d" % i, [-1, n, 4]) for i, n in enumerate((21, 12))]
    scores = [_data(fluid, "s%d" % i, [-1, n, 10]) for i, n in enumerate((21, 12))]
    anchors = [_data(fluid, "a%d" % i, [n, 4]) for i, n in enumerate((21, 12))]
    info = _data(fluid, "info", [-1, 3])
    fluid.layers.retinanet_detection_output(boxes, scores, anchors, info)
    fluid.layers.retinanet_detection_output(boxes, scores, anchors, info, 0.1, 500, 50, 0.5, 0.9)


def net_yolo(fluid):
    x = _data(fluid, "x", [-1, 255, 13, 13])
    box = _data(fluid, "box", [-1, 6, 4])
    label, score = _data(fluid, "label", [-1, 6], dtype="int32"), _data(fluid, "score", [-1, 6])
    anchors = [10, 13, 16, 30, 33, 23]
    loss = fluid.layers.yolov3_loss(x, box, label, anchors, [0, 1, 2], 80, 0.7, 32)
    fluid.layers.yolov3_loss(x, box, label, anchors, (0, 1, 2), 80, 0.7, 32, score, False, "yolo", 1.2)
    size = _data(fluid, "size", [-1, 2], dtype="int32")
    fluid.layers.yolo_box(x, size, anchors, 80, 0.01, 32)
    fluid.layers.yolo_box(x, size, tuple(anchors), 80, 0.01, 32, False, "boxes", 1.1)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(loss))


def net_detection_map(fluid):
    from importlib import import_module

    found, label = _data(fluid, "found", [-1, 6], lod_level=1), _data(fluid, "label", [-1, 6], lod_level=1)
    detection = import_module(fluid.layers.__name__ + ".detection")
    detection.detection_map(found, label, 21, 0, overlap_threshold=0.5, evaluate_difficult=False, ap_version="11point")
    state = fluid.layers.create_global_var([1], 0, "int32", persistable=True)
    states = [
        fluid.default_main_program().global_block().create_var(name=name, dtype=dtype, persistable=True)
        for name, dtype in (("count", "int32"), ("right", "float32"), ("wrong", "float32"))
    ]
    detection.detection_map(found, label, 21, has_state=state, input_states=states, out_states=states)
