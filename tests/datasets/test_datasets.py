"""Datasets: official layouts in miniature, the image store, views of features, and what bad input is told."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
from PIL import Image

import datasets
from benchmark.trainer.inputs import ViewLoader
from datasets import registry
from datasets.base import DataError, Dataset, Split, hold_out, permutation
from datasets.cifar import SUPERCLASS
from datasets.storage import cache
from datasets.views.features import feature_views
from datasets.views.views import NAMES
from methods.base import ViewName
from tests.conftest import ROOT
from tests.support.killing import wait_until


def image(
    path: Path, size: tuple[int, int] = (40, 30), mode: str = "RGB", colour: int = 90, kind: str = "JPEG"
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (colour,) * len(mode) if len(mode) > 1 else colour).save(path, kind)
    return path


def cells(*texts: str) -> np.ndarray:
    array = np.empty((len(texts), 1), dtype=object)
    array[:, 0] = texts
    return array


def aircraft(root: Path) -> Path:
    base = root / "fgvc100" / "fgvc-aircraft-2013b" / "data"
    for number in range(6):
        image(base / "images" / f"{number:07}.jpg", colour=20 * number)
    (base / "variants.txt").write_text("707-320\nF/A-18\nDC-9 30\n")
    (base / "images_variant_trainval.txt").write_text("0000000 707-320\n0000001 F/A-18\n0000002 DC-9 30\n")
    (base / "images_variant_test.txt").write_text("0000003 DC-9 30\n0000004 F/A-18\n0000005 707-320\n")
    return base


def dogs(root: Path) -> Path:
    base = root / "dogs120"
    for split, labels in (("train", [1, 2, 2]), ("test", [2, 1])):
        folders = {1: "n01-Chihuahua", 2: "n02-Shih-Tzu"}
        names = [f"{folders[label]}/{split}_{i}.jpg" for i, label in enumerate(labels)]
        for name in names:
            image(base / "Images" / name)
        content = {"file_list": cells(*names), "labels": np.array(labels, dtype=np.uint8)[:, None]}
        scipy.io.savemat(base / f"{split}_list.mat", content)
    return base


def cars(root: Path, top: str = "stanford_cars") -> Path:
    base = root / "cars196" / top
    (base / "devkit").mkdir(parents=True)
    scipy.io.savemat(base / "devkit" / "cars_meta.mat", {"class_names": cells("Acura RL", "Audi S4/S6").T})
    kind = [("class", "O"), ("fname", "O")]
    for split, index in (("train", "devkit/cars_train_annos.mat"), ("test", "cars_test_annos_withlabels.mat")):
        rows = np.array([(1, "00001.jpg"), (2, "00002.jpg")], dtype=kind)[None]
        scipy.io.savemat(base / index, {"annotations": rows})
        for name in ("00001.jpg", "00002.jpg"):
            image(base / f"cars_{split}" / name)
    return base


def birds(root: Path) -> Path:
    base = root / "cub200" / "CUB_200_2011"
    names = ["001.Albatross/a.jpg", "001.Albatross/b.jpg", "002.Ani/c.jpg", "002.Ani/d.jpg"]
    for name in names:
        image(base / "images" / name)

    def write(file: str, values: list) -> None:
        (base / file).write_text("".join(f"{i} {value}\n" for i, value in enumerate(values, 1)))

    write("images.txt", names)
    write("image_class_labels.txt", [1, 1, 2, 2])
    write("train_test_split.txt", [1, 0, 1, 0])
    write("classes.txt", ["001.Albatross", "002.Ani"])
    return base


TREES = {"fgvc100": aircraft, "dogs120": dogs, "cars196": cars, "cub200": birds}


def load_cut(name: str, root: Path):
    return registry.get(name).load(root, check_sizes=False)


def cifar(root: Path, train: int = 6, test: int = 3, folder: str = "cifar100/cifar-100-python") -> Path:
    base = root / folder
    base.mkdir(parents=True)
    for part, count in (("train", train), ("test", test)):
        labels = [(7 * i) % 100 for i in range(count)]
        content = {
            "data": (np.arange(count * 3072) % 251).astype(np.uint8).reshape(count, 3072),
            "fine_labels": labels,
            "coarse_labels": [SUPERCLASS[label] for label in labels],
        }
        (base / part).write_bytes(pickle.dumps(content, protocol=2))
    (base / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"c{i}" for i in range(100)]}, protocol=2))
    return base


# The registry -------------------------------------------------------------------------------------------------------


def test_a_file_in_the_folder_is_a_dataset(tmp_path, monkeypatch):
    (tmp_path / "dropped_in.py").write_text(
        "from datasets.base import Availability, Source\n"
        "def find(root): return Availability('found', 'here', '')\n"
        "SOURCES = (Source('dropped-in', 'Dropped in', 'Common', 1, 1, 2, lambda root, seed=0: None, find),)\n"
    )
    monkeypatch.setattr(datasets, "__path__", [*datasets.__path__, str(tmp_path)])
    found = registry._collect()
    assert {*found} == {*registry.SOURCES, "dropped-in"}
    assert list(found).index("dropped-in") == list(found).index("fashion-mnist") + 1  # with its group
    (tmp_path / "twice.py").write_text("from dropped_in import SOURCES\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"'dropped-in' is used twice; see datasets/twice\.py"):
        registry._collect()


def test_every_source_is_missing_in_an_empty_folder_and_says_how_to_get_it(tmp_path):
    for name in ("cifar100", "cifar100h", *TREES, "lost", "malagasy"):
        found = registry.get(name).find(tmp_path)
        assert found.status == "missing" and found.how
        assert ("fetch" in found.how) == (name not in ("cars196", "malagasy"))  # where it can do something
        with pytest.raises(DataError, match=name):
            registry.get(name).load(tmp_path)


# CIFAR-100 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["cifar100/cifar-100-python", "cifar100", "cifar-100-python"])
def test_cifar_is_read_from_the_archives_and_torchvisions_layout(tmp_path, folder):
    cifar(tmp_path, folder=folder)
    data = load_cut("cifar100h", tmp_path)
    assert (
        data.name == "cifar100h"
        and data.train.images.shape == (6, 3, 32, 32)
        and data.train.images.dtype == torch.uint8
    )
    assert data.train.labels.tolist() == [0, 7, 14, 21, 28, 35]
    assert data.train.images[1, 2, 0, 1] == (3072 + 2048 + 1) % 251  # planes: red, green, blue
    assert data.superclass.bincount().tolist() == [5] * 20


def test_cifar_copies_with_keys_and_names_of_bytes_are_the_same_data(tmp_path):
    base = cifar(tmp_path)
    before = load_cut("cifar100", tmp_path)
    for part in ("train", "test", "meta"):
        content = {key.encode(): value for key, value in pickle.loads((base / part).read_bytes()).items()}
        if part == "meta":
            content[b"fine_label_names"] = [name.encode() for name in content[b"fine_label_names"]]
        (base / part).write_bytes(pickle.dumps(content))
    after = load_cut("cifar100", tmp_path)
    assert after.class_names == before.class_names
    assert torch.equal(after.train.images, before.train.images) and torch.equal(after.test.labels, before.test.labels)


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (cifar(tmp_path) / "train").write_bytes(pickle.dumps({"data": Attack()}))
    with pytest.raises(DataError, match=r"train is not a CIFAR file or is damaged: it refers to posix\.system"):
        load_cut("cifar100", tmp_path)
    assert not (tmp_path / "ran").exists()


def test_cifar_names_what_is_wrong(tmp_path):
    base = cifar(tmp_path)
    with pytest.raises(DataError, match="train has 6 images where the official set has 50,000"):
        registry.get("cifar100").load(tmp_path)
    assert "cut off" in registry.get("cifar100").find(tmp_path).detail
    (base / "test").write_bytes((base / "test").read_bytes()[:-500])
    with pytest.raises(DataError, match="test is not a CIFAR file or is damaged"):
        load_cut("cifar100", tmp_path)
    (base / "test").unlink()
    found = registry.get("cifar100").find(tmp_path)
    assert found.status == "incomplete" and "test" in found.detail
    content = pickle.loads((base / "train").read_bytes())
    (base / "train").write_bytes(pickle.dumps(content | {"coarse_labels": [0] * 6}))
    with pytest.raises(DataError, match="coarse labels"):
        load_cut("cifar100", tmp_path)


# Fine-grained sets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [
        ("fgvc100", [0, 1, 2], [2, 1, 0], ("707-320", "F/A-18", "DC-9 30")),
        ("dogs120", [0, 1, 1], [1, 0], ("Chihuahua", "Shih-Tzu")),
        ("cars196", [0, 1], [0, 1], ("Acura RL", "Audi S4/S6")),
        ("cub200", [0, 1], [0, 1], ("Albatross", "Ani")),
    ],
)
def test_official_layouts_are_read(tmp_path, name, train, test, classes):
    TREES[name](tmp_path)
    data = load_cut(name, tmp_path)
    assert data.train.labels.tolist() == train and data.test.labels.tolist() == test
    assert data.class_names == classes and data.num_classes == len(classes)
    images, sizes = data.test.batch(torch.arange(len(test)))
    assert images.shape == (len(test), 3, 256, 341) and sizes.tolist() == [[256, 341]] * len(test)


@pytest.mark.parametrize("name", TREES)
def test_a_cut_set_is_incomplete_not_found(tmp_path, name):
    TREES[name](tmp_path)
    found = registry.get(name).find(tmp_path)
    assert found.status == "incomplete" and "official" in found.detail
    with pytest.raises(DataError, match="where the official set has"):
        registry.get(name).load(tmp_path)


@pytest.mark.parametrize("name", TREES)
def test_a_list_naming_a_missing_image_is_told_with_its_path(tmp_path, name):
    base = TREES[name](tmp_path)
    victim = max(base.rglob("*.jpg"))
    victim.unlink()
    with pytest.raises(DataError, match=f"1 image of .* missing in .*{victim.name}"):
        load_cut(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("fgvc100", "variants.txt"),
        ("fgvc100", "images_variant_test.txt"),
        ("dogs120", "test_list.mat"),
        ("cars196", "devkit/cars_meta.mat"),
        ("cars196", "cars_test_annos_withlabels.mat"),
        ("cub200", "classes.txt"),
        ("cub200", "train_test_split.txt"),
    ],
)
def test_a_missing_or_damaged_index_file_is_named(tmp_path, name, index):
    base = TREES[name](tmp_path)
    (base / index).write_bytes(b"\xff\xfe\x00 nonsense")
    with pytest.raises(DataError, match=Path(index).name):
        load_cut(name, tmp_path)
    (base / index).unlink()
    with pytest.raises(DataError, match=f"{Path(index).name} is missing"):
        load_cut(name, tmp_path)
    assert registry.get(name).find(tmp_path).status == "incomplete"


def test_wrong_labels_are_told(tmp_path):
    base = birds(tmp_path)
    (base / "image_class_labels.txt").write_text("1 1\n2 1\n3 2\n4 3\n")
    with pytest.raises(DataError, match="outside 0 … 1 for 2 classes"):
        load_cut("cub200", tmp_path)
    (base / "image_class_labels.txt").write_text("1 1\n2 1\n3 x\n4 3\n")
    with pytest.raises(DataError, match=r"image_class_labels.txt: 'x' is not an integer"):
        load_cut("cub200", tmp_path)


def test_cars_in_kaggles_doubled_folders_and_torchvisions_layout(tmp_path):
    base = cars(tmp_path, top="")
    for split in ("train", "test"):
        (base / f"cars_{split}").rename(base / "moved")
        (base / f"cars_{split}").mkdir()
        (base / "moved").rename(base / f"cars_{split}" / f"cars_{split}")
    assert len(load_cut("cars196", tmp_path).train) == 2
    (tmp_path / "cars196").rename(tmp_path / "stanford_cars")
    assert len(load_cut("cars196", tmp_path).test) == 2


def test_every_kind_of_image_becomes_rgb(tmp_path):
    base = aircraft(tmp_path)
    image(base / "images" / "0000000.jpg", mode="L", colour=77, kind="JPEG")
    image(base / "images" / "0000001.jpg", mode="RGBA", colour=77, kind="PNG")
    image(base / "images" / "0000002.jpg", mode="P", colour=0, kind="GIF")
    image(base / "images" / "0000003.jpg", mode="CMYK", colour=50, kind="JPEG")
    data = load_cut("fgvc100", tmp_path)
    images, _ = data.train.batch(torch.tensor([0, 1]))
    assert images.shape[1] == 3 and (images == 77).all()


def test_a_corrupt_image_is_named_and_leaves_no_store(tmp_path):
    base = aircraft(tmp_path)
    victim = base / "images" / "0000001.jpg"
    victim.write_bytes(victim.read_bytes()[:200])
    with pytest.raises(DataError, match=f"The image {victim} cannot be decoded"):
        load_cut("fgvc100", tmp_path)
    assert [p.name for p in (tmp_path / "cache" / "fgvc100").iterdir()] == ["train.lock"]


# The image store --------------------------------------------------------------------------------------------------


def noisy_images(folder: Path, count: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    files = []
    for i in range(count):
        size = (int(rng.integers(20, 60)), int(rng.integers(20, 60)), 3)
        Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8)).save(folder / f"{i}.png")
        files.append(folder / f"{i}.png")
    return files


def test_the_store_holds_what_torchvisions_resize_gives(tmp_path):
    from torchvision.transforms import Resize
    from torchvision.transforms.functional import pil_to_tensor

    files = noisy_images(tmp_path / "p", 5)
    split = cache.open_images(files, list(range(5)), tmp_path, tmp_path / "store", "train", short_side=32)
    order = torch.tensor([3, 0, 4, 3])
    images, sizes = split.batch(order)
    for image, (h, w), i in zip(images, sizes.tolist(), order.tolist(), strict=True):
        expected = pil_to_tensor(Resize(32)(Image.open(files[i])))
        assert expected.shape == (3, h, w) and torch.equal(image[:, :h, :w], expected)
        assert not image[:, h:].any() and not image[:, :, w:].any()
    assert split.rows(order).labels.tolist() == [3, 0, 4, 3]
    assert torch.equal(split.rows(order).batch(torch.arange(4))[0], images)


def test_a_store_is_reused_and_rebuilt_when_the_list_or_the_recipe_changes(tmp_path):
    files = noisy_images(tmp_path / "p", 4)
    store = tmp_path / "store"

    def build(files: list[Path], side: int = 16) -> set[str]:
        cache.open_images(files, [0] * len(files), tmp_path, store, "train", side)
        return {p.name for p in store.glob("*.pixels")}

    first = build(files)
    stamp = (store / next(iter(first))).stat().st_mtime_ns
    assert build(files) == first and (store / next(iter(first))).stat().st_mtime_ns == stamp
    shorter = build(files[:3])
    assert len(shorter) == 1 and shorter != first  # the stale store is gone
    Image.new("RGB", (50, 50)).save(files[0])
    assert build(files[:3]) != shorter
    assert len(build(files[:3], side=20)) == 2  # another size is another store, not a stale one


def test_a_damaged_store_is_rebuilt(tmp_path):
    files = noisy_images(tmp_path / "p", 4)
    args = (files, [0] * 4, tmp_path, tmp_path / "store", "train", 16)
    before = cache.open_images(*args).images.clone()
    for suffix in ("*.pixels", "*.npz"):
        path = next((tmp_path / "store").glob(suffix))
        path.write_bytes(path.read_bytes()[:-7])
        assert torch.equal(cache.open_images(*args).images, before)


BUILDER = """
import sys, time
from pathlib import Path
from datasets.storage import cache
folder, decode = Path(sys.argv[1]), cache.decode
def slow(path, side):
    time.sleep(0.5)
    (folder / "decoded").touch()
    return decode(path, side)
