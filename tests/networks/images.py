"""Networks of convolutions, poolings, normalizations, resizing and regions."""


def image(fluid, name="image", channels=4, size=8):
    return fluid.layers.data(name, [channels, size, size])


def net_convolutions(fluid):
    L = fluid.layers
    x = image(fluid)
    L.conv2d(x, 6, 3, act="relu")
    L.conv2d(x, 6, [3, 5], stride=2, padding=[1, 2], bias_attr=False)
    L.conv2d(x, 6, 3, padding=[1, 2, 3, 4], dilation=2, groups=2)
    L.conv2d(x, 6, 3, padding=[[0, 0], [0, 0], [1, 1], [2, 2]])
    L.conv2d(x, 6, 3, padding="SAME")
    L.conv2d(x, 6, 3, padding="VALID", param_attr=fluid.ParamAttr(name="shared"), use_cudnn=False)
    L.conv2d(x, 8, 3, groups=4, use_cudnn=False)
    nhwc = L.transpose(x, [0, 2, 3, 1])
    L.conv2d(nhwc, 6, 3, data_format="NHWC")


def net_volumes(fluid):
    L = fluid.layers
    x = L.data("volume", [2, 6, 6, 6])
    L.conv3d(x, 4, 3, padding=1, act="tanh")
    L.conv3d(x, 4, 3, padding=[1, 2, 3, 4, 5, 6])
    L.pool3d(x, 2, "max", 2)
    L.pool3d(x, 2, "avg", 2, exclusive=False)
    L.adaptive_pool3d(x, 3, "avg")
    L.conv3d_transpose(x, 3, filter_size=3, stride=2)
    L.resize_trilinear(x, [4, 4, 4])


def net_transposed_convolutions(fluid):
    L = fluid.layers
    x = image(fluid)
    L.conv2d_transpose(x, 6, filter_size=3, stride=2, padding=1, act="relu")
    L.conv2d_transpose(x, 6, output_size=[17, 17], stride=2)
    L.conv2d_transpose(x, 6, output_size=16, filter_size=4, stride=2, padding=1)
    L.conv2d_transpose(x, 4, filter_size=3, groups=4, use_cudnn=False)
    L.conv2d_transpose(x, 6, filter_size=3, padding="SAME", bias_attr=False)


def net_poolings(fluid):
    L = fluid.layers
    x = image(fluid)
    L.pool2d(x, 2, "max", 2)
    L.pool2d(x, [3, 2], "avg", [2, 1], [1, 0], ceil_mode=True, exclusive=False)
    L.pool2d(x, pool_type="avg", global_pooling=True)
    L.pool2d(x, 3, pool_padding="SAME")
    L.pool2d(x, 3, pool_padding=[1, 0, 0, 1])
    L.adaptive_pool2d(x, 3, "avg")


def net_poolings_with_places(fluid):
    x = image(fluid)
    fluid.layers.adaptive_pool2d(x, 3)
    fluid.layers.adaptive_pool2d(x, [2, 3], "max", require_index=True)


def net_normalizations(fluid):
    L = fluid.layers
    x = image(fluid)
    L.batch_norm(x, act="relu")
    L.batch_norm(x, is_test=True, momentum=0.8, epsilon=1e-3, moving_mean_name="mean", moving_variance_name="variance")
    L.batch_norm(x, use_global_stats=True, in_place=True)
    L.instance_norm(x)
    L.layer_norm(x, begin_norm_axis=2)
    L.layer_norm(x, scale=False, shift=False, act="tanh")
    L.group_norm(x, 2)
    L.group_norm(x, 2, param_attr=True, bias_attr=True, act="relu")
    L.lrn(x)
    L.l2_normalize(x, axis=1)
    L.dropout(x, 0.5)
    L.dropout(x, 0.3, is_test=True, seed=9, dropout_implementation="upscale_in_train")
    L.affine_channel(x, L.create_parameter([4], "float32"), L.create_parameter([4], "float32"))


def net_other_normalizations(fluid):
    L = fluid.layers
    x = L.data("x", [6])
    L.data_norm(x)
    L.data_norm(x, name="mine", param_attr={"batch_size": 10.0}, enable_scale_and_shift=True, act="relu")
    weight = L.create_parameter([4, 3, 2], "float32")
    L.spectral_norm(weight, dim=1, power_iters=2)
    L.inplace_abn(L.conv2d(image(fluid), 3, 3), act="leaky_relu", act_alpha=0.1)


def net_resizing(fluid):
    L = fluid.layers
    x = image(fluid)
    L.image_resize(x, [12, 10])
    L.resize_bilinear(x, scale=2.0, align_corners=False, align_mode=0)
    L.resize_nearest(x, [4, 4])
    L.interpolate(x, [4, 4], resample="BICUBIC")
    L.image_resize_short(x, 4)
    L.affine_grid(L.data("theta", [2, 3]), [2, 4, 8, 8])
    L.grid_sampler(x, L.data("grid", [8, 8, 2]))


def net_resizing_by_tensors(fluid):
    L = fluid.layers
    x = image(fluid)
    size = L.fill_constant([1], "int32", 12)
    L.image_resize(x, [size, 10])
    L.resize_nearest(x, L.fill_constant([2], "int32", 4))
    L.resize_bilinear(x, scale=L.fill_constant([1], "float32", 2.0))


def net_regions(fluid):
    L = fluid.layers
    x = image(fluid)
    rois = L.data("rois", [4], lod_level=1)
    L.roi_pool(x, rois, 2, 2, 0.5)
    L.roi_align(x, rois, 2, 2, 0.5, sampling_ratio=2)
    L.psroi_pool(image(fluid, "wide", 8), rois, 2, 0.5, 2, 2)
    L.prroi_pool(x, rois, 0.5, 2, 2)


def net_windows(fluid):
    L = fluid.layers
    x = image(fluid)
    L.unfold(x, 3, 2, 1)
    L.im2sequence(x, [2, 3], [1, 1], 1)
    offset = L.data("offset", [18, 6, 6])
    mask = L.data("mask", [9, 6, 6])
    L.deformable_conv(x, offset, mask, 4, 3, groups=1, deformable_groups=1, im2col_step=1)
    L.deformable_conv(x, offset, None, 4, 3, modulated=False, groups=1, deformable_groups=1, im2col_step=1)
    L.row_conv(L.data("steps", [5], lod_level=1), 2, act="relu")
