"""More than accuracy, from logits and true labels: top-5, per class, calibration. Needs NumPy and SciPy, not torch."""

from __future__ import annotations

import numpy as np

BINS = 15  # of equal width, for the calibration error


MEASURES = {  # name in frames and files, in metrics.jsonl with `test_` before it -> meaning
    "accuracy": "percent of rows whose largest logit is the true label's",
    "top5": "percent of rows whose true label is among the five largest",
    "macro": "mean over the classes of their own accuracy, percent",
    "worst_class": "accuracy of the class that has the lowest, percent",
    "ece": f"expected calibration error, percent: |confidence − accuracy| over {BINS} bins of equal width",
    "nll": "mean negative log-likelihood of the true label, nats",
}


def measures(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return every measure of rows (N, C) with true labels (N,); classes without rows do not count, NaN without any row."""
    from scipy.special import log_softmax  # which runs that record no measures do without

    if not len(labels):
        return dict.fromkeys(MEASURES, float("nan"))
    scores = logits.astype(np.float64)
    logs = log_softmax(scores, axis=1)
    predictions = scores.argmax(1)
    right = predictions == labels
    own = scores[np.arange(len(labels)), labels]
    above = (scores > own[:, None]).sum(1)
    counts = np.bincount(labels, minlength=scores.shape[1])
    by_class = np.bincount(labels, weights=right, minlength=scores.shape[1])[counts > 0] / counts[counts > 0]
    return {
        "accuracy": 100.0 * float(right.mean()),
        "top5": 100.0 * float((above < 5).mean()),
        "macro": 100.0 * float(by_class.mean()),
        "worst_class": 100.0 * float(by_class.min()),
        "ece": 100.0 * calibration_error(np.exp(logs[np.arange(len(labels)), predictions]), right),
        "nll": float(-logs[np.arange(len(labels)), labels].mean()),
    }


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return Σ_b |b|/N · |mean confidence − accuracy| over bins ((b − 1)/B, b/B]."""
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    gap = np.bincount(place, weights=confidence - right, minlength=BINS)
    return float(np.abs(gap).sum() / len(right))
