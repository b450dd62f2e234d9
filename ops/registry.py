"""The registry: `@op` declares an operator and returns its OpInfo, to which inference and gradient are attached.

    @op("relu", inputs="X", outputs="Out", attrs={**USE_MKLDNN}, lod="X")
    def relu(ctx, X):
        return ctx.xp.maximum(X, 0)

    @relu.infer
    def _(ctx, X):
        return X

    @relu.grad(inputs="Out Out@GRAD", outputs="X@GRAD")
    def relu_grad(ctx, Out, Out_grad):
        return Out_grad * (Out > 0)

A kernel gets one positional argument per declared input slot (an array; a list of them for a `*` slot; None if it is
absent) and, as keywords, the attributes that its signature names. It returns the value of its first output, or a dict
by output slot name (a list for a `*` slot). SelectedRows, LoDTensorArray and LoDRankTable values come and go unchanged.
An `infer` function has the same form with TensorMeta in place of arrays. Kernels never write into their inputs.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import field
from types import CodeType
from typing import Any

from fluidtool.errors import Hint, Location, UnsupportedOperatorError
from fluidtool.ops.multiply_adds import MultiplyAdds
from fluidtool.ops.schema import AttrSpec, Slot, attr_specs, slots
from fluidtool.ops.traits import NO_TRAITS, Traits
from fluidtool.records import dataclass

Kernel = Callable[..., Any]
GradMaker = Callable[..., list[Any]]


@dataclass(slots=True)
class OpInfo:
    """One operator: schema, kernel, inference, gradient, traits."""

    type: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attrs: dict[str, AttrSpec]
    kernel: Kernel
    kernel_attrs: tuple[str, ...]
    share_lod: tuple[tuple[str, str], ...] = ()
    raw: bool = False
    random: bool = False
    side_effects: bool = False
    multiply_adds: MultiplyAdds | None = None
    traits: Traits = NO_TRAITS
    infer_by_kernel: Kernel | None = None
    infer_attrs: tuple[str, ...] = ()
    gradient: GradInfo | None = None
    maker: GradMaker | None = None
    module: str = ""

    def infer(self, function: Kernel) -> Kernel:
        """Decorator: `function(ctx, *metas, **attrs)` returns the TensorMeta of the outputs."""
        self.infer_attrs = _check_signature(self.type, function, () if self.raw else self.inputs, self.attrs)
        self.infer_by_kernel = function
        return function

    def grad(
        self,
        inputs: str,
        outputs: str,
        *,
        type: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        lod: str = "",
        raw: bool = False,
        traits: Traits = NO_TRAITS,
    ) -> Callable[[Kernel], OpInfo]:
        """Decorator: declare the gradient operator (`<type>_grad`) and its kernel, wired in the plain way.

        Slot `X` is the forward input or output X, `X@GRAD` its gradient. `attrs=None` copies the forward attributes.
        The result is an OpInfo itself, so second gradients hang from it. Other wirings: `grad_maker`.
        """
        grad_type = type or self.type + "_grad"
        self.gradient = GradInfo(grad_type, tuple(s.name for s in slots(inputs)), tuple(s.name for s in slots(outputs)))
        return op(
            grad_type,
            inputs=inputs,
            outputs=outputs,
            attrs=self.attrs if attrs is None else attrs,
            lod=lod,
            raw=raw,
            traits=traits,
        )

    def grad_maker(self, function: GradMaker) -> GradMaker:
        """Decorator for gradients that are not wired in the plain way (see `fluidtool.ops.gradient`)."""
        self.maker = function
        return function


@dataclass(frozen=True, slots=True)
class GradInfo:
    """The plain wiring of a gradient operator: which forward variables and gradients it takes and gives."""

    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(slots=True)
class _Registry:
    """`complete`: those whose module has been imported to its end. Others may lack what hangs from them yet."""

    infos: dict[str, OpInfo] = field(default_factory=dict)
    complete: dict[str, OpInfo] = field(default_factory=dict)


_REGISTRY = _Registry()


def op(
    type: str,
    *,
    inputs: str,
    outputs: str,
    attrs: Mapping[str, Any] | None = None,
    lod: str = "",
    raw: bool = False,
    random: bool = False,
    side_effects: bool = False,
    multiply_adds: MultiplyAdds | None = None,
    traits: Traits = NO_TRAITS,
) -> Callable[[Kernel], OpInfo]:
    """Register the decorated kernel as operator `type` and return its OpInfo.

    lod: which LoD the outputs inherit: "X" (every output gets X's) or "X->Out Y->Other".
    raw: the kernel reads and writes variables through ctx itself (control flow); it gets no positional inputs.
    random: draws random numbers; such operators are never folded or merged.
    side_effects: does more than compute its outputs (prints, writes files, communicates); never dropped.
    multiply_adds: counts them from shapes; None: negligible.
    traits: what passes and distribution need to know.
    """

    def register(kernel: Kernel) -> OpInfo:
        declared_inputs, declared_outputs, specs = slots(inputs), slots(outputs), attr_specs(attrs or {})
        info = OpInfo(
            type=type,
            inputs=declared_inputs,
            outputs=declared_outputs,
            attrs=specs,
            kernel=kernel,
            kernel_attrs=_check_signature(type, kernel, () if raw else declared_inputs, specs),
            share_lod=_parse_lod(type, lod, declared_inputs, declared_outputs),
            raw=raw,
            random=random,
            side_effects=side_effects,
            multiply_adds=multiply_adds,
            traits=traits,
            module=kernel.__module__,
        )
        unknown = [name for name in traits.input_names() if name not in {slot.name for slot in declared_inputs}]
        if unknown:
            raise ValueError(f"operator {type}: its traits name inputs {unknown} that it does not have")
        if type in _REGISTRY.infos:
            raise ValueError(f"operator {type} is registered twice: {_REGISTRY.infos[type].module} and {info.module}")
        _REGISTRY.infos[type] = info
        return info

    return register


def _parse_lod(
    type: str, text: str, inputs: tuple[Slot, ...], outputs: tuple[Slot, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = []
    for word in text.split():
        source, arrow, target = word.partition("->")
        targets = [target] if arrow else [s.name for s in outputs]
        pairs += [(source, t) for t in targets]
    for source, target in pairs:
        if source not in {s.name for s in inputs} or target not in {s.name for s in outputs}:
            raise ValueError(f"operator {type}: lod={text!r} names a slot that it does not have")
    return tuple(pairs)


def _check_signature(
    type: str, function: Kernel, inputs: tuple[Slot, ...], attrs: Mapping[str, AttrSpec]
) -> tuple[str, ...]:
    code: CodeType = inspect.unwrap(function).__code__  # what `inspect.signature` would find, at a tenth of its time
    end = code.co_argcount + code.co_kwonlyargcount
    positional, keywords = list(code.co_varnames[: code.co_argcount]), code.co_varnames[code.co_argcount : end]
    expected = ["ctx", *(s.name.replace("@", "_").replace("_GRAD", "_grad") for s in inputs)]
    if len(positional) != len(expected):
        raise ValueError(f"operator {type}: {function.__name__} takes {positional}, its slots ask for {expected}")
    unknown = [name for name in keywords if name not in attrs]
    if unknown:
        raise ValueError(f"operator {type}: {function.__name__} asks for attributes {unknown} that are not declared")
    return keywords


def find_op(type: str) -> OpInfo | None:
    """The OpInfo of an operator type, or None; loads the family's module on first use."""
    info = _REGISTRY.complete.get(type)
    if info is None:
        from fluidtool.ops.index import MODULES

        module = MODULES.get(type)
        if module is not None:
            importlib.import_module(f"fluidtool.ops.{module}")  # waits for another thread that is importing it
        info = _REGISTRY.infos.get(type)
        if info is not None:
            _REGISTRY.complete[type] = info
    return info


def traits_of(type: str) -> Traits:
    """The traits of an operator type, the defaults for one that is unknown; imports no operator."""
    info = _REGISTRY.infos.get(type)
    if info is not None:
        return info.traits
    from fluidtool.ops.index import TRAITS

    return TRAITS.get(type, NO_TRAITS)


def get_op(type: str) -> OpInfo:
    """The OpInfo of an operator type; raises UnsupportedOperatorError with the reason or near names."""
    info = find_op(type)
    if info is not None:
        return info
    from difflib import get_close_matches

    from fluidtool.ops.index import EXCLUDED, MODULES

    if type in EXCLUDED:
        text = f"operator {type} is not supported: {EXCLUDED[type]}"
        raise UnsupportedOperatorError(text, location=Location(type=type))
    near = get_close_matches(type, MODULES, n=3)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise UnsupportedOperatorError(
        f"operator {type} is unknown to this version of fluidtool",
        hint=Hint(
            f"{meant}(fluidtool.ops.index.MODULES has what is implemented)",
            f"{meant}('fluidtool ops' lists what is implemented)",
        ),
        location=Location(type=type),
    )


def all_ops() -> dict[str, OpInfo]:
    """Every operator, by type; imports every family."""
    from fluidtool.ops.index import MODULES

    for module in sorted(set(MODULES.values())):
        importlib.import_module(f"fluidtool.ops.{module}")
    return dict(sorted(_REGISTRY.infos.items()))
