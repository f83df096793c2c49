"""Expected errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@contextmanager
def refused(code: ErrorCode, *parts: str) -> Iterator[None]:
    """Expect an error with this code, whose message has all of these parts."""
    with pytest.raises(FlussTieringError) as caught:
        yield
    assert caught.value.code is code, caught.value.message
    for part in parts:
        assert part in caught.value.message, f"{part!r} is not in {caught.value.message!r}"
