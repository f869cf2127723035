"""A [[values]] entry may set the network and the data of one method, each with its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmark.config.profile import load_profile
from benchmark.config.resolution import resolve
from benchmark.config.selection import select
from benchmark.errors import UsageError
from methods.registry import discover

CATALOGUE = discover()


def test_network_and_data_of_one_method_leave_the_others_alone() -> None:
    profile = load_profile("realworld-k25")
    cel, proden = (resolve(profile, CATALOGUE.get(name), "lost", 0) for name in ("cel-linear", "proden"))
    assert (cel.backbone.features, proden.backbone.features) == (128, 0)
    assert cel.config.dataset_settings["strong_noise"] == 0.01 and "strong_noise" not in proden.config.dataset_settings
    assert cel.config.dataset_settings["split"] == proden.config.dataset_settings["split"] == "stratified"
    assert "cel_2025.py" in cel.provenance["backbone.features"]
    assert "cel_2025.py" in cel.provenance["dataset.strong_noise"]


def test_new_fields_of_the_network_stay_out_of_old_identities() -> None:
    spec = resolve(load_profile("quick"), CATALOGUE.get("proden"), "digits", 0)
    assert set(spec.config.to_json()["backbone"]) == {"name", "pretrained", "weights"}
    assert "views" not in spec.config.to_json()


def test_views_are_part_of_the_identity_of_the_runs_that_see_them() -> None:
    usual, own = (
        {s.method: s for s in select(name).specs(datasets=("cifar100",)) if s.seed == 0}
        for name in ("paper", "paper-own-views")
    )
    assert own["proden"].config.to_json()["views"] == {"weak": "plain"}
    assert own["proden"].provenance["views.weak"] == "released code: no augmentation"
    assert own["pop"].config.to_json()["views"] == {"strong": "autoaugment"}
    same = {name for name in usual if usual[name].digest == own[name].digest}
    assert same == {"cel", "proden-2v", "dirk", "dirk-plain", "pico", "able"}


def test_a_view_that_a_run_does_not_see_leaves_its_identity_alone() -> None:
    def digests(**words: Any) -> dict[str, str]:
        return {s.label: s.digest for s in select("quick", seeds="0", datasets="digits", **words).specs()}

    changed = digests(methods="proden,pop", settings=("views.weak=crop-flip",))
    assert list(changed) == ["proden[views.weak=crop-flip]", "pop"]
    assert changed["pop"] == digests(methods="pop")["pop"]
    with pytest.raises(UsageError, match=r"--set views.weak=crop-flip changes nothing: no method here sees the view"):
        select("quick", methods="pop", settings=("views.weak=crop-flip",))
    with pytest.raises(UsageError, match="changes nothing"):
        select("realworld-f25", methods="proden", datasets="lost", settings=("views.weak=plain",))


@pytest.mark.parametrize("key", ["backbone", "settings", "views"])
def test_a_value_that_is_no_table_is_one_sentence(tmp_path: Path, key: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[[values]]\nmethod = "*"\ndataset = "*"\nsource = "me"\n{key} = 3\n', encoding="utf-8")
    with pytest.raises(UsageError, match=f"'{key}' must be a table"):
        load_profile(str(path))
