"""Block: an ordered list of operators and the variables they declare. Blocks nest through their parent index."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from fluidtool.errors import ProgramError, WrongKindError
from fluidtool.ir.operator import Operator, hooks
from fluidtool.ir.variable import Parameter, Variable
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

if TYPE_CHECKING:
    from fluidtool.ir.descriptions import BlockDesc
    from fluidtool.ir.program import Program

SPREADING = ("c_broadcast", "c_sync_comm_stream")


@dataclass(slots=True)
class _Writers:
    """The operators of a block by what they write, when the program was changed the `mutation`-th time."""

    mutation: int
    by_name: dict[str, list[Operator]] = field(default_factory=dict)

    def note(self, op: Operator) -> None:
        """Take an operator in."""
        for name in dict.fromkeys(op.output_arg_names):
            self.by_name.setdefault(name, []).append(op)


class Block:
    """Block `idx` of a program. `vars` maps names to Variables, `ops` is the list of operators in order."""

    __slots__ = ("_writers", "extra", "forward_block_idx", "idx", "ops", "parent_idx", "program", "vars")

    def __init__(self, program: Program, idx: int, parent_idx: int = -1) -> None:
        self.program, self.idx, self.parent_idx = program, idx, parent_idx
        self.forward_block_idx = -1
        self.vars: MutableMapping[str, Variable] = {}
        self.ops: list[Operator] = []
        self.extra: bytes = b""
        self._writers: _Writers | None = None

    # -- the blocks around
    @property
    def desc(self) -> BlockDesc:
        """What scripts use as `block.desc`."""
        from fluidtool.ir.descriptions import BlockDesc

        return BlockDesc(self)

    @property
    def parent(self) -> Block | None:
        """The enclosing block, or None for block 0."""
        return self.program.block(self.parent_idx) if self.parent_idx >= 0 else None

    def ancestry(self) -> Iterator[Block]:
        """This block, its parent, and so on up to block 0."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent

    def reach(self) -> Iterator[Block]:
        """The blocks whose variables operators here may mean, nearest first: for a block of gradients the block that it
        is the gradient of, then the block around it, and so on (Paddle 1.8.5 block_desc.cc).
        """
        waiting, seen = [self], set()
        while waiting:
            block = waiting.pop(0)
            if block.idx not in seen:
                seen.add(block.idx)
                yield block
                waiting += [self.program.block(idx) for idx in (block.forward_block_idx, block.parent_idx) if idx >= 0]

    def set_forward_block_idx(self, idx: int) -> None:
        """Note which block this one is the gradient of."""
        self.forward_block_idx = int(idx)

    # -- variables
    def has_var(self, name: str) -> bool:
        """Whether this block itself declares the name."""
        return name in self.vars

    def has_var_recursive(self, name: str) -> bool:
        """Whether this block or one within its reach declares the name."""
        return any(name in block.vars for block in self.reach())

    def var(self, name: str) -> Variable:
        """The variable that this block itself declares; raises ProgramError (a ValueError) when there is none."""
        if not isinstance(name, str):
            raise WrongKindError(f"var require string as parameter, but get {type(name).__name__}.")
        if name not in self.vars:
            raise ProgramError(f"var {name} not in this block{self._did_you_mean(name)}")
        return self.vars[name]

    def var_recursive(self, name: str) -> Variable:
        """The variable that the nearest block within reach declares; raises ProgramError without one."""
        found = self.find_var_recursive(name)
        if found is None:
            raise ProgramError(f"Var {name} is not found recursively{self._did_you_mean(name)}")
        return found

    def find_var_recursive(self, name: str) -> Variable | None:
        """The variable that the nearest block within reach declares, or None."""
        for block in self.reach():
            if name in block.vars:
                return block.vars[name]
        return None

    def all_parameters(self) -> list[Parameter]:
        """The parameters declared here, in order."""
        return [var for var in self.vars.values() if isinstance(var, Parameter)]

    iter_parameters = all_parameters

    def create_var(self, *args: Any, **kwargs: Any) -> Variable:
        """Declare a variable (arguments of Variable); an existing name is returned when its fields agree.

        `initializer` is appended in both cases, as Paddle does.
        """
        name = kwargs.get("name")
        initializer = kwargs.pop("initializer", None)
        if name is not None and name in self.vars:
            var = self._redeclared(self.vars[name], kwargs)
        else:
            var = Variable(self, *args, **kwargs)
            self.add_var(var)
        if initializer is not None:
            initializer(var, self)
        return var

    def _redeclared(self, var: Variable, fields: dict[str, Any]) -> Variable:
        fresh = Variable(self, **fields)
        for key in ("shape", "dtype", "lod_level", "type", "persistable"):
            if fields.get(key) is not None and getattr(fresh, key) != getattr(var, key):
                raise ProgramError(
                    f"Variable {var.name} has been created before with {key} {getattr(var, key)}, "
                    f"the new one has {getattr(fresh, key)}; use another name"
                )
        return var

    def create_parameter(self, *args: Any, **kwargs: Any) -> Parameter:
        """Declare a parameter in block 0 (arguments of Parameter, and `initializer`, for one that has none yet).

        If the name is already declared, shape and data type must be the same; raises ProgramError otherwise.
        """
        block = self.program.global_block()
        initializer = kwargs.pop("initializer", None)
        param = Parameter(block, *args, **kwargs)
        if param.name in block.vars:
            fields = {key: getattr(param, key) for key in ("shape", "dtype", "type")}
            block._redeclared(block.vars[param.name], {"name": param.name, **fields})
        block.add_var(param)
        if initializer is not None and not block._is_initialized(param.name):
            initializer(param, self)
        return param

    def _is_initialized(self, name: str) -> bool:
        """Whether an operator writes the variable, other than those that spread it over processes."""
        writers = self._known_writers()
        if writers is None:
            writers = self._writers = _Writers(self.program.mutation)
            for op in self.ops:
                writers.note(op)
        found = [op for op in writers.by_name.get(name, ()) if op.type not in SPREADING]
        if len(found) > 1:
            raise ProgramError(f"param {name} is inited by multiple init ops {[op.type for op in found]}")
        return bool(found)

    def _known_writers(self) -> _Writers | None:
        """The operators by what they write, as long as nothing but what notes it has changed the program."""
        writers = self._writers
        return writers if writers is not None and writers.mutation == self.program.mutation else None

    def add_var(self, var: Variable) -> Variable:
        """Add a variable, replacing one of the same name."""
        writers = self._known_writers()
        self.vars[var.name] = var
        var.block = self
        self.program.touch()
        if writers is not None:
            writers.mutation = self.program.mutation
        return var

    def remove_var(self, name: str) -> None:
        """Remove the declaration of a variable."""
        self.vars.pop(name, None)
        self.program.touch()

    def rename_var(self, name: str, new_name: str) -> Variable:
        """Rename a variable here, and in every operator of this block and the blocks within that means it."""
        var = self.var(name)
        if new_name in self.vars and new_name != name:
            raise ProgramError(f"cannot rename {name} to {new_name}: block {self.idx} already declares {new_name}")
        self.vars = {new_name if key == name else key: value for key, value in self.vars.items()}
        var.name = new_name
        for block in self.program.blocks:
            if block is self or self._meant_in(block, name):
                for op in block.ops:
                    op.rename_input(name, new_name)
                    op.rename_output(name, new_name)
        return var

    def _meant_in(self, block: Block, name: str) -> bool:
        """Whether `name`, used in `block`, is this block's variable (no nearer declaration hides it)."""
        for around in block.ancestry():
            if around is self:
                return True
            if name in around.vars:
                return False
        return False

    def clone_variable(self, var: Variable, force_persistable: bool = True) -> Variable:
        """Declare a copy of a variable of another block here; tensors become persistable unless told otherwise."""
        plain = var.type in (VarType.STEP_SCOPES, VarType.RAW)
        fields: dict[str, Any] = {"name": var.name, "persistable": var.persistable, "type": var.type}
        if var.type == VarType.SELECTED_ROWS:
            fields |= {"shape": var.shape, "dtype": var.dtype, "persistable": force_persistable or var.persistable}
        elif not plain:
            fields |= {
                "shape": var.shape if var.has_shape else None,
                "dtype": var.dtype,
                "lod_level": var.lod_level if var.has_lod_level else None,
                "persistable": force_persistable or var.persistable,
                "is_data": var.is_data,
                "need_check_feed": var.need_check_feed,
            }
        return self.create_var(**fields)

    def copy_param_info_from(self, other: Block) -> None:
        """Turn variables into the Parameters that `other` has under the same names (a parsed file has none).

        Raises ProgramError (a ValueError) where one of them is missing here.
        """
        self._copy_param_info_from(other)
        missing = [param.name for param in other.all_parameters() if param.name not in self.vars]
        if missing:
            raise ProgramError(
                "copy_param_info_from should be invoked with blocks of the same topology: "
                f"block {self.idx} has no {', '.join(missing)}"
            )

    def _copy_param_info_from(self, other: Block) -> None:
        """The same, but parameters that were pruned away here are left out."""
        if not isinstance(other, Block):
            raise WrongKindError(f"copy_param_info_from takes a Block, found {type(other).__name__}")
        for param in other.all_parameters():
            mine = self.vars.get(param.name)
            if mine is None:
                continue
            parameter = self.vars[param.name] = Parameter(
                self,
                shape=mine.shape,
                dtype=mine.dtype,
                type=mine.type,
                lod_level=mine.lod_level if mine.has_lod_level else None,
                stop_gradient=param.stop_gradient,
                trainable=param.trainable,
                optimize_attr=param.optimize_attr,
                regularizer=param.regularizer,
                gradient_clip_attr=param.gradient_clip_attr,
                do_model_average=param.do_model_average,
                is_distributed=param.is_distributed,
                error_clip=param.error_clip,
                persistable=mine.persistable,
                need_check_feed=mine.need_check_feed,
                name=mine.name,
            )
            parameter.type_bytes, parameter.extra, parameter.original = mine.type_bytes, mine.extra, mine.original
        self.program.touch()

    # -- operators
    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Append an operator (arguments of Operator: type, inputs, outputs, attrs)."""
        return self.insert_op(len(self.ops), *args, **kwargs)

    def prepend_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Put an operator first."""
        return self.insert_op(0, *args, **kwargs)

    def insert_op(self, index: int, *args: Any, **kwargs: Any) -> Operator:
        """Put an operator before position `index`; defaults are filled in, output shapes and data types inferred."""
        if not 0 <= index <= len(self.ops):
            raise ProgramError(f"cannot insert at {index}: block {self.idx} has {len(self.ops)} operators")
        kwargs.pop("stop_gradient", None)
        op = Operator(self, *args, **kwargs)
        if hooks.prepare is not None:
            hooks.prepare(op)
        writers = self._known_writers()
        self.ops.insert(index, op)
        self.program.touch()
        op.infer()
        if writers is not None:
            writers.note(op)
            writers.mutation = self.program.mutation
        return op

    def remove_op(self, index: int) -> None:
        """Remove the operator at this position."""
        if not 0 <= index < len(self.ops):
            raise ProgramError(f"cannot remove operator {index}: block {self.idx} has {len(self.ops)} operators")
        del self.ops[index]
        self.program.touch()

    def slice_ops(self, start: int, end: int) -> list[Operator]:
        """The operators from `start` to before `end`."""
        return self.ops[start:end]

    # -- text and compatibility
    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """The block as protobuf text; with_details adds what the format does not keep of variables."""
        return self.program.text_of(self, throw_on_error, with_details)

    def sync_with_cpp(self) -> None:
        """Kept for scripts: there is no second copy of the block to synchronize with."""

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"<Block {self.idx} (parent {self.parent_idx}): {len(self.ops)} ops, {len(self.vars)} vars>"

    def _did_you_mean(self, name: str) -> str:
        from difflib import get_close_matches

        names = [n for block in self.ancestry() for n in block.vars]
        near = get_close_matches(name, names, n=3)
        return f"; did you mean {' or '.join(near)}?" if near else ""

    _set_forward_block_idx = set_forward_block_idx
    _var_recursive = var_recursive
    _find_var_recursive = find_var_recursive
    _rename_var = rename_var
    _remove_var = remove_var
    _remove_op = remove_op
    _insert_op = insert_op
    _prepend_op = prepend_op
    _slice_ops = slice_ops
    _clone_variable = clone_variable
    _sync_with_cpp = sync_with_cpp
