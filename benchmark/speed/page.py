"""Measurements of `speed` as text for the screen, and together as docs/speed.md and docs/cost.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.errors import UsageError
from benchmark.files import ROOT, atomic_write
from benchmark.tools.docs import table

PAGE, COST = ROOT / "docs" / "speed.md", ROOT / "docs" / "cost.json"
SMALL, SMALL_GOAL, LARGE_GOAL = "small-cnn", 0.90, 0.95
SHARES = ("views", "losses", "state", "logging", "hooks", "evaluation", "checkpoints")
Document = dict[str, Any]
NOTICE = "<!-- Written by `python -m benchmark speed … --docs`. Measure again, do not edit. -->"


def text(document: Document) -> str:
    """One measurement, for the screen."""
    head, rows = cells(document)
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    words_only = [k == 0 or not any(cell[:1].isdigit() for cell in column[1:]) for k, column in enumerate(columns)]

    def line(words: Sequence[str]) -> str:
        cells = zip(words, widths, words_only, strict=True)
        return "  ".join(w.ljust(n) if left else w.rjust(n) for w, n, left in cells).rstrip()

    return "\n".join([line(head), *map(line, rows), *verdict(document)])


def cells(document: Document) -> tuple[list[str], list[list[str]]]:
    """Head and rows of one measurement."""
    forms = {"trainer": _trainer, "views": _views, "losses": _losses, "knn": _knn, "levers": _levers}
    return forms[document["kind"]](document["rows"])


def _trainer(rows: Any) -> tuple[list[str], list[list[str]]]:
    head = ["method", "images/s", "bare", "all in", "step", "plain", *SHARES, "× PRODEN", "peak MB", "bytes/sample"]
    body = [
        [
            row["method"],
            f"{row['images_per_second']:.0f}",
            f"{row['bare_images_per_second']:.0f}",
            f"{row['ratio']:.2f}",
            f"{row['step_ratio']:.2f}",
            f"{row['plain_ratio']:.2f}",
            *(f"{100 * share:.1f} %" for share in shares(row["shares"]).values()),
            f"{row['relative_to_proden']:.2f}",
            "–" if row["peak_memory_mb"] is None else f"{row['peak_memory_mb']:.0f}",
            f"{row['state_bytes_per_sample']:.0f}",
        ]
        for row in rows
    ]
    return head, body


def shares(measured: dict[str, float]) -> dict[str, float]:
    """Shares of the parts, none negative.

    A method that runs its network again in the state update has that pass in the bare loop too, and both were taken off
    what is called losses: the surplus belongs to the state.
    """
    surplus = min(measured["losses"], 0.0)
    moved = measured | {"losses": measured["losses"] - surplus, "state": measured["state"] + surplus}
    return {name: max(moved[name], 0.0) for name in SHARES}


def _views(rows: Any) -> tuple[list[str], list[list[str]]]:
    head = ["views", "per sample", "batched", "ratio", "goal"]
    return head, [
        [
            name,
            f"{row['per_sample_us']:.0f} µs",
            f"{row['batched_us']:.0f} µs",
            f"{row['ratio']:.1f} ×",
            _goal(row, "{:.1f} ×"),
        ]
        for name, row in rows.items()
    ]


def _losses(rows: Any) -> tuple[list[str], list[list[str]]]:
    head = ["part", "classes", "loops", "vectorised", "ratio", "goal", "growth / classes"]
    return head, [
        [
            row["part"],
            str(row["classes"]),
            f"{row['loops_ms']:.1f} ms",
            f"{row['vectorised_ms']:.2f} ms",
            f"{row['ratio']:.1f} ×",
            _goal(row, "{:.0f} ×"),
            f"{row['growth_per_class']:.2f}" if "growth_per_class" in row else "",
        ]
        for row in rows
    ]


def _knn(rows: Any) -> tuple[list[str], list[list[str]]]:
    head = ["features", "neighbours", "seconds", "peak of the process", "beyond the features", "goal"]
    return head, [
        [
            f"{row['rows']:,} × {row['width']}",
            str(row["neighbours"]),
            f"{row['seconds']:.1f}",
            f"{row['peak_mb']:.0f} MB",
            f"{row['own_mb']:.0f} MB",
            _goal(row, "< {:.0f} MB"),
        ]
        for row in rows
    ]


def _levers(rows: Any) -> tuple[list[str], list[list[str]]]:
    head = ["lever", "against", "times faster", "used"]
    gains = ["–" if row["gain"] is None else f"{row['gain']:.2f}" for row in rows]
    return head, [[row["lever"], row["against"], gain, row["used"]] for row, gain in zip(rows, gains, strict=True)]


def _goal(row: dict[str, Any], form: str) -> str:
    return "" if "goal" not in row else form.format(row["goal"]) + ("" if row["met"] else ", not met")


def verdict(document: Document) -> list[str]:
    """How many methods keep the goal, counting everything and counting the step alone."""
    if document["kind"] != "trainer":
        return []
    goal, rows = goal_of(document), document["rows"]
    count = {key: sum(row[key] >= goal for row in rows) for key in ("ratio", "step_ratio", "plain_ratio")}
    compiled = [f"{row['method']} {row['compile_seconds']:.0f} s" for row in rows if row.get("compile_seconds")]
    below = [row["method"] for row in rows if row["step_ratio"] < goal]
    named = f" (below: {', '.join(below)})" if below else ""
    rarely = sum(row["ratio"] / (1 - 0.8 * row["shares"]["evaluation"]) >= goal for row in rows)
    hint = f" ({rarely} with `--eval-every 5`)" if document.get("eval_every", 1) == 1 else ""
    return [
        f"At least {goal:.2f} of the bare loop: {count['ratio']} of {len(rows)} methods with everything{hint}, "
        f"{count['step_ratio']} of {len(rows)} counting the step alone{named}; "
        f"{count['plain_ratio']} of {len(rows)} against the plain loop.",
        *(
            [f"Compiling took, where an earlier entry had not compiled the same: {', '.join(compiled)}."]
            if compiled
            else []
        ),
    ]


def goal_of(document: Document) -> float:
    return SMALL_GOAL if document["backbone"].startswith(SMALL) else LARGE_GOAL


# The page -----------------------------------------------------------------------------------------------------------
def write(folder: Path) -> list[Path]:
    """docs/speed.md from all measurements in `folder`, and docs/cost.json from the quick profile's."""
    documents = [_read(path) for path in sorted(folder.glob("*.json"))]
    atomic_write(PAGE, page(documents))
    written = [PAGE]
    costs = cost([d for d in documents if is_quick(d)])
    if costs:
        atomic_write(COST, json.dumps(costs, indent=1) + "\n")
        written.append(COST)
    return written


