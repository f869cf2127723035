"""Rules for choosing settings without true labels, and the study that measures them."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from benchmark.analysis.selection import Score, between_methods, choices, pick, regrets, score, scored_settings


def result(rows: int, covering: float, approximated: float = 50.0, **more: float) -> dict[str, float]:
    return {"held_out_rows": rows, "covering_rate": covering, "approximated_accuracy": approximated, **more}


def test_the_standard_error_is_binomial_over_the_pooled_rows() -> None:
    pooled = score([result(20, 90.0, 60.0, candidate_log_likelihood=-1.0), result(30, 100.0, 70.0)])
    assert pooled.covering_rate == pytest.approx(100 * 48 / 50) and pooled.approximated_accuracy == 65.0
    p = 49 / 52
    assert pooled.standard_error == pytest.approx(100 * math.sqrt(p * (1 - p) / 50))
    assert math.isnan(pooled.log_likelihood)  # a run without the criterion
    assert score([result(50, 100.0)]).standard_error == pytest.approx(100 * math.sqrt(51 / 52 / 52 / 50))


def test_the_rule_takes_the_highest_aa_within_one_standard_error_of_the_best_cr() -> None:
    scores = [
        Score(80, 9, 99),  # confident, but covers less
        Score(94, 1, 70),  # exactly one standard error below the best
        Score(96, 2, 60),
        Score(95, 9, 70),  # as good as the second
    ]
    assert [pick(rule, scores) for rule in ("one-se", "covering", "approximated")] == [1, 2, 0]
    assert pick("likelihood", scores) == 0  # nobody recorded it: the first
    with_likelihood = [Score(9, 1, 9), Score(9, 1, 9, log_likelihood=-3.0), Score(9, 1, 9, log_likelihood=-2.0)]
    assert pick("likelihood", with_likelihood) == 2
    assert pick("true-labels", [Score(9, 1, 9, true_labels=t) for t in (3.0, 5.0, 5.0)]) == 1


def grid() -> pd.DataFrame:
    """Two datasets, three methods, three settings, two seeds; CR is right, AA prefers the last setting."""
    rows = []
    for dataset, shift in (("letter", 0.0), ("lost", 5.0)):
        for method, level in (("proden", 70.0), ("pico", 75.0 - 2 * shift), ("cc", 60.0)):
            for k, (covering, approximated, accuracy) in enumerate([(90, 50, 0), (95, 40, 4), (70, 90, -20)]):
                for seed in (100, 101):
                    criteria = result(
                        400,
                        covering,
                        approximated,
                        candidate_log_likelihood=-1.0 / covering,
                        true_label_accuracy=accuracy + 50,
                    )
                    key = {"dataset": dataset, "method": method, "setting": f"s{k}", "seed": seed}
                    rows.append({**key, **criteria, "accuracy": level + accuracy})
    rows.append({**rows[0], "setting": "diverged with its second seed"})
    return pd.DataFrame(rows)


def test_regret_is_the_distance_to_the_best_setting_of_the_grid() -> None:
    chosen = choices(scored_settings(grid()))
    assert len(chosen) == 6 * 5 and set(chosen["settings"]) == {3}  # a setting without all seeds does not count
    of_proden = chosen[(chosen["dataset"] == "letter") & (chosen["method"] == "proden")].set_index("rule")
    assert of_proden["setting"].to_dict() == {
        "one-se": "s1", "covering": "s1", "approximated": "s2", "likelihood": "s1", "true-labels": "s1",
    }  # fmt: skip
    assert of_proden["regret"]["approximated"] == 24 and of_proden["regret"]["one-se"] == 0
    assert of_proden["spearman"]["covering"] == pytest.approx(1) and math.isnan(of_proden["spearman"]["one-se"])
    means = regrets(chosen).set_index("rule")
    assert means["regret"]["approximated"] == means["low"]["approximated"] == means["high"]["approximated"] == 24
    assert means["spearman"]["approximated"] == pytest.approx(-1) and set(means["cells"]) == {6}


def test_choosing_between_methods_is_compared_with_fixed_methods_and_chance() -> None:
    ways = between_methods(choices(scored_settings(grid())), ["letter", "digits"]).set_index(["dataset", "way"])
    assert ways["method"]["lost", "always PRODEN"] == "proden" and ways["regret"]["lost", "always PRODEN"] == 0
    fixed = "always the best of the development sets"
    assert ways["method"]["lost", fixed] == "pico" and ways["regret"]["lost", fixed] == 5
    assert ways["accuracy"]["lost", "a random method"] == pytest.approx((74 + 69 + 64) / 3)
    without = between_methods(choices(scored_settings(grid().query("method != 'proden'"))), [])
    assert not without["way"].str.startswith("always").any()
