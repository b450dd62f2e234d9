"""Networks of fluid.nets, fluid.metrics and fluid.evaluator."""


def _image(fluid):
    return fluid.layers.data("image", [3, 16, 16])


def net_simple_img_conv_pool(fluid):
    fluid.nets.simple_img_conv_pool(_image(fluid), 8, 5, 2, 2, act="relu")


def net_simple_img_conv_pool_with_everything(fluid):
    fluid.nets.simple_img_conv_pool(
        _image(fluid), 6, 3, 3, 2, 1, "avg", True, 2, 1, 2, 3, fluid.ParamAttr(name="w"), False, "tanh", False
    )


def net_img_conv_group(fluid):
    fluid.nets.img_conv_group(_image(fluid), [4, 6], 2, conv_act="relu", pool_stride=2)


def net_img_conv_group_normalised(fluid):
    fluid.nets.img_conv_group(
        _image(fluid),
        (4, 6),
        2,
        conv_padding=[1, 2],
        conv_filter_size=[3, 5],
        conv_act="relu",
        conv_with_batchnorm=[True, False],
        conv_batchnorm_drop_rate=[0.3, 0.0],
        pool_type="avg",
    )


def net_sequence_conv_pool(fluid):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    fluid.nets.sequence_conv_pool(fluid.layers.embedding(words, [10, 4]), 5, 3, act="tanh", pool_type="sqrt")


def net_glu(fluid):
    fluid.nets.glu(fluid.layers.data("x", [6, 4]), dim=1)


def net_attention(fluid):
    queries, keys = fluid.layers.data("queries", [5, 8]), fluid.layers.data("keys", [6, 8])
    fluid.nets.scaled_dot_product_attention(queries, keys, fluid.layers.data("values", [6, 10]))


def net_attention_of_two_heads(fluid):
    queries = fluid.layers.data("queries", [2, 5, 8], append_batch_size=False)
    keys = fluid.layers.data("keys", [2, 6, 8], append_batch_size=False)
    out = fluid.nets.scaled_dot_product_attention(queries, keys, keys, num_heads=2, dropout_rate=0.1)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))


def _boxes(fluid):
    found = fluid.layers.data("found", [6], lod_level=1)
    label = fluid.layers.data("label", [1], lod_level=1, dtype="int32")
    box = fluid.layers.data("box", [4], lod_level=1)
    return found, label, box, fluid.layers.data("difficult", [1], lod_level=1, dtype="int32")


def net_metrics_detection_map(fluid):
    found, label, box, _ = _boxes(fluid)
    fluid.metrics.DetectionMAP(found, label, box, class_num=5)


def net_metrics_detection_map_with_difficult_boxes(fluid):
    found, label, box, difficult = _boxes(fluid)
    fluid.metrics.DetectionMAP(
        found, label, box, difficult, 5, overlap_threshold=0.3, evaluate_difficult=False, ap_version="11point"
    )


def net_evaluator_detection_map(fluid):
    found, label, box, difficult = _boxes(fluid)
    fluid.evaluator.DetectionMAP(found, label, box, difficult, class_num=5)


def net_evaluator_chunks(fluid):
    tags, wanted = (fluid.layers.data(name, [1], dtype="int64", lod_level=1) for name in ("tags", "wanted"))
    fluid.evaluator.ChunkEvaluator(tags, wanted, "IOB", 3, [0])


def net_evaluator_edit_distance(fluid):
    tags, wanted = (fluid.layers.data(name, [1], dtype="int64", lod_level=1) for name in ("tags", "wanted"))
    fluid.evaluator.EditDistance(tags, wanted, [0])