def _read(path: Path) -> Document:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        text(document)
        if document["kind"] == "trainer":
            is_quick(document)
            summary([document])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{path} is no measurement of this version; delete it and measure again.") from None
    return document


def is_quick(document: Document) -> bool:
    """Whether it timed what the profile runs; another network, size or batch may have been asked for by --set."""
    return document["kind"] == "trainer" and document["profile"] == "quick" and not document["overrides"]


def cost(documents: Sequence[Document]) -> dict[str, dict[str, float]]:
    """What docs/methods.md shows of each method, from the first of the given measurements that has it."""
    found: dict[str, dict[str, float]] = {}
    for row in (row for document in documents for row in document["rows"]):
        known = {
            "seconds_per_step_relative_to_proden": round(row["relative_to_proden"], 2),
            "peak_memory_mb": row["peak_memory_mb"] and round(row["peak_memory_mb"]),
        }
        found.setdefault(row["method"], known)
    return found


def page(documents: Sequence[Document]) -> str:
    by_kind: dict[str, list[Document]] = {}
    for document in documents:
        by_kind.setdefault(document["kind"], []).append(document)
    parts = ["# Speed", NOTICE, INTRODUCTION]
    order = sorted(
        by_kind.get("trainer", []),
        key=lambda d: (not is_quick(d), not d["backbone"].startswith(SMALL), -len(d["rows"])),
    )
    parts += [summary(order)] if order else []
    for document in order:
        title = f"## Training: {setting_of(document)}"
        changed = ", ".join(f"`{override}`" for override in document["overrides"])
        setting = (
            f"Profile `{document['profile']}`{f' with {changed}' if changed else ' as it runs'}, "
            f"{document['classes']} classes. {machine(document)}"
        )
        parts += [title, setting, table(*cells(document)), *verdict(document)]
    budget = budget_table([d for d in documents if is_quick(d)])
    if budget:
        parts += ["## Budget of the quick profile", budget]
    for kind, (title, meaning) in SECTIONS.items():
        for document in by_kind.get(kind, []):
            setting = f" Setting: {trained_on(document)}." if kind == "levers" else ""
            parts += [title, f"{meaning}{setting} {machine(document)}", table(*cells(document))]
    return "\n\n".join(parts) + "\n"


def setting_of(document: Document) -> str:
    """What was trained, in a few words."""
    methods = [row["method"] for row in document["rows"]]
    return trained_on(document) + (f", {', '.join(methods)} alone" if len(methods) <= 3 else "")


def trained_on(document: Document) -> str:
    pictures = " × ".join(map(str, document["pictures"]))
    compiled = ", compiled" if document.get("compiled") else ""
    return f"{document['dataset']}, {document['backbone']}, {pictures}, batch {document['batch']}{compiled}"


def summary(documents: Sequence[Document]) -> str:
    """A line per measurement of training: from which to which ratio, and how many methods keep the goal."""

    def kept(document: Document, key: str) -> list[str]:
        values = [row[key] for row in document["rows"]]
        count = sum(value >= goal_of(document) for value in values)
        return [f"{min(values):.2f}–{max(values):.2f}", f"{count} of {len(values)}"]

    head = ["setting", "goal", *(word for name in ("step", "plain", "all in") for word in (name, "kept by"))]
    rows = [
        [setting_of(d), f"{goal_of(d):.2f}", *kept(d, "step_ratio"), *kept(d, "plain_ratio"), *kept(d, "ratio")]
        for d in documents
    ]
    return table(head, rows)


