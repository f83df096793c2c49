"""The compilation of loops over rows to machine code.

A function is compiled at its first call. The machine code is kept for other processes if possible. Each compiled
function names its only signature, so that it is not compiled again for arrays that are read-only or that start at an
odd address, as parts of a file do.
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

# These are types as Numba writes them in signatures. They are texts, because loading Numba takes a third of a second. A
# process that compiles nothing need not wait for it.
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
"""The helpers of each module, until one of the functions of the module is compiled."""


def compiled(*arguments: str, result: str) -> Callable[[Function], Function]:
    """Make a function that is compiled for these types at its first call and runs without Python's global lock.

    The machine code is cached in `NUMBA_CACHE_DIR` if that is set, or beside the source, or in the user's cache folder.
    Each process compiles for itself if none of these places can be written to, or if the package is in an archive.
    Spark copies an archive to a new place for each application.
    """

    signature = f"{result}({', '.join(arguments)})"

    def decorate(function: Function) -> Function:
        machine_code: Callable[..., Any] | None = None

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:  # noqa: ANN401 - the types of the function itself
            nonlocal machine_code
            if machine_code is None:
                with _compiling:
                    machine_code = machine_code or _compile(signature, function)
            return machine_code(*arguments)

        return cast("Function", call)

    return decorate


def helper(function: Function) -> Function:
    """Let compiled functions of the same module call this function. It is compiled and cached with them."""
    _helpers.setdefault(function.__module__, []).append(function)
    return function


def _compile(signature: str, function: Callable[..., Any]) -> Callable[..., Any]:
    import numba  # noqa: PLC0415 - see above

    for each in _helpers.pop(function.__module__, ()):
        # The compiler looks for the helper under its name.
        function.__globals__[each.__name__] = numba.njit(error_model="numpy")(each)
    if Path(function.__code__.co_filename).is_file():
        try:
            return _jit(signature, function, cache=True)
        except (RuntimeError, OSError):  # there is no place for a cache, or it is full
            pass
    return _jit(signature, function, cache=False)


def _jit(signature: str, function: Callable[..., Any], *, cache: bool) -> Callable[..., Any]:
    import numba  # noqa: PLC0415 - see above

    return cast("Callable[..., Any]", numba.njit(signature, cache=cache, nogil=True, error_model="numpy")(function))
