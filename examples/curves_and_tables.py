"""Draw curves and make tables of stored runs with pandas, without the project's own tables and figures.

    ./reproduce.sh python examples/curves_and_tables.py results/reference quick out

Writes out/accuracy.csv, out/accuracy.tex and out/curves.png.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from benchmark import store

BEST = 3  # methods in a panel


def accuracy_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean, standard deviation and number of seeds of every method (rows) on every dataset (columns)."""
    return runs.pivot_table("accuracy", "label", "dataset", aggfunc=["mean", "std", "count"])


def draw_curves(epochs: pd.DataFrame, path: Path) -> None:
    """Draw the mean test accuracy of the best methods of each dataset, with a band from min to max over seeds."""
    evaluated = epochs.dropna(subset="test_accuracy")  # runs are not evaluated after every epoch
    datasets = sorted(evaluated.dataset.unique())
    figure, axes = plt.subplots(1, len(datasets), figsize=(5 * len(datasets), 4), squeeze=False)
    for ax, dataset in zip(axes[0], datasets, strict=True):
        curves = evaluated[evaluated.dataset == dataset].groupby(["label", "epoch"]).test_accuracy
        band = curves.agg(["mean", "min", "max"])
        for label in band["mean"].groupby("label").last().nlargest(BEST).index:
            curve = band.loc[label]
            ax.plot(curve.index, curve["mean"], label=label)
            ax.fill_between(curve.index, curve["min"], curve["max"], alpha=0.2)
        ax.set(title=dataset, xlabel="epoch", ylabel="test accuracy (%)")
        ax.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(results: str, profile: str, out: str) -> None:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    plain = "label == method"  # runs of changed settings have a label such as cel[alpha=0.1]
    runs = store.runs(results, profile).query(f"status == 'done' and {plain}")
    table = accuracy_table(runs)
    table.to_csv(folder / "accuracy.csv")
    latex = table["mean"].style.format(precision=2, na_rep="--").format_index(escape="latex")
    latex.to_latex(folder / "accuracy.tex", hrules=True)
    draw_curves(store.load(results, profile).query(plain), folder / "curves.png")
    print(table["mean"].round(2).to_string())


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: ./reproduce.sh python examples/curves_and_tables.py RESULTS PROFILE OUT")
    main(*sys.argv[1:])
