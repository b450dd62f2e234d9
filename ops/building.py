"""What happens when an operator is appended to a program: checks, defaults, inference.

Importing this module fills the hooks of `fluidtool.ir`: then `append_op` refuses unknown slots and invalid attributes,
adds default attributes and the framework's own, and writes inferred metadata into the declarations
of its outputs, as Paddle 1.8.5 does (framework.py, op_desc.cc). Gradients, and operators that are known but not run, pass
unchecked.
"""

from __future__ import annotations

import linecache
import os
import sys
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from fluidtool.errors import AssertedError, OperatorError, ProgramError, UsageError
from fluidtool.ir.operator import Operator, guess_attr_type, hooks
from fluidtool.ir.roles import CALLSTACK_ATTR, DEVICE_ATTR, NAMESCOPE_ATTR, ROLE_ATTR, ROLE_VAR_ATTR
from fluidtool.ops.index import EXCLUDED, MODULES
from fluidtool.ops.inference import infer_declared
from fluidtool.ops.registry import OpInfo, find_op
from fluidtool.ops.schema import FRAMEWORK_ATTRS, AttrSpec, Slot
from fluidtool.proto.enums import AttrType

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Building:
    """What building adds to every operator: the current name scope and device, and whether call stacks are recorded."""

    name_scope = "/"
    device = ""
    record_callstack = True


def prepare(op: Operator) -> None:
    """Check a new operator against its schema and complete its attributes; raises UsageError or ProgramError."""
    info = find_op(op.type)
    if info is None:
        _refuse_unknown(op.type)
    if info is None or op.type.endswith("_grad"):
        _framework_attrs(op)
        return
    op._inputs = _arranged(op, info.inputs, op.inputs, "input")
    op._outputs = {
        slot: names
        for slot, names in _arranged(op, info.outputs, op.outputs, "output").items()
        if names or slot in op.outputs
    }
    _complete_attrs(op, info)
    _framework_attrs(op)


def _refuse_unknown(op_type: str) -> None:
    if op_type in EXCLUDED or op_type.endswith("_grad"):
        return
    near = get_close_matches(op_type, MODULES, n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else " ('fluidtool ops' lists those that are.)"
    raise UsageError(f'Operator "{op_type}" has not been registered.{hint}')


def _arranged(op: Operator, slots: tuple[Slot, ...], given: dict[str, list[str]], kind: str) -> dict[str, list[str]]:
    known = {slot.name for slot in slots}
    for name, arguments in given.items():
        if name not in known and arguments:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(sorted(known)) or 'none'}"
            raise AssertedError(f"operator {op.type} has no {kind} {name!r}{hint}")
    for slot in slots:
        if slot.name not in given and not slot.dispensable:
            if kind == "output":
                raise UsageError(f'Incorrect setting for output(s) of operator "{op.type}", should set: [{slot.name}].')
            raise AssertedError(f"Input {slot.name} not found for operator {op.type}")
        if not slot.duplicable and len(given.get(slot.name, ())) > 1:
            raise UsageError(
                f"{kind.capitalize()} {slot.name} of operator {op.type} expects only one {kind}, "
                f"but {len(given[slot.name])} are given."
            )
    return {slot.name: given.get(slot.name, []) for slot in slots}


def _complete_attrs(op: Operator, info: OpInfo) -> None:
    given = {name: op.attr(name) for name in op.attr_names}
    framework = {name: value for name, value in given.items() if name in FRAMEWORK_ATTRS}
    op._attrs, op._attr_types = {}, {}
    for name, spec in info.attrs.items():
        if name in given:
            op._store(name, given[name], _declared_type(op, name, spec, given[name]))
            _check_limit(op, name, spec)
        elif spec.required:
            raise ProgramError(f"operator {op.type} needs the attribute {name} ({spec.type.name})")
        else:
            op._store(name, _fresh(spec.default), spec.type)
    for name, value in framework.items():
        op._store(name, value, FRAMEWORK_ATTRS[name].type)


def _check_limit(op: Operator, name: str, spec: AttrSpec) -> None:
    if spec.limit is not None and not spec.limit.allows(op.attr(name)):
        raise OperatorError(f"operator {op.type}: attribute {name} must be {spec.limit}, found {op.attr(name)!r}")


def _declared_type(op: Operator, name: str, spec: AttrSpec, value: Any) -> AttrType:
    """The declared type; whole numbers of a tensor's size do not fit INT and are refused by `_store`."""
    if spec.type == AttrType.INT and not isinstance(value, (list, tuple, str)):
        guessed = guess_attr_type(op.type, name, value)
        if guessed == AttrType.LONG:
            raise UsageError(f"attribute {name} of operator {op.type} is a 32-bit integer, found {value}")
    return spec.type


def _fresh(default: Any) -> Any:
    return list(default) if isinstance(default, list) else default


def _framework_attrs(op: Operator) -> None:
    program = op.block.program
    if not op.has_attr(ROLE_ATTR):
        op._store(ROLE_ATTR, int(program.op_role), AttrType.INT)
    if not op.has_attr(ROLE_VAR_ATTR):
        op._store(ROLE_VAR_ATTR, list(program.op_role_var), AttrType.STRINGS)
    if not op.has_attr(NAMESCOPE_ATTR):
        op._store(NAMESCOPE_ATTR, Building.name_scope, AttrType.STRING)
    if not op.has_attr(CALLSTACK_ATTR):
        op._store(CALLSTACK_ATTR, user_frames() if Building.record_callstack else [], AttrType.STRINGS)
    if not op.has_attr(DEVICE_ATTR):
        op._store(DEVICE_ATTR, Building.device, AttrType.STRING)


@lru_cache(maxsize=4096)  # asked for every frame around every operator
def _ours(file: str) -> bool:
    return os.path.abspath(file).startswith(PACKAGE)


def user_frames() -> list[str]:
    """The caller's stack outside this package, innermost first, a file and a line of code in turn (as Paddle records)."""
    lines: list[str] = []
    frame = sys._getframe(1)
    while frame is not None and len(lines) < 16:
        code, number = frame.f_code, frame.f_lineno
        if not _ours(code.co_filename):
            lines.append(f'  File "{code.co_filename}", line {number}, in {code.co_name}')
            line = linecache.getline(code.co_filename, number, frame.f_globals).strip()
            lines.append(f"    {line}" if line else "")
        frame = frame.f_back  # type: ignore[assignment]
    return lines


def install() -> None:
    """Fill the hooks of `fluidtool.ir`."""
    hooks.prepare = prepare
    hooks.infer = infer_declared


install()
