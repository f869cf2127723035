"""Evaluation of a method, the only use of true labels: test accuracy, diagnostics, and criteria on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.artifacts import Predictions, half
from benchmark.config.sections import TRUE_LABELS, Train
from benchmark.errors import MethodDefect
from benchmark.measures import measures
from benchmark.trainer.inputs import Inputs
from datasets.base import UNKNOWN, Dataset
from methods.base import Method
from methods.blocks import masked_softmax


class Evaluator:
    """Evaluate a method in eval mode without gradients, on the whole test set."""

    def __init__(
        self,
        dataset: Dataset,
        inputs: Inputs,
        candidates: Tensor,
        rows: Tensor,
        held_out: Tensor,
        settings: Train | None = None,
    ) -> None:
        device = inputs.device
        self.inputs, self.settings = inputs, settings or Train()
        self.num_classes = dataset.num_classes
        self.test_labels = dataset.test.labels.to(device)
        self.train_labels = dataset.train.labels[rows].to(device)
        self.labelled_train, self.labelled_test = self.train_labels != UNKNOWN, self.test_labels != UNKNOWN
        self.truth = self.train_labels[self.labelled_train]
        candidates_then = candidates[rows].to(device).bool()[self.labelled_train]
        self.candidate_truth = candidates_then.gather(1, self.truth[:, None])  # (N, 1)
        self.missing = percent(~self.candidate_truth) if len(self.candidate_truth) else 0.0
        self.held_out = held_out
        self.held_out_candidates = candidates[held_out].to(device)
        labels = dataset.train.labels[held_out]
        few = first_per_class(labels, dataset.num_classes, TRUE_LABELS)
        self.few, self.few_labels = few.to(device), labels[few].to(device)  # positions in the held-out rows
        self.rows, self.candidates = rows, candidates
        self.test_logits: Tensor | None = None  # of the last evaluation
        self.network_belief: Tensor | None = None  # likewise, if training labels are the network's

    def evaluate(self, method: Method, autocast: AbstractContextManager[Any]) -> dict[str, float]:
        """Return the metrics of the method as it is now; accuracies in percent."""
        was_training = method.training
        method.eval()
        with torch.inference_mode(), autocast:
            result = self._test(method) | self._selection(method)
            if self.settings.labels_by == "network":
                logits = self.logits(method, self.rows)
                self.network_belief = masked_softmax(logits, self.candidates[self.rows].to(self.inputs.device))
        with torch.no_grad():
            result |= self._disambiguation(method)
        method.train(was_training)
        return result

    def _test(self, method: Method) -> dict[str, float]:
        if not len(self.test_labels):
            self.test_logits = torch.zeros(0, self.num_classes)
            return {}
        logits = torch.cat([method.predict(images) for images in self.inputs.test_batches()])
        if logits.shape != (len(self.test_labels), self.num_classes):
            raise MethodDefect(
                type(method),
                f"predict gave {tuple(logits.shape)} for {len(self.test_labels)} images of {self.num_classes} classes; "
                f"one row of logits per image is needed.",
            )
        self.test_logits = logits
        truth = self.test_labels[self.labelled_test]
        if not len(truth):
            return {}
        result = {"test_accuracy": accuracy(logits[self.labelled_test], truth)}
        if self.settings.measures:
            further = measures(logits[self.labelled_test].float().cpu().numpy(), truth.cpu().numpy())
            result |= {f"test_{key}": value for key, value in further.items() if key != "accuracy"}
        if type(method).predictions is not Method.predictions:
            extra: dict[str, list[Tensor]] = {}
            for images in self.inputs.test_batches():
                for name, value in method.predictions(images).items():
                    extra.setdefault(name, []).append(value)
            for name, parts in extra.items():
                result[f"test_accuracy_{name}"] = accuracy(torch.cat(parts)[self.labelled_test], truth)
        return result

    def predictions(self, method: Method) -> Predictions:
        """Return what a run stores: the logits of the last evaluation and the current label confidences."""
        assert self.test_logits is not None  # every run ends with an evaluation
        belief = self._belief(method)
        return Predictions(
            half(self.test_logits.float().cpu().numpy()),
            np.arange(len(self.test_logits), dtype=np.int32),
            self.rows.cpu().numpy().astype(np.int32),
            None if belief is None else half(belief.detach().float().cpu().numpy()),
        )

    def _selection(self, method: Method) -> dict[str, float]:
        """Return the criteria for choosing settings, on held-out rows: three need candidate sets only, one a few labels."""
        if not len(self.held_out):
            return {}
        logits = self.logits(method, self.held_out)
        result: dict[str, float] = {
            "covering_rate": covering_rate(logits, self.held_out_candidates),
            "approximated_accuracy": approximated_accuracy(logits, self.held_out_candidates),
            "candidate_log_likelihood": candidate_log_likelihood(logits, self.held_out_candidates),
            "held_out_rows": len(self.held_out),
        }
        if len(self.few):
            result["true_label_accuracy"] = accuracy(logits[self.few], self.few_labels)
            result["true_label_rows"] = len(self.few)
        return result

    def logits(self, method: Method, rows: Tensor) -> Tensor:
        """Return logits of training rows without augmentation. (n,) -> (n, C)."""
        predict: Callable[[Tensor], Tensor] = method.predict
        return torch.cat([predict(self.inputs.train_views(part, ("plain",), 0)[0]) for part in rows.split(256)])

    def _belief(self, method: Method) -> Tensor | None:
        """Return label confidences (N, C) of the training rows, if there are any."""
        return self.network_belief if self.settings.labels_by == "network" else method.confidence()

    def _disambiguation(self, method: Method) -> dict[str, float]:
        """Measure how well the label confidences identify the true labels of the training set, and which ones were lost.

        True labels missing from the original candidate sets are reported separately and do not count as lost. Only rows
        with a known true label count.
        """
        result = {"true_labels_missing": self.missing} if self.missing else {}
        belief, sets = self._belief(method), method.candidate_sets()
        if belief is not None and len(self.truth):
            result["train_accuracy"] = accuracy(belief[self.labelled_train], self.truth)
        if sets is not None and len(self.truth):
            still_candidate = sets.bool()[self.labelled_train].gather(1, self.truth[:, None])
            result["true_labels_lost"] = percent(self.candidate_truth & ~still_candidate)
        if sets is not None:
            result["average_set_size"] = float(sets.double().sum(1).mean())
        return result


def first_per_class(labels: Tensor, classes: int, most: int) -> Tensor:
    """Return the positions of the first rows of each class, at most `most` of one; rows of unknown class never count."""
    positions = [(labels == label).nonzero().flatten()[:most] for label in range(classes)]
    return torch.cat(positions).sort().values


def percent(flags: Tensor) -> float:
    return 100.0 * float(flags.double().mean())


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """Return the percentage of rows whose largest score is at the label. (N, C), (N,)."""
    return percent(scores.argmax(1) == labels)


def covering_rate(logits: Tensor, candidates: Tensor) -> float:
    """Return the percentage of predictions in the candidate set."""
    return percent(candidates.bool().gather(1, logits.argmax(1, keepdim=True)))


def approximated_accuracy(logits: Tensor, candidates: Tensor) -> float:
    """Return the mean probability among the candidates of the predicted label (0 outside them), in percent."""
    belief = masked_softmax(logits, candidates)
    return 100.0 * float(belief.gather(1, logits.argmax(1, keepdim=True)).double().mean())


def candidate_log_likelihood(logits: Tensor, candidates: Tensor) -> float:
    """Return the mean of log Σ_{j ∈ S} p_j over rows with candidate sets S (N, C)."""
    scores = logits.double()
    inside = scores.masked_fill(~candidates.bool(), -torch.inf).logsumexp(1)
    return float((inside - scores.logsumexp(1)).mean())
