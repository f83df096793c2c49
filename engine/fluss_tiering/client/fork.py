"""Turn off gRPC's handling of `fork` in a process that uses this client, unless the environment says otherwise.

A process with a channel may start another process by fork and exec, as pyspark does for Spark's JVM. Without this
setting, one in twenty of these new processes aborts: gRPC starts its threads again between fork and exec, and
`subprocess` closes their files. gRPC reads the variable when it is loaded, so this module must be loaded before.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
