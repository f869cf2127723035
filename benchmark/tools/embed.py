"""Create datasets/embedded/fashion.npz from the full set, with the same images each time.

python -m benchmark.tools.embed [DATA]     # DATA: the data folder, default data/; the Debian package's folder works too
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from datasets import fashion


def content(root: Path) -> dict[str, np.ndarray]:
    """Return the arrays of the embedded file."""
    full = fashion.load_full(root)
    arrays = {}
    for part, split, count in (("train", full.train, fashion.TRAIN), ("test", full.test, fashion.TEST)):
        labels = split.labels.numpy()
        rows = fashion.balanced_rows(labels, count // fashion.CLASSES)
        arrays[f"{part}_images"] = split.images[rows, 0].numpy()
        arrays[f"{part}_labels"] = labels[rows].astype(np.uint8)
        arrays[f"{part}_rows"] = rows.astype(np.int32)
    return arrays


def main() -> None:
    arrays = content(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
    np.savez_compressed(fashion.EMBEDDED, **arrays)  # type: ignore[arg-type]
    print(f"{fashion.EMBEDDED}: SHA-256 of the arrays {fashion.digest_of(arrays)}")


if __name__ == "__main__":
    main()
