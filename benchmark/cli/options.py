"""The options that commands share, as click decorators, and the selection and the run options made from them.

A command gets its options as keyword arguments. Functions that several commands use take them as one mapping, in which
the options that a command does not have are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from benchmark.errors import CandidError, did_you_mean
from benchmark.files import ROOT, atomic_write, refuse_links

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.runner.options import RunOptions

Options = Mapping[str, Any]  # by parameter name
Callback = TypeVar("Callback", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


class OneOf(click.Choice[str]):
    """A choice that suggests what was meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            hint = did_you_mean(value, self.choices)
            self.fail(f"'{value}' is not one of {', '.join(self.choices)}.{hint}", param, ctx)
        return str(value)


def together(*options: Callable[[Callback], Callback]) -> Callable[[Callback], Callback]:
    """Return one decorator that adds several options; the help lists them in this order."""

    def decorate(callback: Callback) -> Callback:
        for option in reversed(options):
            callback = option(callback)
        return callback

    return decorate


def options_of(flags: type) -> Callable[[Callback], Callback]:
    """Return the decorator of the options that an exhibit declares with `benchmark.flags.flag`."""
    options = []
    for field in dataclasses.fields(flags):
        attributes = {key: value for key, value in field.metadata.items() if key in ("metavar", "hidden")}
        text = field.metadata["help"]
        attributes["help"] = f"{text[:1].upper()}{text[1:]}."
        if field.default is False:
            attributes["is_flag"] = True
        else:
            choices = field.metadata.get("choices")
            attributes["type"] = OneOf(choices) if choices else field.metadata.get("kind", str)
            attributes["show_default"] = field.default is not None
        options.append(click.option(f"--{field.name.replace('_', '-')}", default=field.default, **attributes))
    return together(*options)


def _without_outward_links(_: click.Context, __: click.Parameter, folder: Path) -> Path:
    refuse_links(folder)
    return folder


def folder_option(name: str, help: str, **more: Any) -> Callable[[Callback], Callback]:
    """Return the decorator of an option that names a folder of the checkout by default."""
    return click.option(
        f"--{name}", default=ROOT / name, type=PATH, metavar="DIR", help=help, show_default=name, **more
    )


def out_option(help: str, metavar: str = "FILE", default: Path | None = None) -> Callable[[Callback], Callback]:
    return click.option("--out", type=PATH, default=default, metavar=metavar, help=help)


profile = click.option(
    "--profile", metavar="NAME", help="Profile or .toml file (default: paper with a CUDA device, else quick)."
)
methods = click.option(
    "--methods", metavar="A,B", help="Methods (default: the profile's); `all` adds the profile's extensions."
)
datasets = click.option(
    "--datasets",
    "--dataset",
    metavar="A,B",
    help="Datasets: names, or paths to your own data (default: the profile's).",
)
seeds = click.option("--seeds", metavar="A,B", help="Seeds: 0,1,2 or 0-4 (default: the profile's).")
settings = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="Override a setting: method.alpha=0.5, cel.beta=1, train.lr=0.1, data.rate=0.2 (repeatable).",
)  # fmt: skip
plugins = click.option(
    "--plugin", "plugins", multiple=True, metavar="FILE", help="Python file with a method of your own (repeatable)."
)
epochs = click.option("--epochs", type=int, metavar="N", help="Number of epochs; short for --set train.epochs=N.")
results = folder_option("results", "Results folder.", callback=_without_outward_links)
results_to_read = folder_option("results", "Results folder.")
data = folder_option("data", "Dataset folder.")
device = click.option(
    "--device", default="auto", metavar="NAME", help="Device: auto, cpu, cuda or cuda:N.", show_default=True
)
jobs = click.option(
    "--jobs", metavar="N", help="Number of parallel runs: N, or K/gpu (default: one per GPU or per core)."
)
dry_run = click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
no_run = click.option("--no-run", is_flag=True, help="Use stored runs only; train nothing.")
quiet = click.option("--quiet", is_flag=True, help="Show no progress.")
hidden_quiet = click.option("--quiet", is_flag=True, hidden=True)
checkpoint_seconds = click.option("--checkpoint-seconds", type=float, hidden=True)

selection = together(profile, methods, datasets, seeds, settings, plugins)
place = together(results, data, device)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full, read-only or forbidden disk into one sentence."""
    try:
        yield
    except OSError as error:
        raise CandidError(f"{path} cannot be written ({error.strerror}); name another place with --out.") from None


def write_text(path: Path, text: str, note: str = "") -> None:
    """Write a text file and say so, or print the text where `path` is -."""
    if str(path) == "-":
        sys.stdout.write(text)
        return
    with writing(path):
        atomic_write(path, text)
    print(f"Written: {path}{note}")


def default_profile(options: Options) -> tuple[str, str]:
    """Return the profile and the reason for it."""
    from benchmark.runner import devices

    if options.get("profile"):
        return options["profile"], "as asked"
    if options.get("device") != "cpu" and devices.cuda_devices():
        return "paper", "a CUDA device is here"
    return "quick", "no CUDA device is here; the paper's protocol is --profile paper"


def selection_of(options: Options, profile: str | None = None) -> Selection:
    """Return the checked selection of runs."""
    from benchmark.config.selection import select

    names = ("methods", "datasets", "seeds", "plugins", "settings", "epochs")
    chosen = {name: options[name] for name in names if name in options}
    return select(profile or default_profile(options)[0], **chosen)


def devices_here(options: Options) -> list[str]:
    """Return the requested devices of this machine; with a scheduler the GPUs are those of its workers."""
    from benchmark.runner import devices

    name = options.get("device", "auto")
    return devices.resolve("auto" if options.get("scheduler") and name.startswith("cuda") else name)


def run_options(options: Options) -> RunOptions:
    """Return where runs find and leave things, on the first of the devices."""
    from benchmark.runner.options import RunOptions

    context = click.get_current_context(silent=True)
    return RunOptions(
        options.get("results", ROOT / "results"),
        options.get("data", ROOT / "data"),
        devices_here(options)[0],
        checkpoint_seconds=options.get("checkpoint_seconds"),
        retry_diverged=options.get("retry_diverged", False),
        track=options.get("track") or "",
        grace=options.get("shutdown_timeout"),
        typed=(context and context.find_root().obj) or "",
        keep_model=options.get("keep_model", False),
    )
