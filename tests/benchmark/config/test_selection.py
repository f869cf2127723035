"""From a profile and the command line to exact configurations and identities, or to one sentence about what is wrong."""

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
from benchmark.exhibits.parts.sweep import sweep_of
from methods.registry import discover
from tests.conftest import TINY

ENTRY = '[[values]]\nmethod = "*"\ndataset = "*"\nsource = "me"\n'


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
        ({"methods": "prodn"}, "Unknown method 'prodn' (see `list methods`). Did you mean 'proden'"),
        ({"datasets": "digit"}, "Unknown dataset 'digit' (see `list datasets`). Did you mean 'digits'"),
        ({"datasets": "/nowhere"}, "Unknown dataset '/nowhere'"),
        ({"methods": "PRODEN,proden"}, "'proden' is named twice"),
        ({"methods": ","}, "--methods is empty"),
        ({"seeds": "0,00"}, "'0' is named twice"),
        ({"seeds": "0-2,1"}, "'1' is named twice"),
        ({"seeds": "4-2"}, "backwards"),
        ({"seeds": "1-"}, "'1-' is not a non-negative integer"),
        ({"seeds": "-1"}, "'-1' is not a non-negative integer"),
        ({"seeds": "4294967296"}, "the largest seed is 4294967295"),
        ({"seeds": "9" * 5000}, "the largest seed is 4294967295"),
        ({"settings": ["data.seed=4294967296"]}, "from 0 to 4294967295"),
        ({"settings": ["data.seed=-2"]}, "or -1 for the run's own"),
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
        ({"settings": ["data.imbalance=0.5"]}, "it must be at least 1"),
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
        ({"methods": "proden", "settings": ["cel.alpha=3"]}, "cel is not among the methods (proden)"),
        ({"settings": ["train.lr=1", "train.lr=2"]}, "lr is given twice, 1 and 2"),
        ({"methods": "pop", "settings": ["views.weak=crop-flip"]}, "no method here sees the view weak"),
        (
            {"methods": "proden", "datasets": "lost", "settings": ["views.weak=plain"]},
            "no method here sees the view weak",
        ),
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
        ("seeds = [0, 1]", "seeds = [4294967296]", "4294967296 is not a seed"),
        ("seeds = [0, 1]", 'seeds = "01"', "must be a list of integers"),
        ("seeds = [0, 1]", "seeds = [true]", "must be a list of integers"),
        ('title = "tiny"', "title = 3", "'title' must be text"),
        ('title = "tiny"', "values = 3", "must be a list of tables"),
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
        ("[train]", f"{ENTRY}backbone = 3\n[train]", "'backbone' must be a table"),
        ("[train]", f"{ENTRY}settings = 3\n[train]", "'settings' must be a table"),
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
    plain = resolve(profile, cel, "letter", 0)
    length = plain.method_config["embedding_length"]
    same = resolve(profile, cel, "letter", 0, variant={"embedding_length": length})
    other = resolve(profile, cel, "letter", 0, variant={"embedding_length": 2 * length})
    assert (same.digest, same.label, same.overrides) == (plain.digest, "cel", {})
    assert other.digest != plain.digest and other.label == f"cel[embedding_length={2 * length}]"


def test_the_data_s_seed_is_no_part_of_a_run_that_does_not_use_it(tmp_path: Path) -> None:
    """Stored runs keep their identity, and the run's own seed typed is the same run."""
    plain = choose(tmp_path).specs()
    assert all("seed" not in spec.to_json()["dataset"] and spec.data_seed == spec.seed for spec in plain)
    typed = {(s.method, s.seed): s for s in choose(tmp_path, settings=["data.seed=0"]).specs()}
    same, other = typed["proden", 0], typed["proden", 1]
    assert (same.digest, same.label) == (plain[0].digest, "proden")
    assert (other.data_seed, other.seed, other.label) == (0, 1, "proden[data.seed=0]")
    assert other.digest not in {spec.digest for spec in plain}


def test_network_and_data_of_one_method_leave_the_others_alone() -> None:
    profile = load_profile("realworld-k25")
    cel, proden = (resolve(profile, discover().get(name), "lost", 0) for name in ("cel-linear", "proden"))
    assert (cel.backbone.features, proden.backbone.features) == (128, 0)
    assert cel.dataset_settings["strong_noise"] == 0.01 and "strong_noise" not in proden.dataset_settings
    assert cel.dataset_settings["split"] == proden.dataset_settings["split"] == "stratified"
    assert "cel_2025.py" in cel.provenance["backbone.features"]
    assert "cel_2025.py" in cel.provenance["dataset.strong_noise"]


