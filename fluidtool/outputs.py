"""The outputs of a run: values by name, by position, as arrays, and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fluidtool.errors import ArgumentTypeError
from fluidtool.html_table import html_table
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows

PREVIEW = 6  # elements that are shown of each output


class Outputs(dict[str, Any]):
    """The values of a run by name, in the order of the outputs; `outputs[0]` is the first.

    If there is one output, `numpy.asarray(outputs)` and `numpy.from_dlpack(outputs)` take its array.
    """

    if TYPE_CHECKING:  # at run time a name is looked up by dict itself

        def __getitem__(self, key: str | int, /) -> Any: ...

    def __missing__(self, key: object) -> Any:
        if isinstance(key, int) and not isinstance(key, bool):
            try:
                return list(self.values())[key]
            except IndexError:
                raise IndexError(f"there is no output {key!r}; the outputs are {', '.join(self)}") from None
        raise KeyError(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._only().__array__(dtype, copy)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._only().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._only().__dlpack_device__()

    def _only(self) -> LoDTensor:
        """The one output; raises ArgumentTypeError if there are several, or if it is not a tensor."""
        if len(self) != 1:
            hint = "choose one, as in outputs[0]"
            raise ArgumentTypeError(f"there are {len(self)} outputs ({', '.join(self)}), not one array", hint=hint)
        (value,) = self.values()
        if not isinstance(value, LoDTensor):
            raise ArgumentTypeError(f"the output {next(iter(self))} is a {type(value).__name__}, not one array")
        return value

    def __repr__(self) -> str:
        return "\n".join(["Outputs", *(f"  {'  '.join(filter(None, row))}" for row in self._rows())])

    def _repr_html_(self) -> str:
        return html_table("Outputs", ("name", "type", "shape", "values"), self._rows())

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [(name, *_described(value)) for name, value in self.items()]


def _described(value: Any) -> tuple[str, str, str]:
    """Data type, shape and first elements of a value."""
    if isinstance(value, LoDTensorArray):
        return "LoDTensorArray", f"of {len(value)}", ""
    if isinstance(value, SelectedRows):
        return "SelectedRows", f"{len(value.row_ids)} of {value.height()} rows", ""
    array = value.array if isinstance(value, LoDTensor) else value
    if array is None or not hasattr(array, "dtype"):
        return type(value).__name__, "", "" if isinstance(value, LoDTensor) else str(value)
    first = value.numpy().reshape(-1)[:PREVIEW] if isinstance(value, LoDTensor) else array.reshape(-1)[:PREVIEW]
    more = " …" if array.size > PREVIEW else ""
    texts = (f"{item:.4g}" if isinstance(item, float) else str(item) for item in first.tolist())
    return str(array.dtype), shape_text(array.shape), " ".join(texts) + more
