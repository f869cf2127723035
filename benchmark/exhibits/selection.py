"""Choosing settings without true labels: what each rule costs against the best setting, from the stored runs of `tune`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmark.analysis.selection import HELD_OUT, HOLDOUT, TITLES, unreported_seeds
from benchmark.analysis.table import NONE, Cell, Row, Table, row
from benchmark.errors import MissingRuns
from benchmark.exhibits.base import Exhibit, Inputs, RequiredRuns, competing_methods
from benchmark.flags import flag
from datasets.base import plural

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.store import StoredRun

SUPERVISED, FEW = "supervised", "supervised-few"  # the latter on the rows whose true labels a rule may read
DEVELOPMENT = "letter,digits,fashion"  # the sets on which the rule of `tune` was fixed


class SelectionStudy(Exhibit):
    name, title, kind = "selection", "the study of choosing settings without true labels", "table"
    of_paper = False
    profile = "quick"  # so `all` leaves it out: it is made from runs of `tune`, which no table needs

    @dataclass(frozen=True)
    class Options:
        between: bool = flag(False, "choose between methods instead of settings of one method")
        development: str = flag(DEVELOPMENT, "development sets of --between", metavar="A,B")
        also: str | None = flag(None, "another profile whose tuning runs belong to the study", metavar="PROFILE")

    def required_runs(self, selection: Selection, options: Options) -> RequiredRuns:
        for name in options.development.split(","):
            selection.source(name)
        return RequiredRuns()  # the grids of `tune` are too large to be trained by the way

    def make(self, inputs: Inputs, options: Options) -> Table:
        import pandas

        from benchmark.analysis.selection import choices, scored_settings
        from benchmark.config.selection import select

        studied = [inputs, *([replace(inputs, selection=select(options.also))] if options.also else [])]
        frames: list[pd.DataFrame] = []
        notes: list[str] = []
        ambiguity: dict[str, float] = {}
        titles = {FEW: "Supervised on those rows"}
        for part in studied:
            frame, remarks = tuning_frame(part)
            frames.append(frame)
            notes += remarks
            titles |= {name: part.selection.entry(name).title for name in frame["method"].unique() if name != FEW}
            titles |= {name: part.selection.source(name).title for name in frame["dataset"].unique()}
            ambiguity |= {} if options.between else ambiguities(part, list(frame["dataset"].unique()))
        runs = pandas.concat(frames, ignore_index=True)
        picks = choices(scored_settings(runs))
        profiles = " and ".join(part.selection.profile.name for part in studied)
        seeds = ", ".join(map(str, sorted(runs["seed"].unique())))
        about = f"Profile{'s' * (len(studied) > 1)} {profiles}, tuning seeds {seeds}."
        if options.between:
            competing = picks[picks["method"].isin(competing_methods(inputs.selection))]
            return between_table(competing, options.development.split(","), titles, about, notes)
        return settings_table(picks, ambiguity, titles, about, notes)


def tuning_frame(inputs: Inputs) -> tuple[pd.DataFrame, list[str]]:
    """Return the finished runs of `tune` for this selection with their last-epoch criteria, and notes on them.

    They have the selection's settings but for learning rate, weight decay and the method's own, and seeds that the profile
    does not report.
    """
    import pandas

    from benchmark.config.resolution import Override
    from benchmark.config.sections import TRUE_LABELS

    selection = inputs.selection
    plan: dict[tuple[str, str], RunSpec] = {}
    of_all = replace(selection, overrides=tuple(o for o in selection.overrides if o.scope != "method"))
    for dataset in selection.datasets:
        plan |= {(spec.method, spec.dataset): spec for spec in selection.specs(None, [dataset])}
        (spec, *_) = of_all.specs([SUPERVISED], [dataset], extra=[Override("train", "few", str(TRUE_LABELS))])
        plan[FEW, spec.dataset] = spec
    own_seeds = selection.seeds if tuple(selection.seeds) != tuple(selection.profile.seeds) else ()
    rows, earlier = [], 0
    for run in inputs.store.tuning_runs():
        if run.status != "done":
            continue
        document, seed = run.document, run.document["seed"]
        method = FEW if document["config"]["train"].get("few") == TRUE_LABELS else document["method"]
        if (method, document["dataset"]) not in plan:
            continue
        spec = plan[method, document["dataset"]]
        usual, config = spec.to_json(), document["config"]
        same = without_tuned(config) == without_tuned(usual)
        same &= config["train"].get("holdout") == (spec.train.holdout or HOLDOUT)
        if not same or (seed not in own_seeds if own_seeds else seed in selection.profile.seeds):
            continue
        epochs = run.epochs()
        result = epochs[-1]["result"] if epochs else {}
        if HELD_OUT not in result or run.summary.get("accuracy") is None:
            earlier += 1
            continue
        settings = setting_in_words(run, usual)
        head = {"dataset": spec.dataset, "method": method, "setting": settings, "seed": seed}
        train = {key: config["train"][key] for key in ("lr", "weight_decay")}
        rows.append({**result, **head, **train, "accuracy": run.summary["accuracy"]})
    if all(row["method"] == FEW for row in rows):
        seeds = ",".join(map(str, own_seeds or unreported_seeds(selection.profile.seeds)))
        raise MissingRuns(
            f"There are no runs of `tune` with these settings and seeds that tables do not report ({seeds}) in "
            f"{inputs.place.results}; train them with `./reproduce.sh tune --profile {selection.profile.name}`."
        )
    notes = [f"{plural(earlier, 'run')} without {HELD_OUT}, test accuracy or both left out."] if earlier else []
    places = {key: place for place, key in enumerate(plan)}
    rows.sort(key=lambda r: (places[r["method"], r["dataset"]], r["lr"], r["weight_decay"], r["setting"], r["seed"]))
    return pandas.DataFrame(rows), notes


def without_tuned(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored configuration without its seed and what `tune` varies or adds."""
    train = {key: value for key, value in config["train"].items() if key not in ("lr", "weight_decay", "holdout")}
    method = {key: value for key, value in config["method"].items() if key != "config"}
    return {**config, "seed": None, "train": train, "method": method}


