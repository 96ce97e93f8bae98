"""Answer a file's lines with Ray: python examples/bulk_ray.py MODEL FILE"""

import sys
from pathlib import Path

import ray

import pellucid

if __name__ == "__main__":
    model = ray.put(pellucid.load(sys.argv[1]))
    texts = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    parts = [texts[i : i + 256] for i in range(0, len(texts), 256)]
    best = ray.remote(lambda model, part: model.generate(part))
    for answers in ray.get([best.remote(model, part) for part in parts]):
        print(*answers, sep="\n")
