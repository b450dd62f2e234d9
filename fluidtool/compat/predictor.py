"""`fluid.core.create_paddle_predictor` and related classes: a saved model, run as `fluidtool.load` returns it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, FeedError, NotOfferedError, UsageError
from fluidtool.fluid.fetched import fetched_array
from fluidtool.model import Model, load
from fluidtool.shapes import shape_text
from fluidtool.tensor import CPUPlace, CUDAPlace, LoDTensor, Place

__all__ = [
    "AnalysisConfig",
    "AnalysisPredictor",
    "NativeConfig",
    "PaddleBuf",
    "PaddleDType",
    "PaddleTensor",
    "ZeroCopyTensor",
    "create_paddle_predictor",
]

Array = np.ndarray[Any, Any]


class PaddleDType(IntEnum):
    """The data types of inputs and outputs."""

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2


_TYPES = {PaddleDType.FLOAT32: "float32", PaddleDType.INT64: "int64", PaddleDType.INT32: "int32"}
_OF_NUMPY = {np.dtype(name): kind for kind, name in _TYPES.items()}


def _dtype_of(array: Array) -> PaddleDType:
    if array.dtype not in _OF_NUMPY:
        raise ArgumentTypeError(
            f"a PaddleTensor holds float32, int64 or int32, found {array.dtype}; convert it with astype"
        )
    return _OF_NUMPY[array.dtype]


class PaddleBuf:
    """The elements of a tensor, flattened."""

    def __init__(self, data: Any = 0) -> None:
        self._array: Array = np.zeros(0, "float32")
        if isinstance(data, int):
            self.resize(data)
        else:
            self.reset(data)

    def reset(self, data: Any) -> None:
        """Replace the elements; those of a list are float32."""
        array = np.asarray(data, "float32") if isinstance(data, (list, tuple)) else np.asarray(data)
        _dtype_of(array)
        self._array = array.ravel()

    def resize(self, length: int) -> None:
        """Zeros of this many bytes, as float32."""
        self._array = np.zeros(length // 4, "float32")

    def empty(self) -> bool:
        """Whether it has no elements."""
        return not self._array.size

    def length(self) -> int:
        """The number of bytes."""
        return self._array.nbytes

    def tolist(self, dtype: str = "float32") -> list[Any]:
        """The bytes as elements of a type."""
        values: list[Any] = self._array.view(dtype).tolist()
        return values

    def float_data(self) -> list[float]:
        """The bytes as float32."""
        return self.tolist("float32")

    def int32_data(self) -> list[int]:
        """The bytes as int32."""
        return self.tolist("int32")

    def int64_data(self) -> list[int]:
        """The bytes as int64."""
        return self.tolist("int64")

    def array(self, dtype: PaddleDType, shape: Sequence[int]) -> Array:
        """The elements in a shape; raises UsageError if their number differs."""
        values = self._array.view(_TYPES[dtype])
        if values.size != np.prod(shape, dtype=int):
            raise UsageError(
                f"a PaddleTensor of the shape {shape_text(shape)} has {values.size} numbers of {dtype.name}"
            )
        return values.reshape(tuple(shape))


class PaddleTensor:
    """An input or an output: name, shape, lod (offsets), dtype, data."""

    def __init__(self, data: Any = None, name: str = "", lod: Sequence[Sequence[int]] = (), copy: bool = True) -> None:
        self.name, self.lod = name, [list(level) for level in lod]
        self.shape: list[int] = []
        self.dtype, self.data = PaddleDType.FLOAT32, PaddleBuf()
        if data is not None:
            array = np.array(data, order="C") if copy else np.asarray(data)
            self.dtype, self.shape, self.data = _dtype_of(array), list(array.shape), PaddleBuf(array)

    def as_ndarray(self) -> Array:
        """The elements as an array."""
        return fetched_array(self.data.array(self.dtype, self.shape))


class ZeroCopyTensor:
    """An input or an output of a predictor, by name."""

    def __init__(self) -> None:
        self._tensor = LoDTensor()

    def copy_from_cpu(self, data: Array) -> None:
        """Set the value from an array."""
        lod = self._tensor.lod()
        self._tensor = LoDTensor(np.array(data, order="C"), lod)

    def copy_to_cpu(self) -> Array:
        """The value as an array; raises UninitializedError if there is none."""
        return fetched_array(np.array(self._tensor.numpy()))

    def reshape(self, shape: Sequence[int]) -> None:
        """Accepted and ignored: the copied array has its own shape."""

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set the LoD, as offsets."""
        self._tensor.offsets = [list(level) for level in lod]

    def lod(self) -> list[list[int]]:
        """The LoD, as offsets."""
        return self._tensor.lod()

    def shape(self) -> list[int]:
        """The shape."""
        return self._tensor.shape()

    def type(self) -> PaddleDType:
        """The data type."""
        return _dtype_of(self._tensor.numpy())

    def hold(self, tensor: LoDTensor) -> None:
        """Replace the value."""
        self._tensor = tensor

    @property
    def tensor(self) -> LoDTensor:
        """The value."""
        return self._tensor


