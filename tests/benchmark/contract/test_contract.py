"""Every built-in method passes every check: five by default, the others under the marker `contract`."""

from __future__ import annotations

from functools import lru_cache

import pytest

from benchmark.contract.checks import CHECKS, Check, first_difference, title
from benchmark.contract.subject import Subject, run_check
from methods.registry import discover
from methods.supervised import sees_truth
from tests.support.methods import every_method

CATALOGUE = discover()


@lru_cache(maxsize=1)  # checks of one method follow each other and share its trainings
def subject(name: str) -> Subject:
    return Subject(CATALOGUE.entries[name])


def test_every_file_of_the_folder_is_readable() -> None:
    assert not CATALOGUE.broken
    assert len(CATALOGUE.entries) >= 15


@pytest.mark.parametrize("check", CHECKS, ids=title)
@pytest.mark.parametrize("name", every_method())
def test_the_check_passes_without_advice(name: str, check: Check) -> None:
    assert run_check(check, subject(name)) is None


def test_true_labels_change_the_supervised_method_and_nothing_else() -> None:
    sighted = [name for name in CATALOGUE.entries if sees_truth(Subject(CATALOGUE.entries[name]).cls)]
    assert sighted == ["supervised"]
    supervised = subject("supervised")
    assert first_difference(supervised.trained.method, supervised.relabelled.method)
