"""How loops over rows are compiled: to machine code, at the first call, and kept for the next process where possible.

Every compiled function has its one signature given, so that it is never compiled again for arrays that are read-only or
start at an odd address, as parts of a file do.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

UInt8s = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

Function = TypeVar("Function", bound=Callable[..., Any])

# Types as Numba writes them in signatures: Numba takes a third of a second to load, which a process that compiles
# nothing, or nothing yet, need not wait for.
_READ_ONLY: Final = "1, 'C', readonly=True, aligned=False"
INT32: Final = "int32"
INT64: Final = "int64"
UINT8_IN: Final = f"Array(uint8, {_READ_ONLY})"
INT32_IN: Final = f"Array(int32, {_READ_ONLY})"
INT64_IN: Final = f"Array(int64, {_READ_ONLY})"
UINT8_OUT: Final = "Array(uint8, 1, 'C')"
INT32_OUT: Final = "Array(int32, 1, 'C')"
INT64_OUT: Final = "Array(int64, 1, 'C')"

ALL_GOOD: Final = -1
"""The result of a loop that looks for a row whose bytes are wrong, and finds none."""

_compiling: Final = threading.Lock()
_helpers: Final[dict[str, list[Callable[..., Any]]]] = {}
"""Of each module that has any, until one of its functions is compiled."""


def compiled(*arguments: str, result: str) -> Callable[[Function], Function]:
    """Has a function compiled for these types when it is first called; it runs without Python's lock.

    The code is cached in `NUMBA_CACHE_DIR` where that is set, else beside the source, else in the user's cache folder.
    Where none of these can be written to, and for an archive, which Spark copies to a new place for each application,
    each process compiles for itself.
    """

    signature = f"{result}({', '.join(arguments)})"

    def decorate(function: Function) -> Function:
        machine_code: Callable[..., Any] | None = None

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:  # noqa: ANN401 - as the function's own
            nonlocal machine_code
            if machine_code is None:
                with _compiling:
                    machine_code = machine_code or _compile(signature, function)
            return machine_code(*arguments)

        return cast("Function", call)

    return decorate


def helper(function: Function) -> Function:
    """Makes a function callable from compiled ones of the same module, with which it is compiled and cached."""
    _helpers.setdefault(function.__module__, []).append(function)
    return function


def _compile(signature: str, function: Callable[..., Any]) -> Callable[..., Any]:
    import numba  # noqa: PLC0415 - see above

    for each in _helpers.pop(function.__module__, ()):
        # Under its name is where the compiler looks for it.
        function.__globals__[each.__name__] = numba.njit(error_model="numpy")(each)
    if Path(function.__code__.co_filename).is_file():
        try:
            return _jit(signature, function, cache=True)
        except (RuntimeError, OSError):  # no place for a cache, or one that is full
            pass
    return _jit(signature, function, cache=False)


def _jit(signature: str, function: Callable[..., Any], *, cache: bool) -> Callable[..., Any]:
    import numba  # noqa: PLC0415 - see above

    return cast("Callable[..., Any]", numba.njit(signature, cache=cache, nogil=True, error_model="numpy")(function))
