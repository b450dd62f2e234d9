"""Kernels compile for GPUs, where NVRTC is installed: those that are written, and those that are generated."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import FluidError
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda import region
from fluidtool.runtime.engines.cuda.sources import PRELUDE
from fluidtool.runtime.engines.cupy.kernels import source
from fluidtool.tensor import CUDAPlace
from tests.fuzz._networks import network
from tests.gpu import cases
from tests.gpu.nvrtc import ABSENT, faults, nvrtc
from tests.gpu.test_cuda_arithmetic import batch as places
from tests.gpu.test_cuda_arithmetic import chained
from tests.gpu.test_cuda_arithmetic import tagged as picked_rows
from tests.gpu.test_cuda_channels import odd as odd_layers
from tests.gpu.test_cuda_channels import pictures
from tests.gpu.test_cuda_channels import stem as first_layers
from tests.gpu.test_cuda_channels import volumes as first_layers_of_volumes
from tests.gpu.test_cuda_class_losses import loss_of as class_loss
from tests.gpu.test_cuda_class_losses import smoothed
from tests.gpu.test_cuda_decoding import tagged
from tests.gpu.test_cuda_filled_regions import FITTING, over_words, with_sentences
from tests.gpu.test_cuda_inner_regions import job as job_of_loops
from tests.gpu.test_cuda_inner_training import LAYERS as STEPS
from tests.gpu.test_cuda_inner_training import fed as some_steps_of_loops
from tests.gpu.test_cuda_inner_training import loop
from tests.gpu.test_cuda_loops import OF_WORDS
from tests.gpu.test_cuda_loops import words as words_of
from tests.gpu.test_cuda_path_losses import Case as PathLoss
from tests.gpu.test_cuda_places import batch as batch_of_places
from tests.gpu.test_cuda_places import index as places_along_axes
from tests.gpu.test_cuda_places import picked as picked_places
from tests.gpu.test_cuda_ranking import ranked, scores
from tests.gpu.test_cuda_ranking import read as scores_in
from tests.gpu.test_cuda_recurrent_regions import begun
from tests.gpu.test_cuda_recurrent_regions import stack as layers_of_lstm
from tests.gpu.test_cuda_recurrent_steps import LAYERS, sgd, stack
from tests.gpu.test_cuda_recurrent_steps import batch as some_sequences
from tests.gpu.test_cuda_recurrent_steps import network as sequences_with
from tests.gpu.test_cuda_recurrent_steps import steps_of as some_steps
from tests.gpu.test_cuda_regions import on_gpu
from tests.gpu.test_cuda_structured import (
    padded_reader,
    padded_sentences,
    padded_speech,
    padded_tagger,
    reader,
    sentences,
    spoken,
    tagger,
)
from tests.gpu.test_cuda_tables import batch as rows_of_tables
from tests.gpu.test_cuda_tables import two_tables
from tests.gpu.test_cuda_wholes import by_hand, classifier, confident, masked, trained
from tests.gpu.test_cuda_yolo import batch as batch_of_images
from tests.gpu.test_cuda_yolo import detector
from tests.gpu.test_training_attention import needed
from tests.gpu.test_training_attention import network as network_of_attention
from tests.gpu.test_training_images import OPERATORS as OPERATORS_OF_IMAGES
from tests.gpu.test_training_images import between, images
from tests.gpu.test_training_reductions import in_a_step
from tests.gpu.test_training_steps import OPTIMIZERS, Job, attention, words
from tests.runtime.native.checking import Net
from tests.runtime.native.test_sequences import gru, lstm, sequences
from tests.support.golden import names_in

if nvrtc() is None:
    pytest.skip(ABSENT, allow_module_level=True)
ARCHITECTURES = ("sm_80", "sm_90")


def compile_all(generated: list[str], architecture: str) -> None:
    """NVRTC finds nothing wrong with any of these sources."""
    assert [found for text in set(generated) if (found := faults(text, architecture))] == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_written_kernels(architecture: str) -> None:
    assert faults(source(), architecture) == ""


def test_a_fault_is_found() -> None:
    assert "identifier" in faults(
        PRELUDE + 'extern "C" __global__ void k(float* out) { out[0] = ft_missing(1.0f); }', "sm_90"
    )


@pytest.fixture
def generated(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources of all regions that are compiled."""
    found: list[str] = []
    made = region.source_of

    def noted(calls: Any) -> str:
        found.append(made(calls))
        return found[-1]

    monkeypatch.setattr(region, "source_of", noted)
    return found


