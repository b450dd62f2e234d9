"""`fluid.io`: saving and loading variables, inference models and pickled states (Paddle 1.8.5 io.py)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import (
    ArgumentTypeError,
    AssertedError,
    AssertedParameterError,
    ModelNotFoundError,
    ParameterFileError,
    ProgramError,
    UninitializedError,
    UnreadableError,
    UsageError,
    with_short_names,
)
from fluidtool.fluid import distributed_saving
from fluidtool.fluid.executor import Executor, global_scope
from fluidtool.fluid.framework import default_main_program
from fluidtool.fluid.offers import defined_in, refuse_other_names
from fluidtool.fluid.reader import DataLoader, PyReader, default_collate_fn
from fluidtool.fluid.reader_decorators import (
    ComposeNotAligned,
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from fluidtool.io import pickles
from fluidtool.io.atomic import finish, write_files
from fluidtool.io.inference import append_fetches, feed_names, fetch_names, inference_program, prepend_feeds
from fluidtool.io.parameters import (
    EMPTY_STORE,
    ParameterStore,
    Value,
    combined_parts,
    is_persistable,
    open_arrays,
    open_combined,
    open_separate,
    persistables,
    separate_parts,
    write_combined,
    write_separate,
)
from fluidtool.ir import Block, Parameter, Program, Variable, unique_name
from fluidtool.ir.roles import DEVICE_ATTR
from fluidtool.ops.validation import require_valid
from fluidtool.proto.enums import VarType
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.files import map_file, private, read_file

Predicate = Callable[[Variable], bool]


def is_parameter(var: Variable) -> bool:
    """Whether a variable is a Parameter."""
    return isinstance(var, Parameter)


def is_belong_to_optimizer(var: Variable) -> bool:
    """Whether a variable is persistable without being a parameter or an input: accumulators, learning rates."""
    return not (isinstance(var, Parameter) or var.need_check_feed) and is_persistable(var)


def get_program_parameter(program: Program) -> list[Variable]:
    """The parameters of a program."""
    return [var for var in program.list_vars() if is_parameter(var)]


def get_program_persistable_vars(program: Program) -> list[Variable]:
    """What `save_persistables` saves of a program."""
    return persistables(program)


def get_inference_program(target_vars: Any, main_program: Program | None = None) -> Program:
    """A copy of the program that computes `target_vars` for inference (Paddle 0.14 io.py; later versions have none).

    target_vars: a variable or an evaluator, which stands for its states and metrics, or a list of these.
    """
    program = default_main_program() if main_program is None else main_program
    targets = target_vars if isinstance(target_vars, list) else [target_vars]
    variables = [
        var for each in targets for var in ([each] if isinstance(each, Variable) else [*each.states, *each.metrics])
    ]
    return program.prune(variables).inference_optimize()


# ---------------------------------------------------------------- variables
def _clone_var_in_block_(block: Block, var: Variable) -> Variable:
    """A persistable variable in another program's block, like this one (Paddle 1.8.5 io.py): what is loaded fills it."""
    levels = {"lod_level": var.lod_level} if var.type == VarType.LOD_TENSOR else {}
    return block.create_var(name=var.name, shape=var.shape, dtype=var.dtype, type=var.type, persistable=True, **levels)


