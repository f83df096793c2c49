"""Turns gRPC's handling of `fork` off in a process that uses this client, unless its environment says otherwise.

Of the processes that one with a channel starts by fork and exec, as pyspark starts Spark's JVM, one in twenty aborts:
in between, gRPC starts its threads again, and `subprocess` closes their files. gRPC reads the variable when it is
loaded, so this comes before.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
