"""From a profile and the command line to exact configurations, or to one sentence that says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmark.config.profile import load_profile, profile_names
from benchmark.config.resolution import resolve
from benchmark.config.sections import Train, fields_of
from benchmark.config.selection import select
from benchmark.config.spec import canonical
from benchmark.errors import UsageError
from benchmark.runner.devices import parse_jobs
from methods.registry import discover
from tests.conftest import TINY


def choose(folder: Path, text: str = TINY, **words: Any) -> Any:
    """The selection that a command line with this profile gives."""
    profile = folder / "tiny.toml"
    profile.write_text(text)
    return select(str(profile), **words)


def refusal(folder: Path, text: str = TINY, **words: Any) -> str:
    with pytest.raises(UsageError) as caught:
        choose(folder, text, **words)
    message = str(caught.value)
    assert "\n" not in message and caught.value.code == 2
    return message


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"methods": "prodn"}, "Unknown method 'prodn'. Did you mean 'proden'"),
        ({"datasets": "digit"}, "Unknown data set 'digit'. Did you mean 'digits'"),
        ({"datasets": "/nowhere"}, "Unknown data set '/nowhere'"),
        ({"methods": "proden,cc,proden"}, "'proden' is named twice"),
        ({"methods": ","}, "--methods names nothing"),
        ({"seeds": "0,1,1"}, "'1' is named twice"),
        ({"seeds": "0,00"}, "'0' is named twice"),
        ({"seeds": "-1"}, "'-1' is not a non-negative integer"),
        ({"seeds": "²"}, "is not a non-negative integer"),
        ({"settings": ["train.lrr=1"]}, "train has no 'lrr'. Did you mean 'lr'"),
        ({"settings": ["trian.lr=1"]}, "unknown scope 'trian'. Did you mean 'train'"),
        ({"settings": ["lr=1"]}, "write it as scope.key=value"),
        ({"settings": ["train.lr"]}, "write it as scope.key=value"),
        ({"settings": ["train.lr=fast"]}, "'fast' does not fit float"),
        ({"settings": ["train.lr=-1"]}, "--set train.lr: -1.0 is not allowed; it must be a positive number"),
        ({"settings": ["train.lr=1e999"]}, "train.lr: inf is not a finite number"),
        ({"settings": ["train.batch=1"]}, "at least 2"),
        ({"settings": ["train.epochs=2.5"]}, "2.5 does not fit int"),
        ({"settings": ["train.momentum=1"]}, "train.momentum: 1.0"),
        ({"settings": ["train.schedule=linear"]}, "must be one of cosine, constant"),
        ({"settings": ["views.weak=cropflip"]}, "must be one of simclr, crop-flip, plain. Did you mean 'crop-flip'"),
        ({"settings": ["data.rate=2"]}, "it must be in [0, 1]"),
        ({"settings": ["data.noise=1"]}, "data.noise: 1.0 is not allowed; it must be in [0, 1)"),
        ({"settings": ["data.noise=-0.1"]}, "data.noise: -0.1"),
        ({"settings": ["data.imbalance=0.5"]}, "it must be at least 1"),
        ({"settings": ["data.imbalance=10"], "datasets": "lost"}, "data.imbalance is for candidate sets that are made"),
        ({"settings": ["data.missing_truth=drop"]}, "'drop'"),
        (
            {"settings": ["data.noise=0.1"], "datasets": "lost"},
            "data.noise is for candidate sets that are made, and lost",
        ),
        ({"settings": ["proden.updte=never"]}, "method proden has no 'updte'. Did you mean 'update'"),
        ({"settings": ["method.update=never"]}, "method cc has no 'update'"),
        ({"settings": ["dataset.tset=20"]}, "Dataset digits has no 'tset'. Did you mean 'test'"),
        ({"settings": ["dataset.test=many"]}, "'many' does not fit int"),
        ({"settings": ["backbone.weights=/nowhere.pth"]}, "/nowhere.pth cannot be read"),
        ({"epochs": 0}, "train.epochs: 0"),
        ({"plugins": ["/nowhere.py"]}, "Plug-in /nowhere.py does not exist"),
    ],
)
def test_a_slip_of_the_keyboard_is_one_sentence(tmp_path: Path, words: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(tmp_path, **words)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("title =", "titel =", "has no 'titel'. Did you mean 'title'"),
        ("seeds = [0, 1]", "seeds = [0, 0]", "seeds has 0 twice"),
        ("seeds = [0, 1]", "seeds = [-1]", "-1 is not a seed"),
        ("seeds = [0, 1]", 'seeds = "01"', "must be a list of integers"),
        ("seeds = [0, 1]", "seeds = [true]", "must be a list of integers"),
        ('methods = ["proden", "cc"]', 'methods = "proden"', "must be a list of names"),
        ('methods = ["proden", "cc"]', 'methods = ["proden", "ccc"]', "Unknown method 'ccc'"),
        ("epochs = 3", 'epochs = "three"', "'three' does not fit int"),
        ("epochs = 3", "epoch = 3", "train has no 'epoch'. Did you mean 'epochs'"),
        ("rate = 0.2", "rat = 0.2", "data.digits has no 'rat'. Did you mean 'rate'"),
        ("rate = 0.2", "rate = nan", "data.rate: nan"),
        ("settings = { test = 1500 }", "settings = 3", "must be a table"),
        ("settings = { test = 1500 }", "settings = { tst = 1500 }", "Dataset digits has no 'tst'"),
        ("[train]", "[[train]]", "'train' must be a table"),
        ("[train]", "[train", "is not valid TOML"),
        ("[train]", '[[values]]\nmethod = "cc"\n[train]', "needs 'dataset'"),
        ('title = "tiny"', 'include = ["tiny.toml"]', "Unknown profile 'tiny.toml'"),
        ('title = "tiny"', "include = [1]", "'include' must be a list of names"),
        ('title = "tiny"', f'include = ["{"x" * 100_000}"]', "Unknown profile 'xxx"),
    ],
)
def test_a_wrong_profile_is_one_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in TINY
    assert sentence in refusal(tmp_path, TINY.replace(old, new))


def test_a_profile_that_includes_itself_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    assert "includes itself" in refusal(tmp_path, TINY.replace('title = "tiny"', f'include = ["{path}"]'))


@pytest.mark.parametrize("text", ["0", "-1", "two", "2/cpu", "1/gpu", "", "²", "1.5"])
def test_jobs_that_mean_nothing_are_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="--jobs"):
        parse_jobs(text, ["cpu"])


def test_jobs_are_spread_over_devices() -> None:
    two = ["cuda:0", "cuda:1"]
    assert parse_jobs(None, two) == two
    assert parse_jobs("3", two) == ["cuda:0", "cuda:1", "cuda:0"]
    assert parse_jobs("2/gpu", two) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert parse_jobs("4", ["cpu"]) == ["cpu"] * 4


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_resolves_and_every_value_has_a_source(name: str) -> None:
    profile, catalogue = load_profile(name), discover()
    for dataset in profile.datasets:
        for method in profile.with_extensions:
            spec = resolve(profile, catalogue.get(method), dataset, 0)
            assert all(spec.provenance.values())
            for key, setting in fields_of(Train).items():
                if getattr(spec.train, key) != setting.default:
                    assert f"train.{key}" in spec.provenance


def test_all_adds_the_extensions_apart_and_naming_one_makes_it_one_of_the_rest(tmp_path: Path) -> None:
    text = TINY.replace("datasets = ", 'extensions = ["papi", "cavl"]\ndatasets = ', 1)
    usual, everything = choose(tmp_path, text), choose(tmp_path, text, methods="all")
    assert not {"papi", "cavl"} & set(usual.methods) and usual.apart == ()
    assert everything.methods == (*usual.methods, "papi", "cavl") and everything.apart == ("papi", "cavl")
    named = choose(tmp_path, text, methods="papi,all")
    assert named.methods[0] == "papi" and named.methods.count("papi") == 1 and named.apart == ("cavl",)
    assert "extensions has 'papi' twice" in refusal(tmp_path, text.replace('"cavl"', '"papi"'))


def test_later_sources_win_and_are_named(tmp_path: Path) -> None:
    text = TINY + '\n[[values]]\nmethod = "proden"\ndataset = "*"\nsource = "a paper"\nlr = 0.2\n'
    plain = {s.method: s for s in choose(tmp_path, text).specs() if s.seed == 0}
    assert plain["proden"].train.lr == 0.2 and plain["proden"].provenance["train.lr"] == "a paper"
    assert plain["cc"].train.lr == 0.05 and plain["cc"].provenance["train.lr"] == "profile tiny"
    spec = choose(tmp_path, text, settings=["train.lr=0.3"], methods="proden").specs()[0]
    assert spec.train.lr == 0.3 and spec.provenance["train.lr"] == "command line"
    assert spec.label == "proden[train.lr=0.3]" and spec.overrides == {"train.lr": 0.3}


def test_identity_follows_what_decides_the_numbers_and_nothing_else(tmp_path: Path) -> None:
    def digests(**words: Any) -> set[str]:
        return {spec.digest for spec in choose(tmp_path, **words).specs()}

    base = digests()
    assert len(base) == 4
    assert digests(methods="cc,proden") == base  # order
    assert digests(settings=["train.lr=0.05"]) == base  # the same value typed
    assert not digests(settings=["train.threads=2"]) & base
    assert not digests(seeds="2,3") & base
    assert digests(settings=["proden.update=never"]) & base  # cc is untouched


def test_an_edited_plug_in_is_another_method(tmp_path: Path) -> None:
    from tests.support.plugins import SLOW, write_plugin

    def digest(body: str) -> str:
        plugin = write_plugin(tmp_path, "mine", body)
        return choose(tmp_path, plugins=[str(plugin)], methods="mine").specs()[0].digest

    assert digest(SLOW.format(seconds=0)) == digest(SLOW.format(seconds=0)) != digest(SLOW.format(seconds=1))


def test_canonical_json_refuses_what_json_has_not() -> None:
    assert canonical({"b": 1, "a": [1.0, "ä"]}) == '{"a":[1.0,"ä"],"b":1}'
    with pytest.raises(ValueError):
        canonical(float("nan"))


def test_a_variant_with_the_profile_s_own_value_is_the_plain_run() -> None:
    """The default point of a sensitivity plot must not hide a table's run under another label."""
    profile, cel = load_profile("quick"), discover().get("cel")
    plain = resolve(profile, cel, "glyphs", 0)
    length = plain.config.method_config["embedding_length"]
    same = resolve(profile, cel, "glyphs", 0, variant={"embedding_length": length})
    other = resolve(profile, cel, "glyphs", 0, variant={"embedding_length": 2 * length})
    assert (same.digest, same.label, same.overrides) == (plain.digest, "cel", {})
    assert other.digest != plain.digest and other.label == f"cel[embedding_length={2 * length}]"


def test_the_data_s_seed_is_no_part_of_a_run_that_does_not_use_it(tmp_path: Path) -> None:
    """Stored runs keep their identity, and the run's own seed typed is the same run."""
    plain = choose(tmp_path).specs()
    assert all("seed" not in spec.config.to_json()["dataset"] and spec.data_seed == spec.seed for spec in plain)
    typed = {(s.method, s.seed): s for s in choose(tmp_path, settings=["data.seed=0"]).specs()}
    same, other = typed["proden", 0], typed["proden", 1]
    assert (same.digest, same.label) == (plain[0].digest, "proden")
    assert (other.data_seed, other.seed, other.label) == (0, 1, "proden[data.seed=0]")
    assert other.digest not in {spec.digest for spec in plain}
    with pytest.raises(UsageError, match="or -1 for the run's own"):
        choose(tmp_path, settings=["data.seed=-2"])
