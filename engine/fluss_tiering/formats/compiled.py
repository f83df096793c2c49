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

import numba
from numba import types

Function = TypeVar("Function", bound=Callable[..., Any])


def _input(item: types.Type) -> types.Array:
    return types.Array(item, 1, "C", readonly=True, aligned=False)


INT32: Final = types.int32
INT64: Final = types.int64
UINT8_IN: Final = _input(types.uint8)
INT32_IN: Final = _input(types.int32)
INT64_IN: Final = _input(types.int64)
UINT8_OUT: Final = types.Array(types.uint8, 1, "C")
INT32_OUT: Final = types.Array(types.int32, 1, "C")
INT64_OUT: Final = types.Array(types.int64, 1, "C")

_compiling: Final = threading.Lock()


def compiled(signature: types.Signature) -> Callable[[Function], Function]:
    """Has a function compiled for this signature when it is first called; it runs without Python's lock.

    The code is cached in `NUMBA_CACHE_DIR` where that is set, else beside the source, else in the user's cache folder.
    Where none of these can be written to, and for an archive, which Spark copies to a new place for each application,
    each process compiles for itself.
    """

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
    return cast("Function", numba.njit(error_model="numpy")(function))


def _compile(signature: types.Signature, function: Callable[..., Any]) -> Callable[..., Any]:
    if Path(function.__code__.co_filename).is_file():
        try:
            return _jit(signature, function, cache=True)
        except (RuntimeError, OSError):  # no place for a cache, or one that is full
            pass
    return _jit(signature, function, cache=False)


def _jit(signature: types.Signature, function: Callable[..., Any], *, cache: bool) -> Callable[..., Any]:
    return cast("Callable[..., Any]", numba.njit(signature, cache=cache, nogil=True, error_model="numpy")(function))
