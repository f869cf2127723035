"""A trained model as two files: `model.safetensors` with all tensors, `model.json` with what is needed to use them.

Neither file is executed: the JSON names a built-in method and network, the tensors are numbers. A user's network or method
is loaded only from a file that the caller names. A third file, `labels.npz`, has the predictions for the training rows and
the method's label confidences.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensor_bytes
from torch import Tensor

from benchmark import artifacts
from benchmark.config.spec import file_digest
from benchmark.errors import CandidError
from benchmark.files import read_regular
from benchmark.store import is_count, is_number, parse_document, parse_json
from benchmark.trainer.inputs import ViewLoader
from benchmark.trainer.trainer import Trainer, build, shapes
from datasets.base import UNKNOWN, Dataset, Scaling, Split
from datasets.views.recipes import Recipe
from methods.base import Backbone, Method, Task
from methods.blocks import masked_softmax
from methods.networks.backbones import Layers, factory
from methods.networks.names import file_digest_of, own_file
from methods.registry import MethodError, discover, load

FORMAT = 1
MOST_THREADS = 1024  # that a model may ask for; far beyond that the OpenMP library ends the process
BATCH = 256  # rows that are predicted at once, as in an evaluation, so that the numbers are the same


# Writing --------------------------------------------------------------------------------------------------------------


def obstacle(trainer: Trainer, dataset: Dataset) -> str | None:
    """Return why the model of a run cannot be stored; None if it can."""
    if trainer.frozen is not None:
        return "its encoder is frozen and not part of the trained tensors"
    if dataset.recipe is None and dataset.scaling is None:
        return f"the scaling of the features of {dataset.name} is not known for new rows"
    if not all(isinstance(value, Tensor) for value in trainer.method.state_dict().values()):
        return "the method has state that is not a tensor"
    return None


def model_files(trainer: Trainer, dataset: Dataset, candidates: Tensor) -> dict[str, bytes]:
    """Return the files of a trained model by name."""
    spec, network, scaling, state = trainer.spec, trainer.spec.backbone, dataset.scaling, trainer.method.state_dict()
    tensors = tensor_bytes({key: value.detach().cpu().contiguous().clone() for key, value in state.items()})
    inputs: dict[str, Any]
    if scaling is not None:
        inputs = {"kind": "features", "columns": list(dataset.columns)}
        inputs |= {"mean": scaling.mean.tolist(), "scale": scaling.scale.tolist()}
    else:
        assert isinstance(trainer.inputs, ViewLoader) and trainer.inputs.views is not None
        inputs = {"kind": "images", "recipe": dataclasses.asdict(trainer.inputs.views.recipe)}
        inputs["channels_last"] = trainer.inputs.format == torch.channels_last
    layers = {field.name: getattr(network, field.name) for field in dataclasses.fields(Layers)}
    document = {
        "format": FORMAT,
        "method": {"name": spec.method, "config": spec.method_config, "source": spec.method_source},
        "classes": list(dataset.class_names),
        "input": inputs,
        "network": {"name": network.name or dataset.backbone, "layers": layers},
        "task": {"rows": len(trainer.rows), "epochs": trainer.epochs, "steps_per_epoch": trainer.steps_per_epoch},
        "config": spec.to_json(),
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
    }
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return {
        artifacts.TENSORS: tensors,
        artifacts.MODEL: text.encode(),
        artifacts.LABELS: artifacts.npz_bytes(vars(beliefs(trainer, dataset, candidates))),
    }


def beliefs(trainer: Trainer, dataset: Dataset, candidates: Tensor) -> artifacts.Beliefs:
    """Return the model's predictions for every training row, and the method's label confidences where it has been trained.

    Methods without label confidences, and held-out rows, have the model's probabilities among the candidates instead.
    """
    method = trainer.method
    was_training = method.training
    method.eval()
    with torch.inference_mode(), trainer.autocast():
        logits = trainer.evaluator.logits(method, torch.arange(len(dataset.train))).float().cpu()
    method.train(was_training)
    belief = masked_softmax(logits, candidates)
    confidence = method.confidence()
    if confidence is not None:
        confidence = confidence.detach().float().cpu().clamp(min=0)
        mass = confidence.sum(1, keepdim=True)
        belief[trainer.rows] = torch.where(mass > 0, confidence / mass.clamp(min=1e-30), belief[trainer.rows])
    names = dataset.train_names or tuple(map(str, range(len(dataset.train))))
    return artifacts.Beliefs(
        np.array(names), candidates.numpy().astype(bool), artifacts.half(logits.numpy()), artifacts.half(belief.numpy())
    )


# Reading --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """Trained method that predicts rows in the user's form."""

    method: Method
    document: dict[str, Any]
    device: torch.device

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.document["classes"])

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.document["input"].get("columns", ()))

    @property
    def width(self) -> int | None:
        """Number of features of a row; None for images."""
        return len(self.document["input"]["mean"]) if self.document["input"]["kind"] == "features" else None

    def logits(self, x: np.ndarray | Split) -> np.ndarray:
        """Return logits (N, C), float32, of unscaled features (N, d) or of images uint8."""
        amp = self.document["config"]["train"]["amp"]
        autocast = nullcontext() if amp == "off" else torch.autocast(self.device.type, dtype=getattr(torch, amp))
        threads = torch.get_num_threads()
        torch.set_num_threads(self.document["config"]["train"]["threads"])
        try:
            with torch.inference_mode(), autocast:
                parts = [self.method.predict(rows.to(self.device)).float().cpu() for rows in self._batches(x)]
        finally:
            torch.set_num_threads(threads)
        logits = torch.cat(parts).numpy() if parts else np.zeros((0, len(self.classes)), dtype=np.float32)
        if not np.isfinite(logits).all():
            raise CandidError(
                "the model predicts values that are not finite; its weights are damaged, so fit it again."
            )
        return logits

    def probabilities(self, x: np.ndarray | Split) -> np.ndarray:
        """Return (N, C) float64 that sum to 1."""
        from scipy.special import softmax

        return softmax(self.logits(x).astype(np.float64), axis=1)

    def _batches(self, x: np.ndarray | Split) -> Iterator[Tensor]:
        inputs = self.document["input"]
        if inputs["kind"] == "features":
            assert isinstance(x, np.ndarray)
            scaled = Scaling(np.array(inputs["mean"]), np.array(inputs["scale"]))(x)
            yield from torch.from_numpy(scaled).split(BATCH)
            return
        if isinstance(x, np.ndarray):
            x = Split(torch.from_numpy(np.ascontiguousarray(x)), torch.full((len(x),), UNKNOWN))
        classes = self.classes
        data = Dataset("new rows", len(classes), classes, x.rows(torch.arange(0)), x, recipe_of(inputs))
        yield from ViewLoader(data, 0, self.device, inputs["channels_last"]).test_batches()


