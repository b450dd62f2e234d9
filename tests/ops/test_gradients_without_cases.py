"""Gradients that no golden case reaches and no other test of this folder checks, against central differences."""

import numpy as np

from tests.support.operators import check_gradient

RNG = np.random.default_rng(5)
X = np.sign(RNG.standard_normal((3, 4))) * RNG.uniform(0.1, 0.9, (3, 4))


def test_trunc_is_flat_between_whole_numbers() -> None:
    check_gradient("trunc", {"X": X + np.sign(X)}, wrt=["X"])


def test_fused_addition_and_activation() -> None:
    attrs = {"functor_list": ["elementwise_add", "tanh"], "axis": -1, "save_intermediate_out": True}
    inputs = {"X": X, "Y": RNG.standard_normal((3, 4))}
    check_gradient("fused_elemwise_add_activation", inputs, wrt=["X", "Y"], attrs=attrs, loss=["Out"])
