"""What runs cost before they start: seconds, memory, checkpoint bytes.

One cheap method is timed on every data set first, then one run of every other method, then what the time limit still
allows. Operations counted from shapes carry what was timed over to the rest; the output says which is which.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmark.plan.spec import label_of
from benchmark.run.standing import images_of, passes_of

if TYPE_CHECKING:
    from benchmark.plan.selection import Selection
    from benchmark.plan.spec import RunSpec
    from benchmark.run.options import RunOptions
    from benchmark.run.pace import Pace
    from benchmark.run.shapes import Needs, Outline
    from benchmark.train.frozen import Work

TOTAL = 60.0  # seconds of measuring; a measurement that has begun is ended
OF_A_CALL = 1e-5  # seconds of torch beside the arithmetic
OF_A_RUN = 0.03  # seconds for its folder and files

Pair = tuple[str, str]  # what is run, on which data set


@dataclass(frozen=True)
class Cost:
    """What one run costs."""

    seconds: float
    checkpoint_bytes: float
    peak_bytes: float
    how: str  # timed, ratio (of timed runs), operations, assumed, or unknown

    @property
    def measured(self) -> bool:
        return self.how == "timed"


def pair_of(spec: RunSpec) -> Pair:
    """Steps on other candidate sets, or on fewer rows, take as long: they are one pair."""
    costly = {key: value for key, value in spec.overrides.items() if not key.startswith("data.")}
    return spec.label if costly == spec.overrides else label_of(spec.method, costly), spec.dataset


def forward_passes(spec: RunSpec, selection: Selection) -> float:
    """Training passes of whole networks over single images: epochs × images × passes per sample and step."""
    return spec.train.epochs * images_of(spec) * passes_of(selection.entry(spec.method))


def annotators_of(specs: Iterable[RunSpec], place: RunOptions) -> list[RunSpec]:
    """The annotators that these runs need and that are not there yet, as runs of `supervised` that take as long."""
    from datasets.labels.generators import GENERATORS

    found: dict[str, RunSpec] = {}
    for spec in specs:
        folder, section = place.results / "candidates" / spec.dataset, spec.annotator
        if not GENERATORS[spec.data.generator].annotator or any(folder.glob(f"annotator-{section.network}*.npz")):
            continue
        train = replace(
            spec.train, epochs=section.epochs, batch=section.batch, lr=section.lr, eval_every=section.epochs, steps=0,
            holdout=0.0,
        )  # fmt: skip
        backbone = replace(spec.backbone, name=section.network)
        config = replace(spec.config, method="supervised", method_config={}, train=train, backbone=backbone)
        paths = {**spec.paths, "plugin": ""}
        label = f"annotator of {spec.dataset}"
        found.setdefault(spec.dataset, replace(spec, label=label, config=config, overrides={}, paths=paths))
    return list(found.values())


def features_of(specs: Iterable[RunSpec], place: RunOptions, missing: Iterable[str]) -> dict[str, Work]:
    """By data set, the maps of frozen encoders that these runs need and that are not there yet."""
    import torch

    from benchmark.train.frozen import frozen_of, work_of
    from benchmark.train.inputs import with_views
    from benchmark.train.loading import dataset_of, entry_of
    from methods.registry import load

    views: dict[str, dict[str, RunSpec]] = {}
    for spec in specs:
        if spec.backbone.frozen and spec.dataset not in missing:
            for view in ("plain", "weak", *load(entry_of(spec)).views):
                views.setdefault(spec.dataset, {}).setdefault(view, spec)
    found = {}
    for name, wanted in views.items():
        spec = wanted["plain"]
        dataset = with_views(dataset_of(spec, place.data), spec.config.views, spec.backbone.normalisation)
        encoder = frozen_of(spec, dataset, torch.device(place.device))
        work = work_of([encoder.maps("test", "plain"), *(encoder.maps("train", view) for view in wanted)])
        if work.missing:
            found[name] = work
    return found


class Estimate:
    """Costs of runs, timed as far as data and the time limit allow."""

    def __init__(
        self, specs: Sequence[RunSpec], place: RunOptions, missing: Iterable[str] = (), tflops: float = 0.0
    ) -> None:
        self.place, self.missing = place, set(missing)
        self.tflops = tflops  # a speed to reckon with instead of measurements
        self.first: dict[Pair, RunSpec] = {}
        for spec in specs:
            self.first.setdefault(pair_of(spec), spec)
        self.outlines: dict[tuple[str, float], Outline | None] = {}
        self.paces: dict[Pair, Pace] = {}
        self.problems: dict[Pair, str] = {}
        self._needs: dict[tuple[object, ...], Needs | None] = {}

    # what shapes tell ---------------------------------------------------------------------------------------------

    def outline(self, spec: RunSpec) -> Outline | None:
        """The shapes of a run's data."""
        from benchmark.run.shapes import Outline
        from benchmark.train.loading import dataset_of
        from datasets import registry

        key = spec.dataset, spec.data.imbalance
        if key not in self.outlines:
            if self.is_missing(spec):
                source = registry.get(spec.dataset)
                self.outlines[key] = Outline.of_source(source, spec.config.dataset_settings)
            else:
                self.outlines[key] = Outline.of(dataset_of(spec, self.place.data))
        return self.outlines[key]

    def needs(self, spec: RunSpec) -> Needs | None:
        """Operations and memory of a step; None where they cannot be counted."""
        from benchmark.run.capture import silenced
        from benchmark.run.shapes import needs_of

        outline = self.outline(spec)
        if outline is None:
            return None
        method, network = spec.config.to_json()["method"], spec.backbone.name or outline.backbone
        frozen, train = spec.backbone.frozen, spec.train
        size = outline.recipe and outline.recipe.size
        key = (str(method), network, train.batch, train.amp, size, outline.features, frozen)
        if key not in self._needs:
            try:
                with silenced():
                    self._needs[key] = needs_of(spec, self._largest(outline))
            except Exception as error:  # a broken method must not hide the cost of the others
                self._needs[key] = None
                self.problems[pair_of(spec)] = f"{type(error).__name__}: {_line(error)}"
        return self._needs[key]

    def _largest(self, outline: Outline) -> Outline:
        """Of the data sets whose images are of one size, that of the most classes: one count stands for all of them."""
        sizes = [other for spec in self.first.values() if (other := self.outline(spec))]
        return max((o for o in sizes if o.alike(outline)), key=lambda o: (o.classes, o.rows))

    # what is timed ------------------------------------------------------------------------------------------------

    def measure(self, limit: float = TOTAL) -> None:
        """Time as many runs as the limit allows, those first that say most about the others."""
        order = self._in_order()
        deadline, seen = time.monotonic() + limit, set()
        for pair in order:
            if time.monotonic() > deadline and pair[1] in seen:  # one of every data set in any case
                return
            seen.add(pair[1])
            self._time(pair)

    def _in_order(self) -> list[Pair]:
        """The cheapest of every data set, then the cheapest of every method, then the rest."""
        here = [pair for pair, spec in self.first.items() if not self.is_missing(spec)]
        here.sort(key=lambda pair: self._weight(self.first[pair]))  # stable
        chosen: dict[Pair, None] = {}
        for part in (1, 0):
            seen = {pair[part] for pair in chosen}
            for pair in here:
                if pair[part] not in seen:
                    seen.add(pair[part])
                    chosen[pair] = None
        return [*chosen, *(pair for pair in here if pair not in chosen)]

    def _weight(self, spec: RunSpec) -> float:
        """Seconds of a step on a slow device, from its operations and calls; only good for comparisons. 0: not known."""
        from benchmark.run.pace import SLOW

        needs, device = self.needs(spec), self.place.device.partition(":")[0]
        return needs.flops / SLOW[device] + needs.calls * OF_A_CALL if needs else 0.0

    def _time(self, pair: Pair) -> None:
        import torch

        from benchmark.run.capture import silenced
        from benchmark.run.pace import pace_of
        from benchmark.train.device import release
        from benchmark.train.loading import dataset_of

        spec = self.first[pair]
        try:
            with silenced():
                dataset = dataset_of(spec, self.place.data)
                self.paces[pair] = pace_of(spec, dataset, torch.device(self.place.device), self.needs(spec))
        except Exception as error:
            self.problems[pair] = f"{type(error).__name__}: {_line(error)}"
        release(self.place.device)

    # what follows -------------------------------------------------------------------------------------------------

    def cost(self, spec: RunSpec) -> Cost:
        """Of one run."""
        needs = self.needs(spec)
        memory = needs.peak_bytes if needs else 0.0
        pace, how = self._assumed(spec, needs) if self.tflops else self._pace(spec)
        if pace is None:
            return Cost(0.0, 0.0, memory, "unknown")
        return Cost(self._seconds(spec, pace), pace.checkpoint_bytes, max(pace.peak_bytes, memory), how)

    def _seconds(self, spec: RunSpec, pace: Pace) -> float:
        from benchmark.run.pace import steps_of
        from benchmark.train.trainer import evaluations

        outline = self.outline(spec)
        rows = outline.rows if outline else int(images_of(spec))
        epochs = spec.train.epochs
        training = epochs * (steps_of(spec, rows) * pace.step + pace.hooks)
        return training + evaluations(spec.train) * pace.evaluation + pace.once + OF_A_RUN

    def _assumed(self, spec: RunSpec, needs: Needs | None) -> tuple[Pace | None, str]:
        from benchmark.run.pace import Pace

        outline = self.outline(spec)
        if needs is None or outline is None:
            return None, "unknown"
        evaluation = outline.test_rows * needs.predict_flops / (self.tflops * 1e12)
        return Pace(needs.flops / (self.tflops * 1e12), 0.0, 0.0, evaluation, needs.state_bytes), "assumed"

    def _pace(self, spec: RunSpec) -> tuple[Pace | None, str]:
        """Timed, or from what was timed: the method elsewhere, against a method timed there and here."""
        pair = pair_of(spec)
        if pair in self.paces:
            return self._resized(self.paces[pair], pair, spec), "timed"
        here = [other for other in self.paces if other[1] == spec.dataset]
        elsewhere = [other for other in self.paces if other[0] == pair[0]]
        for base in here:
            for other in elsewhere:
                twin = (base[0], other[1])
                if twin in self.paces:
                    factor = self.paces[base].step / self.paces[twin].step
                    counted = self._ratio(spec, other) / self._ratio(self.first[base], twin)
                    return self._resized(self.paces[other].times(factor * counted), other, spec), "ratio"
        known = here or list(self.paces)
        if not known:
            return None, "unknown"
        base = min(known, key=lambda other: abs(self._weight(self.first[other]) - self._weight(spec)))
        return self._resized(self.paces[base].times(self._ratio(spec, base)), base, spec), "operations"

    def _ratio(self, spec: RunSpec, other: Pair) -> float:
        """Operations of a step, one against the other."""
        mine, theirs = self._weight(spec), self._weight(self.first[other])
        return mine / theirs if mine and theirs else 1.0

    def _resized(self, pace: Pace, measured: Pair, spec: RunSpec) -> Pace:
        """Hooks and evaluations for as many rows as the data set has."""
        mine, other = self.outline(spec), self.outline(self.first[measured])
        if mine is None or other is None:
            return pace
        rows, tests = mine.rows / other.rows, mine.test_rows / other.test_rows
        return replace(pace, hooks=pace.hooks * rows, once=pace.once * rows, evaluation=pace.evaluation * tests)

    def is_missing(self, spec: RunSpec) -> bool:
        return (spec.paths.get("dataset") or spec.dataset) in self.missing


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
