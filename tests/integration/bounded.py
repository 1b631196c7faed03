"""A bound on the time of a block: what hangs fails."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` in the main thread after so many seconds."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
