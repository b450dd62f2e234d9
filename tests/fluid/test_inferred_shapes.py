"""What layers tell of shapes when some numbers are known only at run time: as Paddle 1.8.5 declares them."""

from __future__ import annotations

import fluidtool.fluid as fluid
from fluidtool.fluid import layers


def test_strided_slice_leaves_only_the_axes_of_variables_open() -> None:
    x = fluid.data("x", [3, 4, 5, 6], "float32")
    start = layers.fill_constant([1], "int32", -3)
    out = layers.strided_slice(x, axes=[0, 1, 2], starts=[start, 0, 2], ends=[3, 2, 4], strides=[1, 1, 2])
    assert out.shape == (-1, 2, 1, 6)


def test_a_shape_in_a_matrix_has_as_many_sizes_as_numbers() -> None:
    shape = layers.fill_constant([1, 2], "int32", 2)
    assert layers.fill_constant(shape, "bool", True).shape == (-1, -1)
