"""Compare the runs that two results folders have in common, with pandas.

    ./reproduce.sh python examples/compare_results.py results theirs/results

Prints the differences in accuracy per profile, dataset and method, and how many runs only one folder has. Runs of one
identity have the same configuration and candidate sets. On one kind of CPU their weights are equal; elsewhere rounding
can make them differ like two seeds.
"""

from __future__ import annotations

import sys

import pandas as pd

from benchmark import store


def finished(results: str) -> pd.DataFrame:
    """Return the finished runs of a folder by identity."""
    return store.runs(results).query("status == 'done'").set_index("identity")


def differences(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return, per profile, dataset and method, the accuracy of theirs minus ours over the seeds that both have."""
    both = ours.join(theirs[["accuracy", "weights_sha256"]].add_suffix("_theirs"), how="inner")
    both["difference"] = both.accuracy_theirs - both.accuracy
    both["same_weights"] = both.weights_sha256_theirs == both.weights_sha256
    return both.groupby(["profile", "dataset", "label"]).agg(
        seeds=("difference", "count"),
        ours=("accuracy", "mean"),
        theirs=("accuracy_theirs", "mean"),
        mean_difference=("difference", "mean"),
        largest_difference=("difference", lambda values: values.abs().max()),
        same_weights=("same_weights", "sum"),
    )


def main(first: str, second: str) -> None:
    ours, theirs = finished(first), finished(second)
    table = differences(ours, theirs).sort_values("largest_difference", ascending=False)
    print(table.round(2).to_string() if len(table) else "The folders have no run in common.")
    for folder, runs, others in ((first, ours, theirs), (second, theirs, ours)):
        print(f"Only in {folder}: {len(runs.index.difference(others.index))} runs")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: ./reproduce.sh python examples/compare_results.py RESULTS OTHER_RESULTS")
    main(*sys.argv[1:])