def machine(document: Document) -> str:
    rounds = f"medians of {document['rounds']} rounds" if document["rounds"] > 1 else "one round"
    return (
        f"Measured on {document['date']}: {document['device_name']}, {document['cores']} cores, one thread, "
        f"Python {document['python']}, torch {document['torch']}, torchvision {document['torchvision']}, "
        f"{rounds}."
    )


def budget_table(documents: Sequence[Document]) -> str:
    """Seconds of one run by method and data set, and of the whole profile."""
    if not documents:
        return ""
    names = [row["method"] for row in documents[0]["rows"]]
    per_run = [{row["method"]: row["seconds_per_run"] for row in d["rows"]} for d in documents]
    rows = [
        [
            name,
            *(f"{runs[name]:.1f}" if name in runs else "–" for runs in per_run),
            f"{sum(runs.get(name, 0.0) * d['seeds'] for runs, d in zip(per_run, documents, strict=True)):.0f}",
        ]
        for name in names
    ]
    total = sum(s * d["seeds"] for runs, d in zip(per_run, documents, strict=True) for s in runs.values())
    head = ["method", *(f"s per run, {d['dataset']}" for d in documents), "s, all seeds"]
    note = (
        f"CPU seconds of training, {total:.0f} in all: {total / 120:.1f} minutes on two free cores, "
        "besides start-up and candidate labels."
    )
    return f"{table(head, rows)}\n\n{note}"


INTRODUCTION = """\
Every number here is a ratio of two things timed in turns in one run, or comes from the same run as what it is compared
with. On a CPU the clock counts seconds of the process, so that others on the machine disturb less.

* **images/s**: Candid's trainer with all that it does, per picture of the training set.
* **bare**: forward and backward passes and optimiser steps of the same networks on as many views, on tensors that are
  ready in memory, and nothing else; with the trainer's own form of SGD, which spends less time around a step than torch's.
  Passes that a method makes between epochs (NEPLL's selection, VALEN's features) count on both sides.
* **all in** = images/s ÷ bare: how much of the possible speed is left. **step** leaves views, epoch hooks, evaluation and
  checkpoints out: what the method's own arithmetic and the trainer's bookkeeping leave. **plain** is the same against a
  loop as one would write it, with `torch.optim.SGD(fused=True)` and `zero_grad`. Where the step is compiled
  (`train.compile=true`), *bare* is the faster of two loops, with networks as they are and compiled.
* **views … checkpoints**: shares of the trainer's time. *losses* is what a step takes beyond the networks and the state
  updates; *logging* includes seeding and the watch for infinite losses; *hooks* are what the method's
  do at both ends of an epoch beside those passes; *evaluation* is on the test set and the held-out rows.
* **× PRODEN**: seconds per step, in steps of PRODEN timed in the same rounds.
* **peak MB**: of a process that trains and evaluates this method, not measured where its step is compiled; **bytes/sample**: tables with a row per picture.

**Small networks.** A step of PRODEN in `quick` is about two milliseconds and three hundred calls of torch. Between
convolutions a call takes two to ten times as long as in a loop of its own, 5 to 60 µs however little it computes. The five
that PRODEN makes beyond its network, and what they need in the backward pass, are a tenth of its step; PiCO and DIRK make
more than a hundred. That is why the goal of 0.90 is missed there by the methods named under the tables. `train.compile=true`
joins the calls and keeps the goal, at the price of a C++ compiler and of seconds to a minute once per method; `quick` as it
is asks for neither. On 32 × 32 pictures with the paper's batch of 128 the same network keeps it as it is. So small networks
are timed in all three ways. Views and evaluation, which *all in* counts, are a tenth to a third of the time of so small a
network. [A larger one does not fit](protocol.md#the-quick-profile) into the profile's six minutes.

**ResNet-18.** Training and test pictures stand five to one, none are held out, and every fifth of 500 epochs is evaluated
and each of the last ten, as in CIFAR-100 with the profile `paper`, so that shares are those of a real training. On one
CPU core a step takes seconds and a round is one step, so single entries scatter by a few percent; batch 128 is the paper's."""

SECTIONS = {
    "views": (
        "## Views",
        "The weak and strong pair of a picture: batched on tensors against one picture at a time with Pillow (at 224 px "
        "with decoding, where the batched side reads the cache of decoded pictures).",
    ),
    "losses": (
        "## Losses and state",
        "Vectorised parts of methods against the same equations as loops over samples and classes with (B, C, C) Gram "
        "matrices; CEL's with gradients, once against plain loops and once against loops that take tensors apart without "
        "making autograd pay for every row. The last column is growth in time over growth in the number of classes: 1 is "
        "linear. The process keeps freed memory of any size, as torch "
        "does on an accelerator; else growth would show where a tensor passes 32 MB and glibc fetches its pages anew.",
    ),
    "levers": (
        "## Levers",
        "Ways to train faster, each tried alone in PRODEN's training; below 1 it is slower. Seconds of the wall for "
        "processes, else of the process.",
    ),
    "knn": ("## Neighbour graph", "VALEN's nearest neighbours at the size of CIFAR-100, exact, in blocks."),
}