def setting_in_words(run: StoredRun, usual: Mapping[str, Any]) -> str:
    """Return learning rate, weight decay, and the method's own settings that are not as usual."""
    config, own = run.document["config"], usual["method"]["config"]
    values = config["method"].get("config") or {}
    words = [f"lr {config['train']['lr']:g}", f"weight decay {config['train']['weight_decay']:g}"]
    return ", ".join([*words, *(f"{key} {value}" for key, value in values.items() if value != own.get(key))])


def ambiguities(inputs: Inputs, datasets: Sequence[str]) -> dict[str, float]:
    """Return the ambiguity degree of the candidate sets of the first tuning seed, where data and sets are on this machine."""
    from benchmark.runner.candidate_sets import selected_sets
    from datasets.candidates.candidate_sets import statistics

    selection = inputs.selection
    paths = tuple(path for path in selection.datasets if selection.source(path).name in datasets)
    seeds = unreported_seeds(selection.profile.seeds)[:1]
    values = {}
    for spec, content in selected_sets(replace(selection, datasets=paths, seeds=seeds), inputs.place):
        if not isinstance(content, str):
            dataset, candidates = content
            values[spec.dataset] = statistics(candidates.matrix, dataset.train.labels).ambiguity
    return values


def settings_table(
    picks: pd.DataFrame, ambiguity: Mapping[str, float], titles: Mapping[str, str], about: str, notes: Sequence[str]
) -> Table:
    """Build a line per dataset and method with the accuracy of every rule's setting, and the mean regret of each rule."""
    from benchmark.analysis.selection import regrets

    lines: list[Row] = []
    previous = ""
    for names, cell in picks.groupby(["dataset", "method"], sort=False):
        dataset, method = map(str, names)
        new, previous = dataset != previous, dataset
        degree = f"{ambiguity[dataset]:.2f}" if dataset in ambiguity else NONE
        first = cell.iloc[0]
        texts = [f"{r['accuracy']:.1f} ({r['regret']:.1f})" for _, r in cell.iterrows()]
        head = (titles[dataset], degree) if new else ("", "")
        lines.append(
            row(*head, titles[method], str(first["settings"]), f"{first['best']:.1f}", *texts, rule=new and bool(lines))
        )
    means = regrets(picks[picks["method"] != FEW])
    least = means["regret"].min()
    lines.append(
        row("Mean regret", "", "", "", "", *(Cell(f"{v:.2f}", bold=v == least) for v in means["regret"]), rule=True)
    )
    intervals = [interval(r["low"], r["high"]) for _, r in means.iterrows()]
    lines += [
        row("95 % interval", "", "", "", "", *intervals),
        row("Largest regret", "", "", "", "", *(f"{v:.1f}" for v in means["largest"])),
        row("Spearman", "", "", "", "", *(NONE if math.isnan(v) else f"{v:.2f}" for v in means["spearman"])),
    ]
    caption = (
        "Choosing settings without test labels: test accuracy (%) of the setting that each rule picks and its regret, the "
        f"points that it lacks to the best setting of the grid. {about}"
    )
    explained = (
        "CR: covering rate, AA: approximated accuracy, SE: standard error; all on held-out rows after the last epoch. The "
        "rule with true labels reads up to five per class and is for comparison only; the row Supervised on those rows, which "
        "`tune --methods supervised --set train.few=5` trains, is in no mean.",
        "95 % interval: percentile bootstrap of the mean regret over the cells above. Spearman: correlation of criterion and "
        "test accuracy over the settings of a method, mean over cells; a rule of two criteria has none.",
        "Ambiguity: the largest probability with which a wrong label comes along with the true one; near 1 nothing can tell "
        "the two apart.",
        "`selection --between` shows whether a rule can choose between methods.",
    )
    columns = ("Dataset", "Ambiguity", "Method", "Settings", "Best", *TITLES.values())
    records: Any = picks.drop(columns="score").to_dict("records")
    data = [{**r, "ambiguity": ambiguity.get(r["dataset"])} for r in records]
    summary = {"table": "selection", "rules": means.to_dict("records")}
    return Table("Selection", caption, columns, lines, (*explained, *notes), (), data, summary, text_columns=3)


