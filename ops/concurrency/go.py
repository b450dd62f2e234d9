"""go: a block run in a separate thread (Fluid 0.14; Paddle removed it before 1.0)."""

from __future__ import annotations

from fluidtool.ops.concurrency.goroutines import DeadlockError, goroutines
from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import block


@op("go", inputs="X*", outputs="", attrs={"sub_block": block()}, raw=True, side_effects=True)
def go(ctx: OpContext, *, sub_block: int) -> None:
    """Run `sub_block` in a new thread, in a scope below the outermost one; nothing waits for it (Fluid 0.14 go_op.cc).

    X: what the block reads, all of which must be in the outermost scope: persistable. Its errors are raised by the
    next channel operator of the program itself, or at the end of the run.
    """
    root = ctx.scope.root()
    missing = [name for name in ctx.op.input("X") if root.find_var(name) is None]
    if missing:
        raise ctx.error(
            "All variables used in the go block should be created in the global scope, which "
            f"{', '.join(missing)} is not; make it persistable, or send it over a channel"
        )
    scope = root.new_scope()
    kernel = ctx.bind_block(sub_block, scope)
    talk = ctx.runtime.talk

    def run() -> None:
        try:
            with ctx.np.errstate(all="ignore"):
                kernel.run()
        except DeadlockError:
            raise
        except Exception as error:
            talk(f"the go block {sub_block} failed: {error}")
            raise
        finally:
            root.drop_kid(scope)

    goroutines(ctx).start(run, f"go block {sub_block}")
