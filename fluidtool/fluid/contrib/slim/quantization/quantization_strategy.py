"""Training with rounded numbers in a Compressor (Paddle 1.8.5 contrib/slim/quantization/quantization_strategy.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.fluid import io
from fluidtool.fluid.compiler import BuildStrategy, CompiledProgram
from fluidtool.fluid.contrib.slim.quantization.freezing import (
    ConvertToInt8Pass,
    QuantizationFreezePass,
    TransformForMobilePass,
)
from fluidtool.fluid.contrib.slim.quantization.transform import QuantizationTransformPass
from fluidtool.fluid.contrib.slim.strategy import Strategy
from fluidtool.fluid.executor import Executor, scope_guard
from fluidtool.fluid.ir_graph import Graph, IrGraph
from fluidtool.ir import Program

__all__ = ["QuantizationStrategy"]

KEPT = "quantization_test_ir_graph_backup"


class QuantizationStrategy(Strategy):
    """From start_epoch on trains with rounded numbers; after end_epoch saves models.

    float_model_save_path, int8_model_save_path, mobile_model_save_path: folders for a model with weights of float, of 8 bits, and
    of 8 bits for Paddle Mobile; None saves none. save_in_nodes, save_out_nodes: names of its inputs and results, those of the
    evaluation without them. The rest are arguments of QuantizationTransformPass.
    """

    def __init__(
        self,
        start_epoch: int = 0,
        end_epoch: int = 0,
        float_model_save_path: str | None = None,
        mobile_model_save_path: str | None = None,
        int8_model_save_path: str | None = None,
        activation_bits: int = 8,
        weight_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        save_in_nodes: Sequence[str] | None = None,
        save_out_nodes: Sequence[str] | None = None,
    ) -> None:
        super().__init__(start_epoch, end_epoch)
        self.float_model_save_path, self.mobile_model_save_path = float_model_save_path, mobile_model_save_path
        self.int8_model_save_path = int8_model_save_path
        self.activation_bits, self.weight_bits = activation_bits, weight_bits
        self.activation_quantize_type, self.weight_quantize_type = activation_quantize_type, weight_quantize_type
        self.save_out_nodes, self.save_in_nodes = save_out_nodes, save_in_nodes

    def restore_from_checkpoint(self, context: Any) -> None:
        """Round again if the checkpoint was made after the first epoch."""
        if context.epoch_id != 0 and context.epoch_id > self.start_epoch:
            self._modify_graph_for_quantization(context)

    def _modify_graph_for_quantization(self, context: Any) -> None:
        """Let the training and the evaluation round."""
        program = context.optimize_graph.program
        training = IrGraph(Graph(program.clone().desc), for_test=False)
        evaluation = IrGraph(Graph(context.eval_graph.program.clone().desc), for_test=True)
        rounding = QuantizationTransformPass(
            scope=context.scope,
            place=context.place,
            weight_bits=self.weight_bits,
            activation_bits=self.activation_bits,
            activation_quantize_type=self.activation_quantize_type,
            weight_quantize_type=self.weight_quantize_type,
        )
        rounding.apply(training)
        rounding.apply(evaluation)
        known = {var.name for var in program.list_vars() if var.persistable}
        holder = Program().global_block()
        for node in training.all_persistable_nodes():
            if node.name() not in known:
                desc = node.var()
                context.optimize_graph.persistables[node.name()] = holder.create_var(
                    name=node.name(),
                    shape=desc.shape(),
                    dtype=desc.dtype(),
                    type=desc.type(),
                    lod_level=desc.lod_level(),
                )
        strategy = BuildStrategy()
        strategy.enable_inplace = False
        strategy.memory_optimize = False
        strategy.fuse_all_reduce_ops = False
        context.optimize_graph.compiled_graph = CompiledProgram(training.graph).with_data_parallel(
            loss_name=context.optimize_graph.out_nodes["loss"], build_strategy=strategy
        )
        context.eval_graph.program = evaluation.to_program()
        context.put(KEPT, evaluation)

    def on_epoch_begin(self, context: Any) -> None:
        """Begin to round."""
        if self.start_epoch == context.epoch_id:
            self._modify_graph_for_quantization(context)

    def on_epoch_end(self, context: Any) -> None:
        """After end_epoch freeze the weights and save the models."""
        if context.epoch_id != self.end_epoch:
            return
        graph = context.get(KEPT)
        QuantizationFreezePass(
            scope=context.scope,
            place=context.place,
            weight_bits=self.weight_bits,
            activation_bits=self.activation_bits,
            weight_quantize_type=self.weight_quantize_type,
        ).apply(graph)
        context.eval_graph.program = graph.to_program()
        self._save(context, graph, self.float_model_save_path)
        if self.int8_model_save_path or self.mobile_model_save_path:
            ConvertToInt8Pass(scope=context.scope, place=context.place).apply(graph)
        self._save(context, graph, self.int8_model_save_path)
        if self.mobile_model_save_path:
            TransformForMobilePass().apply(graph)
        self._save(context, graph, self.mobile_model_save_path)

    def _save(self, context: Any, graph: IrGraph, folder: str | None) -> None:
        if not folder:
            return
        results = self.save_out_nodes or context.eval_graph.out_nodes.values()
        with scope_guard(context.scope):
            io.save_inference_model(
                folder,
                list(self.save_in_nodes or context.eval_graph.in_nodes.values()),
                [context.eval_graph.var(name)._var for name in results],
                Executor(context.place),
                main_program=graph.to_program(),
                model_filename="model",
                params_filename="weights",
            )