def between_table(
    picks: pd.DataFrame, development: Sequence[str], titles: Mapping[str, str], about: str, notes: Sequence[str]
) -> Table:
    """Build a line per way of choosing between methods with the test accuracy of its choice on every dataset."""
    from benchmark.analysis.selection import between_methods

    on_datasets = picks.groupby("method")["dataset"].nunique()
    if (on_datasets == picks["dataset"].nunique()).sum() < 2:
        raise MissingRuns("Choosing between methods needs two ranked methods with tuning runs on every dataset here.")
    ways = between_methods(picks, development)
    datasets = list(ways["dataset"].unique())
    others = [name for name in datasets if name not in development]
    lines = []
    for way, group in ways.groupby("way", sort=False):
        by_dataset = group.set_index("dataset")
        texts = [
            f"{by_dataset['accuracy'][name]:.1f}"
            + (f" {titles[by_dataset['method'][name]]}" if by_dataset["method"][name] else "")
            for name in datasets
        ]
        apart = f"{by_dataset['regret'][others].mean():.2f}" if others else NONE
        lines.append(row(str(way), *texts, f"{by_dataset['regret'].mean():.2f}", apart))
    best = ways.assign(best=ways["accuracy"] + ways["regret"]).groupby("dataset")["best"].first()
    lines.append(
        row(
            "the best method",
            *(f"{best[name]:.1f}" for name in datasets),
            "0.00",
            "0.00" if others else NONE,
            rule=True,
        )
    )
    caption = (
        "Choosing between methods without test labels: test accuracy (%) of the chosen method, every method at the setting "
        f"that `tune` takes. {about}"
    )
    marks = {name: titles[name] + (" *" if name in development else "") for name in datasets}
    explained = (
        f"Regret: points to the best method, mean over datasets. * development sets ({', '.join(development)}), on which the "
        "fixed method is chosen; on the other sets (last column) it is not chosen by their test labels.",
        "Methods without tuning runs on every dataset here are left out; controls, references and extensions are not ranked.",
    )
    columns = ("Way", *marks.values(), "Regret", "Regret, other sets")
    records: Any = ways.to_dict("records")
    content = (columns, lines, (*explained, *notes), (), records, {"table": "selection"})
    return Table("Selection between methods", caption, *content)


def interval(low: float, high: float) -> str:
    return NONE if math.isnan(low) else f"{low:.2f} … {high:.2f}"