cache.decode = slow
cache.open_images(sorted((folder / "p").iterdir()), [0] * 6, folder, folder / "store", "train", 16)
"""


def test_a_build_that_is_killed_leaves_nothing_that_could_be_taken_for_a_store(tmp_path):
    files = noisy_images(tmp_path / "p", 6)
    builder = subprocess.Popen([sys.executable, "-c", BUILDER, str(tmp_path)], cwd=ROOT)
    wait_until((tmp_path / "decoded").exists, 60, "decoding")
    builder.kill()
    builder.wait()
    assert list((tmp_path / "store").glob(".*.partial")) and not list((tmp_path / "store").glob("*.pixels"))
    split = cache.open_images(files, [0] * 6, tmp_path, tmp_path / "store", "train", 16)
    assert torch.equal(split.batch(torch.tensor([5]))[0][0], torch.from_numpy(cache.decode(files[5], 16)))
    assert not list((tmp_path / "store").glob(".*.partial"))


def test_two_that_build_a_store_at_once_decode_each_image_once(tmp_path, monkeypatch):
    files, decode, decoded = noisy_images(tmp_path / "p", 4), cache.decode, []

    def slow(path, side):
        decoded.append(path)
        time.sleep(0.1)
        return decode(path, side)

    monkeypatch.setattr(cache, "decode", slow)
    with ThreadPoolExecutor() as pool:
        builds = [
            pool.submit(cache.open_images, files, [0] * 4, tmp_path, tmp_path / "store", "train", 16) for _ in range(2)
        ]
    assert torch.equal(builds[0].result().images, builds[1].result().images) and len(decoded) == 4


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "store").write_text("a file, not a folder")
    files = noisy_images(tmp_path / "p", 2)
    with pytest.raises(DataError, match=r"store cannot be written .*CANDID_CACHE"):
        cache.open_images(files, [0, 0], tmp_path, tmp_path / "store", "train", 16)


# Splits and views --------------------------------------------------------------------------------------------------


def test_splits_do_not_change_with_the_version_of_numpy():
    assert permutation(8, 0).tolist() == [3, 6, 0, 1, 2, 5, 7, 4]
    train, test = hold_out(100, 3, 0.2)
    assert len(test) == 20 and sorted([*train, *test]) == list(range(100))


def test_views_of_features_depend_on_seed_epoch_row_and_view_alone():
    features, index = torch.randn(2000, 16), torch.arange(2000)
    for view in ("weak", "plain"):
        assert feature_views(features, view, seed=0, epoch=0, index=index) is features
    strong = feature_views(features, "strong", seed=0, epoch=3, index=index)
    order = torch.randperm(2000)[:50]
    assert torch.equal(feature_views(features[order], "strong", seed=0, epoch=3, index=index[order]), strong[order])
    assert abs((strong == 0).float().mean() - 0.2) < 0.01
    noise = (strong - features)[strong != 0]
    assert abs(noise.mean()) < 0.003 and abs(noise.std() - 0.1) < 0.003
    distill = feature_views(features, "distill", seed=0, epoch=3, index=index)
    assert abs((distill - features).std() - 0.2) < 0.005
    for other in ({"seed": 1, "epoch": 3}, {"seed": 0, "epoch": 4}):
        again = feature_views(features, "strong", index=index, **other)
        both = (strong != 0) & (again != 0)
        pair = torch.stack([(strong - features)[both], (again - features)[both]])
        assert abs(torch.corrcoef(pair)[0, 1]) < 0.02
    with pytest.raises(ValueError, match="unknown view"):
        feature_views(features, "wild", seed=0, epoch=0, index=index)


def test_every_view_that_a_method_can_name_is_made_of_images_and_of_features():
    assert set(NAMES) == set(get_args(ViewName))
    for view in NAMES:
        assert feature_views(torch.ones(3, 2), view, seed=0, epoch=0, index=torch.arange(3)).shape == (3, 2)


@pytest.mark.parametrize("width", [7, 38, 1280])
def test_views_of_wide_tables_are_made_in_small_blocks_with_the_same_bits(width):
    data = Split(torch.randn(600, width), torch.zeros(600, dtype=torch.int64))
    images = ViewLoader(Dataset("table", 2, ("a", "b"), data, data, None), 0, torch.device("cpu"))
    together = images.batches_at_once(32)
    assert together == 1 or together * 32 * width <= 2**15
    rows = torch.randperm(600)
    whole = images.train_views(rows, ("strong", "distill"), 2)
    blocks = [images.train_views(part, ("strong", "distill"), 2) for part in rows.split(32 * together)]
    for view, parts in zip(whole, zip(*blocks, strict=True), strict=True):
        assert torch.equal(view, torch.cat(parts))
