"""Train on data of your own from Python, with `PartialLabelClassifier`.

    ./reproduce.sh python examples/own_data.py

scikit-learn's digits stand in for your data: 8 × 8 images as 64 features, and candidate sets in which every wrong label
appears with probability 0.2. True labels are used only to print an accuracy at the end.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmark.estimator import PartialLabelClassifier, load


def draw_candidates(labels: np.ndarray, classes: int, rate: float, seed: int) -> np.ndarray:
    """Return a 0/1 matrix (N, C): the true label, and every other label with probability `rate`."""
    candidates = np.random.default_rng(seed).random((len(labels), classes)) < rate
    candidates[np.arange(len(labels)), labels] = True
    return candidates.astype(int)


def main(epochs: int = 10) -> None:
    features, labels = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(features, labels, test_size=500, stratify=labels, random_state=0)
    candidates = draw_candidates(y, classes=10, rate=0.2, seed=0)
    print(f"{len(X)} rows with {candidates.sum(1).mean():.2f} candidates on average")

    model = PartialLabelClassifier("proden", epochs=epochs, random_state=0).fit(X, candidates)
    print({name: round(value, 2) for name, value in model.measures_.items()})  # on held-out candidates, without truth
    print(f"test accuracy {100 * model.score(X_test, y_test):.2f} %")
    print(f"training rows given their true label: {100 * np.mean(model.disambiguate() == y):.2f} %")

    with tempfile.TemporaryDirectory() as folder:  # a folder of yours keeps the model
        model.save(Path(folder, "digits"))
        again = load(Path(folder, "digits"))
        assert (again.predict(X_test) == model.predict(X_test)).all()


if __name__ == "__main__":
    main()
