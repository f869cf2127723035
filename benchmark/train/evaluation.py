"""The one place where true labels meet a method: accuracy on the test set, diagnostics, and selection without truth."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.errors import MethodDefect
from benchmark.kept import Predictions, half
from benchmark.train.inputs import Inputs
from datasets.base import Dataset
from methods.base import Method
from methods.blocks import masked_softmax


class Evaluator:
    """Evaluates in eval mode without gradients, over the whole test set."""

    def __init__(self, dataset: Dataset, inputs: Inputs, candidates: Tensor, rows: Tensor, held_out: Tensor) -> None:
        device = inputs.device
        self.inputs = inputs
        self.num_classes = dataset.num_classes
        self.test_labels = dataset.test.labels.to(device)
        self.train_labels = dataset.train.labels[rows].to(device)
        self.held_truth = candidates[rows].to(device).bool().gather(1, self.train_labels[:, None])  # (N, 1)
        self.missing = 100.0 * float((~self.held_truth).double().mean())
        self.held_out = held_out
        self.held_out_candidates = candidates[held_out].to(device)
        self.rows = rows
        self.test_logits: Tensor | None = None  # of the last evaluation

    def evaluate(self, method: Method, autocast: AbstractContextManager[Any]) -> dict[str, float]:
        """Metrics of the method as it is now; accuracies in percent."""
        was_training = method.training
        method.eval()
        with torch.inference_mode(), autocast:
            result = self._test(method) | self._selection(method)
        with torch.no_grad():
            result |= self._disambiguation(method)
        method.train(was_training)
        return result

    def _test(self, method: Method) -> dict[str, float]:
        logits = torch.cat([method.predict(images) for images in self.inputs.test_batches()])
        if logits.shape != (len(self.test_labels), self.num_classes):
            raise MethodDefect(
                type(method),
                f"predict gave {tuple(logits.shape)} for {len(self.test_labels)} images of {self.num_classes} classes; "
                f"one row of logits per image is needed.",
            )
        self.test_logits = logits
        result = {"test_accuracy": accuracy(logits, self.test_labels)}
        if type(method).predictions is not Method.predictions:
            extra: dict[str, list[Tensor]] = {}
            for images in self.inputs.test_batches():
                for name, value in method.predictions(images).items():
                    extra.setdefault(name, []).append(value)
            for name, parts in extra.items():
                result[f"test_accuracy_{name}"] = accuracy(torch.cat(parts), self.test_labels)
        return result

    def predictions(self, method: Method) -> Predictions:
        """What a run keeps: the logits of the last evaluation, and the method's belief as it is now."""
        assert self.test_logits is not None  # every run ends with an evaluation
        belief = method.confidence()
        return Predictions(
            half(self.test_logits.float().cpu().numpy()),
            np.arange(len(self.test_logits), dtype=np.int32),
            self.rows.cpu().numpy().astype(np.int32),
            None if belief is None else half(belief.detach().float().cpu().numpy()),
        )

    def _selection(self, method: Method) -> dict[str, float]:
        """What can be known without true labels, on held-out rows with candidate sets."""
        if not len(self.held_out):
            return {}
        predict: Callable[[Tensor], Tensor] = method.predict
        parts = []
        for start in range(0, len(self.held_out), 256):
            parts.append(predict(self.inputs.train_views(self.held_out[start : start + 256], ("plain",), 0)[0]))
        logits = torch.cat(parts)
        return {
            "covering_rate": covering_rate(logits, self.held_out_candidates),
            "approximated_accuracy": approximated_accuracy(logits, self.held_out_candidates),
        }

    def _disambiguation(self, method: Method) -> dict[str, float]:
        """How well the method's own belief finds the true labels of the training set, and which ones it has lost.

        Labels that were missing from the start are said apart, and are not lost by the method.
        """
        result = {"true_labels_missing": self.missing} if self.missing else {}
        belief = method.confidence()
        if belief is not None:
            result["train_accuracy"] = accuracy(belief, self.train_labels)
        sets = method.candidate_sets()
        if sets is not None:
            kept = sets.bool().gather(1, self.train_labels[:, None])
            result["true_labels_lost"] = 100.0 * float((self.held_truth & ~kept).double().mean())
            result["average_set_size"] = float(sets.double().sum(1).mean())
        return result


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """Percent of rows whose largest score is at the label. (N, C), (N,)."""
    return 100.0 * float((scores.argmax(1) == labels).double().mean())


def covering_rate(logits: Tensor, candidates: Tensor) -> float:
    """Percent of predictions that lie in the candidate set."""
    return 100.0 * float(candidates.bool().gather(1, logits.argmax(1, keepdim=True)).double().mean())


def approximated_accuracy(logits: Tensor, candidates: Tensor) -> float:
    """Mean probability, restricted to the candidates, of the predicted label (0 where it is no candidate); percent."""
    belief = masked_softmax(logits, candidates)
    return 100.0 * float(belief.gather(1, logits.argmax(1, keepdim=True)).double().mean())
