"""Operator roles: what part of training an operator belongs to (`op_role` attribute, Paddle 1.8.5 op_proto_maker.h)."""

from __future__ import annotations

from enum import IntFlag

from fluidtool.proto.enums import AttrType


class OpRole(IntFlag):
    """Bits of the `op_role` attribute."""

    Forward = 0x0000
    Backward = 0x0001
    Optimize = 0x0002
    RPC = 0x0004
    Dist = 0x0008
    LRSched = 0x0010
    Loss = 0x0100
    NotSpecified = 0x1000


ROLE_ATTR = "op_role"
ROLE_VAR_ATTR = "op_role_var"
NAMESCOPE_ATTR = "op_namescope"
CALLSTACK_ATTR = "op_callstack"
DEVICE_ATTR = "op_device"
# The types of the attributes that the framework gives to every operator.
FRAMEWORK_ATTR_TYPES = {
    ROLE_ATTR: AttrType.INT,
    ROLE_VAR_ATTR: AttrType.STRINGS,
    NAMESCOPE_ATTR: AttrType.STRING,
    CALLSTACK_ATTR: AttrType.STRINGS,
    DEVICE_ATTR: AttrType.STRING,
}
# The name scope of operators that a rewrite put others in place of, and left for those who fetch their results.
SUPERSEDED = "/superseded/"
