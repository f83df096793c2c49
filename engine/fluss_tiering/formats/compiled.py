"""How loops over rows are compiled: once to machine code, kept for the next process wherever a cache can be written.

Every compiled function has its one signature given, so that it is ready when its module is imported, and never compiled
again for arrays that are read-only or start at an odd address, as parts of a file do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

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


def compiled(signature: types.Signature) -> Callable[[Function], Function]:
    """Compiles a function for this signature, without Python's lock while it runs.

    The code is cached in `NUMBA_CACHE_DIR` where that is set, else beside the source, else (as for a zipped install) in
    the user's cache folder. Where none of these can be written to, each process compiles for itself.
    """

    def compile_function(function: Function) -> Function:
        try:
            return _jit(signature, function, cache=True)
        except (RuntimeError, OSError):  # no place for a cache, or one that is full
            return _jit(signature, function, cache=False)

    return compile_function


def helper(function: Function) -> Function:
    """Makes a function callable from compiled ones of the same module, which take it in when they are compiled."""
    compiled_function: Function = numba.njit(inline="never", error_model="numpy")(function)
    return compiled_function


def _jit(signature: types.Signature, function: Function, *, cache: bool) -> Function:
    compiled_function: Function = numba.njit(signature, cache=cache, nogil=True, error_model="numpy")(function)
    return compiled_function