def test_new_fields_of_the_network_stay_out_of_old_identities() -> None:
    spec = resolve(load_profile("paper"), discover().get("proden"), "cifar100", 0)
    assert set(spec.to_json()["backbone"]) == {"name", "pretrained", "weights"}
    assert "views" not in spec.to_json()


def test_views_are_part_of_the_identity_of_the_runs_that_see_them() -> None:
    usual, own = (
        {s.method: s for s in select(name).specs(datasets=("cifar100",)) if s.seed == 0}
        for name in ("paper", "paper-own-views")
    )
    assert own["proden"].to_json()["views"] == {"weak": "plain"}
    assert own["proden"].provenance["views.weak"] == "released code: no augmentation"
    assert own["pop"].to_json()["views"] == {"strong": "autoaugment"}
    same = {name for name in usual if usual[name].digest == own[name].digest}
    assert same == {"cel", "proden-2v", "dirk", "dirk-plain", "pico", "able"}


def test_a_view_that_a_run_does_not_see_leaves_its_identity_alone() -> None:
    def digests(**words: Any) -> dict[str, str]:
        return {s.label: s.digest for s in select("quick", seeds="0", datasets="digits", **words).specs()}

    changed = digests(methods="proden,pop", settings=("views.weak=crop-flip",))
    assert list(changed) == ["proden[views.weak=crop-flip]", "pop"]
    assert changed["pop"] == digests(methods="pop")["pop"]


def test_names_are_understood_in_any_case_and_as_tables_print_them() -> None:
    chosen = select("paper", methods="PRODEN,Cr-DPLL,PiCO", datasets="CIFAR-100,cub200")
    assert chosen.methods == ("proden", "cr-dpll", "pico")
    assert chosen.datasets == ("cifar100", "cub200")
    assert select("quick", seeds="0-2,7").seeds == (0, 1, 2, 7)


def test_a_named_plug_in_that_cannot_be_loaded_stops_the_command(tmp_path: Path) -> None:
    (tmp_path / "proden.py").write_text("import nothing_like_this(")
    with pytest.raises(UsageError, match="proden"):
        select("quick", methods="proden", plugins=(str(tmp_path / "proden.py"),))


def test_what_differs_from_the_profile_names_its_files() -> None:
    assert select("quick").altered == ""
    assert select("quick", methods="cel,proden", seeds="0").altered == "cel-proden-seed0"
    assert select("quick", settings=("train.lr=0.3",)).altered == "train.lr=0.3"
    many = [select("quick", methods=f"cel,dirk,proden,valen,{last}").altered for last in ("pico", "idgp")]
    assert all(name.startswith("5methods-") and len(name) < 20 for name in many) and many[0] != many[1]
    assert select("quick", methods="all").altered.startswith("with-")
    long = [select("quick", methods="all", seeds=f"0-{last}").altered for last in (30, 31)]
    assert len(long[0]) <= 60 and long[0] != long[1]


def test_a_sweep_is_every_value_of_a_setting_and_the_profiles_own_is_the_plain_run() -> None:
    selection = select("quick", methods="cel,proden", seeds="0")
    sweep = sweep_of("cel.alpha=0.1,0.5", selection)
    need = sweep.required_runs(selection)
    assert sweep.methods == ("cel",) and len(need.specs) == 2 * len(selection.datasets)
    plain = {spec.digest for spec in selection.specs(["cel"])}
    assert plain & {spec.digest for spec in need.specs}, "alpha is 0.5 unless somebody says otherwise"
    assert sweep_of("train.lr=0.1,0.2", selection).methods == ("cel", "proden")
    for text in ("cel.alpha=1", "cel.alpha", "cel.alpha=1,1", "cel.nothing=1,2", "nothing.alpha=1,2"):
        with pytest.raises(UsageError):
            sweep_of(text, selection)
    assert sweep_of("pop.theta=0.001,0.01", selection).methods == ("pop",)  # a sweep names its method itself
    with pytest.raises(UsageError, match="not among the methods"):
        sweep_of("pop.theta=0.001,0.01", selection, methods_named=True)
