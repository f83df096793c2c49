"""The `fluss-tiering` command: a file for each of its commands.

This package is private: people and programs run the command.
"""

import os

# gRPC reads this when it is first imported. It writes lines of its own beside our errors and logs, several for each
# connection that fails. Who looks for a fault of gRPC sets the variable, for example to DEBUG.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
