"""Turns gRPC's own handling of `fork` off, unless the environment says otherwise.

A process with a channel may start another process by fork and exec, as pyspark does for Spark's JVM. With that
handling, one in twenty of these new processes aborts without a message: gRPC starts its threads again between fork and
exec, and `subprocess` closes their files. gRPC reads the variable when it is loaded. So the package loads this module
first, whichever of its modules a program asks for.
"""

import os
from typing import Final

_VARIABLE: Final = "GRPC_ENABLE_FORK_SUPPORT"
os.environ.setdefault(_VARIABLE, "false")
IS_HANDLED: Final = os.environ[_VARIABLE].lower() in ("1", "true", "yes", "on", "t", "y")
"""Whether gRPC handles a fork, so that a channel works in the new process."""