SETTINGS = (
    "enable_memory_optim",
    "enable_profile",
    "set_mkldnn_cache_capacity",
    "set_mkldnn_op",
    "set_optim_cache_dir",
    "switch_ir_debug",
    "delete_pass",
)
# what sets it: what tells it, its value before, its value when set without one
TOLD = {
    "switch_ir_optim": ("ir_optim", True, True),
    "switch_use_feed_fetch_ops": ("use_feed_fetch_ops_enabled", True, True),
    "switch_specify_input_names": ("specify_input_name", False, True),
    "set_cpu_math_library_num_threads": ("cpu_math_library_num_threads", 1, 1),
    "enable_mkldnn": ("mkldnn_enabled", False, True),
    "disable_glog_info": ("glog_info_disabled", False, True),
}
NEVER = ("tensorrt_engine_enabled", "lite_engine_enabled")
INSTEAD = {
    "enable_tensorrt_engine": "TensorRT is not supported; --engine onnxruntime and openvino are delegates",
    "enable_lite_engine": "Paddle-Lite is not supported",
    "enable_quantizer": "quantized models run without it",
    "pass_builder": "'fluidtool transpile --all-inference' makes the program faster beforehand",
}


class AnalysisConfig:
    """The files of a model, and where it runs; settings that do not affect results have no effect."""

    class Precision(IntEnum):
        """Precisions of TensorRT, which is not supported."""

        Float32 = 0
        Int8 = 1
        Half = 2

    def __init__(self, model: str = "", params_file: str = "") -> None:
        self._place: Place = CPUPlace()
        self._memory_pool = 100  # megabytes
        self._buffers: tuple[bytes, bytes] | None = None
        self._model_dir = self._prog_file = self._params_file = ""
        self._told = {getter: before for getter, before, _ in TOLD.values()} | dict.fromkeys(NEVER, False)
        self.set_model(model, params_file)

    def set_model(self, model: str, params_file: str = "") -> None:
        """Set a folder, or the program file and the parameter file."""
        if params_file:
            self._prog_file, self._params_file = model, params_file
        else:
            self._model_dir = model

    def set_prog_file(self, x: str) -> None:
        """Set the program file, beside a parameter file."""
        self._prog_file = x

    def set_params_file(self, x: str) -> None:
        """Set the parameter file, beside a program file."""
        self._params_file = x

    def set_model_buffer(
        self, prog_buffer: bytes, prog_buffer_size: int, params_buffer: bytes, params_buffer_size: int
    ) -> None:
        """Set the contents of the program file and of the parameter file."""
        self._buffers = prog_buffer[:prog_buffer_size], params_buffer[:params_buffer_size]

    def model_from_memory(self) -> bool:
        """Whether contents were given."""
        return self._buffers is not None

    def model_dir(self) -> str:
        """The folder; '' if files were given."""
        return self._model_dir

    def prog_file(self) -> str:
        """The program file; '' if a folder was given."""
        return self._prog_file

    def params_file(self) -> str:
        """The parameter file; '' if a folder was given."""
        return self._params_file

    def enable_use_gpu(self, memory_pool_init_size_mb: int = 0, device_id: int = 0) -> None:
        """Run on a GPU."""
        self._place, self._memory_pool = CUDAPlace(device_id), memory_pool_init_size_mb

    def disable_gpu(self) -> None:
        """Run on the CPU."""
        self._place = CPUPlace()

    def use_gpu(self) -> bool:
        """Whether it runs on a GPU."""
        return isinstance(self._place, CUDAPlace)

    def gpu_device_id(self) -> int:
        """The number of the GPU; 0 on the CPU."""
        return self._place.device_id if isinstance(self._place, CUDAPlace) else 0

    def memory_pool_init_size_mb(self) -> int:
        """What `enable_use_gpu` was given; 100 before."""
        return self._memory_pool

    def fraction_of_gpu_memory_for_pool(self) -> float:
        """0: no memory is kept for a pool."""
        return 0.0

    def to_native_config(self) -> NativeConfig:
        """The files and the device as NativeConfig."""
        files = self._model_dir, self._prog_file, self._params_file
        return NativeConfig(*files, use_gpu=self.use_gpu(), device=self.gpu_device_id())

    def load(self, place: Place) -> Model:
        """The model at a place; raises what `fluidtool.load` raises."""
        if self._buffers is not None:
            return _load_contents(*self._buffers, place)
        if self._prog_file and self._params_file:
            return load(self._prog_file, params=self._params_file, place=place)
        return load(self._model_dir, place=place)

    def place(self) -> Place:
        """Where it runs."""
        return self._place

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in SETTINGS:
            return lambda *values, **named: None
        if name in TOLD:
            getter, _, without = TOLD[name]
            return lambda x=without: self._told.update({getter: type(without)(x)})
        if not name.startswith("_") and name in self._told:
            return lambda: self._told[name]
        if name in INSTEAD:
            raise NotOfferedError(f"AnalysisConfig.{name} is not offered: {INSTEAD[name]}")
        raise AttributeError(f"'AnalysisConfig' object has no attribute {name!r}")


