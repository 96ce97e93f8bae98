"""Answer a file's lines with joblib: python examples/bulk_joblib.py MODEL FILE"""

import sys
from pathlib import Path

from joblib import Parallel, delayed

import pellucid

if __name__ == "__main__":
    model = pellucid.load(sys.argv[1])
    texts = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    parts = [texts[i : i + 256] for i in range(0, len(texts), 256)]
    for answers in Parallel(n_jobs=-1)(delayed(model.generate)(part) for part in parts):
        print(*answers, sep="\n")
