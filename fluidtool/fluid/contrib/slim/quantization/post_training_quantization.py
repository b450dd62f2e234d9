"""Quantization of inference models without training: `PostTrainingQuantization` and `WeightQuantization` (Paddle 1.8.5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError
from fluidtool.fluid import io
from fluidtool.fluid.contrib.slim.quantization.divergence import threshold
from fluidtool.fluid.contrib.slim.quantization.freezing import QuantizationFreezePass
from fluidtool.fluid.contrib.slim.quantization.nodes import CONVOLUTIONS, KIND, SLOTS, Values
from fluidtool.fluid.contrib.slim.quantization.out_scales import OPERATORS
from fluidtool.fluid.contrib.slim.quantization.transform import AddQuantDequantPass, QuantizationTransformPass
from fluidtool.fluid.executor import Executor, global_scope
from fluidtool.fluid.ir_graph import Graph, IrGraph
from fluidtool.fluid.reader import DataLoader
from fluidtool.ir import Operator, Program
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace

__all__ = ["PostTrainingQuantization", "WeightQuantization"]

ALGORITHMS = ("KL", "abs_max", "min_max")
ACTIVATION_TYPES = ("range_abs_max", "moving_average_abs_max", "abs_max")
WEIGHT_TYPES = ("abs_max", "channel_wise_abs_max")
WITH_WEIGHTS = QuantizationTransformPass._supported_quantizable_op_type
WITHOUT_WEIGHTS = AddQuantDequantPass._supported_quantizable_op_type


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise AssertedError(message)


class PostTrainingQuantization:
    """Runs a saved model on samples, and quantizes it by the values that it computes.

    sample_generator yields samples, of which batch_size make a batch; batch_generator yields batches. batch_nums: how many
    are enough. algo: 'KL' (the scale that loses least), 'abs_max' or 'min_max' (extremes are attributes of the operators,
    which stay as they are). The types and bits are those of the passes. is_use_cache_file and cache_dir have no effect.
    """

    def __init__(
        self,
        executor: Executor | None = None,
        scope: Scope | None = None,
        model_dir: str | None = None,
        model_filename: str | None = None,
        params_filename: str | None = None,
        batch_generator: Callable[[], Iterable[Any]] | None = None,
        sample_generator: Callable[[], Iterable[Any]] | None = None,
        batch_size: int = 10,
        batch_nums: int | None = None,
        algo: str = "KL",
        quantizable_op_type: Sequence[str] = ("conv2d", "depthwise_conv2d", "mul"),
        is_full_quantize: bool = False,
        activation_bits: int = 8,
        weight_bits: int = 8,
        activation_quantize_type: str = "range_abs_max",
        weight_quantize_type: str = "channel_wise_abs_max",
        is_use_cache_file: bool = False,
        cache_dir: str = "./temp_post_training",
    ) -> None:
        _need(executor is not None, "The executor cannot be None.")
        _need(model_dir is not None, "The model_dir cannot be None.")
        _need(
            sample_generator is not None or batch_generator is not None,
            "The sample_generator and batch_generator cannot be None in the same time.",
        )
        _need(batch_size > 0, f"The batch_size should be greater than 0, found {batch_size}.")
        _need(algo in ALGORITHMS, f"The algo should be KL, abs_max or min_max, found {algo!r}.")
        for given, known in ((activation_quantize_type, ACTIVATION_TYPES), (weight_quantize_type, WEIGHT_TYPES)):
            _need(given in known, f"The quantize type ({given}) should be one of {', '.join(known)}.")
        supported = (*WITH_WEIGHTS, *WITHOUT_WEIGHTS)
        self._quantizable = supported if is_full_quantize else tuple(quantizable_op_type)
        for type_ in self._quantizable:
            _need(type_ in supported, f"{type_} is not supported for quantization.")
        assert executor is not None
        self._executor, self._place = executor, executor.place
        self._values = Values(global_scope() if scope is None else scope, executor.place)
        self._model: dict[str, Any] = {
            "dirname": model_dir,
            "model_filename": model_filename,
            "params_filename": params_filename,
        }
        self._sample_generator, self._batch_generator = sample_generator, batch_generator
        self._batch_size, self._batch_nums, self._algo = batch_size, batch_nums, algo
        self._bits: dict[str, Any] = {"weight_bits": weight_bits, "activation_bits": activation_bits}
        self._activation_type, self._weight_type = activation_quantize_type, weight_quantize_type

    def quantize(self) -> Program:
        """The quantized program; its weights are in the scope."""
        self._program: Program
        self._program, self._feeds, self._fetches = io.load_inference_model(executor=self._executor, **self._model)
        weights, activations = self._wanted()
        found = {name: self._of_weight(self._values.read(name)) for name in weights}
        found |= self._of_activations(activations)
        if self._algo == "min_max":
            self._write_extremes(found)
        else:
            self._program = self._rewritten(found)
        self._write_output_scales(found)
        return self._program

    def save_quantized_model(
        self, save_model_path: str, model_filename: str | None = None, params_filename: str | None = None
    ) -> None:
        """Save the quantized program and its weights, as `io.save_inference_model` does."""
        targets = [self._program.global_block().var(variable.name) for variable in self._fetches]
        io.save_inference_model(
            save_model_path, self._feeds, targets, self._executor, self._program, model_filename, params_filename
        )

    def _wanted(self) -> tuple[list[str], list[str]]:
        """The weights and the activations whose sizes are asked for."""
        names: dict[str, None] = {}
        for op in self._program.global_block().ops:
            if op.type in self._quantizable:
                names |= dict.fromkeys(_inputs_of(op))
            if op.type in (*self._quantizable, *OPERATORS):
                names |= dict.fromkeys(_outputs_of(op))
        persistable = {variable.name for variable in self._program.list_vars() if variable.persistable}
        return [name for name in names if name in persistable], [name for name in names if name not in persistable]

    def _of_weight(self, weight: Any) -> Any:
        """What is kept of a weight: numbers of each channel, or one."""
        if self._algo == "min_max":
            return [float(each.min()) for each in weight], [float(each.max()) for each in weight]
        if self._algo == "KL" and self._weight_type == "abs_max":
            return float(np.max(np.abs(weight)))
        return [float(np.max(np.abs(each))) for each in weight]

    def _of_activations(self, names: Sequence[str]) -> dict[str, Any]:
        """What is kept of each activation."""
        if self._algo == "KL":
            samples: dict[str, list[Any]] = {name: [] for name in names}
            for values in self._runs(names):
                for name, value in zip(names, values, strict=True):
                    samples[name].append(value.ravel())
            return {name: threshold(np.concatenate(each)) for name, each in samples.items()}
        extremes: dict[str, tuple[float, float]] = {}
        for values in self._runs(names):
            for name, value in zip(names, values, strict=True):
                least, most = extremes.get(name, (np.inf, -np.inf))
                extremes[name] = min(least, float(value.min())), max(most, float(value.max()))
        if self._algo == "min_max":
            return dict(extremes)
        return {name: max(-least, most) for name, (least, most) in extremes.items()}

    def _runs(self, names: Sequence[str]) -> Iterator[list[Any]]:
        """The values of some variables, batch by batch."""
        block = self._program.global_block()
        feeds = [block.var(name) for name in self._feeds]
        loader = DataLoader.from_generator(feed_list=feeds, capacity=3 * self._batch_size, iterable=True)
        if self._sample_generator is not None:
            loader.set_sample_generator(self._sample_generator, self._batch_size, drop_last=True, places=self._place)
        elif self._batch_generator is not None:
            loader.set_batch_generator(self._batch_generator, places=self._place)
        for number, batch in enumerate(loader(), 1):
            found = self._executor.run(self._program, feed=batch, fetch_list=list(names), return_numpy=False)
            yield [np.array(value) for value in found]
            if self._batch_nums and number >= self._batch_nums:
                return

    def _rewritten(self, scales: dict[str, Any]) -> Program:
        """The program with quantizers of these scales, frozen."""
        graph = IrGraph(Graph(self._program), for_test=True)
        given: dict[str, Any] = {"scope": self._values.scope, "place": self._place}
        QuantizationTransformPass(
            **given,
            **self._bits,
            activation_quantize_type=self._activation_type,
            weight_quantize_type=self._weight_type,
            quantizable_op_type=[type_ for type_ in WITH_WEIGHTS if type_ in self._quantizable],
        ).apply(graph)
        rounded = [type_ for type_ in WITHOUT_WEIGHTS if type_ in self._quantizable]
        AddQuantDequantPass(**given, quantizable_op_type=rounded).apply(graph)
        for name, scale in scales.items():
            for variable in (f"{name}.scale", f"{name}.quant_dequant.scale"):
                if self._values.scope.find_var(variable) is not None:
                    self._values.write(variable, np.array([scale], np.float32))
        QuantizationFreezePass(**given, **self._bits, weight_quantize_type=self._weight_type).apply(graph)
        return graph.to_program()

    def _write_extremes(self, found: dict[str, Any]) -> None:
        for op in self._program.global_block().ops:
            for name in _inputs_of(op) if op.type in self._quantizable else ():
                op.set_attr(f"{name}.min", found[name][0])
                op.set_attr(f"{name}.max", found[name][1])

    def _write_output_scales(self, found: dict[str, Any]) -> None:
        """Attributes that say how large the outputs of operators are, and how that was found out."""
        for op in self._program.global_block().ops:
            if op.type not in (*self._quantizable, *OPERATORS):
                continue
            [name] = _outputs_of(op)
            if self._algo == "min_max":
                op.set_attr("out_min", found[name][0])
                op.set_attr("out_max", found[name][1])
            else:
                op.set_attr("out_threshold", found[name])
            if op.type in self._quantizable:
                op.set_attr(KIND, f"post_{self._algo.lower()}")


def _inputs_of(op: Operator) -> list[str]:
    return [name for slot in SLOTS[op.type][0] for name in op.input(slot)]


def _outputs_of(op: Operator) -> list[str]:
    return op.output(SLOTS[op.type][1])


class WeightQuantization:
    """Rounds the weights of a saved model to integers, so that its files are smaller; operators say by which scale."""

    _supported_quantizable_op_type = ("conv2d", "depthwise_conv2d", "mul")
    _supported_weight_quantize_type = ("channel_wise_abs_max", "abs_max")

    def __init__(self, model_dir: str, model_filename: str | None = None, params_filename: str | None = None) -> None:
        self._model: dict[str, Any] = {
            "dirname": model_dir,
            "model_filename": model_filename,
            "params_filename": params_filename,
        }

    def quantize_weight_to_int(
        self,
        save_model_dir: str,
        save_model_filename: str | None = None,
        save_params_filename: str | None = None,
        quantizable_op_type: Sequence[str] = ("conv2d", "mul"),
        weight_bits: int = 8,
        weight_quantize_type: str = "channel_wise_abs_max",
        generate_test_model: bool = False,
        threshold_rate: float = 0.0,
    ) -> None:
        """Save the model in save_model_dir/quantized_model, and in test_model with weights that were rounded and restored.

        weight_bits: 8 or 16. threshold_rate: the share of values that 'abs_max' may cut off.
        """
        for type_ in quantizable_op_type:
            known = type_ in self._supported_quantizable_op_type
            _need(known, f"Input error:{type_} is not supported for weight quantization.")
        _need(weight_bits in (8, 16), f"Input error: weight_bits should be 8 or 16, found {weight_bits}.")
        types = self._supported_weight_quantize_type
        _need(weight_quantize_type in types, f"Input error: weight_quantize_type should in {types}")
        for folder, restored in (("quantized_model", False), ("test_model", True))[: 1 + generate_test_model]:
            program, feeds, fetches = io.load_inference_model(executor=Executor(CPUPlace()), **self._model)
            for block in program.blocks:
                for op in [op for op in block.ops if op.type in quantizable_op_type]:
                    _round_weights(op, weight_bits, weight_quantize_type, threshold_rate, restored)
            path = os.path.join(save_model_dir, folder)
            names = save_model_filename, save_params_filename
            io.save_inference_model(path, feeds, fetches, Executor(CPUPlace()), program, *names)


def _round_weights(op: Operator, bits: int, type_: str, rate: float, restored: bool) -> None:
    """Round the weights of an operator in the scope, and write their scales into attributes."""
    values, largest = Values(global_scope(), CPUPlace()), (1 << (bits - 1)) - 1
    for name in op.input_arg_names:
        if not op.block.var_recursive(name).persistable:
            continue
        weight = values.read(name)
        axis = (0 if op.type in CONVOLUTIONS else weight.ndim - 1) if type_ == "channel_wise_abs_max" else None
        if axis is None and abs(rate) >= 1e-10:
            end = _cut_off(weight, rate)
            weight = np.clip(weight, -end, end).astype(weight.dtype)
            scale = np.float64(end / largest)
        else:
            others = None if axis is None else tuple(each for each in range(weight.ndim) if each != axis)
            scale = np.max(np.abs(weight), axis=others, keepdims=axis is not None).astype(np.float64) / largest
        integers = np.around(weight / scale.astype(weight.dtype)).astype(np.int8 if bits == 8 else np.int16)
        values.write(name, (integers * scale).astype(np.float32) if restored else integers)
        op.set_attr(KIND, f"post_weight_{type_}")
        op.set_attr("quantize_weight_bits", bits)
        op.set_attr(f"{name}_quant_scale", [float(each) for each in np.ravel(scale)])


def _cut_off(weight: Any, rate: float, bins: int = 5000) -> float:
    """The size that all but a share of the values stay below."""
    size = np.abs(weight)
    counts, edges = np.histogram(size, bins=bins, range=(0, size.max()))
    reached = np.cumsum(counts / float(counts.sum())) >= 1.0 - rate
    return float((np.argmax(reached) + 1 if reached.any() else 0) * float(edges[1] - edges[0]))