def stores_halves(kernels: str, half: str) -> bool:
    """Whether one of these kernels stores halves, one by one or in pieces."""
    return f"ft_to_{half}(" in kernels or f"ft_put_{half}<" in kernels


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["resnet_cifar", "mobilenet_v1", "unet", "word2vec", "text_lstm", "srl_db_lstm"])
def test_kernels_of_models(name: str, architecture: str, generated: list[str]) -> None:
    assert name in names_in("models")
    cases.model_counts(name)
    assert generated
    compile_all(generated, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["resnet_cifar", "word2vec"])
def test_kernels_of_models_in_halves(name: str, half: str, architecture: str, generated: list[str]) -> None:
    cases.model_in_halves(name, half)
    assert any(stores_halves(text.removeprefix(PRELUDE), half) for text in generated)
    compile_all(generated, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_kernels_that_fill_channels_up(
    half: str, architecture: str, generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    for width in (3, 12):
        for net, name in (first_layers(width, 20), first_layers_of_volumes(width, 20)):
            on_gpu(net, name)
        Job(odd_layers(width, 12), OPTIMIZERS["sgd"]).step(pictures(width, 0))
    assert len(generated) >= 4 and all(
        "pad_" in text for text in generated if "clear" not in text and "check_" not in text
    )
    compile_all(generated, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "name",
    [
        "conv_bn_adam",
        "dcgan_rmsprop",
        "lm_staticrnn_sgd",
        "mlp_ftrl",
        "mlp_nesterov_piecewise",
        "w2v_dense_momentum",
        "w2v_sparse_sgd",
        "ctr_sparse_adam_lazy",
    ],
)
def test_kernels_of_training_steps(name: str, architecture: str, generated: list[str]) -> None:
    cases.training_counts(name)
    assert generated
    compile_all(generated, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("half", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["conv_bn_adam", "seq2seq_att_adam", "w2v_sparse_sgd"])
def test_kernels_of_training_steps_in_halves(name: str, half: str, architecture: str, generated: list[str]) -> None:
    cases.training_in_halves(name, half)
    assert any(stores_halves(text.removeprefix(PRELUDE), half) for text in generated)
    compile_all(generated, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_a_step_with_tables_attention_and_dropout(architecture: str, generated: list[str]) -> None:
    Job(attention, OPTIMIZERS["adam"]).step(words(0))
    text, check = generated
    assert "draw_" in text and "scatter_" in text and faults(text, architecture) == ""
    assert "check_" in check and faults(check, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("precision", ["float32", "fp16", "bf16"])
@pytest.mark.parametrize("name", OPERATORS_OF_IMAGES)
def test_kernels_of_images(
    name: str, precision: str, architecture: str, generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", precision)
    Job(between(OPERATORS_OF_IMAGES[name][0]), OPTIMIZERS["sgd"]).step(images(1)[0])
    assert generated and [faults(each, architecture) for each in generated] == [""] * len(generated)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_kernels_in_the_place_of_attention(
    half: str, architecture: str, generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    build = network_of_attention(alpha=0.3, mask="keys")
    Job(build, OPTIMIZERS["sgd"]).step(needed(build, 0))
    text = "".join(generated)
    assert "softmax_back_" in text and "most + logf(sum)" in text and faults(text, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_kernels_of_a_softmax_with_dropout_and_of_its_gradient(
    precision: str, architecture: str, generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", precision)
    build = network_of_attention(alpha=0.3, mask="keys", dropout=0.3)
    Job(build, OPTIMIZERS["sgd"]).step(needed(build, 0))
    text = "".join(generated)
    assert "softmax_back_" in text and "const float y = " in text and faults(text, architecture) == ""


@pytest.mark.parametrize("optimizer", ["adam", "ftrl", "centered rmsprop"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_sorted_tables(optimizer: str, architecture: str, generated: list[str]) -> None:
    Job(two_tables, OPTIMIZERS[optimizer]).step(rows_of_tables(0, 1000))
    text = "".join(generated)
    assert "sort_" in text and "merge_" in text
    assert [faults(each, architecture) for each in generated] == [""] * len(generated)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", LAYERS)
def test_kernels_of_layers_of_sequences(name: str, architecture: str, generated: list[str]) -> None:
    Job(sequences_with(LAYERS[name]), OPTIMIZERS["sgd"]).step(some_sequences(0))
    assert generated and [faults(each, architecture) for each in generated] == [""] * len(generated)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tags", [5, 40])
@pytest.mark.parametrize("is_padded", [False, True])
def test_kernels_of_conditional_random_fields(
    is_padded: bool, tags: int, architecture: str, generated: list[str]
) -> None:
    build, batch_of = (padded_tagger, padded_sentences) if is_padded else (tagger, sentences)
    Job(build(tags), OPTIMIZERS["sgd"]).step(batch_of(0, [3, 1], tags))
    text = "".join(generated)
    assert "crf_back_" in text and [faults(each, architecture) for each in generated] == [""] * len(generated)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("is_padded", [False, True])
def test_kernels_of_labels_without_places(is_padded: bool, architecture: str, generated: list[str]) -> None:
    build, batch_of = (padded_reader, padded_speech) if is_padded else (reader, spoken)
    Job(build(norm_by_times=True), OPTIMIZERS["sgd"]).step(batch_of(0, [5, 4], [2, 1]))
    text = "".join(generated)
    assert "ctc_back_" in text and [faults(each, architecture) for each in generated] == [""] * len(generated)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("has_labels", [False, True])
@pytest.mark.parametrize("is_padded", [False, True])
def test_kernels_of_best_paths(is_padded: bool, has_labels: bool, architecture: str, generated: list[str]) -> None:
    net = Net()
    on_gpu(net, tagged(net, [3, 1], 40, is_padded, has_labels))
    (text,) = generated
    assert "viterbi_" in text and faults(text, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("type", ["linear_chain_crf", "warpctc"])
def test_kernels_of_losses_in_regions_of_inference(type: str, architecture: str, generated: list[str]) -> None:
    case = PathLoss(type, True, [3, 2, 4], [2, 1, 2])
    on_gpu(case.net, case.loss)
    (text,) = generated
    assert "clear_mark" in text and faults(text, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("columns", [40, 256 * 32 + 5])
def test_kernels_of_the_largest_numbers(columns: int, architecture: str, generated: list[str]) -> None:
    net = Net()
    x = scores_in(net, scores("ties", 2, columns))
    places = [net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=k)[1] for k in (1, 5)]
    on_gpu(net, *places, *(net.op("arg_max", "Out", {"X": x}, axis=axis) for axis in (0, 1)))
    (text,) = generated
    assert "largest_" in text and text.count("place_") >= 3 and faults(text, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_whole_numbers_and_booleans(architecture: str, generated: list[str]) -> None:
    net = Net()
    x, ended = scores_in(net, scores("numbers", 4, 6)), net.data(of=np.array([True, False, True, False]))
    place = net.op("arg_max", "Out", {"X": x}, axis=1)
    word = net.op("elementwise_add", "Out", {"X": place, "Y": net.data(of=np.arange(4))}, axis=-1)
    equal = net.op("equal", "Out", {"X": place, "Y": word}, axis=-1)
    both = net.op("logical_or", "Out", {"X": ended, "Y": equal})
    on_gpu(net, net.op("lookup_table_v2", "Out", {"W": net.parameter(9, 3), "Ids": word}), both)
    (text,) = generated
    assert "ft_row(" in text and faults(text, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_sorted_rows_and_of_what_goes_back(architecture: str, generated: list[str]) -> None:
    net = Net()
    names = ranked(net, "top_k", scores("ties", 2, 3000), k=100)
    in_a_step(net, *names, *ranked(net, "argsort", scores("ties", 4, 90), axis=-1))
    text = "".join(generated)
    assert "merge_" in text and "largest_" in text and "back_" in text
    assert [faults(each, architecture) for each in generated] == [""] * len(generated)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_whole_numbers(architecture: str, generated: list[str]) -> None:
    for seed in range(6):
        net = Net(seed)
        try:
            on_gpu(net, *chained(net, np.random.default_rng(seed)))
        except FluidError:
            continue
    main, startup, loss = picked_rows()
    scope, executor = fluid.Scope(), fluid.Executor(CUDAPlace(0))
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    executor.run(main, places(0), [loss], scope=scope)
    assert "(whole a, whole b)" in "".join(generated)
    compile_all(generated, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_places_along_several_axes(architecture: str, generated: list[str]) -> None:
    net = Net()
    given = {"X": scores_in(net, scores("numbers", 4, 3, 5)), "Index": net.data(of=places_along_axes(2, 6))}
    on_gpu(net, net.op("gather_nd", "Out", given))
    main, startup, loss = picked_places(computed=True)
    scope, executor = fluid.Scope(), fluid.Executor(CUDAPlace(0))
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    executor.run(main, batch_of_places(0), [loss], scope=scope)
    text = "".join(generated)
    assert "ft_row(p" in text and "scatter_" in text and "% 2 == 1" in text
    compile_all(generated, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_kernels_of_a_detector(
    precision: str, architecture: str, generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", precision)
    main, startup, loss, boxes = detector()
    scope, executor = fluid.Scope(), fluid.Executor(CUDAPlace(0))
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    executor.run(main, batch_of_images(0), [loss, boxes], scope=scope)
    text = "".join(generated)
    assert all(f"yolo_{name}_" in text for name in ("truths", "objectness", "loss", "back"))
    compile_all(generated, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("build", [by_hand, confident, masked])
def test_kernels_of_metrics(build: Any, architecture: str, generated: list[str]) -> None:
    trained(*classifier(build), steps=1)
    text = "".join(generated)
    assert "(whole a, whole b)" in text or "(float)(a)" in text
    assert [faults(each, architecture) for each in generated] == [""] * len(generated)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("type", ["cross_entropy2", "softmax_with_cross_entropy"])
def test_kernels_of_losses_of_classes_in_regions_of_inference(
    type: str, architecture: str, generated: list[str]
) -> None:
    net = Net()
    soft = {"X": net.op("softmax", "Out", {"X": net.data(6, 5)}, axis=-1), "Label": smoothed(net, 6)}
    hard = class_loss(net, type, net.random.integers(0, 5, (6, 1)))
    on_gpu(net, hard, net.op("cross_entropy", "Y", soft, soft_label=True))
    (text,) = generated
    assert "ft_label(p" in text and "ft_row(p" in text and faults(text, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_recurrent_layers_that_begin_with_given_states(architecture: str, generated: list[str]) -> None:
    net = Net()
    on_gpu(net, begun(net, [3, 1, 4]), begun(net, [2] * 9, 3), *layers_of_lstm(net, is_bidirec=True))
    (text,) = generated
    assert "lstm_" in text and "project_" in text and faults(text, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_stacks_of_layers(architecture: str, generated: list[str]) -> None:
    Job(stack(dropout_prob=0.4, is_bidirec=True), OPTIMIZERS["sgd"]).step(some_steps(0))
    text = "".join(generated)
    assert "(double)(bits >> 11)" in text and faults(text, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("layer", [lstm, gru])
@pytest.mark.parametrize("rows", [1, 8])
def test_kernels_of_steps_with_their_products(rows: int, layer: Any, architecture: str, generated: list[str]) -> None:
    net = Net()
    on_gpu(net, layer(net, sequences(net, [2] * rows, (4 if layer is lstm else 3) * 264), 264))
    (text,) = generated
    assert "const int k = slice *" in text and faults(text, architecture) == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["attention", "windows"])
def test_kernels_that_read_offsets(name: str, architecture: str, generated: list[str]) -> None:
    found = job_of_loops(over_words(FITTING[name]))
    found.run(with_sentences([3, 1, 4]))
    compile_all(generated, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_steps_that_are_trained(architecture: str, generated: list[str]) -> None:
    Job(loop(STEPS["gru"]), OPTIMIZERS["adam"]).step(some_steps_of_loops(3))
    compile_all(generated, architecture)


def test_kernels_of_random_programs(generated: list[str]) -> None:
    for seed in range(100, 130):
        case = network(random.Random(seed))
        try:
            Executor(CUDAPlace(0)).run(case.program, case.feeds, case.fetches, case.scope())
        except FluidError:
            continue
    assert len(generated) > 3
    kernels = {kernel for text in generated for kernel in text.removeprefix(PRELUDE).split('extern "C"')[1:]}
    assert faults(PRELUDE + "".join(f'extern "C"{kernel}' for kernel in kernels), "sm_90") == ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["a table", "classes", "elements by place", "dropped weights"])
def test_kernels_of_loops_that_are_trained(name: str, architecture: str, generated: list[str]) -> None:
    Job(loop(STEPS[name]), sgd).step(some_steps_of_loops(3))
    assert any("check_" in text and "clear_mark" in text for text in generated) or name == "dropped weights"
    assert [faults(each, architecture) for each in generated] == [""] * len(generated)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", OF_WORDS)
def test_kernels_of_steps_that_look_up_words(name: str, architecture: str, generated: list[str]) -> None:
    Job(OF_WORDS[name], sgd).step(words_of(0, name))
    assert generated and [faults(each, architecture) for each in generated] == [""] * len(generated)
