"""Robustness: accuracy against missing true labels, larger candidate sets and long tails, on the embedded data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.errors import UsageError
from benchmark.exhibits.base import Exhibit, Inputs, NoFlags, RequiredRuns, figure_datasets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.config.resolution import Override
    from benchmark.config.sections import Data
    from benchmark.config.selection import Selection

# For clean sets, missing true labels (ALIM, FREDIS) and long tails (SoLar); all of them take ten minutes.
USUAL = ("cel", "proden", "pico", "alim", "fredis", "solar")
BOUNDS = {"average": " (floor)", "supervised": " (ceiling)"}  # always drawn


# Settings of [data] that are varied, even if `--set` names them.
VALUES = {"noise": (0, 0.1, 0.2, 0.3), "rate": (0.1, 0.3, 0.5, 0.7), "imbalance": (1, 10, 30, 100)}
TITLES = {
    "noise": "Sets without the true label, share η",
    "rate": "Rate q of wrong labels, uniform sets",
    "imbalance": "Largest over smallest class",
}
ALWAYS = {"rate": {"generator": "uniform", "target_size": "0"}}  # settings that go with a varied one


class Robustness(Exhibit):
    name, title, kind = "robustness", "the robustness curves", "figure"
    profile = "quick"

    def required_runs(self, selection: Selection, options: NoFlags) -> RequiredRuns:
        required = RequiredRuns()
        is_usual = selection.datasets == selection.profile.datasets
        for dataset in figure_datasets(selection, self.name) if is_usual else selection.datasets:
            usual = selection.specs(BOUNDS, [dataset])[0].data
            if usual.generator == "own":
                raise UsageError(f"{dataset} has its own candidate sets; these curves need generated ones.")
            for name, values in VALUES.items():
                for value in values:
                    specs = selection.specs(methods_of(selection), [dataset], extra=changes(name, value, usual))
                    required.add_point(specs, name, float(value))
        return required

    def make(self, inputs: Inputs, options: NoFlags) -> Figure:
        from benchmark.exhibits.parts.panels import sensitivity

        entry = inputs.selection.entry
        methods = {name: entry(name).title + BOUNDS.get(name, "") for name in methods_of(inputs.selection)}
        return inputs.with_status(sensitivity(inputs.points, TITLES, inputs.datasets, methods, {}))


def methods_of(selection: Selection) -> list[str]:
    """Return the usual methods or those that the command line names, with floor and ceiling in any case."""
    named = selection.methods if selection.methods != selection.profile.all_methods else USUAL
    return list(dict.fromkeys((*named, *BOUNDS)))


def changes(name: str, value: float, usual: Data) -> list[Override]:
    """Return the settings of this point; none where it is the usual setting."""
    from benchmark.config.resolution import Override

    words = dict(ALWAYS.get(name, {}))
    if words or value != getattr(usual, name):
        words[name] = str(value)
    return [Override("data", key, text) for key, text in words.items()]
