"""Cases of a test that need nothing of their own: one test tries them all, and tells of each one that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def cases(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try a test with each of the values, as `pytest.mark.parametrize` does, but within one test.

    The cases share the fixtures of the test, so none of them may change what another one finds.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    tuples = [_values_of(value, len(arguments)) for value in values]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def each(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for case in tuples:
                given = dict(zip(arguments, case, strict=True))
                try:
                    test(**fixtures, **given)
                except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - all of them are told
                    failure.add_note(f"the case: {given}")
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(tuples)} cases failed", failures)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        each.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return each

    return decorate


def _values_of(value: Any, count: int) -> Sequence[Any]:
    return (value,) if count == 1 else tuple(value)
