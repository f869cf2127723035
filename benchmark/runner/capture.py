"""What a run prints goes into its log, never into the progress display."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

from benchmark.files import no_link

LOG_LIMIT = 1 << 20  # characters that a method may print into its log


class _Log(io.TextIOBase):
    """A stream into a file, up to a limit."""

    def __init__(self, path: Path) -> None:
        self.path, self.left = path, LOG_LIMIT

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.left > 0:
            with contextlib.suppress(OSError), open(self.path, "a", encoding="utf-8", opener=no_link) as stream:
                stream.write(text[: self.left])
                self.left -= len(text)
                if self.left <= 0:
                    stream.write("\n[the rest of the output was not kept]\n")
        return len(text)


class _Discard(io.TextIOBase):
    """A stream that keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def captured(path: Path) -> Iterator[None]:
    """Append what is printed to a file."""
    with _to(_Log(path)):
        yield


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drop what is printed."""
    with _to(_Discard()):
        yield


@contextlib.contextmanager
def _to(stream: io.TextIOBase) -> Iterator[None]:
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield
