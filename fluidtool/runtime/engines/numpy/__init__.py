"""The numpy engine: every operator, everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.runtime.engines.numpy import special


class NumpyDevice:
    """numpy on the host."""

    name = "numpy"
    xp: Any = np

    def host(self, array: Any) -> Any:
        """The array itself."""
        return array

    def array(self, values: Any) -> Any:
        """An array of the values; an array comes back as it is."""
        return np.asarray(values)

    def special(self) -> Any:
        """The special functions of this engine."""
        return special


NUMPY = NumpyDevice()
