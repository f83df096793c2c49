"""The time limit of a block that waits."""

from __future__ import annotations

import threading

import pytest

from fluss_tiering.model.closing import time_limit


def test_what_takes_longer_is_ended() -> None:
    over = threading.Event()
    with time_limit(0.01, over.set):
        assert over.wait(60)


@pytest.mark.parametrize("error", [None, ValueError, StopIteration])
def test_what_ends_in_time_is_left_alone(error: type[Exception] | None) -> None:
    threads = threading.active_count()

    def run() -> None:
        with time_limit(3600, lambda: pytest.fail("it ended in time")):
            if error is not None:
                raise error("as it is")

    if error is None:
        run()
    else:
        with pytest.raises(error, match="as it is"):
            run()
    while threading.active_count() > threads:
        """The timer's thread ends at once."""
