"""A [[values]] entry may set the network and the data of one method, each with its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmark.errors import UsageError
from benchmark.plan.profile import load_profile
from benchmark.plan.resolution import resolve
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
    spec = resolve(load_profile("quick"), CATALOGUE.get("proden"), "glyphs", 0)
    assert set(spec.config.to_json()["backbone"]) == {"name", "pretrained", "weights"}


@pytest.mark.parametrize("key", ["backbone", "settings"])
def test_a_value_that_is_no_table_is_one_sentence(tmp_path: Path, key: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[[values]]\nmethod = "*"\ndataset = "*"\nsource = "me"\n{key} = 3\n', encoding="utf-8")
    with pytest.raises(UsageError, match=f"'{key}' in a \\[\\[values\\]\\] entry must be a table"):
        load_profile(str(path))
