"""Files of every dataset that can be downloaded, with addresses and digests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """One file to fetch. `origin` says where its hash was published; without a hash only the structure is checked."""

    file: str
    urls: tuple[str, ...] = ()
    sha256: str = ""
    md5: str = ""
    git_blob: str = ""  # git's SHA-1 of the file
    listing: str = ""  # address of a commit's list of files (GitHub's JSON), which names the file and its git_blob
    size: int | None = None
    origin: str = ""
    terms: str = ""  # its provider's terms of use, printed before the download
    folder: str = ""  # below <root>/<name>, where it is unpacked
    unpack: bool = True


_ACADEMIC = "its provider, PALM at Southeast University, allows academic use; cite the set's authors"
_COMMIT = "the repository's commit"


def _table(file: str, sha256: str = "", git_blob: str = "") -> tuple[Archive]:
    """Describe a `.mat` file of a public repository that publishes results on it, at the commit of those results."""
    where = "mathefuchs/pll-with-conformal-candidate-cleaning/0bc1124707aa902bfb4faad872b34abebea07d21"
    url = f"https://raw.githubusercontent.com/{where}/data/realworld-datasets/{file}"
    return (
        Archive(file, (url,), sha256=sha256, git_blob=git_blob, origin=_COMMIT, unpack=False, terms=_ACADEMIC),
    )  # fmt: skip


def _listed(file: str) -> tuple[Archive]:
    """Describe a `.mat` file that is known by its repository's commit alone: size and hash come from the file list."""
    repository, commit = "pruirui/partial_label_realworld_dataset", "a43c823f1cf2575e7fc74bcdfc307463e0bd44bd"
    listing_url = f"https://api.github.com/repos/{repository}/git/trees/{commit}"
    folder = f"https://raw.githubusercontent.com/{repository}/{commit}/"
    return (Archive(file, (folder,), listing=listing_url, origin=_COMMIT, unpack=False, terms=_ACADEMIC),)


def _fashion(file: str, md5: str) -> Archive:
    address = f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{file}"
    return Archive(file, (address,), md5=md5, origin="the publisher's page", terms="MIT licence", unpack=False)


_DOGS = "http://vision.stanford.edu/aditya86/ImageNetDogs/"
_TFDS = "TensorFlow Datasets"

ARCHIVES: dict[str, tuple[Archive, ...]] = {
    "cifar10": (
        Archive(
            "cifar-10-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            md5="c58f30108f718f92721af3b95e74349a",
            origin="torchvision",
        ),
    ),
    "cifar100": (
        Archive(
            "cifar-100-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            origin="torchvision",
        ),
    ),
    "fashion-mnist": (
        _fashion("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        _fashion("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        _fashion("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        _fashion("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "fgvc100": (
        Archive(
            "fgvc-aircraft-2013b.tar.gz",
            ("https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",),
            md5="d4acdd33327262359767eeaa97a4f732",
            origin="several public loaders",
        ),
    ),
    "dogs120": (
        Archive(
            "images.tar",
            (_DOGS + "images.tar",),
            sha256="a443fc2f9a851aa1a7b8e4fa4af94b8459fce2c9f5a2f4dd4669cf9673a4ec58",
            size=793_579_520,
            origin=_TFDS,
        ),
        Archive(
            "lists.tar",
            (_DOGS + "lists.tar",),
            sha256="34b47cacd9a98b5d150e084f24d29391c084c55272295ec65c85651bc35f4d6c",
            size=481_280,
            origin=_TFDS,
        ),
    ),
    "cub200": (
        Archive(
            "CUB_200_2011.tgz",
            (
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",
                "https://s3.amazonaws.com/fast-ai-imageclas/CUB_200_2011.tgz",
            ),
            sha256="0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
            md5="97eceeb196236b17998738112f37df78",
            size=1_150_585_339,
            origin=f"{_TFDS} (SHA-256), several public loaders (MD5)",
        ),
    ),
    # Stanford's server is gone; archives that the user has put into the folder are verified and unpacked.
    "cars196": (
        Archive(
            "cars_train.tgz",
            sha256="512b227b30e2f0a8aab9e09485786ab4479582073a144998da74d64b801fd288",
            size=979_269_282,
            origin=_TFDS,
        ),
        Archive(
            "cars_test.tgz",
            sha256="bffea656d6f425cba3c91c6d83336e4c5f86c6cffd8975b0f375d3a10da8e243",
            size=977_350_468,
            origin=_TFDS,
        ),
        Archive(
            "car_devkit.tgz",
            sha256="b97deb463af7d58b6bfaa18b2a4de9829f0f79e8ce663dfa9261bf7810e9accd",
            size=330_960,
            origin=_TFDS,
        ),
        Archive(
            "cars_test_annos_withlabels.mat",
            sha256="790f75be8ea34eeded134cc559332baf23e30e91367e9ddca97d26ed9b895f05",
            size=185_758,
            origin=_TFDS,
            unpack=False,
        ),
    ),
    "lost": _table("lost.mat", sha256="42a8cc43e05578087e7b8ca194647829ec535dc4d0a86cf47f357c5eb3146e4f"),
    "msrcv2": _table("msrc-v2.mat", sha256="948e4d443a5450308f05aa689bc82d9bcc7af699a113a6a81c40ef337a20c393"),
    "birdsong": _table("bird-song.mat", sha256="2170d46765a151ac80623d9a1242e0299802236e5574442bdb596bef90f50743"),
    "soccer": _table("soccer.mat", git_blob="3372e7350e06eba374c715e07fbd18e2555e00ec"),
    "yahoo": _table("yahoo-news.mat", git_blob="c9c3c35a6562ece4dffca8e7997c4c9cdcd12354"),
    "mirflickr": _table("mir-flickr.mat", git_blob="4e35e2ac7d16120722a2f2ec6e7baa99138ddbd0"),
    "italian": _listed("italian.mat"),
    "fgnet": _listed("fgnet.mat"),
}
SAME_FILES = {"cifar100h": "cifar100", "cifar10n": "cifar10"}