def save_vars(
    executor: Executor | None,
    dirname: str | None,
    main_program: Program | None = None,
    vars: Sequence[Variable] | None = None,
    predicate: Predicate | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save variables of the global scope: one file each, or all in `filename`; without both, as bytes."""
    chosen = _choose(main_program, vars, predicate)
    _warn_of_none(chosen)
    values = {var.name: _value(var.name) for var in chosen}
    if dirname is None and filename is None:
        return b"".join(bytes(part) for part in combined_parts(values))
    if filename is not None:
        write_combined(Path(dirname or "") / filename, values)
    else:
        write_separate(_folder(dirname), values)
    return None


def _warn_of_none(chosen: Sequence[Variable]) -> None:
    if not chosen:
        warnings.warn(
            "no variable in your model, please ensure there are any variables in your model to save", stacklevel=4
        )


def save_params(
    executor: Executor | None, dirname: str | None, main_program: Program | None = None, filename: str | None = None
) -> bytes | None:
    """Save the parameters of a program."""
    return save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def save_persistables(
    executor: Executor | None, dirname: str | None, main_program: Program | None = None, filename: str | None = None
) -> bytes | None:
    """Save all persistable variables of a program: parameters, accumulators, counters.

    The first trainer of a distributed job saves what the servers have, too (Paddle 1.8.5); filename has no meaning then.
    """
    if main_program is None or not main_program._is_distributed:
        return save_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)
    if executor is None or dirname is None:
        raise UsageError("save_persistables of a distributed program needs an executor and a folder")
    save_vars(executor, dirname, main_program, distributed_saving.variables_of_trainer(main_program))
    distributed_saving.save_remote_variables(executor, dirname, main_program)
    return None


def load_vars(
    executor: Executor | None,
    dirname: str | None,
    main_program: Program | None = None,
    vars: Sequence[Variable] | None = None,
    predicate: Predicate | None = None,
    filename: Any = None,
) -> None:
    """Load variables into the global scope; raises ParameterFileError if files are missing or do not fit.

    filename: the combined file within dirname; its bytes if dirname is None.
    """
    _fill_scope(_open(dirname, filename, _choose(main_program, vars, predicate)), executor)


def load_params(
    executor: Executor | None, dirname: str | None, main_program: Program | None = None, filename: Any = None
) -> None:
    """Load the parameters of a program."""
    load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def load_persistables(
    executor: Executor | None, dirname: str | None, main_program: Program | None = None, filename: Any = None
) -> None:
    """Load all persistable variables of a program; of a server's program, its shards of what a trainer saved."""
    if main_program is None or not main_program._is_distributed:
        load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)
    elif executor is None or dirname is None:
        raise UsageError("load_persistables of a distributed program needs an executor and a folder")
    else:
        distributed_saving.load_variables_of_server(executor, dirname, main_program)


def _choose(
    main_program: Program | None, vars: Sequence[Variable] | None, predicate: Predicate | None
) -> list[Variable]:
    program = default_main_program() if main_program is None else main_program
    program = getattr(program, "program", program)
    if not isinstance(program, Program):
        raise ArgumentTypeError(
            f"The type of input main_program is invalid, expected type is Program, but received {type(main_program)}"
        )
    chosen = list(program.list_vars()) if vars is None else [_variable(program, var) for var in vars]
    if vars is None and predicate is not None:
        chosen = [var for var in chosen if predicate(var)]
    unique = {var.name: var for var in chosen if var.type != VarType.RAW}
    return list(unique.values())


def _variable(program: Program, var: Variable | str) -> Variable:
    return program.global_block().var(var) if isinstance(var, str) else var


def _open(dirname: str | None, filename: Any, variables: Sequence[Variable]) -> ParameterStore:
    if not variables:
        return EMPTY_STORE
    if dirname is None:
        if not isinstance(filename, (bytes, bytearray, memoryview)):
            raise UsageError("The directory path and params cannot be None at the same time.")
        return open_combined(filename, variables, "the parameter bytes given")
    finish(Path(dirname))
    if filename is None:
        return open_separate(_folder(dirname), variables)
    path = Path(dirname) / filename
    return open_combined(map_file(path), variables, str(path))


def _folder(dirname: str | None) -> Path:
    if dirname is None:
        raise UsageError("The directory path and params cannot be None at the same time.")
    return Path(os.path.normpath(dirname))


def _value(name: str) -> Value:
    var = global_scope().find_var(name)
    value = var.value if var is not None else None
    if isinstance(value, LoDTensor) and value.is_initialized():
        return LoDTensor(value.numpy(), value.lod())
    if isinstance(value, SelectedRows):
        return value
    raise UninitializedError(
        f"cannot save {name}: it has no value in the scope; run the startup program or load the parameters first"
    )


def _fill_scope(store: Mapping[str, Value], executor: Executor | None) -> None:
    scope = global_scope()
    for name, value in store.items():
        put(scope, name, value, executor)


def put(scope: Scope, name: str, value: Value, executor: Executor | None) -> None:
    """Set a value in a scope, at the executor's place; an existing tensor object is reused."""
    var = scope.var(name)
    if isinstance(value, SelectedRows):
        var.value = value
    else:
        host = private(value.numpy())
        array = host if executor is None else executor.to_device(host)
        var.set_tensor(array, value.lod())


