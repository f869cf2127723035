"""Ends what does not end by itself: one alarm for training steps and for the claims of the contract."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


class TimeUp(BaseException):
    """Something took too long. No Exception, so that a method's own `except Exception` does not swallow it."""


@contextlib.contextmanager
def watchdog(seconds: float, message: str = "") -> Iterator[Callable[[], None]]:
    """Raise TimeUp in the running line after so many seconds, and every second from then on, should it be swallowed.

    The function handed out starts the time anew. Alarms reach the main thread only; elsewhere (in a thread of a dask
    worker) nothing is watched.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def on_alarm(*_: object) -> None:
        raise TimeUp(message)

    def restart() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)

    previous = signal.signal(signal.SIGALRM, on_alarm)
    restart()
    try:
        yield restart
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
