"""Builds and transpiles the jobs of `networks.py` and writes their programs: `PYTHON dump.py PACKAGE ARCHIVE.tar.xz`.

Runs under real Paddle 1.8.5 (PACKAGE paddle.fluid, Python 3.7) and under fluidtool (fluidtool.fluid) alike.
"""

import importlib
import io
import os
import sys
import tarfile
import warnings

SEED = 3


def endpoints(count):
    """127.0.0.1:6170 and on."""
    return [f"127.0.0.1:{6170 + index}" for index in range(count)]


def built(fluid, network, optimizer):
    """(main, startup) of a job before it is transpiled."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = SEED
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        optimizer(fluid).minimize(network(fluid))
    return main, startup


def transpiler_of(fluid, config):
    """A transpiler with these attributes in its config."""
    chosen = fluid.DistributeTranspilerConfig()
    chosen.wait_port = False
    for name, value in config.items():
        setattr(chosen, name, value)
    if config.get("geo_sgd_mode"):
        module = importlib.import_module(fluid.__name__ + ".transpiler.geo_sgd_transpiler")
        return module.GeoSgdTranspiler(config=chosen)
    return fluid.DistributeTranspiler(config=chosen)


def roles(fluid, network, optimizer, arguments, config):
    """{name: program} of every role, each made by a transpiler of its own as in a real job."""
    servers = endpoints(arguments["servers"])

    def transpiled(current):
        programs = built(fluid, network, optimizer)
        transpiler = transpiler_of(fluid, config)
        given = {"program": programs[0], "startup_program": programs[1], "current_endpoint": current}
        if config.get("mode") == "collective":
            given["trainers"] = ",".join(servers)
        else:
            given.update(pservers=",".join(servers), trainers=arguments["trainers"], sync_mode=arguments["sync"])
        with fluid.unique_name.guard():
            transpiler.transpile(arguments["trainer_id"], **given)
        return (transpiler, *programs)

    transpiler, main, startup = transpiled(servers[arguments["trainer_id"] % len(servers)])
    if config.get("mode") == "collective":
        return {"trainer_main": main, "trainer_startup": startup}
    made = {"trainer_main": transpiler.get_trainer_program(wait_port=False), "trainer_startup": startup}
    for index, endpoint in enumerate(servers):
        transpiler = transpiled(endpoint)[0]
        with fluid.unique_name.guard():
            server = transpiler.get_pserver_programs(endpoint)
        made[f"pserver_{index}_main"], made[f"pserver_{index}_startup"] = server
    return made


def encoded(program):
    """The program's bytes, without call stacks."""
    for block in program.blocks:
        for op in block.ops:
            if op.has_attr("op_callstack"):
                op._set_attr("op_callstack", [""])  # real Paddle cannot store an empty list in a gradient operator
        block.create_var(name="touched")  # real Paddle encodes a block anew only after a change of its own
        block._remove_var("touched")
    return program.desc.serialize_to_string()


def main():
    """Write the archive."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    jobs = importlib.import_module("networks").JOBS
    fluid = importlib.import_module(sys.argv[1])
    with tarfile.open(sys.argv[2], "w:xz") as archive:
        for name, job in sorted(jobs.items()):
            for role, program in sorted(roles(fluid, *job).items()):
                data, info = encoded(program), tarfile.TarInfo(f"{name}/{role}.pb")
                info.size, info.mode = len(data), 0o644
                archive.addfile(info, io.BytesIO(data))


if __name__ == "__main__":
    main()
