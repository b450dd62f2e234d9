"""These tests need the compiled library: `python -m fluidtool.runtime.engines.native.build` builds it in place."""

import pytest

from fluidtool.runtime.engines.native.library import Library, library


@pytest.fixture
def native() -> Library:
    found = library()
    if found is None:
        pytest.skip("the native engine is not built: python -m fluidtool.runtime.engines.native.build")
    return found
