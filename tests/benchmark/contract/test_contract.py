"""Every built-in method keeps every claim of the contract: five by default, the others under the marker `contract`."""

from __future__ import annotations

from functools import lru_cache

import pytest

from benchmark.contract.claims import CLAIMS
from benchmark.contract.examiner import Claim, Subject, try_claim
from methods.registry import discover
from methods.supervised import sees_truth
from tests.support.methods import every_method

CATALOGUE = discover()


@lru_cache(maxsize=1)  # claims on one method follow each other and share its trainings
def subject(name: str) -> Subject:
    return Subject(CATALOGUE.entries[name])


def test_every_file_of_the_folder_is_readable() -> None:
    assert not CATALOGUE.broken
    assert len(CATALOGUE.entries) >= 15


@pytest.mark.parametrize("one", CLAIMS, ids=[one.name for one in CLAIMS])
@pytest.mark.parametrize("name", every_method())
def test_the_contract_holds(name: str, one: Claim) -> None:
    finding = try_claim(subject(name), one, seconds=120)
    assert finding.status == "ok", f"{finding.where}: {finding.text}"
    assert not finding.text, "a remark is for plug-ins; methods of the tree keep the claim to the letter"


def test_true_labels_change_the_ceiling_and_nothing_else() -> None:
    sighted = [name for name in CATALOGUE.entries if sees_truth(Subject(CATALOGUE.entries[name]).cls)]
    assert sighted == ["supervised"]
    ceiling = subject("supervised")
    assert ceiling.whole.digest != ceiling.relabelled.digest  # the comparison would notice a leak
