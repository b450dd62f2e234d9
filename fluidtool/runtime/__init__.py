"""Running programs: scopes, plans, the executor and its engines."""

from fluidtool.runtime.executor import Executor
from fluidtool.runtime.policy import Policy
from fluidtool.runtime.scope import Scope, ScopeVariable

__all__ = ["Executor", "Policy", "Scope", "ScopeVariable"]
