"""A stored run as something that this checkout can do again: its specification, held to what is known here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.errors import CandidError, UsageError
from benchmark.plan import sections as typed
from benchmark.plan.resolution import own_data, source_digest
from benchmark.plan.sections import SECTIONS, fields_of
from benchmark.plan.spec import RunConfig, RunSpec
from datasets.base import DataError
from datasets.registry import SOURCES
from methods.parts.networks import own_file
from methods.registry import Catalogue, discover


class CannotBeDone(Exception):
    """Why a run cannot be done again here; no fault of the run."""


class TakenAsItIs(CannotBeDone):
    """What nobody asked to be done again; it leaves no gap, and the certificate says so."""


@dataclass(frozen=True)
class Means:
    """What the person at the keyboard has given: methods of the tree and of plug-ins, data sets of one's own."""

    catalogue: Catalogue
    own: dict[str, str]  # path by SHA-256

    @classmethod
    def of(cls, plugins: Sequence[str], paths: Sequence[str]) -> Means:
        own = {}
        for path in paths:
            found = own_data(path)
            if "sha256" not in found:
                raise UsageError(f"--datasets {path}: that is no file or folder of data of your own.")
            own[found["sha256"]] = path
        return cls(discover(tuple(plugins)), own)

    def spec(self, document: Mapping[str, Any]) -> RunSpec:
        """The run's specification. Names are looked up, never taken for paths; values must fit their types and ranges."""
        try:
            config = RunConfig.from_json(document["config"])
            self._check_values(config)
        except (ValueError, TypeError, CandidError) as error:
            raise CannotBeDone(str(error)) from None
        plugin = self._plugin(config)
        if config.backbone.weights:
            raise CannotBeDone("it starts from a weight file of its maker's")
        for network in (config.backbone.name, config.annotator.network):
            if own_file(network.partition("#")[0]):
                raise CannotBeDone(f"its network is in the file {network.partition(':')[0]}, which verify does not run")
        name = config.dataset
        if config.dataset_sha256:
            if config.dataset_sha256 not in self.own:
                file = document.get("data_file") or f"{name}.npz"
                raise CannotBeDone(f"its data are its maker's own; give them with --datasets {file}")
            name = self.own[config.dataset_sha256]
        elif name not in SOURCES:
            raise CannotBeDone(f"there is no data set {name} in this checkout")
        provenance = {key: "verify" for key in document.get("provenance") or {} if isinstance(key, str)}
        paths = {"plugin": plugin, "weights": "", "dataset": name}
        return RunSpec(str(document["profile"]), str(document["label"]), config, provenance, {}, paths)

    def _plugin(self, config: RunConfig) -> str:
        entry = self.catalogue.entries.get(config.method)
        if config.method_source:
            if entry is None or entry.built_in:
                raise CannotBeDone(f"its method is a plug-in; give the file with --plugin {config.method}.py")
            if source_digest(entry) != config.method_source:
                raise CannotBeDone(
                    f"{entry.file} is another version of {config.method} than the one that it was made with"
                )
            return str(entry.file.resolve())
        if entry is None or not entry.built_in:
            raise CannotBeDone(f"there is no method {config.method} in this checkout")
        return ""

    def _check_values(self, config: RunConfig) -> None:
        for name, section in SECTIONS.items():
            values = dataclasses.asdict(getattr(config, name))
            for key, setting in fields_of(section).items():
                setting.check(values[key])
            typed.check(name, values)
        entry = self.catalogue.entries.get(config.method)
        for key, value in config.method_config.items() if entry else ():
            if key not in entry.config:  # type: ignore[union-attr]
                raise ValueError(f"method {config.method} has no setting {key} here")
            entry.config[key].check(value)  # type: ignore[union-attr]


Data = tuple[Any, Any]  # a data set and the rows that a run of it trains on


def data_of(spec: RunSpec, root: Path) -> Data:
    """The run's data from this machine."""
    from benchmark.train.loading import dataset_of
    from benchmark.train.trainer import split_rows

    try:
        dataset = dataset_of(spec, root)
    except (DataError, CandidError) as error:
        raise CannotBeDone(f"its data are not here ({error})") from None
    return dataset, split_rows(len(dataset.train), spec.train.holdout, spec.data_seed)[0]
