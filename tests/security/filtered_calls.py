"""Run a program with some system calls only, as systemd's `SystemCallFilter=` does.

The arguments are the names of the calls that are allowed, separated by commas, and the program with its arguments.
Other calls fail with EPERM.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_ALLOW = 0x7FFF0000
_FAIL = 0x00050000


def main(names: str, *command: str) -> None:
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_FAIL | errno.EPERM))
    for name in names.split(","):
        number = library.seccomp_syscall_resolve_name(name.encode())
        # Calls of other architectures have negative numbers.
        if number >= 0 and library.seccomp_rule_add(context, _ALLOW, number, 0) != 0:
            sys.exit(f"the filter does not take {name}")
    if library.seccomp_load(context) != 0:
        sys.exit("the filter could not be loaded")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
