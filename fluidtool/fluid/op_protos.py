"""What operators declare, as messages: `get_all_op_protos`, `OpDescCreationMethod`, `OpProtoHolder` (Paddle 1.8.5 op.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.ir import roles
from fluidtool.ops.registry import OpInfo, all_ops, find_op
from fluidtool.ops.schema import Slot
from fluidtool.proto import framework_pb2 as pb
from fluidtool.proto.enums import AttrType

__all__ = ["OpDescCreationMethod", "OpProtoHolder", "default_attrs", "get_all_op_protos"]

_FIELDS = {
    AttrType.INT: "i",
    AttrType.FLOAT: "f",
    AttrType.STRING: "s",
    AttrType.INTS: "ints",
    AttrType.FLOATS: "floats",
    AttrType.STRINGS: "strings",
    AttrType.BOOLEAN: "b",
    AttrType.BOOLEANS: "bools",
    AttrType.LONG: "l",
    AttrType.LONGS: "longs",
}
_FRAMEWORK_DEFAULTS: Mapping[str, Any] = {
    roles.ROLE_ATTR: int(roles.OpRole.NotSpecified),
    roles.ROLE_VAR_ATTR: [],
    roles.NAMESCOPE_ATTR: "",
    roles.CALLSTACK_ATTR: [],
    roles.DEVICE_ATTR: "",
}


def get_all_op_protos() -> list[pb.OpProto]:
    """The declarations of all operators, without gradients: those have none of their own."""
    return [_proto(info) for info in all_ops().values() if "_grad" not in info.type]


def default_attrs(type: str | bytes) -> dict[str, Any]:
    """The attributes of an operator that have defaults; raises UsageError for an unknown type."""
    name = type.decode() if isinstance(type, bytes) else type
    info = find_op(name)
    if info is None:
        raise UsageError(f"The operator: {name} is not registered.")
    return {key: spec.default for key, spec in info.attrs.items() if spec.default is not None} | dict(
        _FRAMEWORK_DEFAULTS
    )


def _proto(info: OpInfo) -> pb.OpProto:
    attrs = {name: spec.type for name, spec in info.attrs.items()} | roles.FRAMEWORK_ATTR_TYPES
    return pb.OpProto(
        type=info.type,
        comment=(info.kernel.__doc__ or "").strip(),
        inputs=_slots(info.inputs),
        outputs=_slots(info.outputs),
        attrs=[pb.OpProto.Attr(name=name, type=int(kind), comment="") for name, kind in attrs.items()],  # type: ignore[arg-type]
    )


def _slots(slots: Iterable[Slot]) -> list[pb.OpProto.Var]:
    """The slots of Paddle 1.8.5: what only 2.x allows is left out."""
    return [
        pb.OpProto.Var(
            name=slot.name,
            comment="",
            duplicable=slot.duplicable,
            intermediate=slot.intermediate,
            dispensable=slot.dispensable and not slot.later,
        )
        for slot in slots
        if "+" not in slot.later
    ]


class OpDescCreationMethod:
    """Makes OpDesc messages of an operator that an OpProto declares: slots and attributes are keywords."""

    def __init__(self, op_proto: pb.OpProto) -> None:
        if not isinstance(op_proto, pb.OpProto):
            raise ArgumentTypeError(
                f"Type of op_proto should be OpProto in PaddlePaddle, found {type(op_proto).__name__}"
            )
        self._proto = op_proto

    def __call__(self, *args: Any, **kwargs: Any) -> pb.OpDesc:
        """The message; raises UsageError for several variables where a slot takes one."""
        if args:
            raise UsageError("Only keyword arguments are supported.")
        desc = pb.OpDesc(type=self._proto.type)
        for slots, message, what in (
            (self._proto.inputs, desc.inputs, "Input"),
            (self._proto.outputs, desc.outputs, "Output"),
        ):
            for slot in slots:
                message.add(parameter=slot.name, arguments=_names(slot, kwargs.get(slot.name, []), what))
        for attr in self._proto.attrs:
            if not attr.generated and kwargs.get(attr.name) is not None:
                _set(desc.attrs.add(name=attr.name, type=attr.type), kwargs[attr.name])
        return desc


def _names(slot: pb.OpProto.Var, given: Any, what: str) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    if len(names) > 1 and not slot.duplicable:
        raise UsageError(f"{what} {slot.name} expects only one {what.lower()}, but {len(names)} are given.")
    return names


def _set(attr: pb.OpDesc.Attr, value: Any) -> None:
    """Put a value into the field of the attribute's type; raises UsageError for types that have no value of their own."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    field = _FIELDS.get(AttrType(attr.type))
    if field is None:
        raise UsageError(f"attribute {attr.name}: a value of type {AttrType(attr.type).name} cannot be given here")
    if field.endswith("s") and field != "s":
        getattr(attr, field).extend(map(_as_bytes, value))
    else:
        setattr(attr, field, _as_bytes(value))


def _as_bytes(value: Any) -> Any:
    """Text as the messages keep it."""
    return value.encode() if isinstance(value, str) else value


class OpProtoHolder:
    """All declarations by type; `OpProtoHolder.instance()` is the only one that is needed."""

    def __init__(self) -> None:
        self.op_proto_map = {proto.type: proto for proto in get_all_op_protos()}

    @classmethod
    @cache
    def instance(cls) -> OpProtoHolder:
        """The one that everybody shares."""
        return cls()

    def get_op_proto(self, type: str) -> pb.OpProto:
        """The declaration of an operator; raises UsageError for an unknown type."""
        if type not in self.op_proto_map:
            raise UsageError(f'Operator "{type}" has not been registered.')
        return self.op_proto_map[type]

    @staticmethod
    def generated_op_attr_names() -> set[str]:
        """The attributes that every operator has."""
        return set(roles.FRAMEWORK_ATTR_TYPES)
