"""Programs are appended as they stand in files, whatever other tests of the same process have imported."""

from tests.cli.conftest import operators_as_given

__all__ = ["operators_as_given"]
