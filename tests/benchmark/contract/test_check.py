"""`check` names the defect of each broken plug-in with its line, and none of them stops a sweep of other methods."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmark.contract import checks, command
from benchmark.contract.subject import Subject, run_check
from benchmark.errors import MethodDefect
from methods.registry import MethodError, discover, scan
from tests.conftest import ROOT, TinyBenchmark
from tests.support.broken_plugins import DEFECTS, ENDLESS, UNREADABLE, Broken, plugin


def check(path: Path, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "benchmark", "check", str(path)]
    return subprocess.run(words, cwd=ROOT, text=True, capture_output=True, timeout=seconds)


def named(name: str) -> Broken:
    return next(broken for broken in (*UNREADABLE, *DEFECTS, *ENDLESS) if broken.name == name)


@pytest.mark.parametrize("broken", UNREADABLE, ids=lambda broken: broken.name)
def test_a_file_that_cannot_be_read_gets_one_sentence_with_the_line(broken: Broken, tmp_path: Path) -> None:
    path = broken.write(tmp_path)
    with pytest.raises(MethodError, match=broken.words) as caught:
        discover((path,))
    where = str(path) if broken.name == "not-registered" else f"{path}:{broken.line}:"
    assert str(caught.value).startswith(where) and "\n" not in str(caught.value)


@pytest.mark.parametrize("broken", DEFECTS, ids=lambda broken: broken.name)
def test_the_defect_is_named_with_its_line(broken: Broken, tmp_path: Path) -> None:
    (entry,) = scan(broken.write(tmp_path))
    with pytest.raises(MethodDefect) as caught:
        run_check(getattr(checks, f"check_{broken.check}"), Subject(entry))
    assert str(caught.value).startswith(f"{entry.file}:{broken.line}: ") and broken.words in str(caught.value)


def test_a_sound_plug_in_passes_every_check(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(plugin("mine"))
    subject = Subject(scan(path)[0])
    assert not any(run_check(check, subject) for check in checks.CHECKS)


def test_a_copy_without_batch_norm_statistics_gets_advice(tmp_path: Path) -> None:
    lines = ("    def __init__(self, config, task):", "        super().__init__(config, task)",
             "        self.network, self.average = Classifier(task), Classifier(task)")  # fmt: skip
    update = "    def after_step(self, batch, step, clock):\n        ema_update(self.average, self.network, 0.5)"
    predict = "    def predict(self, images):\n        return self.average(images)"
    path = tmp_path / "mine.py"
    source = plugin("mine", init="\n".join(lines), more=update, predict=predict)
    path.write_text("from methods.blocks import ema_update\n" + source)
    assert "average" in (run_check(checks.check_training, Subject(scan(path)[0])) or "")


# the command, as a real process --------------------------------------------------------------------------------------


def test_the_command_checks_every_method_of_a_file_and_names_independent_defects(tmp_path: Path) -> None:
    second = plugin(
        "second",
        predict="    def predict(self, images):\n        return self.network(images)[:, :2]",
        more="    def confidence(self):\n        return torch.zeros(3, 5)",
    )
    path = tmp_path / "two.py"
    path.write_text(plugin("first") + second.replace("class Mine", "class Second"))
    done = check(path)
    assert done.returncode == 1, done.stderr
    first, _, rest = done.stdout.partition(f"second ({path})\n")
    assert first.startswith(f"first ({path})") and "DEFECT" not in first
    lines, _, repeated = rest.partition("2 methods: 2 defects;")
    marks = {line[10:26].strip(): line.split()[0] for line in lines.splitlines()}
    assert marks["predict"] == marks["diagnostics"] == "DEFECT"
    assert marks["extreme logits"] == "ok" and marks["training"] == marks["learning"] == "skipped"
    assert repeated.count("DEFECT") == 2 and "predict gives (12, 2)" in repeated and f"{path}:" in repeated


@pytest.mark.parametrize("broken", ENDLESS, ids=lambda broken: broken.name)
def test_an_endless_loop_is_a_defect_with_its_line(broken: Broken, tmp_path: Path) -> None:
    path = broken.write(tmp_path)
    *passed, last = command.events(path, seconds=4)
    assert (last["check"], last["mark"]) == (broken.check, "DEFECT") and {event["mark"] for event in passed} == {"ok"}
    assert last["text"].startswith(f"{path}:{broken.line}: ") and broken.words in last["text"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__import__('os').abort()", "SIGABRT"),
        ("__import__('os').kill(__import__('os').getpid(), 9)", "memory"),
        pytest.param("__import__('os')._exit(7)", "exit code 7", marks=pytest.mark.soak),
    ],
)
def test_a_plug_in_that_ends_the_process_is_a_finding(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "dies.py"
    path.write_text(plugin("dies", more=f"    def after_step(self, batch, step, clock):\n        {text}"))
    done = check(path)
    assert done.returncode == 1
    assert words in done.stdout + done.stderr and f"{path}:" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_gets_one_sentence(tmp_path: Path) -> None:
    done = check(tmp_path / "nowhere.py")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "There is no file" in done.stderr


# sweeps --------------------------------------------------------------------------------------------------------------


def test_broken_plug_ins_do_not_stop_a_sweep(tiny_benchmark: TinyBenchmark) -> None:
    """Those that fail when they run are failed runs with a reason; named ones that cannot be read stop it before."""
    words = ("--seeds", "0", "--epochs", "1", "--jobs", "1")  # one slot: what breaks it would stop all the rest
    failing = ("no-predict", "plain-tensor", "wrong-shape", "loss-per-sample", "no-gradient", "quits")
    defects = [named(name) for name in (*failing, "import-error", "talks")]

    def run(kinds: Sequence[Broken]) -> subprocess.CompletedProcess[str]:
        paths = [broken.write(tiny_benchmark.folder) for broken in kinds]
        options = [word for path in paths for word in ("--plugin", str(path))]
        methods = ",".join((*(broken.name for broken in defects), "proden"))
        return tiny_benchmark.run("run", "--methods", methods, *words, *options)

    refused = run((*UNREADABLE, *defects))
    assert refused.returncode == 2 and not tiny_benchmark.documents(), refused.stderr
    assert all(broken.words in refused.stderr for broken in UNREADABLE)
    for path in tiny_benchmark.folder.glob("*.py"):
        path.unlink()
    done = run(defects)
    assert done.returncode == 1, done.stderr
    documents = {document["method"]: document for document in tiny_benchmark.documents()}
    assert documents["proden"]["status"] == "done"
    assert set(documents) == {"proden", *(broken.name for broken in defects)}
    for name in failing:
        assert documents[name]["status"] == "failed" and documents[name]["reason"], name
    log = next(tiny_benchmark.results.glob("runs/*/talks/*/log.txt"))
    assert log.stat().st_size < 2 << 20


def test_an_endless_step_does_not_stop_its_neighbours(tiny_benchmark: TinyBenchmark) -> None:
    path = named("endless").write(tiny_benchmark.folder)
    words = ("--methods", "endless,proden", "--seeds", "0", "--epochs", "1", "--jobs", "2", "--shutdown-timeout", "1")
    process = tiny_benchmark.start("run", *words, "--plugin", str(path))
    try:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            if any(d["method"] == "proden" and d["status"] == "done" for d in tiny_benchmark.documents()):
                break
            time.sleep(0.3)
        else:
            pytest.fail("proden did not end beside an endless method")
        process.send_signal(signal.SIGINT)
        process.wait(15)
        assert process.returncode == 130
    finally:
        if process.poll() is None:
            process.kill()