def recipe_of(inputs: dict[str, Any]) -> Recipe:
    """Return the recipe for preparing images; JSON has no tuples, so lists become tuples again."""
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in inputs["recipe"].items()}
    return Recipe(**values)


def read_model(folder: Path, plugins: Sequence[str] = (), device: str = "cpu") -> Model:
    """Read the model of a run folder, or of a folder that `fit --out` or the estimator has written."""
    return _model(folder, read_document(folder), read_file(folder, artifacts.TENSORS), tuple(plugins), device)


def model_from(files: dict[str, bytes], plugins: Sequence[str] = (), device: str = "cpu") -> Model:
    """Return a model from the content of its files."""
    return _model(Path(), json.loads(files[artifacts.MODEL]), files[artifacts.TENSORS], tuple(plugins), device)


def _model(folder: Path, document: dict[str, Any], tensors: bytes, plugins: tuple[str, ...], device: str) -> Model:
    path = folder / artifacts.MODEL
    if hashlib.sha256(tensors).hexdigest() != document["tensors_sha256"]:
        raise CandidError(
            f"{folder / artifacts.TENSORS} is not the file that belongs to {path}: its SHA-256 is another."
        )
    try:
        state = read_tensors(tensors)
    except SafetensorError as error:
        raise CandidError(f"{folder / artifacts.TENSORS} is not a safetensors file: {error}.") from None
    method = _method(path, document, plugins)
    wrong = shapes(state).items() ^ shapes(method.state_dict()).items()
    if wrong:
        raise CandidError(
            f"{folder / artifacts.TENSORS} does not fit the method {document['method']['name']}: the tensor "
            f"{min(key for key, _ in wrong)} is missing, superfluous or of another shape or type."
        )
    method.load_state_dict(state)
    method.eval().to(device)
    if document["input"].get("channels_last"):
        method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Model(method, document, torch.device(device))


