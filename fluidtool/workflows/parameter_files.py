"""The parameters of a model alone, by name: a pickled state, an .npz file, a safetensors file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fluidtool.errors import Hint, NotConvertibleError
from fluidtool.io import pickles
from fluidtool.io.arrays import LOD, archive_bytes
from fluidtool.io.atomic import write_file
from fluidtool.io.parameters import Value
from fluidtool.io.safetensors import METADATA, NAMES, safetensors_parts
from fluidtool.onnx_export.exporter import Blocker
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.data_types import var_type_of
from fluidtool.workflows.conversion import ConvertRequest, ConvertResult, given
from fluidtool.workflows.layouts import parameters

Tensors = Mapping[str, LoDTensor]


@dataclass(frozen=True, slots=True)
class ParameterFormat:
    """A file with parameters by name. parts: its bytes. fault: why it cannot hold a tensor of this name, or ''."""

    parts: Callable[[Tensors], Iterable[Any]]
    fault: Callable[[str, LoDTensor], str]


def write_pdparams(request: ConvertRequest) -> ConvertResult:
    """A pickled dict of arrays, which `fluid.load`, `load_program_state` and `paddle.load` read."""
    return _write(request, "pdparams")


def write_npz(request: ConvertRequest) -> ConvertResult:
    """An archive of arrays, as `numpy.savez`; a LoD is NAME.lod."""
    return _write(request, "npz")


def write_safetensors(request: ConvertRequest) -> ConvertResult:
    """A safetensors file."""
    return _write(request, "safetensors")


def _write(request: ConvertRequest, to: str) -> ConvertResult:
    values = parameters(request)
    parts = file_parts(to, values)
    with request.watcher.progress("writing"):
        write_file(request.output, parts, overwrite=request.overwrite)
    return ConvertResult(to, (request.output,), given(request.model), 0, len(values), notes=notes_of(to, values))


def file_parts(to: str, values: Mapping[str, Value]) -> Iterable[Any]:
    """The bytes of a file of one of FORMATS; raises NotConvertibleError with every parameter that it cannot hold."""
    form = FORMATS[to]
    faults = {name: reason for name, value in values.items() if (reason := _fault(form, name, value))}
    if faults:
        name, reason = next(iter(faults.items()))
        others = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
        raise NotConvertibleError(
            f"the parameter {name!r}{others} cannot be written as {to}: {reason}; nothing was written",
            tuple(Blocker(0, -1, "", name, reason) for name, reason in faults.items()),
            hint=Hint(
                "the layouts of Paddle (to='separate') keep everything",
                "the layouts of Paddle (--to separate) keep everything",
            ),
        )
    return form.parts({name: value for name, value in values.items() if isinstance(value, LoDTensor)})


def notes_of(to: str, values: Mapping[str, Value]) -> tuple[str, ...]:
    """What holds of the file beyond what its header says."""
    short = [name for name, value in values.items() if isinstance(value, LoDTensor) and _is_bfloat16(value.numpy())]
    if short and to != "safetensors":
        return (f"bfloat16 is written as its bits, uint16, as Paddle does ({', '.join(short[:5])})",)
    return ()


def _fault(form: ParameterFormat, name: str, value: Value) -> str:
    return "it is a SelectedRows" if isinstance(value, SelectedRows) else form.fault(name, value)


def _is_bfloat16(array: Any) -> bool:
    return bool(array.dtype.name == "bfloat16")


def _no_lod(name: str, value: LoDTensor) -> str:
    return "it has a LoD" if value.lod() else ""


def _pickle_fault(name: str, value: LoDTensor) -> str:
    if name in (pickles.STRUCTURED_NAMES, pickles.SLICED):
        return "this name has another meaning there"
    if value.numpy().nbytes >= pickles.LARGEST_ARRAY:
        return "it is larger than 2 GB; safetensors can hold it"
    return _no_lod(name, value)


def _safetensors_fault(name: str, value: LoDTensor) -> str:
    if name == METADATA:
        return "this name has another meaning there"
    if var_type_of(value.numpy().dtype) not in NAMES:
        return f"the format has no {value.numpy().dtype}"
    return _no_lod(name, value)


def _npz_fault(name: str, value: LoDTensor) -> str:
    return "names in archives end at a zero byte" if "\0" in name else ""


def _pickle_parts(tensors: Tensors) -> Iterable[Any]:
    return [pickles.dump_state({name: value.numpy() for name, value in tensors.items()})]


def _npz_parts(tensors: Tensors) -> Iterable[Any]:
    clash = [name for name, value in tensors.items() if value.lod() and name + LOD in tensors]
    if clash:
        raise NotConvertibleError(
            f"the LoD of {clash[0]!r} would have the name of the parameter {clash[0] + LOD!r}; nothing was written. Rename one"
        )
    return [archive_bytes({name: _bits(value) for name, value in tensors.items()})]


def _bits(value: LoDTensor) -> LoDTensor:
    array = value.numpy()
    return LoDTensor(array.view(np.uint16), value.lod()) if _is_bfloat16(array) else value


FORMATS: Mapping[str, ParameterFormat] = {
    "pdparams": ParameterFormat(_pickle_parts, _pickle_fault),
    "npz": ParameterFormat(_npz_parts, _npz_fault),
    "safetensors": ParameterFormat(safetensors_parts, _safetensors_fault),
}
