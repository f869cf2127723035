"""`selection` reads the stored runs of `tune` and nothing else."""

from __future__ import annotations

import json

from benchmark.cli import main as cli

WORDS = ("--datasets", "digits", "--methods", "proden,cc")


def test_the_study_is_made_from_the_stored_runs_of_tune(tiny_benchmark, capsys):
    assert cli.main(tiny_benchmark.arguments("selection", *WORDS)[3:]) == 1
    error = capsys.readouterr().err
    assert "reproduce.sh tune" in error and len(error.strip().splitlines()) == 1

    short = ("--set", "train.epochs=1", "--set", "dataset.test=1700", "--jobs", "1")
    grid = ("--lr", "0.05", "--weight-decay", "0.001,0.0001", "--seeds", "100")
    tiny_benchmark.run("tune", *WORDS, *short, *grid, check=True)
    assert cli.main(tiny_benchmark.arguments("selection", *WORDS)[3:]) == 1  # other epochs are another grid
    capsys.readouterr()
    for words in ((), ("--between", "--development", "digits")):
        assert cli.main(tiny_benchmark.arguments("selection", *WORDS, *short[:4], *words)[3:]) == 0
    assert "always PRODEN" in capsys.readouterr().out
    tables = [json.loads(path.read_text()) for path in sorted(tiny_benchmark.results.glob("tables/tiny/*.json"))]
    study = next(table for table in tables if "rules" in table["summary"])
    records = study["data"]
    assert {(r["method"], r["rule"]) for r in records} >= {("cc", "one-se"), ("proden", "true-labels")}
    assert all(r["regret"] == r["best"] - r["accuracy"] >= 0 and 0 < r["ambiguity"] < 1 for r in records)


def test_an_unknown_development_set_is_refused(tiny_benchmark, capsys):
    assert cli.main(tiny_benchmark.arguments("selection", "--between", "--development", "leter")[3:]) == 2
    assert "letter" in capsys.readouterr().err