def read_document(folder: Path) -> dict[str, Any]:
    """Read model.json and check its form."""
    path, content = folder / artifacts.MODEL, read_file(folder, artifacts.MODEL)
    try:
        document = parse_json(content)
        if document["format"] != FORMAT:
            raise CandidError(f"{path} has format {document['format']}, this program reads format {FORMAT}.")
        inputs, task, train = document["input"], document["task"], document["config"]["train"]
        texts = [document["tensors_sha256"], *(document[key]["name"] for key in ("method", "network"))]
        texts += document["classes"]
        counts = [task["rows"], task["epochs"], task["steps_per_epoch"], train["threads"]]
        if inputs["kind"] == "features":
            texts += inputs["columns"]
            fine = all(is_number(value) for value in (*inputs["mean"], *inputs["scale"]))
            fine &= len(inputs["mean"]) == len(inputs["scale"]) == (len(inputs["columns"]) or len(inputs["mean"])) > 0
        else:
            fine = inputs["kind"] == "images" and 0 < recipe_of(inputs).size <= 4096
        fine &= all(isinstance(text, str) for text in texts) and all(is_count(count) and count > 0 for count in counts)
        fine &= isinstance(document["method"]["config"], dict) and len(document["classes"]) > 1
        fine &= train["threads"] <= MOST_THREADS and train["amp"] in ("off", "bfloat16", "float16")
    except (ValueError, KeyError, TypeError):
        fine = False
    if not fine:
        raise CandidError(f"{path} is damaged or not the description of a model.")
    return document


def read_file(folder: Path, name: str) -> bytes:
    """Return the content of a file of a model, checked against its SHA-256 where the folder has a run.json."""
    try:
        recorded = parse_document(read_regular(folder / "run.json")).get("files") or {}
    except (OSError, ValueError):
        recorded = {}
    content = artifacts.read(folder / name, recorded.get(name))
    if content is None:
        raise CandidError(
            f"{folder} holds no {name}: train with `fit`, or with --keep-model, and name the folder that it prints."
        )
    return content


def _method(path: Path, document: dict[str, Any], plugins: tuple[str, ...]) -> Method:
    """Return the method of a model with fresh weights."""
    section, source = document["method"], document["method"].get("source", "")
    network, inputs = document["network"], document["input"]
    network_file, plugins = network_file_of(path, network["name"], plugins)
    try:
        entry = discover(plugins).get(section["name"])
    except MethodError as error:
        hint = " It is a plug-in: name its file with --plugin." if source else ""
        raise CandidError(f"{path}: {error}{hint}") from None
    digest = "" if entry.built_in else hashlib.sha256(entry.file.read_bytes()).hexdigest()
    if digest != source:
        raise CandidError(
            f"{path}: the model was trained with another version of {entry.file} and needs that version."
            if source
            else f"{path}: the model is of the built-in method {section['name']}, not of {entry.file}; leave out --plugin."
        )
    dim = len(inputs["mean"]) if inputs["kind"] == "features" else 3
    classes, rows = len(document["classes"]), document["task"]["rows"]
    try:
        layers = Layers(**network["layers"])
        encoder = factory(network["name"], dim, pretrained=False, shape=layers, file=network_file)
        everything = torch.ones(rows, classes, dtype=torch.bool)

        def backbone() -> Backbone:
            network = encoder()
            network.input_features = dim if inputs["kind"] == "features" else None
            return network

        task = Task(classes, everything, document["task"]["epochs"], document["task"]["steps_per_epoch"], backbone)
        with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and then replaced
            return build(load(entry), section["config"], task)
    except MethodError as error:
        raise CandidError(f"{path}: {error}") from None
    except (TypeError, ValueError, RuntimeError) as error:
        raise CandidError(f"{path}: its method cannot be built from this file: {error}.") from None


def network_file_of(path: Path, name: str, plugins: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return `FILE.py:CLASS` of a user's network, identified among the given files by its content, and the other files.

    The file is "" for a built-in network. The stored name alone never leads to a file.
    """
    stored = own_file(name.partition("#")[0])
    if stored is None:
        return "", plugins
    file, class_name = stored
    digest = file_digest_of(name)
    for plugin in plugins:
        if digest and Path(plugin).is_file() and file_digest(plugin).startswith(digest):
            return f"{plugin}:{class_name}", tuple(other for other in plugins if other != plugin)
    raise CandidError(
        f"{path}: the network {class_name} was in the file {file} during training; name that file, unchanged, with --plugin "
        f"(in Python: plugin=)."
    )