# ---------------------------------------------------------------- inference models
def prepend_feed_ops(
    inference_program: Program, feed_target_names: Sequence[str], feed_holder_name: str = "feed"
) -> None:
    """Insert a feed operator for each name at the start; raises ProgramError for an unknown name."""
    if feed_target_names:
        block = inference_program.global_block()
        block.create_var(name=feed_holder_name, type=VarType.FEED_MINIBATCH, persistable=True)
        prepend_feeds(inference_program, feed_target_names, feed_holder_name)


def append_fetch_ops(
    inference_program: Program, fetch_target_names: Sequence[str], fetch_holder_name: str = "fetch"
) -> None:
    """Append a fetch operator for each name."""
    block = inference_program.global_block()
    block.create_var(name=fetch_holder_name, type=VarType.FETCH_LIST, persistable=True)
    append_fetches(inference_program, fetch_target_names, fetch_holder_name)


def save_inference_model(
    dirname: str,
    feeded_var_names: Sequence[str] | str,
    target_vars: Sequence[Variable] | Variable,
    executor: Executor | None,
    main_program: Program | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the operators that compute `target_vars` from `feeded_var_names`, with parameters; returns the fetch names.

    As in Paddle since 1.4, each target gets a `scale` operator of factor 1 in `main_program`, whose output is fetched; as
    since 1.8, the operators of `main_program` forget the devices that `device_guard` gave them.
    """
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names or [])
    if not all(isinstance(name, str) for name in feeds):
        raise UsageError(f"'feed_var_names' should be a list of str, found {feeds}")
    targets = [target_vars] if isinstance(target_vars, Variable) else list(target_vars or [])
    if export_for_deployment and not (targets and all(isinstance(var, Variable) for var in targets)):
        raise UsageError(f"'target_vars' should be a list of Variable, found {targets}")
    program = default_main_program() if main_program is None else main_program
    program = getattr(program, "program", program)
    for op in program.global_block().ops:
        op._set_attr(DEVICE_ATTR, "")
    fetches = [_append_scale(program, var, index) for index, var in enumerate(targets)]
    folder = Path(os.path.normpath(dirname))
    model_file = folder / (os.path.basename(model_filename) if model_filename else "__model__")
    if export_for_deployment:
        saved = inference_program(program, feeds, fetches)
    else:
        saved, model_file = program, model_file.with_name(model_file.name + ".main_program")
    contents: dict[Path, Iterable[Any]] = {model_file: [saved.serialize_to_string()]}
    if not program_only:
        contents |= _contents(folder, saved, os.path.basename(params_filename) if params_filename else None)
    write_files(contents)
    return fetches


def _contents(folder: Path, program: Program, filename: str | None) -> dict[Path, Iterable[Any]]:
    """The files with the persistable variables of a program."""
    chosen = _choose(program, None, is_persistable)
    _warn_of_none(chosen)
    values = {var.name: _value(var.name) for var in chosen}
    if filename is not None:
        return {folder / filename: combined_parts(values)}
    return {folder / name: parts for name, parts in separate_parts(folder, values).items()}


def _append_scale(program: Program, var: Variable, index: int) -> str:
    block = program.global_block()
    if not block.has_var(var.name):
        raise ProgramError(f"target {var.name} is not a variable of the program to save")
    name = unique_name.generate(f"save_infer_model/scale_{index}.tmp")
    while block.has_var(name):
        name = unique_name.generate(f"save_infer_model/scale_{index}.tmp")
    out = block.create_var(
        name=name, shape=var.shape, dtype=var.dtype, lod_level=var.lod_level, type=VarType.LOD_TENSOR
    )
    position = len(block.ops) - sum(op.type == "fetch" for op in block.ops)
    block.insert_op(
        position,
        type="scale",
        inputs={"X": [var]},
        outputs={"Out": [out]},
        attrs={"scale": 1.0, "bias": 0.0, "bias_after_scale": True},
    )
    return name


def load_inference_model(
    dirname: str | None,
    executor: Executor | None,
    model_filename: Any = None,
    params_filename: Any = None,
    pserver_endpoints: Sequence[str] | None = None,
) -> list[Any]:
    """[program, feed names, fetch variables] of a saved inference model; its parameters go to the global scope.

    With dirname None, `model_filename` and `params_filename` are the bytes themselves. Raises UnreadableError for a file
    that is not a program, OperatorError for operators that do not match their schemas.
    """
    if dirname is None:
        if model_filename is None:
            raise UsageError("The directory path and params cannot be None at the same time.")
        program = Program.parse_from_string(model_filename)
        where: str | None = None
    else:
        folder = Path(os.path.normpath(dirname))
        finish(folder)
        if not folder.is_dir():
            raise ModelNotFoundError(f"There is no directory named '{dirname}'")
        program, where = _program_file(folder, model_filename), str(folder)
        params_filename = os.path.basename(params_filename) if params_filename is not None else None
    require_valid(program)
    load_persistables(executor, where, program, params_filename)
    block = program.global_block()
    return [program, feed_names(program), [block.var(name) for name in fetch_names(program)]]


def _program_file(folder: Path, model_filename: str | None) -> Program:
    from fluidtool.io.layout import read_program

    file = folder / (os.path.basename(model_filename) if model_filename else "__model__")
    if not file.is_file():
        raise ModelNotFoundError(f"no program file {file}; set its name with model_filename")
    return read_program(file)


# ---------------------------------------------------------------- values
def get_parameter_value(para: Parameter, executor: Executor | None = None) -> np.ndarray[Any, Any]:
    """The value of a parameter in the global scope."""
    if not is_parameter(para):
        raise AssertedError(f"get_parameter_value takes a Parameter, found {para!r}")
    return np.array(_value(para.name))


def get_parameter_value_by_name(
    name: str, executor: Executor | None = None, program: Program | None = None
) -> np.ndarray[Any, Any]:
    """The value of the parameter of this name in the global scope."""
    program = default_main_program() if program is None else program
    return np.array(_value(program.global_block().var(name).name))


# ---------------------------------------------------------------- pickled states (since 1.6)
def save(program: Program, model_path: str) -> None:
    """Write `<path>.pdparams` (parameters), `.pdopt` (other persistable variables) and `.pdmodel` (the program)."""
    if not os.path.basename(model_path):
        raise AssertedError(
            "The input model_path MUST be format of dirname/filename [dirname\\filename in Windows system], "
            "but received model_path is empty string."
        )
    parameters = {var.name: _value(var.name).numpy() for var in get_program_parameter(program)}  # type: ignore[union-attr]
    others = {
        var.name: _value(var.name).numpy()  # type: ignore[union-attr]
        for var in program.list_vars()
        if is_belong_to_optimizer(var)
    }
    saved = program.clone()
    if not saved.version:
        saved.version, saved.version_field = 1008005, 4
    states = {".pdparams": pickles.dump_state(parameters), ".pdopt": pickles.dump_state(others)}
    contents = {Path(model_path + suffix): [state] for suffix, state in states.items()}
    write_files({**contents, Path(f"{model_path}.pdmodel"): [saved.serialize_to_string()]})


def load(
    program: Program, model_path: str, executor: Executor | None = None, var_list: Sequence[Variable] | None = None
) -> None:
    """Load files written by `save`, `save_params`, `save_persistables` or `save_vars` into the global scope.

    Raises ParameterFileError for a missing file or value, or one that does not fit the program.
    """
    prefix = model_path.removesuffix(".pdparams").removesuffix(".pdopt").removesuffix(".pdmodel")
    finish(Path(prefix).parent)
    if not os.path.isfile(f"{prefix}.pdparams"):
        _load_files(program, model_path, executor, var_list)
        return
    parameters = get_program_parameter(program)
    others = [var for var in program.list_vars() if is_belong_to_optimizer(var)]
    file = f"{prefix}.pdparams"
    arrays = pickles.load_state(_bytes(file), file)
    if not parameters:  # a parsed program has no Parameter objects
        parameters, others = [var for var in others if var.name in arrays], [v for v in others if v.name not in arrays]
    stores = [_stored(arrays, parameters, file)]
    if others:
        file = f"{prefix}.pdopt"
        if not os.path.isfile(file):
            raise AssertedParameterError(
                f"Optimizer file [{file}] not exits; the program has {len(others)} variables in it"
            )
        stores.append(_stored(pickles.load_state(_bytes(file), file), others, file))
    for store in stores:
        _fill_scope(store, executor)


def _stored(arrays: Mapping[str, Any], variables: Sequence[Variable], source: str) -> ParameterStore:
    """The values of these variables; raises AssertedParameterError for one that is missing or does not fit."""
    try:
        return open_arrays(arrays, variables, source)
    except ParameterFileError as error:
        raise AssertedParameterError(
            error.message, kind=error.kind, variable=error.variable, faults=error.faults, hint=error.hint
        ) from error


def _load_files(
    program: Program, model_path: str, executor: Executor | None, var_list: Sequence[Variable] | None
) -> None:
    variables = persistables(program) if var_list is None else list(var_list)
    path = Path(model_path)
    if path.is_dir():
        present = [var for var in variables if (path / var.name).is_file()] if var_list is None else variables
        _fill_scope(open_separate(path, present), executor)
    elif path.is_file():
        if var_list is None:
            raise UsageError(
                "var_list is required when loading model file saved with [ save_params, save_persistables ]"
            )
        _fill_scope(open_combined(map_file(path), variables, str(path)), executor)
    else:
        raise ModelNotFoundError(f"there is nothing to load at {model_path}: no .pdparams, no folder, no file")


def load_program_state(model_path: str, var_list: Sequence[Variable] | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays by variable name from anything that `load` reads."""
    prefix = model_path.removesuffix(".pdparams").removesuffix(".pdopt").removesuffix(".pdmodel")
    if os.path.isfile(f"{prefix}.pdparams"):
        state = {}
        for suffix in (".pdparams", ".pdopt"):
            if os.path.isfile(prefix + suffix):
                state.update(pickles.load_state(_bytes(prefix + suffix), prefix + suffix))
        return state
    path = Path(model_path)
    if path.is_dir():
        return _state_of_folder(path, var_list)
    if not path.is_file():
        raise ModelNotFoundError(f"there is nothing to load at {model_path}: no .pdparams, no folder, no file")
    if var_list is None:
        raise UsageError("var_list can not be None when loading a file that holds all variables")
    store = open_combined(map_file(path), var_list, str(path))
    return {name: np.array(value) for name, value in store.items()}


def _state_of_folder(path: Path, var_list: Sequence[Variable] | None) -> dict[str, np.ndarray[Any, Any]]:
    from fluidtool.io.parameters import read_value

    if var_list is not None:
        return {name: np.array(value) for name, value in open_separate(path, var_list).items()}
    state = {}
    for file in sorted(entry for entry in path.rglob("*") if entry.is_file()):
        try:
            state[str(file.relative_to(path))] = np.array(read_value(file))
        except UnreadableError:
            continue  # a program or a note beside the parameters
    return state


def set_program_state(program: Program, state_dict: Mapping[str, Any]) -> None:
    """Set the variables of a program from arrays by name; raises AssertedError, or AssertedParameterError if one does not fit."""
    variables = [var for var in program.list_vars() if is_persistable(var)]
    used = {var.name for var in variables if var.name in state_dict}
    for var in variables:
        if var.name in used:
            held = global_scope().find_var(var.name)
            if held is None or held.value is None:
                raise AssertedError(f"Variable [ {var.name} ] Not found, Please make sure run startup program")
    _fill_scope(_stored(state_dict, [v for v in variables if v.name in used], "the state given"), None)
    unused = [name for name in state_dict if name not in used]
    if unused:
        text = (
            f"This list is not set, Because of Paramerter not found in program. There are: {' '.join(map(str, unused))}"
        )
        warnings.warn(with_short_names(text), stacklevel=2)


def _bytes(path: str) -> bytes:
    return read_file(path)


__all__ = [  # of `from paddle.fluid.io import *`
    "ComposeNotAligned",
    "DataLoader",
    "PyReader",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "default_collate_fn",
    "firstn",
    "get_program_parameter",
    "get_program_persistable_vars",
    "load",
    "load_inference_model",
    "load_params",
    "load_persistables",
    "load_program_state",
    "load_vars",
    "map_readers",
    "multiprocess_reader",
    "save",
    "save_inference_model",
    "save_params",
    "save_persistables",
    "save_vars",
    "set_program_state",
    "shuffle",
    "xmap_readers",
]
__getattr__ = refuse_other_names("paddle.fluid.io", defined_in(globals()))