@dataclass
class NativeConfig:
    """The files of a model, and where it runs."""

    model_dir: str = ""
    prog_file: str = ""
    param_file: str = ""
    use_gpu: bool = False
    device: int = 0
    fraction_of_gpu_memory: float = 0.0
    specify_input_name: bool = False

    def config(self) -> AnalysisConfig:
        """The same as AnalysisConfig."""
        config = AnalysisConfig(self.prog_file or self.model_dir, self.param_file)
        if self.use_gpu:
            config.enable_use_gpu(0, self.device)
        return config


@dataclass
class AnalysisPredictor:
    """Runs a model."""

    _model: Model
    _inputs: dict[str, ZeroCopyTensor] = field(default_factory=dict)
    _outputs: dict[str, ZeroCopyTensor] = field(default_factory=dict)

    def get_input_names(self) -> list[str]:
        """The inputs."""
        return self._model.feeds

    def get_output_names(self) -> list[str]:
        """The outputs."""
        return self._model.fetches

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """The declared shapes of the inputs; -1 for any size."""
        block = self._model.program.global_block()
        return {name: list(block.var(name).shape) for name in self.get_input_names()}

    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """The outputs, for inputs by name, or in order if they have none; raises FeedError."""
        names = self.get_input_names()
        if len(inputs) != len(names):
            raise FeedError(f"the model takes {len(names)} inputs ({', '.join(names)}), found {len(inputs)}")
        given = [tensor.name if tensor.name in names else name for tensor, name in zip(inputs, names, strict=True)]
        feed = {name: LoDTensor(each.as_ndarray(), each.lod) for name, each in zip(given, inputs, strict=True)}
        return [PaddleTensor(each.numpy(), name, each.lod()) for name, each in self._values(feed).items()]

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """An input, to copy into; raises UsageError for an unknown name."""
        return _one_of(self._inputs, self.get_input_names(), name)

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """An output, to copy from; raises UsageError for an unknown name."""
        return _one_of(self._outputs, self.get_output_names(), name)

    def zero_copy_run(self) -> bool:
        """Run on the copied inputs."""
        for name, value in self._values({name: each.tensor for name, each in self._inputs.items()}).items():
            self.get_output_tensor(name).hold(value)
        return True

    def _values(self, feed: Mapping[str, LoDTensor]) -> dict[str, LoDTensor]:
        return self._model.run(feed)


def _one_of(tensors: dict[str, ZeroCopyTensor], names: Sequence[str], name: str) -> ZeroCopyTensor:
    if name not in names:
        raise UsageError(f"there is no {name!r}; expected one of {', '.join(names)}")
    return tensors.setdefault(name, ZeroCopyTensor())


def create_paddle_predictor(config: AnalysisConfig | NativeConfig, place: Place | None = None) -> AnalysisPredictor:
    """A predictor; place: where it runs, whatever the config says."""
    if isinstance(config, NativeConfig):
        config = config.config()
    return AnalysisPredictor(config.load(config.place() if place is None else place))


def _load_contents(program: bytes, parameters: bytes, place: Place) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "__model__"), Path(folder, "params")
        for file, content in zip(files, (program, parameters), strict=True):
            file.write_bytes(content)
        return load(files[0], params=files[1], place=place)
