"""Answer a file's lines on a Dask cluster: python examples/bulk_dask.py MODEL FILE [SCHEDULER]"""

import sys
from pathlib import Path

import dask.bag
from distributed import Client

import pellucid

if __name__ == "__main__":
    model = pellucid.load(sys.argv[1])
    texts = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    with Client(*sys.argv[3:]):  # without an address: one on this machine
        bag = dask.bag.from_sequence(texts, partition_size=256)
        print(*bag.map_partitions(lambda part: model.generate(list(part))), sep="\n")
