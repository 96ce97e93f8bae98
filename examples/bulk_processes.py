"""Answer a file's lines with every core: python examples/bulk_processes.py MODEL FILE"""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pellucid

if __name__ == "__main__":
    os.environ["PELLUCID_THREADS"] = "1"  # of each process
    model = pellucid.load(sys.argv[1])
    texts = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    parts = [texts[i : i + 256] for i in range(0, len(texts), 256)]
    with ProcessPoolExecutor() as processes:
        for answers in processes.map(model.generate, parts):
            print(*answers, sep="\n")
