"""Partial labels from Python, in scikit-learn's way: the trainer of the command line on arrays.

    from benchmark.estimator import PartialLabelClassifier

    model = PartialLabelClassifier("proden").fit(X, candidates)
    model.predict(X_new)

Same data, same settings, same numbers as `./reproduce.sh fit`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from benchmark import artifacts
from benchmark.errors import CandidError
from datasets.base import UNKNOWN, DataError, row_name
from datasets.user.new import check_rows, frame_rows
from datasets.user.rows import Rows, dataset_from, inputs_of, ordered, words_of
from datasets.user.table import features_of
from methods.networks.names import own_file
from methods.registry import MethodError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.trainer.model import Model
    from benchmark.trainer.trainer import Trainer
    from benchmark.tuning import Cell, Point
    from datasets.base import Dataset

TRAIN = ("epochs", "batch", "lr", "weight_decay", "holdout")  # parameters that are settings of the training
PROFILE = "own"


@contextmanager
def sentences() -> Iterator[None]:
    """Raise this program's errors as the ValueError that users of scikit-learn catch."""
    try:
        yield
    except (CandidError, DataError, MethodError) as error:
        raise ValueError(str(error)) from None


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that learns from candidate sets, one of whose labels is true.

    method: a name of `list methods`, or one that a file named by `plugin` registers.
    epochs, batch, lr, weight_decay, holdout: of the training; None: as the profile `own` has them.
    tune: choose lr and weight_decay on held-out candidates first, then train on all rows, as `fit --tune` does.
    network: for example "mlp", "linear", "small-cnn", "timm:NAME"; None: what fits the data.
    settings: any other setting by its name on the command line, {"cel.alpha": 0.5, "backbone.width": 300}.
    classes: all classes in order; None: those that occur (of a 0/1 matrix: its columns).
    """

    def __init__(
        self,
        method: str = "proden",
        *,
        epochs: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        holdout: float | None = None,
        tune: bool = False,
        network: str | None = None,
        settings: Mapping[str, Any] | None = None,
        classes: Iterable[Any] | None = None,
        plugin: str | None = None,
        random_state: int = 0,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:  # scikit-learn finds parameters by their names here, so they cannot be gathered into one object
        self.method = method
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.weight_decay = weight_decay
        self.holdout = holdout
        self.tune = tune
        self.network = network
        self.settings = settings
        self.classes = classes
        self.plugin = plugin
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # training ---------------------------------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any) -> PartialLabelClassifier:
        """Train on rows X and their candidates y.

        X: features (N, d) or images (N, H, W, 3), (N, 3, H, W), (N, H, W) of uint8; array, tensor or frame.
        y: a 0/1 matrix (N, C), or for every row a collection of labels, a text "cat|lynx", or one label.
        """
        import torch

        from benchmark.trainer.guard import Diverged
        from benchmark.trainer.model import model_files
        from benchmark.tuning import LR, WEIGHT_DECAY, final_selection

        with sentences():
            x, columns = self._inputs(X, fitting=True)
            labels, matrix = candidates_of(y, self.classes)
            if len(matrix) != len(x):
                raise ValueError(f"Found {len(matrix)} candidate sets for {len(x)} rows of X; one each is needed.")
            unknown, none = np.full(len(x), UNKNOWN), np.zeros(len(x), dtype=bool)
            rows = Rows("X", x, unknown, tuple(map(str, labels)), matrix, none, columns=columns)
            dataset = dataset_from(rows, "arrays", missing_truth="keep")
            selection = self._selection()
            assert dataset.candidates is not None
            threads = torch.get_num_threads()
            try:
                with torch.random.fork_rng(devices=[]):  # the caller's generator stays as it was
                    choice = self._choice(selection, dataset) if self.tune else None
                    final = selection if choice is None else final_selection(selection, choice)
                    trainer, result = self._trained(final.specs()[0], dataset, self.verbose)
                    self._files = model_files(trainer, dataset, dataset.candidates)
            except Diverged as error:
                raise ValueError(f"The training diverged: {error}; choose a smaller lr.") from None
            finally:
                torch.set_num_threads(threads)
            self._model: Model | None = self._build_model()
            self.classes_ = labels
            scores = result if choice is None else vars(choice.score)
            self.measures_ = {key: scores[key] for key in ("covering_rate", "approximated_accuracy") if key in scores}
            self.tuned_ = (
                {} if choice is None else {"lr": choice.values[LR], "weight_decay": choice.values[WEIGHT_DECAY]}
            )
        return self

    def _trained(self, spec: RunSpec, dataset: Dataset, verbose: bool = False) -> tuple[Trainer, dict[str, Any]]:
        """Return the trainer of a finished run and the result of its last epoch."""
        import torch

        from benchmark.trainer.loading import entry_of
        from benchmark.trainer.trainer import Trainer
        from methods.registry import load

        assert dataset.candidates is not None
        method = load(entry_of(spec))
        trainer = Trainer(spec, method, dataset, dataset.candidates, torch.device(self.device))
        while trainer.epoch < trainer.epochs:
            result = trainer.train_epoch()["result"]
            if verbose:
                print(f"epoch {trainer.epoch}/{trainer.epochs}: loss {result['loss']:.4f}")
        return trainer, result

    def _choice(self, selection: Selection, dataset: Dataset) -> Point:
        """Return the values that the rule of `tune` takes; the runs of the search are not stored."""
        from benchmark import tuning
        from benchmark.analysis.selection import ONE_SE, unreported_seeds
        from benchmark.trainer.guard import Diverged

        def scored(cells: list[Cell]) -> list[Cell]:
            return [replace(cell, points=tuple(map(score, cell.points))) for cell in cells]

        def score(point: Point) -> Point:
            if self.verbose:
                print(f"Trying {point}.")
            try:
                results = [self._trained(spec, dataset)[1] for spec in point.specs]
            except Diverged as error:
                return replace(point, state="diverged", reason=str(error))
            return tuning.with_results(results, point, ONE_SE)

        axes = tuning.grid_of(tuning.FIT_GRID, selection)
        tuning.check_overrides(selection, axes)
        unreported = replace(selection, seeds=unreported_seeds((*selection.profile.seeds, *selection.seeds)))
        (cell,) = tuning.cells_of(unreported, axes)
        tuning.check_rows(cell, len(dataset.train))
        (cell,) = tuning.search(unreported, axes, ONE_SE, scored, print if self.verbose else lambda text: None)
        choice, _ = tuning.choice_of(cell, ONE_SE)
        if self.verbose:
            print(tuning.points_table(cell, ONE_SE))
        return choice

    def _build_model(self) -> Model:
        """Build the model from its files; code of the user's own comes from the files that the parameters name."""
        from benchmark.trainer.model import model_from

        network = own_file(self.network or "")
        named = (*([self.plugin] if self.plugin else []), *([network[0]] if network else []))
        return model_from(self._files, named, self.device)

    def _selection(self) -> Selection:
        """Return the run of the profile `own` with the settings, as a selection of one."""
        from benchmark.config.profile import load_profile
        from benchmark.config.resolution import Override, check_overrides
        from benchmark.config.sections import LARGEST_SEED
        from benchmark.config.selection import Selection
        from methods.registry import discover

        if not isinstance(self.random_state, int | np.integer) or not 0 <= self.random_state <= LARGEST_SEED:
            raise ValueError(f"random_state is {self.random_state!r}; it must be an integer from 0 to {LARGEST_SEED}.")
        catalogue = discover((self.plugin,) if self.plugin else ())
        seeds = (int(self.random_state),)
        selection = Selection(load_profile(PROFILE), catalogue, (self.method,), ("arrays",), seeds, ())
        entry = selection.entry(self.method)
        settings = {f"train.{key}": getattr(self, key) for key in TRAIN if getattr(self, key) is not None}
        settings |= {"backbone.name": self.network} if self.network else {}
        settings |= self.settings or {}
        words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
        overrides = [Override.parse(f"{key}={word}", catalogue) for key, word in words.items()]
        check_overrides(overrides, [entry])
        return replace(selection, overrides=tuple(overrides))

    def _inputs(self, X: Any, fitting: bool = False) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return features float64 or images uint8 as NumPy, and the names of a frame's columns."""
        values = X.detach().cpu().numpy() if hasattr(X, "detach") else X
        if hasattr(values, "columns") and hasattr(values, "dtypes"):
            if fitting:
                x, columns = features_of("X", values)
                validate_data(self, values)  # keeps the names
                return x, columns
            model = self.model_
            columns = model.columns if all(isinstance(column, str) for column in values.columns) else ()
            return frame_rows("X", values, model.width, columns), columns
        if getattr(values, "ndim", 0) in (3, 4) and getattr(values, "dtype", None) == np.uint8:
            x = inputs_of("X", values)
            if fitting:
                self.n_features_in_ = int(np.prod(x.shape[1:]))
        elif not fitting and self.model_.width is None:
            raise DataError("X is no array of images of type uint8, and the model takes images.")
        else:
            x = validate_data(self, values, dtype=np.float64, reset=fitting, ensure_min_samples=2 if fitting else 1)
        if not fitting:
            check_rows("X", x, self.model_.width)
        return x, ()

    # use --------------------------------------------------------------------------------------------------------------
    @property
    def model_(self) -> Model:
        """The trained model, built from its files when it is first needed."""
        check_is_fitted(self, "classes_")
        if self._model is None:
            with sentences():
                self._model = self._build_model()
        return self._model

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities (N, C) in the order of `classes_`."""
        with sentences():
            return self.model_.probabilities(self._inputs(X)[0])

    def predict(self, X: Any) -> np.ndarray:
        """Return labels (N,)."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of predictions that are right; for candidate sets, of those that lie in their set."""
        if one_label_each(y):
            return super().score(X, y, sample_weight)
        check_is_fitted(self, "classes_")
        with sentences():
            _, matrix = candidates_of(y, self.classes_)
        best = self.predict_proba(X).argmax(1)
        return float(np.average(matrix[np.arange(len(best)), best], weights=sample_weight))

    def disambiguate(self) -> np.ndarray:
        """Return the label identified for every training row (N,)."""
        return self.classes_[self.belief_.argmax(1)]

    @property
    def belief_(self) -> np.ndarray:
        """(N, C) how much each label is believed for every training row; rows sum to 1."""
        check_is_fitted(self, "classes_")
        return artifacts.beliefs_of(Path(artifacts.LABELS), self._files[artifacts.LABELS]).belief.astype(np.float64)

    # files ------------------------------------------------------------------------------------------------------------
    def save(self, path: str | Path) -> None:
        """Write the model into a folder: plain tensors and JSON, which `./reproduce.sh predict` and `load` read."""
        check_is_fitted(self, "classes_")
        document = json.loads(self._files[artifacts.MODEL])
        parameters = self.get_params() | {"classes": None, "random_state": int(self.random_state)}
        try:
            parameters["settings"] = None if self.settings is None else dict(self.settings)
            kind = self.classes_.dtype.kind
            document["estimator"] = {"parameters": parameters, "classes": kind if kind in "iub" else "U"}
            text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        except TypeError as error:
            raise ValueError(f"The parameters cannot be saved: {error}.") from None
        Path(path).mkdir(parents=True, exist_ok=True)
        artifacts.write(Path(path), self._files | {artifacts.MODEL: text.encode()})

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_model": None}  # made again from the files

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def load(path: str | Path, plugin: str | None = None, device: str = "cpu") -> PartialLabelClassifier:
    """Load a model from a folder that `save` or `./reproduce.sh fit` has written. Nothing in it is run."""
    from benchmark.trainer.model import read_document, read_model

    folder = Path(path)
    with sentences():
        document = read_document(folder)
        model = read_model(folder, (plugin,) if plugin else (), device)
        stored = document.get("estimator") or {"parameters": {"method": document["method"]["name"]}, "classes": "U"}
        parameters = stored.get("parameters")
        if not isinstance(parameters, dict) or not parameters.keys() <= PartialLabelClassifier().get_params().keys():
            raise ValueError(f"{folder / artifacts.MODEL} has parameters that the estimator does not know.")
        loaded = PartialLabelClassifier(**parameters | {"plugin": plugin, "device": device})
        names = np.array(document["classes"])
        loaded.classes_ = names if stored.get("classes") == "U" else names.astype(np.int64)
        files = [name for name in artifacts.MODEL_FILES if name != artifacts.LABELS or (folder / name).is_file()]
        loaded._files = {name: (folder / name).read_bytes() for name in files}
        loaded._model = model
        if model.width is not None:
            loaded.n_features_in_ = model.width
        if model.columns:
            loaded.feature_names_in_ = np.array(model.columns, dtype=object)
    return loaded


# Candidates in their forms --------------------------------------------------------------------------------------------


def plain(y: Any) -> Any:
    """Return tensors, frames and other arrays as NumPy, and lists as they are."""
    y = y.detach().cpu() if hasattr(y, "detach") else y
    return np.asarray(y) if hasattr(y, "__array__") else y


def one_label_each(y: Any) -> bool:
    """Whether these are labels rather than candidate sets."""
    values = plain(y)
    if getattr(values, "ndim", 1) != 1:
        return False
    return not any(is_set(value) or (isinstance(value, str) and len(words_of(value)) > 1) for value in values)


def is_set(value: Any) -> bool:
    return not isinstance(value, str | bytes) and hasattr(value, "__iter__")


def candidates_of(y: Any, classes: Iterable[Any] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return classes (C,) and the candidate matrix (N, C) bool, from any of the forms that `fit` takes."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None: give it the candidates.")
    values = plain(y)
    dtype = getattr(values, "dtype", None)
    kind = getattr(dtype, "kind", "")
    if getattr(values, "ndim", 1) > 2:
        raise ValueError(f"The candidates have shape {values.shape}; a matrix (N, C) or one set per row is needed.")
    if getattr(values, "ndim", 1) == 2 and values.shape[1] > 1:
        if kind not in ("b", "i", "u", "f") or not np.isin(values, (0, 1)).all():
            raise ValueError("A candidate matrix (N, C) holds 0 and 1 only.")
        columns = getattr(y, "columns", range(values.shape[1]))
        names = np.asarray(columns) if classes is None else np.array(list(classes))
        if len(names) != values.shape[1]:
            raise ValueError(f"There are {len(names)} classes for {values.shape[1]} columns of the candidates.")
        _refuse_empty(values.any(1))
        return names if names.dtype.kind != "O" else names.astype(str), values.astype(bool)
    if dtype is not None:
        values = column_or_1d(values, warn=True)
    if kind == "f" and not np.isfinite(values).all():
        raise ValueError("Input y contains NaN or infinity.")
    if kind == "f" and (values != values.round()).any():
        raise ValueError("Unknown label type: continuous; labels are classes, not measured values.")
    sets = [_set(value) for value in values]
    _refuse_empty([bool(labels) for labels in sets])
    labels = {label for labels in sets for label in labels}
    names = np.array(list(classes)) if classes is not None else sorted_classes(labels, dtype)
    strange = labels - set(names.tolist())
    if strange:
        raise ValueError(f"The candidates name {min(strange, key=str)!r}, which is not among the {len(names)} classes.")
    if len(names) < 2:
        raise ValueError("The candidates name one class only; a classifier needs two classes or more.")
    return names, MultiLabelBinarizer(classes=names.tolist()).fit_transform(sets).astype(bool)


def _refuse_empty(has_candidates: Any) -> None:
    empty = np.flatnonzero(~np.array(has_candidates))
    if len(empty):
        first = row_name(int(empty[0]))
        raise ValueError(f"In y, {first} has no candidate; leave the row out or name all classes that it may be.")


def _set(value: Any) -> set[Any]:
    if isinstance(value, str):
        return set(words_of(value))
    items = value if is_set(value) else [value]
    return {item.item() if isinstance(item, np.generic) else item for item in items}


def sorted_classes(labels: set[Any], dtype: np.dtype | None) -> np.ndarray:
    """Return the classes in order, of the type that they were given in."""
    is_object = dtype is not None and dtype.kind == "O"
    if all(isinstance(label, str) for label in labels):
        return np.array(ordered(labels), dtype=object if is_object else None)
    return np.array(sorted(labels), dtype=None if is_object else dtype)
