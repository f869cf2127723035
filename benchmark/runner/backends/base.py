"""What every way to carry out many runs has in common."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from benchmark.runner.options import RunOptions
from benchmark.runner.progress import Display, Progress

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

SHOW_SECONDS = 0.1  # between two calls of a display


@dataclass(frozen=True)
class Backend(ABC):
    """Carries out runs until all are done, failed, or in the hands of another process."""

    slots: tuple[str, ...]  # the device of every run that goes on at the same time on this machine
    wait: bool = True  # for runs that another process is doing
    scheduler: str = ""  # address, of a back-end that needs one
    device: str = "auto"  # as typed, for machines that choose their own

    name: ClassVar[str]
    title: ClassVar[str]
    needs_scheduler: ClassVar[bool] = False

    @abstractmethod
    def run(self, specs: Sequence[RunSpec], options: RunOptions, display: Display | None = None) -> Progress:
        """All runs, in this order; returns when nothing is left to do here."""

    def prepare(self, specs: Sequence[RunSpec], options: RunOptions, display: Display | None = None) -> Progress:
        """The candidate sets of these runs without the runs; a back-end that cannot do it leaves them to who reads them."""
        return Progress(0)


def show_while(work: Callable[[], None], show: Callable[[], None]) -> None:
    """Do the work in a thread and show in this one, again and again, how far it is; errors of both are raised here."""
    end: Future[None] = Future()

    def do() -> None:
        try:
            work()
        except BaseException as error:
            end.set_exception(error)
        else:
            end.set_result(None)

    threading.Thread(target=do, daemon=True).start()
    while not end.done():
        show()
        wait([end], SHOW_SECONDS)
    show()
    end.result()
