"""Transpiled programs that real Paddle 1.8.5 made: the same arguments to ours, and what differs."""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import fluidtool.fluid as fluid
from fluidtool.fluid.transpiler.ps_dispatcher import PSDispatcher
from fluidtool.ir import Block, Operator, Program, unique_name
from fluidtool.ir.roles import NAMESCOPE_ATTR
from tests.support.golden import corpus, names_in, read_json
from tests.support.program_diff import differences

SEED = 3  # of the source programs; files do not keep it, and it orders variables that are not cut
FROM_SETS = ("grad_to_block_id", "sparse_grad_to_param", "prefetch_var_name_to_block_id")
MASK = (1 << 64) - 1


def cases() -> tuple[str, ...]:
    """The names of the cases."""
    return names_in("dist")


@cache
def spec_of(case: str) -> dict[str, Any]:
    """The arguments of a case."""
    return dict(read_json(corpus("dist") / case / "case.json"))


def read(*path: str) -> Program:
    """A program of the corpus."""
    return Program.parse_from_string(corpus("dist").joinpath(*path).read_bytes())


def sources(name: str) -> tuple[Program, Program]:
    """The main and startup program that were transpiled."""
    main, startup = read("_sources", name, "main.pb"), read("_sources", name, "startup.pb")
    main.random_seed = startup.random_seed = SEED
    return main, startup


def ours(case: str) -> dict[str, Program]:
    """Every program of a case, made by our transpiler, each role by one of its own as in a real job."""
    spec = spec_of(case)
    args, endpoints = spec["args"], spec["endpoints"]
    rank = args.get("trainer_id", 0)
    with unique_name.guard(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Paddle's hash places gradients elsewhere than their parameters
        main, startup = sources(spec["source"])
        transpiler = fluid.DistributeTranspiler(config_of(args.get("config", {})))
        if args["mode"] != "pserver":
            transpiler.transpile(
                rank,
                program=main,
                startup_program=startup,
                trainers=",".join(endpoints),
                current_endpoint=endpoints[rank],
            )
            return {"trainer_main.pb": main, "trainer_startup.pb": startup}
        given = {"pservers": ",".join(endpoints), "trainers": args["trainers"], "sync_mode": args["sync_mode"]}
        transpiler.transpile(rank, program=main, startup_program=startup, current_endpoint=endpoints[0], **given)
        made = {"trainer_main.pb": transpiler.get_trainer_program(wait_port=False), "trainer_startup.pb": startup}
        for index, endpoint in enumerate(endpoints):
            main, startup = sources(spec["source"])
            transpiler = fluid.DistributeTranspiler(config_of(args.get("config", {})))
            transpiler.transpile(rank, program=main, startup_program=startup, current_endpoint=endpoint, **given)
            server = transpiler.get_pserver_programs(endpoint)
            made |= {f"pserver_{index}_main.pb": server[0], f"pserver_{index}_startup.pb": server[1]}
    return made


def config_of(fields: dict[str, Any]) -> fluid.DistributeTranspilerConfig:
    """The configuration that a case names."""
    config = fluid.DistributeTranspilerConfig()
    for name, value in fields.items():
        if name == "split_method":
            value = {"HashName": SeededHash, "RoundRobin": fluid.transpiler.RoundRobin}[value]
        setattr(config, name, value)
    return config


# ---------------------------------------------------------------- comparison
def compare(case: str) -> Iterator[str]:
    """What differs from real Paddle's programs beside the two repairs, a line each."""
    made = ours(case)
    for name in sorted(spec_of(case)["programs"]):
        yield from (
            f"{name}: {line}" for line in program_differences(made[name], read(case, name), spec_of(case)["args"])
        )


def program_differences(ours_: Program, theirs: Program, args: dict[str, Any]) -> Iterator[str]:
    """What differs beside the two repairs; args: mode, sync_mode, trainers and config."""
    return differences(normal(ours_, args), normal(theirs, args))


def normal(program: Program, args: dict[str, Any]) -> Program:
    """The program with what says nothing evened out, and Paddle's faults that are repaired taken out."""
    names: dict[str, str] = {}
    program = Program.parse_from_string(program.serialize_to_string())
    for block in program.blocks:
        for op in block.ops:
            for name in (*op.input_arg_names, *op.output_arg_names):
                if name.startswith("__control_var"):
                    names.setdefault(name, f"__control_var#{len(names)}")
            _even_out(op, names)
        _order_fake_inits(block)
        for name in [name for name in block.vars if name.startswith("__control_var")]:
            block.rename_var(name, names.setdefault(name, f"__control_var#{len(names)}"))
    if args["mode"] == "pserver" and not args["config"].get("geo_sgd_mode"):
        _repair(program, args)
    return program


def _even_out(op: Operator, names: dict[str, str]) -> None:
    if op.has_attr(NAMESCOPE_ATTR):
        op.set_attr(NAMESCOPE_ATTR, re.sub(r"_\d+(?=/)", "", op.attr(NAMESCOPE_ATTR)))
    for name in FROM_SETS:
        if op.has_attr(name):
            op.set_attr(name, sorted(op.attr(name)))


def _order_fake_inits(block: Block) -> None:
    tables = sorted((op for op in block.ops if op.type == "fake_init"), key=lambda op: op.output("Out"))
    block.ops[:] = [tables.pop(0) if op.type == "fake_init" else op for op in block.ops]


def _repair(program: Program, args: dict[str, Any]) -> None:
    """Paddle 1.8.5 takes distributed_mode from the config alone, and lets servers of one trainer wait for a name that this
    trainer does not send.
    """
    block, suffix = program.global_block(), ".trainer_0"
    serving = [op for op in block.ops if op.type == "listen_and_serv"]
    if not args["sync_mode"]:
        for op in serving:
            op.remove_attr("distributed_mode")
    elif args["trainers"] == 1:
        for op in serving:
            op.set_input("X", [name.removesuffix(suffix) for name in op.input("X")])
        for inner in program.blocks[1:]:
            if [op.type for op in inner.ops[:2]] == ["sum", "scale"] and inner.ops[0].input("X")[0].endswith(suffix):
                del inner.ops[:2]
        for name in [name for name in block.vars if name.endswith(suffix)]:
            block.remove_var(name)


# ---------------------------------------------------------------- the hash of the process that made the corpus
class SeededHash(PSDispatcher):
    """`hash(name) % servers` of Python 3.7 under PYTHONHASHSEED=0."""

    def dispatch(self, varlist: Any) -> list[str]:
        return [self.eps[siphash(var.name.encode()) % len(self.eps)] for var in varlist]


def siphash(data: bytes) -> int:
    """SipHash-2-4 with the zero key, as a signed 64-bit number (J.-P. Aumasson and D. J. Bernstein, 2012)."""
    state = [0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573]
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        state[3] ^= word
        state = _rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xFF
    a, b, c, d = _rounds(state, 4)
    value = a ^ b ^ c ^ d
    return value - (1 << 64) if value >> 63 else value


def _rounds(state: list[int], count: int) -> list[int]:
    a, b, c, d = state
    for _ in range(count):
        a, c = (a + b) & MASK, (c + d) & MASK
        b, d = _turn(b, 13) ^ a, _turn(d, 16) ^ c
        a = _turn(a, 32)
        c, a = (c + b) & MASK, (a + d) & MASK
        b, d = _turn(b, 17) ^ c, _turn(d, 21) ^ a
        c = _turn(c, 32)
    return [a, b, c, d]


def _turn(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK
