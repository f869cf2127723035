"""`fit`, `predict` and `labels`: data of the user's own, from files to a model, predictions and cleaned labels."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmark import artifacts, store
from benchmark.accuracy import COVERING_RATE, in_words
from benchmark.analysis.selection import ONE_SE, TITLES, pick, unreported_seeds
from benchmark.cli import options as shared
from benchmark.cli.execution import announce, report_failures, train
from benchmark.cli.options import selection_of
from benchmark.cli.tune import report_unused, search_grid, train_points, warn_of_edges
from benchmark.cli.tune import table as choices_table
from benchmark.errors import COMPLETE, FAILED, CandidError, UsageError
from benchmark.tuning import (
    FIT_GRID,
    cells_of,
    check_overrides,
    choice_of,
    final_selection,
    grid_of,
    points_table,
)
from datasets.base import plural

if TYPE_CHECKING:
    import pandas

    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec

AUTO = "auto"
PORTFOLIO = ("proden", "rc", "pop", "pico", "cc")  # of --method auto, which takes the first of equal ones
LEGEND = f"CR: covering rate, {COVERING_RATE}; SE: its standard error; AA: approximated accuracy. All on held-out rows."
COPIED = ("run.json", "metrics.jsonl", artifacts.PREDICTIONS, artifacts.MODEL, artifacts.TENSORS, artifacts.LABELS)


@click.command
@click.argument("dataset", metavar="DATA")
@click.option(
    "--method", default="proden", show_default=True, metavar="NAME",
    help=f"Method to train; see `list methods`. `{AUTO}` tunes {', '.join(PORTFOLIO)} and takes the one with the highest "
         f"covering rate on held-out rows.",
)  # fmt: skip
@click.option("--seed", default="0", show_default=True, metavar="N", help="Seed of split, initial weights and order.")
@click.option("--profile", default="own", show_default=True, metavar="NAME", help="Profile or .toml file.")
@click.option(
    "--tune",
    is_flag=True,
    help="First choose learning rate and weight decay on held-out rows, without true labels, as `tune` does.",
)
@shared.settings
@shared.plugins
@shared.epochs
@shared.place
@shared.out_option("Folder to copy the model and its numbers to.", metavar="FOLDER")
@shared.dry_run
@shared.quiet
@shared.checkpoint_seconds
def fit(dataset: str, method: str, seed: str, tune: bool, out: Path | None, **options: Any) -> int:
    """Train one method on your own data and store the model.

    DATA is an .npz, .csv or .parquet file or a folder of images, see docs/own-data.md.
    """
    if out is not None:
        check_model_folder(out)
    methods = ",".join(PORTFOLIO) if method == AUTO else method
    options |= {"methods": methods, "datasets": dataset, "seeds": seed, "keep_model": True, "jobs": "1"}
    selection = selection_of(options)
    if len(selection.specs(selection.methods[:1])) != 1 or (len(selection.methods) > 1 and method != AUTO):
        raise UsageError("fit trains one method on one dataset with one seed; for more, use `run --keep-model`.")
    if tune or method == AUTO:
        selection = tuned(options, selection)
        if options["dry_run"]:
            return COMPLETE
    (spec,) = selection.specs()
    progress = train(options, selection, [spec])
    if options["dry_run"]:
        return COMPLETE
    code = report_failures(progress, options["quiet"])
    run = store.Store(options["results"]).of_plan([spec]).get(spec.digest)
    if code != COMPLETE or run is None or run.document["status"] != "done":
        return code or FAILED
    where = run.path if out is None else copied(run.path, out)
    print(summary(spec, run.document))
    if artifacts.TENSORS not in (run.document.get("files") or {}):
        return FAILED  # why was said as a warning
    print(f"Model: {where}\n  ./reproduce.sh predict {where} NEW-DATA\n  ./reproduce.sh labels {where}")
    return COMPLETE


def tuned(options: Any, selection: Selection) -> Selection:
    """Return the selection with the method, learning rate and weight decay that held-out candidate labels choose.

    Settings are chosen by the rule of `tune`, then between several methods the one with the highest covering rate: the
    rules that the study of choosing settings found best for each.
    """
    axes = grid_of(FIT_GRID, selection)
    check_overrides(selection, axes)
    unreported = replace(selection, seeds=unreported_seeds((*selection.profile.seeds, *selection.seeds)))
    options = options | {"jobs": None, "keep_model": False}
    announce(options, f"Choosing learning rate and weight decay by {TITLES[ONE_SE]}", unreported)
    if options["dry_run"]:
        train_points(options, unreported, cells_of(unreported, axes), ONE_SE, {})
        return selection
    cells = search_grid(options, unreported, axes, ONE_SE)
    usable = [cell for cell in cells if cell.scored] or cells[:1]  # without a score, the next line says why
    choices = [choice_of(cell, ONE_SE) for cell in usable]
    report_unused(cells)
    place = pick("covering", [scores for _, scores in choices])
    cell, (choice, _) = usable[place], choices[place]
    points = points_table(cell, ONE_SE) if len(cells) == 1 else choices_table(cells, ONE_SE)
    print(f"{points}\n{LEGEND}\nFinal training of {cell.method} on all training rows: {choice}.", flush=True)
    warn_of_edges([cell], ONE_SE)
    return final_selection(replace(selection, methods=(cell.method,)), choice)


def summary(spec: RunSpec, document: dict[str, Any]) -> str:
    """Return the scores of the run in words; without true labels it says so."""
    scores = document["summary"]
    lines = [f"{spec.method} on {spec.dataset}, network {document.get('network', '?')}, {spec.train.epochs} epochs."]
    if "accuracy" in scores:
        lines.append(f"Test accuracy {scores['accuracy']:.2f} %.")
    else:
        measures = in_words(scores)
        held_out = f"on held-out rows: {measures}, where the covering rate is {COVERING_RATE}"
        lines.append(f"No test row has a true label, so nothing is scored{f'; {held_out}' if measures else ''}.")
    if "train_accuracy" in scores:
        lines.append(f"True labels found in the training rows: {scores['train_accuracy']:.2f} %.")
    return "\n".join(lines)


def check_model_folder(out: Path) -> None:
    """Refuse, before the training, a folder with anything but an earlier model in it."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file; name a folder.")
    strange = sorted({path.name for path in out.iterdir()} - set(COPIED)) if out.is_dir() else []
    if strange:
        raise UsageError(f"--out {out} holds other files ({strange[0]}); name an empty or a new folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be made ({error.strerror}).") from None


def copied(folder: Path, out: Path) -> Path:
    """Copy the files of a finished run to another folder; model.json last, which makes it a model."""
    with shared.writing(out):
        (out / artifacts.MODEL).unlink(missing_ok=True)
        for name in sorted(COPIED, key=lambda name: name == artifacts.MODEL):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, out / name)
    return out


@click.command
@click.argument("folder", type=shared.PATH)
@click.argument("rows", type=shared.PATH, metavar="NEW-DATA")
@shared.plugins
@shared.data
@shared.device
@shared.out_option("Output file (default: predictions.csv); - for the screen.", default=Path("predictions.csv"))
def predict(folder: Path, rows: Path, plugins: tuple[str, ...], data: Path, device: str, out: Path) -> int:
    """Predict classes and probabilities of new rows.

    FOLDER is the model's, as `fit` names it; NEW-DATA has the form of the training data.
    """
    import pandas

    from benchmark.runner import devices
    from benchmark.trainer.model import read_model
    from datasets.user.new import new_rows

    model = read_model(folder, plugins, devices.resolve(device)[0])
    x, names = new_rows(rows, model.width, model.columns, data)
    probabilities = model.probabilities(x)
    frame = pandas.DataFrame(probabilities, columns=model.classes)
    # A class may be called as one of these columns.
    frame.insert(0, "probability", probabilities.max(1), allow_duplicates=True)
    frame.insert(0, "prediction", [model.classes[k] for k in probabilities.argmax(1)], allow_duplicates=True)
    frame.insert(0, "row", names, allow_duplicates=True)
    write(out, frame)
    return COMPLETE


@click.command
@click.argument("folder", type=shared.PATH)
@shared.out_option("Output file (default: labels.csv); - for the screen.", default=Path("labels.csv"))
def labels(folder: Path, out: Path) -> int:
    """Write the cleaned labels of the training rows.

    FOLDER is the model's, as `fit` names it.
    """
    from benchmark.trainer.model import read_document, read_file

    classes = read_document(folder)["classes"]
    beliefs = artifacts.beliefs_of(folder / artifacts.LABELS, read_file(folder, artifacts.LABELS))
    if beliefs.candidates.shape[1] != len(classes):
        raise CandidError(f"{folder / artifacts.LABELS} is of another model: it has other classes.")
    frame = cleaned_labels(beliefs, classes)
    write(out, frame)
    outside = (frame["disagrees"] == "yes").sum()
    print(f"The model disagrees with the candidates of {outside} of {plural(len(frame), 'row')}.", file=sys.stderr)
    return COMPLETE


def cleaned_labels(beliefs: artifacts.Beliefs, classes: Sequence[str]) -> pandas.DataFrame:
    """Return a row per training row: the label chosen, the runner-up, and the model's prediction without candidates."""
    import numpy as np
    import pandas

    names, rows = np.array(classes), np.arange(len(beliefs.names))
    belief = beliefs.belief.astype("float64")
    first, second = (-belief).argsort(1, kind="stable").T[:2]
    predictions = beliefs.logits.argmax(1)
    columns = {
        "row": beliefs.names,
        "label": names[first],
        "belief": belief[rows, first],
        "runner_up": names[second],
        "runner_up_belief": belief[rows, second],
        "model": names[predictions],
        "disagrees": np.where(beliefs.candidates[rows, predictions], "no", "yes"),
        "candidates": ["|".join(names[row]) for row in beliefs.candidates],
    }
    return pandas.DataFrame(columns)


def write(out: Path, frame: pandas.DataFrame) -> None:
    """Write a CSV file, or print it."""
    shared.write_text(out, frame.to_csv(index=False, float_format="%.6g"))
